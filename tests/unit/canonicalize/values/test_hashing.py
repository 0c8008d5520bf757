"""A number that only a run knows is no key: no equal one would be found."""

from __future__ import annotations

import pytest
import torch

from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check

X = torch.tensor([1.0, 3.0, 3.0, 2.0])


def counted(x: torch.Tensor) -> torch.Tensor:
    found: dict[int, int] = {}
    for i, v in enumerate(x.tolist()):
        found[round(v)] = i
    return x * len(found)


def distinct(x: torch.Tensor) -> torch.Tensor:
    return x * len({int(v) for v in x})


def counting(x: torch.Tensor) -> torch.Tensor:
    found: dict[int, int] = {}
    for v in x.tolist():
        found[int(v)] = found.get(int(v), 0) + 1
    return x * max(found.values())


def remembered(x: torch.Tensor) -> torch.Tensor:
    seen = set()
    n = int(x.sum())
    if n > 3:
        seen.add(n)
    return x * len(seen)


@pytest.mark.parametrize("model", [counted, distinct, counting, remembered])
def test_a_number_from_a_tensor_is_refused_as_a_key(model):
    with pytest.raises(ExportFailed, match=r"a key of a dict or in a set|data-dependent|set") as caught:
        check(model, (X,))
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_hashing.py")


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
