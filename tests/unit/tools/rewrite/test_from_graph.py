"""Whole modules from exported programs."""

from __future__ import annotations

import torch
from torch import nn

import aotpipe
from aotpipe.tools.rewrite.from_graph import class_name_of, generate_class

X = torch.arange(3.0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x, scale=2.0):
        self.calls += 1
        if x.sum() > 0:
            x = self.linear(x)
        return {"y": x * scale + self.calls}


def clamp_all(x):
    return x.clamp(0, 1)


def test_a_class_with_a_method_weights_and_state():
    code = generate_class(aotpipe.export(Net().eval(), args=(X,)), "net")
    assert (code.class_name, code.methods, code.state) == ("Net", {"forward": "forward"}, ("calls",))
    assert "class Net(nn.Module):" in code.text
    assert "self.linear = nn.Linear(in_features=3, out_features=3, bias=True)" in code.text
    assert "self.register_buffer('calls', torch.tensor(0, dtype=torch.int64), persistent=False)" in code.text
    assert "def forward(self, x):" in code.text
    assert "torch.cond(" in code.text
    assert "def reset(self):" in code.text
    assert "aotpipe canonicalize" in code.text.splitlines()[0]
    assert "import aotpipe" not in code.text


def test_a_function_is_a_class_of_its_name():
    exported = aotpipe.export(clamp_all, args=(X,))
    assert class_name_of(exported.canonical) == "ClampAll"
    assert "return" in generate_class(exported).text


def test_large_constants_go_into_a_file():
    table = torch.randn(500)
    code = generate_class(aotpipe.export(lambda x: x.sum() + table, args=(X,)), "big")
    assert [tensor.shape for tensor in code.tensors.values()] == [(500,)]
    assert 'with_name("big.pt")' in code.text
