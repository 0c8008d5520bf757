"""Whole modules from exported programs, with parameters and results as the user's method has them."""

from __future__ import annotations

import ast
from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

import aotpipe
from aotpipe.passes.codegen import from_graph
from aotpipe.passes.codegen.from_graph import class_name_of, generate_class
from aotpipe.passes.codegen.graph_codegen import Writer
from aotpipe.passes.codegen.syntax import name

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


TWO = torch.ones(2)


class Pair(NamedTuple):
    first: int
    second: int


class Called(nn.Module):
    def forward(self, batch, *rest, scale=2.0, flag=None, **more):
        return batch["a"] + more["extra"]


def test_parameters_and_leaves():
    canonical = aotpipe.canonicalize(
        Called().eval(), args=({"a": TWO, "b": [TWO]}, TWO), kwargs={"extra": TWO, "scale": 3.0}
    )
    entry = canonical.entries[0]
    arguments, body, found = from_graph.method_inputs(entry, Writer(name).free)
    assert ast.unparse(arguments) == "self, batch, *rest, scale=3.0, extra"
    assert [ast.unparse(ast.fix_missing_locations(each)) for each in body] == [
        "a = batch['a']",
        "batch_0 = batch['b'][0]",
        "rest_0 = rest[0]",
    ]
    leaves = dict(zip(entry.input_names, map(ast.unparse, found), strict=True))
    assert leaves == {
        "batch.a": "a",
        "batch.b.0": "batch_0",
        "rest.0": "rest_0",
        "extra": "extra",
        "scale": "scale",
    }
    [refusal] = from_graph.checks(entry, found)
    assert "if scale != 3.0:" in ast.unparse(ast.fix_missing_locations(refusal))


def test_results_keep_their_structure():
    result = (1, [2, {"k": 3}], OrderedDict(z=4), Pair(5, 6))
    leaves, spec = pytree.tree_flatten(result)
    made = from_graph.result_expression(spec, [ast.Constant(leaf) for leaf in leaves])
    # A class of the user's becomes a dict: the code needs torch only.
    assert eval(ast.unparse(made)) == (1, [2, {"k": 3}], {"z": 4}, {"first": 5, "second": 6})
