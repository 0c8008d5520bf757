"""The part of a file that a model needs."""

from __future__ import annotations

import ast

from aotpipe.tools.rewrite import slicing

FILE = """
from __future__ import annotations
import math, torch
from torch import nn, optim
from aotpipe import Spec

SCALE = math.pi
OTHERS = [n for n in range(3)]


def helper(x):
    return x * SCALE


class Net(nn.Module):
    def forward(self, x):
        return helper(x)


class Unneeded(nn.Module):
    pass


SPEC = Spec(Net)
"""


def test_what_a_class_mentions_is_kept_and_no_more():
    kept = slicing.needed(ast.parse(FILE), ["Net"])
    text = "\n".join(ast.unparse(each) for each in kept)
    assert "import math" in text
    assert "from torch import nn" in text
    assert "optim" not in text
    assert "helper" in text
    assert "SCALE" in text
    assert not {"Unneeded", "SPEC", "OTHERS"} & {name for each in kept for name in slicing.defined(each)}
    assert slicing.imports(kept) == {"__future__", "math", "torch"}
    assert slicing.imports(slicing.needed(ast.parse(FILE), ["SPEC"])) >= {"aotpipe"}
    assert slicing.imports(ast.parse("from .a import b").body) == {"."}
