"""Transforms of torch.func in a model's forward."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.core.dims import Dim
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow

NET = torch.nn.Linear(3, 3)


def of_each_row(x):
    def loss(weights, row):
        return torch.func.functional_call(NET, weights, (row,)).square().mean()

    return torch.func.vmap(torch.func.grad(loss), (None, 0))(dict(NET.named_parameters()), x)["bias"]


def cubes(x):
    return torch.func.grad(lambda y: (y**3).sum())(x)


def deviations(x):
    return torch.vmap(lambda column: (column - column.mean()) / column.std(), in_dims=1, out_dims=1)(x)


@pytest.mark.parametrize("model", [of_each_row, cubes, slow(deviations)])
def test_what_torch_cannot_record_is_refused_and_left(model):
    spec = as_spec(model, args=(torch.randn(4, 3),), dynamic_shapes={"x": {0: Dim("n", min=2, max=8)}})
    with pytest.raises(ExportFailed, match=r"a transform of torch\.func") as refused:
        export(canonicalize(spec))
    assert refused.value.where is not None
    assert refused.value.where.path.endswith("test_tracing_transforms.py")
    assert torch._C._functorch.peek_interpreter_stack() is None
    torch.randn(2)  # random numbers are refused inside of vmap


def test_gradients_of_autograd_are_recorded():
    def model(x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            return torch.autograd.grad((y**3).sum(), y)[0]

    x = torch.randn(4, 3)
    program = export(canonicalize(as_spec(model, args=(x,)))).entries[0].program.module()
    torch.testing.assert_close(program(x), 3 * x * x)
