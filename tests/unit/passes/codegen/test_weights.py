"""What a written module holds: the original's names, its own constructors, buffers for state."""

from __future__ import annotations

import ast

import torch
from torch import nn

from aotpipe.passes.codegen.syntax import text_of
from aotpipe.passes.codegen.weights import ModuleContents


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(11))
        self.scale = nn.Parameter(torch.ones(2, dtype=torch.float64), requires_grad=False)
        self.tied = self.blocks[3].weight
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("cache", torch.zeros(3))
        self.register_buffer("table", torch.arange(200.0), persistent=False)


def made(model: nn.Module, state: dict[str, torch.Tensor], constants: dict[str, torch.Tensor]):
    contents = ModuleContents(model, state, constants)
    body = "\n".join(["class Made(nn.Module):", "    def __init__(self):", text_of(contents.init(), 2)])
    if state:
        body += "\n    def reset(self):\n" + text_of(contents.reset(), 2)
    space = {"nn": nn, "torch": torch, "_TENSORS": contents.stored}
    exec(body, space)
    return space["Made"](), body


def test_the_weights_fit_and_torchs_own_modules_are_made_as_such():
    model = Net()
    copy, text = made(model, {"cache": torch.ones(3), "calls": torch.tensor(4)}, {"table": model.table})
    copy.load_state_dict(model.state_dict())
    assert "self.blocks.append(nn.Linear(in_features=2, out_features=2, bias=True))" in text
    assert copy.tied is copy.blocks[3].weight
    assert copy.scale.dtype == torch.float64
    assert not copy.scale.requires_grad
    assert torch.equal(copy.table, model.table)
    assert int(copy.calls) == 4
    assert "calls" not in copy.state_dict()
    copy.cache.zero_()
    copy.calls.zero_()
    copy.reset()
    assert copy.cache.tolist() == [1, 1, 1]
    assert int(copy.calls) == 4


def test_expressions_of_attributes_and_leaves():
    contents = ModuleContents(Net(), {}, {})
    assert ast.unparse(contents.attribute("blocks.10.bias")) == "self.blocks[10].bias"
    assert ast.unparse(contents.attribute("a.0")) == "getattr(self.a, '0')"
    found = contents.leaves["self.blocks[10].bias"]
    assert (found[0], ast.unparse(found[1])) == ("bias", "self.blocks[10]")
    assert "self.scale" not in contents.leaves
