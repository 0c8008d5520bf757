"""Which copies have an original that somebody still holds, and which calls write in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpipe.canonicalize.python import aliases, effects
from aotpipe.errors import ExportFailed


class Holder(torch.nn.Module):
    def __init__(self, held: torch.Tensor) -> None:
        super().__init__()
        self.notes = {"a": [held]}


class Plain:
    def __init__(self, held: torch.Tensor) -> None:
        self.held = (held,)


def is_lost(original: torch.Tensor) -> bool:
    """Whether a write to a view of a copy is refused for the sake of its original."""
    copy = original.clone()
    with aliases.followed():
        aliases.note(aliases.Pair(copy, original))
        del original
        try:
            aliases.refuse_lost(copy.view(-1)[1:])
        except ExportFailed:
            return True
        return False


def test_who_holds_an_original():
    held = torch.zeros(3)
    assert aliases.is_held(aliases.storage_of(held[1:]))
    assert not aliases.is_held(aliases.storage_of(held), but="held")
    deep = {"a": (torch.zeros(2), [torch.zeros(4)])}
    assert aliases.is_held(aliases.storage_of(deep["a"][1][0]))
    plain = Plain(torch.zeros(2))
    assert aliases.is_held(aliases.storage_of(plain.held[0]))
    holder = [Holder(torch.zeros(3))]
    storage = aliases.storage_of(holder[0].notes["a"][0])
    with effects.watching(holder.pop(), kept=False):
        assert aliases.is_held(storage)


def test_a_write_that_cannot_be_repeated_is_refused():
    held = torch.zeros(3)
    assert is_lost(held)


@pytest.mark.parametrize("holds", [True, False])
def test_a_write_is_repeated_where_the_path_was_taken(holds: bool):
    original = torch.zeros(3)
    copy, second = original.clone(), original.clone()
    flag = torch.tensor(holds)
    with aliases.followed():
        aliases.note_path(copy, original, flag)
        aliases.note_path(second, copy, flag)
        second += 1
        aliases.refuse_lost(second)
        aliases.repeat(second)
    assert torch.equal(original, second if holds else torch.zeros(3))
    assert torch.equal(copy, original)


def test_what_a_branch_notes_is_forgotten_after_it():
    held, copy = torch.zeros(3), torch.zeros(3)
    with aliases.followed():
        with aliases.inner() as pairs:
            aliases.note(aliases.Pair(copy, held))
        assert [pair.copy is copy for pair in pairs] == [True]
        aliases.refuse_lost(copy)


@pytest.mark.parametrize(
    ("call", "writes"),
    [
        (lambda x: x.add_(1), True),
        (lambda x: x.__iadd__(1), True),
        (lambda x: x.__setitem__(0, 1.0), True),
        (lambda x: torch.relu_(x), True),
        (lambda x: torch.nn.functional.relu(x, inplace=True), True),
        (lambda x: torch.add(x, 1, out=x), True),
        (lambda x: x + 1, False),
        (lambda x: x.relu(), False),
        (lambda x: x.__getitem__(0), False),
    ],
)
def test_calls_that_write(call: Callable[[torch.Tensor], Any], writes: bool):
    found: list[bool] = []
    x = torch.zeros(3)

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found.append(aliases.written(func, args, kwargs or {}) is x)
            return func(*args, **(kwargs or {}))

    with Mode():
        call(x)
    assert found[0] is writes
