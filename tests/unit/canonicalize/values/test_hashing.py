"""A number that only a run knows is no key of what other code keeps: no equal one would be found."""

from __future__ import annotations

import functools

import pytest
import torch

from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check

X = torch.tensor([1.0, 3.0, 3.0, 2.0])


@functools.cache
def squared(n: int) -> int:
    return n * n


def remembered(x: torch.Tensor) -> torch.Tensor:
    return x * squared(int(x.sum()))


def frozen(x: torch.Tensor) -> torch.Tensor:
    return x * len(frozenset(int(v) for v in x))


def ordered(x: torch.Tensor) -> torch.Tensor:
    return x * len(dict.fromkeys(x.tolist()))


def test_a_number_from_a_tensor_is_refused_as_a_key():
    with pytest.raises(ExportFailed, match=r"is hashed(.|\n)*seen.add\(n\)") as caught:
        check(frozen, (X,))
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_hashing.py")


def test_the_keys_of_a_dict_are_counted():
    check(ordered, (X,), (-X,), (torch.tensor([5.0, -3.0, 1.0, 2.0]),))


def test_a_function_that_remembers_is_computed():
    check(remembered, (X,), (X * 2,), (X,))


def test_tensors_are_keys_as_before():
    def shared(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        table = {x: 1, y: 2}
        if x.sum() > 0:
            return y * table[y]
        return x * table[x]

    check(shared, (X,), (-X,))
    before = torch.Tensor.__hash__
    assert hash(X) == id(X)
    assert torch.Tensor.__hash__ is before
