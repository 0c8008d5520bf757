"""`squeeze` of a dim that may have one element, against eager."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize.trace import squeezed_sizes
from aotpipe.core.dims import Dim
from aotpipe.core.signature import admits
from tests.unit.export.models import exported, run


def _all_dims(x):
    return (x * 2).squeeze() + 1


def _one_dim(x):
    return torch.squeeze(input=x, dim=0) * 2


def _two_dims(x):
    return x[:, None].squeeze((0, 1)).flip(-1)


def _in_place(x):
    return (x + 1).squeeze_(0).relu()


def _in_a_branch(x):
    return x.squeeze() if x.sum() > 0 else x.squeeze() * 2


@pytest.mark.parametrize("model", [_all_dims, _one_dim, _two_dims, _in_place, _in_a_branch])
def test_one_row_has_a_program_of_its_own(model):
    found = exported(model, torch.randn(4, 3), shapes={"x": {0: Dim("rows", min=1, max=8)}})
    assert len(found.entries) == 2
    for rows in (1, 2, 7):
        (entry,) = (each for each in found.entries if _takes(each.signature, rows))
        for x in (torch.rand(rows, 3), -torch.rand(rows, 3)):
            torch.testing.assert_close(entry.program.module()(x), model(x.clone()))


def _takes(signature, rows):
    size = signature.inputs[0].dims[0]
    return size == rows if isinstance(size, int) else admits(signature, {"rows": rows})


def test_what_cannot_be_one_needs_one_program():
    found = exported(
        lambda x: x[:, None].squeeze(1).squeeze(),
        torch.randn(4, 3),
        shapes={"x": {0: Dim("n", min=2, max=8)}},
    )
    assert len(found.entries) == 1
    x = torch.randn(6, 3)
    assert run(found, x).shape == x.shape


def test_one_row_of_as_many_as_only_a_run_knows_fails_an_assert():
    found = exported(lambda x: x[x[:, 0] > 0].squeeze(), torch.tensor([[1.0, 2], [3, 4], [-1, 5]]))
    x = torch.tensor([[-1.0, 2], [3, 4], [1, 5]])
    torch.testing.assert_close(run(found, x), x[1:])
    with pytest.raises(RuntimeError, match=r"squeeze|Ne\(u"):
        run(found, torch.tensor([[-1.0, 2], [3, 4], [-1, 5]]))


def test_what_is_no_size_that_varies_is_left_to_torch():
    x = torch.zeros(1, 3)
    assert squeezed_sizes.of(torch.squeeze, x) is None
    assert squeezed_sizes.of(torch.squeeze, x, 5) is None
    with squeezed_sizes.decided():
        assert x.squeeze().shape == (3,)
