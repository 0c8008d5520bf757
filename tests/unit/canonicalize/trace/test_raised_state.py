"""A call that raises leaves the state as eager leaves it: with each write before the raise, none after it."""

from __future__ import annotations

import copy
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.passes.legal import Runner, legal

T = torch.tensor
POSITIVE, NEGATIVE, LARGE = T([1.0, 2.0, 3.0]), T([-1.0, -2.0, -3.0]), T([100.0, 2.0, 3.0])
FIRST, SECOND, BOTH = T([-1.0, 2.0, 3.0]), T([1.0, -2.0, 3.0]), T([1.0, -2.0, -3.0])
CALLS = (POSITIVE, FIRST, POSITIVE, SECOND, BOTH, LARGE, POSITIVE, NEGATIVE, POSITIVE)


class BetweenRaises(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = 0
        self.h = torch.zeros(3)

    def forward(self, x):
        self.a += 1
        self.h = self.h + x
        if x.sum() < 0:
            raise ValueError("negative")
        self.a += 10
        self.h = self.h * 2
        if x.sum() > 100:
            raise RuntimeError("large")
        self.a += 100
        return x + self.a, self.h


class InThePathThatRaises(nn.Module):
    def __init__(self):
        super().__init__()
        self.errors = 0
        self.calls = 0

    def forward(self, x):
        if x.sum() < 0:
            self.errors += 1
            raise ValueError("negative")
        self.calls += 1
        return x + self.errors * 100 + self.calls


class OfABuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(3))

    def forward(self, x):
        part = self.n[1:]
        part += 1
        assert x[0] > 0, "first"
        part *= 2
        self.n[0] = x[0]
        assert x[1] > 0, "second"
        return x + self.n


