"""Example inputs of other sizes."""

from __future__ import annotations

import pytest
import torch

from aotpipe.core.dims import Dim
from aotpipe.export import resized_examples
from tests.unit.export.models import entry_of

B = Dim("b", max=64)


def test_values_are_those_of_the_example() -> None:
    entry = entry_of(
        lambda x, y, n: x, torch.ones(4), torch.ones(9), 4, shapes={"x": {0: B}, "y": {0: 2 * B + 1}, "n": B}
    )
    assert resized_examples.values(entry) == {"b": 4}
    assert resized_examples.roots(entry) == {"b": B}


def test_tensors_are_shortened_and_repeated() -> None:
    entry = entry_of(
        lambda x, y, n: x,
        torch.arange(3),
        torch.ones(2, 0),
        3,
        shapes={"x": {0: B}, "n": B, "y": {1: Dim("c", 0)}},
    )
    args, kwargs = resized_examples.resized(entry, {"b": 5, "c": 2})
    assert args[0].tolist() == [0, 1, 2, 0, 1]
    assert args[1].shape == (2, 2)
    assert args[2] == 5
    assert not kwargs
    args, _ = resized_examples.resized(entry, {"b": 2})
    assert (args[0].tolist(), args[1].shape) == ([0, 1], (2, 0))


@pytest.mark.parametrize(
    ("dim", "size", "expected"),
    [
        (Dim("b", 1, 64), 1, 2),
        (Dim("b", 0), 0, 2),
        (Dim("b", 0), 1, 2),
        (Dim("b", 4, 64), 4, 5),
        (Dim("b", 4, 64), 64, 5),
        (Dim("b", 4, 5), 4, None),
        (Dim("b", 1, 2), 1, 2),
        (Dim("b", 0, 1), 1, None),
        (Dim("b", 1, 64), 3, None),
    ],
)
def test_a_size_at_a_bound_moves_inside(dim: Dim, size: int, expected: int | None) -> None:
    entry = entry_of(lambda x: x, torch.ones(size, 3), shapes={"x": {0: dim}})
    changed, findings = resized_examples.inside(entry)
    assert changed.get("b") == expected
    assert [f.code for f in findings] == (["example-at-bound"] if expected is not None else [])


def test_the_new_size_is_unlike_the_others() -> None:
    entry = entry_of(
        lambda x, y: x, torch.ones(1, 2), torch.ones(1, 3), shapes={"x": {0: B}, "y": {0: Dim("c")}}
    )
    assert resized_examples.inside(entry)[0] == {"b": 4, "c": 5}
