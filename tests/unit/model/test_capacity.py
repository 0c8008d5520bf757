"""A capacity is its bound in eager and in a graph; what does not fit is refused in both."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import aotpipe
from aotpipe import Dim
from aotpipe.core.signature import admits
from aotpipe.model.capacity import capacity
from tests.unit.canonicalize.trace.agree import check
from tests.unit.export.models import exported


def test_in_eager_it_is_the_bound():
    assert capacity(3, max=8) == 8
    assert type(aotpipe.capacity(torch.tensor(8), max=8)) is int
    for needed in (9, torch.tensor(9), torch.tensor([9.5])):
        with pytest.raises(ValueError, match="more than the capacity of 8 is needed"):
            capacity(needed, max=8)


def test_it_needs_no_torch():
    code = "import sys, aotpipe; assert aotpipe.capacity(2, max=4) == 4; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def of_an_item(x):
    n = capacity(int(x.max().item()), max=4)
    return torch.zeros(n, 2) + x.sum()


def of_a_tensor(x):
    return torch.ones(capacity(x.max(), max=4))


def in_a_branch(x):
    if x.sum() > 5:
        return x * capacity(x.max().item(), max=4)
    return x


@pytest.mark.parametrize("model", [of_an_item, of_a_tensor, in_a_branch], ids=lambda model: model.__name__)
def test_a_graph_asserts_that_it_fits(model):
    check(model, *((torch.tensor(row),) for row in ([1, 2], [4, 4], [1, 5], [0, 9], [2, 0])))


def test_of_sizes_the_dims_must_allow_it():
    def forward(x):
        return torch.zeros(capacity(x.shape[0] * 2, max=8)) + x.sum()

    shapes = {"x": {0: Dim("n", min=2, max=4)}}
    assert exported(forward, torch.ones(3), shapes=shapes).entries[0].signature.outputs[0].dims == (8,)
    found = exported(forward, torch.ones(3), shapes={"x": {0: Dim("n", min=2, max=5)}})
    (told,) = (each for each in found.findings if each.code == "sizes-without-program")
    assert told.where is not None
    assert told.where.path.endswith("test_capacity.py")
    assert [size for size in range(2, 6) if admits(found.entries[0].signature, {"n": size})] == [2, 3, 4]