class InLoops(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = 0
        self.done = 0

    def forward(self, x):
        y, i = x.abs().sum() / 8, 0
        while y < 10:
            self.steps += 1
            i += 1
            if x[0] < 0 and i > 2:
                raise RuntimeError("no convergence")
            y = y * 2
            self.steps += 10
        self.done += 1
        return x + self.steps + 1000 * self.done


class InBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = 0
        self.b = 0

    def forward(self, x):
        if x[0] > 0:
            self.a += 1
            if x[1] < 0:
                self.b += 5
                raise ValueError("second")
            self.a += 10
        else:
            self.b += 1
            assert x[2] > 0, "third"
            self.b += 20
        self.a += 100
        return x + self.a + 1000 * self.b


class OfAnotherForm(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = None
        self.calls = 0

    def forward(self, x):
        self.mean = x if self.mean is None else self.mean * 0.5 + x
        if x.sum() < 0:
            raise ValueError("negative")
        self.calls += 1
        return x - self.mean + self.calls


class Busy(nn.Module):
    def __init__(self):
        super().__init__()
        self.busy = False
        self.calls = 0

    def forward(self, x):
        if self.busy:
            x = x + 1000
        self.busy = True
        if x.sum() < 0:
            raise RuntimeError("negative")
        self.calls += 1
        self.busy = False
        return x + self.calls


class Finally(nn.Module):
    def __init__(self):
        super().__init__()
        self.depth = 0
        self.calls = 0

    def forward(self, x):
        self.depth += 1
        try:
            self.calls += 1
            if x.sum() < 0:
                raise RuntimeError("negative")
            self.calls += 10
        finally:
            self.depth -= 1
        return x + self.calls + 1000 * self.depth


class FinallyAlone(nn.Module):
    """Nothing is written before the assert: the `finally` writes after it."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        try:
            if x.sum() < 0:
                raise RuntimeError("negative")
            y = x + 1
        finally:
            self.calls += 1
        return y + self.calls


class Scope:
    def __init__(self, owner):
        self.owner = owner

    def __enter__(self):
        self.owner.depth += 1

    def __exit__(self, *_):
        self.owner.depth -= 1


class InManagers(nn.Module):
    def __init__(self):
        super().__init__()
        self.depth = 0
        self.calls = 0

    @contextmanager
    def scope(self):
        self.depth += 10
        try:
            yield
        finally:
            self.depth -= 10

    @contextmanager
    def begun(self):
        self.depth += 100
        yield
        self.depth -= 100

    def forward(self, x):
        with Scope(self), self.scope(), self.begun():
            self.calls += 1
            if x.sum() < 0:
                raise ValueError("negative")
            self.calls += 10
        return x + self.calls + 1000 * self.depth


class Mode(nn.Module):
    def __init__(self):
        super().__init__()
        self.mode = "idle"
        self.calls = 0

    def forward(self, x):
        if self.mode == "error":
            x = x * 10
        if x.sum() < 0:
            self.mode = "error"
            raise ValueError("negative")
        self.mode = "ok"
        self.calls += 1
        return x + self.calls


@dataclass
class Statistics:
    count: int = 0
    total: float = 0.0


class InContainers(nn.Module):
    def __init__(self):
        super().__init__()
        self.statistics = Statistics()
        self.pair = (0, 1)
        self.cache = {"n": 0, "h": [torch.zeros(3), torch.zeros(3)]}

    def forward(self, x):
        self.statistics.count += 1
        self.pair = (self.pair[1], self.pair[0] + 1)
        self.cache["h"][0] = self.cache["h"][0] + x
        if x.sum() < 0:
            self.cache["n"] += 5
            raise ValueError("negative")
        self.statistics.total += 2.5
        self.cache["h"][1] += self.cache["h"][0]
        if x.sum() > 100:
            raise ValueError("large")
        self.pair = (self.pair[0] + 5, self.pair[1])
        total = self.statistics.count + self.statistics.total + self.pair[0] * 3 + self.pair[1] * 7
        return x + total + self.cache["n"] + self.cache["h"][1]


class InADeque(nn.Module):
    def __init__(self):
        super().__init__()
        self.window = deque([0.0] * 3, maxlen=3)

    def forward(self, x):
        self.window.append(x.sum())
        if x.sum() < 0:
            raise ValueError("negative")
        return x + sum(self.window)


class OfNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        number = int(x[0].item()) + 1
        self.calls += 1
        found = 100 // number + [3, 5, 7, 11][number]
        self.calls += 10
        return x + found + self.calls


class Caught(nn.Module):
    def __init__(self):
        super().__init__()
        self.tries = 0
        self.caught = 0

    def attempt(self, x):
        self.tries += 1
        if x[0] < 0:
            raise ValueError("first")
        if x[1] < 0:
            raise KeyError("second")
        self.tries += 10
        return x

    def forward(self, x):
        try:
            y = self.attempt(x)
        except ValueError:
            self.caught += 1
            y = x * 0
        self.caught += 100
        return y + self.tries + 1000 * self.caught


class AfterAnAssertInATry(nn.Module):
    """What is raised before a write, of what the `try` has no handler for, leaves the state without it."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.caught = 0

    def forward(self, x):
        if x.sum() > 100:
            return x
        try:
            if x[0] < 0:
                raise KeyError("first")
            self.calls += 1
            if x[1] < 0:
                raise ValueError("second")  # noqa: TRY301
            y = x + self.calls
        except ValueError:
            self.caught += 1
            y = x - self.calls
        return y + self.caught * 100


class NothingBefore(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        if x.sum() < 0:
            raise ValueError("negative")
        self.calls += 1
        return x + self.calls


class Transaction(nn.Module):
    """A manager that goes by what its body raises: it takes back what that wrote, and ends one kind."""

    def __init__(self):
        super().__init__()
        self.total = 0.0
        self.failed = self.done = 0

    def __enter__(self):
        self.saved = self.total

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.done += 1
        else:
            self.total = self.saved
            self.failed += 1
        return kind is KeyError

    def forward(self, x):
        with self:
            self.total += x[0].item()
            if x[1] < 0:
                raise ValueError("second")
            if x[0] > 50:
                raise KeyError("large")
            self.total += x[1].item()
        return x + self.total + 1000 * self.done + 10000 * self.failed


class OfABufferBesideANumber(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("doubled", torch.ones(3))
        self.calls = 0

    def forward(self, x):
        self.total += x
        self.calls += 1
        if x.sum() < 0:
            self.doubled.mul_(2).add_(x)
            raise ValueError("negative")
        return self.total + self.calls, self.doubled + 0


QUICK = (
    OfABufferBesideANumber,
    BetweenRaises,
    InThePathThatRaises,
    OfABuffer,
    InLoops,
    InBranches,
    Finally,
    FinallyAlone,
    Mode,
    Transaction,
)
SLOW = (OfAnotherForm, InManagers, Busy, InContainers, InADeque, OfNumbers, Caught)


def results(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize(
    "kind",
    [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)],
    ids=lambda kind: kind.__name__,
)
def test_each_write_before_a_raise_is_kept(kind: type[nn.Module]) -> None:
    eager = kind().eval()
    run = Runner(legal(copy.deepcopy(eager), [POSITIVE]))
    kept = run.entry(None).signature.kept_on_raise
    assert kept
    raised = 0
    for number, call in enumerate(CALLS):
        before = dict(run.state)
        found = run([call])
        said = next((message for message, holds in run.asserts.items() if not holds), None)
        if said is not None:
            run.state = {name: run.state[name] if name in kept else old for name, old in before.items()}
        wanted, error = None, None
        try:
            wanted = results(eager(call))
        except (ArithmeticError, AssertionError, LookupError, RuntimeError, ValueError) as found_error:
            error = type(found_error).__name__
        assert (said or "").partition(":")[0] == (error or ""), number
        if wanted is not None:
            torch.testing.assert_close(list(found.values()), wanted, check_dtype=False, msg=f"call {number}")
        raised += error is not None
    assert raised


def test_a_program_that_writes_nothing_before_a_raise_keeps_nothing() -> None:
    (entry,) = legal(NothingBefore().eval(), [POSITIVE]).entries
    assert entry.signature.kept_on_raise == ()


class DividesAfterwards(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, divisors):
        self.calls += 1
        if x.sum() < 0:
            raise ValueError("negative")
        return x + (12 // divisors).sum() + self.calls


def test_an_assert_of_an_op_takes_back_what_the_call_wrote() -> None:
    run = Runner(legal(DividesAfterwards().eval(), [POSITIVE, T([1, 2])]))
    run([POSITIVE, T([1, 0])])
    assert [message.partition(" ")[0] for message, holds in run.asserts.items() if not holds] == [
        "RuntimeError:"
    ]
    assert int(run.state["calls"]) == 0
    run([NEGATIVE, T([1, 0])])  # the model's own raise comes first
    assert int(run.state["calls"]) == 1


class ListGrowsInALoop(nn.Module):
    """What a loop appends needs room, of which the state knows nothing; a buffer and a number are written."""

    def __init__(self):
        super().__init__()
        self.register_buffer("hits", torch.zeros(()))
        self.seen = 0

    def forward(self, x):
        if x.sum() < 0:
            raise ValueError("negative")
        n, out = x.sum().item(), []
        self.hits += 1
        while n > 1:
            out.append(n)
            n = n - 1
            self.seen += 1
            self.hits += n
            if n > 2:
                out.append(-n)
        self.seen += len(out)
        return len(out), self.seen, self.hits.clone()


def test_a_list_without_room_in_a_loop_takes_back_what_the_call_wrote() -> None:
    run = Runner(legal(ListGrowsInALoop().eval(), [T([1.0, 2.5])]))
    eager = ListGrowsInALoop()
    for call in (T([1.0, 2.5]), T([3.0, 4.0]), T([0.0, 0.5])):
        found = run([call]).values()
        assert all(run.asserts.values())
        assert [float(each) for each in found] == [float(each) for each in eager(call)]
    before = dict(run.state)
    run([T([1e4, 0.0])])
    assert [said for said, holds in run.asserts.items() if not holds and "has room for" in said]
    assert run.state == before
