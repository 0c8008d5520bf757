"""Branches and loops whose results are joined with a size that no op of theirs reads."""

from __future__ import annotations

import pytest
import torch

from aotpipe import Dim
from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow


def counted_down(x):
    i, total = x.shape[0] - 1, x.new_zeros(())
    while i > 0:
        total = total + x[i]
        if x[i] > 1:
            i -= 1
        else:
            i -= 2
    return total


def one_of_two(x):
    i, j = x.shape[0] - 1, x.shape[0] - 1
    for _ in range(3):
        if x.sum() > 1:
            i = i - 1
        else:
            j = j - 1
    return x[:1] + 3 * i - j


def grown_two_deep(x):
    out = []
    for row in x:
        for _ in range(3):
            row = row - 1
            if row < 0:
                break
            out.append(row)
    return torch.stack(out) if out else x[:0]


@pytest.mark.parametrize("model", [slow(counted_down), one_of_two, grown_two_deep])
def test_a_size_that_results_are_joined_with_is_an_operand(model):
    torch.manual_seed(0)
    rows = Dim("rows", min=2, max=16)
    spec = as_spec(model, args=(3 * torch.rand(5),), dynamic_shapes={"x": {0: rows}})
    program = export(canonicalize(spec)).entries[0].program.module()
    for n in (2, 5, 16):
        for x in (3 * torch.rand(n), torch.randn(n), -torch.ones(n)):
            torch.testing.assert_close(program(x), model(x))
