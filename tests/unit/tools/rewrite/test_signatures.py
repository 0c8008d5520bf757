"""Parameters and results, as the user's method has them."""

from __future__ import annotations

import ast
from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

import aotpipe
from aotpipe.tools.rewrite import signatures
from aotpipe.tools.rewrite.expressions import name
from aotpipe.tools.rewrite.graph_codegen import Writer

X = torch.ones(2)


class Pair(NamedTuple):
    first: int
    second: int


class Net(nn.Module):
    def forward(self, batch, *rest, scale=2.0, flag=None, **more):
        return batch["a"] + more["extra"]


def test_parameters_and_leaves():
    canonical = aotpipe.canonicalize(
        Net().eval(), args=({"a": X, "b": [X]}, X), kwargs={"extra": X, "scale": 3.0}
    )
    entry = canonical.entries[0]
    taken = signatures.method_inputs(entry, Writer(name).free)
    assert ast.unparse(taken.arguments) == "self, batch, *rest, scale=3.0, extra"
    assert [ast.unparse(ast.fix_missing_locations(each)) for each in taken.body] == [
        "a = batch['a']",
        "batch_0 = batch['b'][0]",
        "rest_0 = rest[0]",
    ]
    leaves = dict(zip(entry.input_names, map(ast.unparse, taken.leaves), strict=True))
    assert leaves == {
        "batch.a": "a",
        "batch.b.0": "batch_0",
        "rest.0": "rest_0",
        "extra": "extra",
        "scale": "scale",
    }
    [refusal] = signatures.checks(entry, taken.leaves)
    assert "if scale != 3.0:" in ast.unparse(ast.fix_missing_locations(refusal))


def test_results_keep_their_structure():
    result = (1, [2, {"k": 3}], OrderedDict(z=4), Pair(5, 6))
    leaves, spec = pytree.tree_flatten(result)
    made = signatures.result_expression(spec, [ast.Constant(leaf) for leaf in leaves])
    # A class of the user's becomes a dict: the code needs torch only.
    assert eval(ast.unparse(made)) == (1, [2, {"k": 3}], {"z": 4}, {"first": 5, "second": 6})
