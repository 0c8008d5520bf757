"""A written module is loaded with the original's weights, or refused."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from aotpipe.errors import RewriteFailed
from aotpipe.passes.codegen.code import Code
from aotpipe.validate.rewritten.loading import loaded, made

TEXT = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x) + 1
"""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.calls = 3

    def forward(self, x):
        return self.linear(x)


def code(text: str = TEXT, **fields: object) -> Code:
    return Code(text=text, class_name="Net", methods={"forward": "forward"}, state=(), tensors={}, **fields)


def test_a_class_takes_the_weights():
    net = Net().eval()
    with loaded(code(), "m.py") as (module, path), torch.no_grad():
        assert path.name == "m.py"
        model = made(module, code(), net)
        assert torch.equal(model(torch.ones(2)), net(torch.ones(2)) + 1)
    assert module.__name__ not in sys.modules
    assert not path.exists()


def test_edited_classes_take_the_place_of_those_of_a_copy_that_shares_the_weights():
    net = Net().eval()
    edited = code(is_edited=True, attributes={"calls": torch.int64})
    with loaded(edited, "m.py") as (module, _):
        model = made(module, edited, net)
        assert type(model) is module.Net
        assert model.linear.weight is net.linear.weight
    assert model.calls == 3
    assert "calls" in dict(model.named_buffers())
    assert (type(net), vars(net)["calls"]) == (Net, 3)


def test_what_cannot_be_loaded_is_refused():
    with (
        pytest.raises(RewriteFailed, match="cannot be loaded"),
        loaded(code("import torch\n1 / 0\n"), "m.py"),
    ):
        pass
    other = code(TEXT.replace("self.linear = ", "self.line = "))
    with loaded(other, "m.py") as (module, _), pytest.raises(RewriteFailed, match="original's weights"):
        made(module, other, Net())
