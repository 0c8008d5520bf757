"""Gradients that a model takes of what it computes."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.core.dims import Dim
from aotpipe.export import export
from aotpipe.model.spec import as_spec

LINEAR, NORM = torch.nn.Linear(3, 3), torch.nn.LayerNorm(3)
ENERGIES = {
    "tanh": torch.tanh,
    "softmax": lambda y: y.softmax(-1) ** 2,
    "linear": lambda y: LINEAR(y).relu(),
    "layer_norm": lambda y: NORM(y) ** 2,
    "attention": lambda y: (y @ y.transpose(0, 1)).sigmoid() @ y,
}


@pytest.mark.parametrize("name", ENERGIES)
@pytest.mark.parametrize("again", [False, True])
def test_gradients_read_what_ops_gave_and_kept(name, again):
    """torch took what autograd keeps of a result, or of what is inside of `linear`, for a constant."""

    def model(x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(ENERGIES[name](y).sum(), y, create_graph=again)
            if again:
                (found,) = torch.autograd.grad((found**2).sum(), y)
        return found.detach()

    rows = {"x": {0: Dim("n", min=2, max=8)}}
    spec = as_spec(model, args=(torch.randn(4, 3),), dynamic_shapes=rows)
    program = export(canonicalize(spec)).entries[0].program.module()
    for x in (torch.randn(2, 3), torch.randn(7, 3)):
        torch.testing.assert_close(program(x), model(x))


def stepped(x):
    with torch.enable_grad():
        for _ in range(6):
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(LINEAR(x).tanh().sum(), x)
            x = x - 0.1 * gradient
            if x.sum() < 0:
                break
    return x.detach()


def through_a_branch(x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        y = LINEAR(x).tanh()
        energy = (y * 2).exp() if y.sum() > 0 else y.sigmoid() ** 2
        return torch.autograd.grad(energy.sum(), x)[0]


def of_each_row_by_itself(x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(torch.unbind(LINEAR(x).tanh()[:, 1]), x)
    return gradient * 2 if gradient.sum() > 0 else gradient


@pytest.mark.parametrize("model", [stepped, through_a_branch, of_each_row_by_itself])
def test_gradients_go_with_control_flow(model):
    rows = {"x": {0: Dim("n", min=2, max=8)}}
    spec = as_spec(model, args=(torch.randn(4, 3),), dynamic_shapes=rows)
    program = export(canonicalize(spec)).entries[0].program.module()
    for x in (torch.rand(2, 3) + 1, -torch.rand(7, 3), torch.randn(3, 3)):
        torch.testing.assert_close(program(x), model(x))
