"""Names of what a model keeps that lead to one list or object: they do after each call, or it is refused."""

from __future__ import annotations

import copy
from collections import deque

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model import spec

UP, DOWN = torch.tensor([1.0, 2.0]), torch.tensor([-3.0, 2.0])


class Count:
    def __init__(self) -> None:
        self.value = torch.zeros(())


class Kept(nn.Module):
    """Has one list under two names, and a list of one name."""

    def __init__(self) -> None:
        super().__init__()
        self.one = [torch.zeros(())]
        self.other = self.one
        self.third = [torch.ones(())]


class OneIsReplaced(Kept):
    def forward(self, x):
        self.one[0] = self.one[0] + x.sum()
        found = self.other[0] + x
        self.one = [torch.zeros(())]
        return found


class OneIsReplacedInABranch(Kept):
    def forward(self, x):
        if x.sum() < 0:
            self.one = [x.sum()]
        else:
            self.one[0] = x.sum()
        return self.other[0] + x


class OneThatNoCallChanges(Kept):
    def forward(self, x):
        found = self.other[0] + self.one[0] + x
        self.one = [x.sum()]
        return found


class GetsASecondName(Kept):
    def forward(self, x):
        found = self.third[0] + x
        self.one[0] = self.one[0] + x.sum()
        self.third = self.one
        return found


class GetsASecondNameInABranch(Kept):
    def forward(self, x):
        self.one[0] = self.one[0] + x.sum()
        if x.sum() < 0:
            self.third = self.one
        return self.third[0] + x


class Objects(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.now = Count()
        self.best = Count()

    def forward(self, x):
        self.now.value = self.now.value + x.sum()
        if x.sum() < 0:
            self.best = self.now
        return self.best.value + x


class InAnElement(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.counts = [Count(), Count()]
        self.now = self.counts[0]

    def forward(self, x):
        self.now.value = self.now.value + x.sum()
        self.now = self.counts[1]
        return self.counts[0].value + 10 * self.counts[1].value + x


class Shifted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.now = [0.0]
        self.past = [[0.0], [0.0]]

    def forward(self, x):
        self.now[0] += x.sum().item()
        found = self.past[0][0]
        self.past = [self.past[1], self.now]
        return x * found


class ATensor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.now, self.before = torch.zeros(2), torch.ones(2)

    def forward(self, x):
        self.now.add_(x)
        found = self.before + x
        self.before = self.now
        return found


class ABuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("now", torch.zeros(2))
        self.register_buffer("before", torch.ones(2))

    forward = ATensor.forward


class APartedTensor(nn.Module):
    """Of two names of one tensor the first call gives one another, after it wrote to both."""

    def __init__(self) -> None:
        super().__init__()
        self.one = self.other = torch.ones(2)

    def forward(self, x):
        self.other.add_(x)
        self.one = self.one * 0.5 + x
        return self.one + self.other


class InAWindow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.now = torch.zeros(2)
        self.past = deque([torch.zeros(2), torch.zeros(2)], maxlen=2)

    def forward(self, x):
        self.now += x
        self.past.append(self.now)
        return torch.stack(list(self.past)).sum(0)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ATensor, "is a second name of"),
        (ABuffer, "is a second name of"),
        (APartedTensor, "is a second name of"),
        (InAWindow, "is a second name of"),
        (OneIsReplaced, "`other` is a second name of `one`, and not after each call"),
        (OneIsReplacedInABranch, "`other` is a second name of"),
        (OneThatNoCallChanges, "`other` is a second name of `one`, and not after each call"),
        (GetsASecondName, "may be a second name of"),
        (GetsASecondNameInABranch, "may be a second name of"),
        (Objects, "`now` may be a second name of `best` after a call, and one is changed in place"),
        (InAnElement, "is a second name of"),
        (Shifted, "may be a second name of"),
    ],
)
def test_names_of_one_object_that_part_or_meet_are_refused(kind: type[nn.Module], said: str):
    with pytest.raises(ExportFailed, match=said) as caught:
        export(canonicalize(spec.as_spec(kind(), args=(UP,))))
    assert caught.value.where is not None


class StaysOne(Kept):
    def forward(self, x):
        if x.sum() < 0:
            self.one[0] = self.one[0] + x.sum()
        return self.other[0] + x


class BothAreReplaced(Kept):
    def forward(self, x):
        self.one[0] = self.one[0] + x.sum()
        found = self.other[0] + x
        self.one = self.other = [found.sum()]
        return found


class IsHandedOn(nn.Module):
    """The two names have one list after a call, which the next call changes under neither."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.before = [torch.zeros(())], [torch.ones(())]

    def forward(self, x):
        found = self.before[0] + 2 * self.now[0] + x
        self.now = [found.sum()]
        if x.sum() < 0:
            self.before = self.now
        return found


class Swapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = [torch.zeros(())], [torch.ones(())]

    def forward(self, x):
        self.one[0] = self.one[0] + x.sum()
        self.one, self.other = self.other, self.one
        return self.one[0] + 10 * self.other[0] + x


class DelayLine(nn.Module):
    """Buffers that are handed on: torch.export's verifier refused what it makes of them."""

    def __init__(self) -> None:
        super().__init__()
        for number, name in enumerate("abc"):
            self.register_buffer(name, torch.full((2,), float(number)))

    def forward(self, x):
        self.c = self.b
        self.b = self.a
        self.a = x.clone()
        return self.a + 2 * self.b + 3 * self.c


class RotatedAndWritten(DelayLine):
    def forward(self, x):
        self.a, self.b, self.c = self.b, self.c, self.a
        self.c.mul_(2).add_(x)
        return self.a - self.b * self.c


class OnlyTheSecondIsUsed(Kept):
    """What calls change was told of the first name alone, which no call reads: it was dropped."""

    def forward(self, x):
        found = self.other[0] + x
        self.other[0] = self.other[0] + 1
        return found


class TheFirstIsGivenAway(Kept):
    def forward(self, x):
        self.one = self.third
        found = self.other[0] + x
        if found.sum() < 4:
            self.other[0] = self.other[0] + 1
        return found


class OfALinkedList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.tail = Count(), Count()
        self.head.after = self.tail

    def forward(self, x):
        self.tail.value = self.tail.value + x.sum()
        return self.head.after.value + x


@pytest.mark.parametrize(
    "kind",
    [
        *(OnlyTheSecondIsUsed, TheFirstIsGivenAway, StaysOne, BothAreReplaced, IsHandedOn, Swapped),
        *(DelayLine, RotatedAndWritten, OfALinkedList),
    ],
)
def test_names_that_stay_names_of_one_object_see_each_others_changes(kind: type[nn.Module]):
    model = kind()
    program = export(canonicalize(spec.as_spec(copy.deepcopy(model), args=(UP,)))).entries[0].program.module()
    for x in (UP, DOWN, DOWN, UP, DOWN):
        torch.testing.assert_close(program(x), model(x))
