"""Which copies have an original that somebody still holds, and which calls write in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpipe.canonicalize.python import aliases


class Holder(torch.nn.Module):
    def __init__(self, held: torch.Tensor) -> None:
        super().__init__()
        self.notes = {"a": [held]}


def noted(original: torch.Tensor, *modules: torch.nn.Module) -> bool:
    copy = original.clone()
    view = copy.view(-1)[1:]
    aliases.note(copy, original, modules)
    assert aliases.is_copy(view) == aliases.is_copy(copy)
    return aliases.is_copy(copy)


def test_an_original_in_a_variable_or_a_container_is_held():
    with aliases.followed():
        held = torch.zeros(3)
        assert noted(held[1:])  # by a view
        deep = {"a": (torch.zeros(2), [torch.zeros(4)])}
        assert noted(deep["a"][1][0])


def test_an_original_in_a_module_is_held():
    tensors = [torch.zeros(3)]
    holder = Holder(tensors[0])
    with aliases.followed():
        assert noted(tensors.pop(), holder)


def test_all_is_forgotten_afterwards():
    held = torch.zeros(3)
    copy = held.clone()
    with aliases.followed():
        aliases.note(copy, held, ())
        assert aliases.is_copy(copy)
    assert not aliases.is_copy(copy)


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
