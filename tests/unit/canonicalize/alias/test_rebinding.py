"""Writes that are repeated on other names, and calls that write in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpipe.canonicalize.alias import rebinding, tensor_storage
from aotpipe.canonicalize.values.trace import Trace, started
from aotpipe.errors import ExportFailed

BOTH = frozenset({0, 1})


def named(tensor: torch.Tensor, number: int | torch.Tensor | None, numbers: frozenset[int] = BOTH) -> None:
    tensor_storage.register(tensor, numbers, number)


def test_a_view_of_a_copy_is_refused_for_the_sake_of_an_original_that_is_held():
    original, alone = torch.zeros(3), torch.zeros(3)
    copies = original.clone(), alone.clone()
    with started(Trace()):
        rebinding.note(rebinding.Pair(copies[0], original))
        rebinding.note(rebinding.Pair(copies[1], alone))
        del alone
        with pytest.raises(ExportFailed, match="second name"):
            rebinding.refuse_lost(copies[0].view(-1)[1:])
        rebinding.refuse_lost(copies[1])


@pytest.mark.parametrize("holds", [True, False])
def test_a_write_is_repeated_where_a_traced_number_says_so(holds: bool):
    one, other, third = torch.zeros(3), torch.zeros(3), torch.zeros(3)
    with started(Trace(exact_aliases=True)):
        named(one, 1, frozenset({1}))
        named(other, torch.tensor(int(holds)))
        named(third, torch.tensor(int(holds)))
        other += 1
        rebinding.refuse_lost(other)
        rebinding.repeat(other)
    assert torch.equal(third, other)
    assert torch.equal(one, other if holds else torch.zeros(3))


def test_a_write_asks_for_numbers_that_are_not_followed():
    one, other = torch.zeros(3), torch.zeros(3)
    with started(Trace()) as trace:
        named(one, 1, frozenset({1}))
        named(other, None)
        with pytest.raises(ExportFailed, match="second name"):
            rebinding.refuse_lost(other)
    assert trace.needs == {"exact_aliases"}
    with started(Trace()) as trace:
        tensor_storage.register(one, frozenset({1}), 1)
        tensor_storage.register(other, frozenset({1}), 1, partial=frozenset({1}))
        with pytest.raises(ExportFailed, match="second name"):
            rebinding.refuse_lost(other)
    assert not trace.needs


def test_what_a_branch_notes_is_forgotten_after_it():
    held, copy = torch.zeros(3), torch.zeros(3)
    with started(Trace()):
        with rebinding.inner():
            rebinding.note(rebinding.Pair(copy, held))
            left, given = rebinding.alias_set(copy), tensor_storage.of(held)
        assert left is not None
        assert given is not None
        assert given.numbers <= left.partial
        rebinding.refuse_lost(copy)


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
            found.append(rebinding.written(func, args, kwargs or {}) is x)
            return func(*args, **(kwargs or {}))

    with Mode():
        call(x)
    assert found[0] is writes
