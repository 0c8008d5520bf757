"""Written code is compared with the original, and refused where it differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import aotpipe
from aotpipe.build.chain import Chain
from aotpipe.build.events import Recorder
from aotpipe.build.request import Request
from aotpipe.core.serialization import fields_of
from aotpipe.errors import RewriteFailed
from aotpipe.passes.codegen.from_graph import generate_class
from aotpipe.passes.codegen.from_source import edit_source
from aotpipe.tools.rewrite import proved
from aotpipe.validate.rewritten.proof import check

X = torch.arange(3.0)
FILE = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if x.sum() > 0:
            y = x + 1
        else:
            y = x - 1
        return y * self.calls


MODEL = Net().eval()
EXAMPLE_INPUTS = (torch.ones(3),)
"""


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)) * self.calls


@pytest.fixture(scope="module")
def exported():
    return aotpipe.export(Counter().eval(), args=(X,))


def test_what_is_right_is_proved(exported):
    proof = proved(exported, generate_class(exported), "m.py")
    assert proof.calls > 6
    assert proof.sequences > 1
    assert proof.max_abs_error == 0
    assert [each.is_full for each in proof.coverage] == [True]
    assert fields_of(proof)["coverage"][0]["what"] == "cond"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("x - 1", "x - 2", "'output' of the written module is"),
        ("self.calls.add_(1)", "self.calls + 1", "'output' of the written module is"),
        ("self.calls.copy_(torch.tensor(0", "self.calls.copy_(torch.tensor(1", "leaves 'calls' other than"),
        ("torch.cond(", "x if x.sum() > 5 else torch.cond(", "refuses the rewritten forward"),
        ("x + 1", "y + 1", "refuses the rewritten forward"),
        (
            "self.register_buffer('calls'",
            "self.register_buffer('called'",
            "does not take the original's weights",
        ),
    ],
)
def test_what_is_wrong_is_not(exported, old, new, said):
    code = generate_class(exported)
    assert old in code.text
    with pytest.raises(RewriteFailed, match=said) as raised:
        proved(exported, replace(code, text=code.text.replace(old, new)), "m.py")
    assert "in the call" in str(raised.value) or "rewritten" in str(raised.value)


def test_a_quick_check_finds_what_is_wrong_of_state_and_of_the_path_not_taken(tmp_path: Path):
    path = tmp_path / "net.py"
    path.write_text(FILE)
    chain = Chain(Request.of(f"{path}:MODEL", ()), Recorder())
    code = edit_source(chain.exported, chain.decisions).code()
    check(chain.exported, code)
    for old, new in (("x - 1", "x - 2"), ("self.calls + 1", "self.calls + 2"), ("x + 1", "y + 1")):
        assert old in code.text
        with pytest.raises(RewriteFailed, match="in the call"):
            check(chain.exported, replace(code, text=code.text.replace(old, new)))


class Loudness(nn.Module):
    def forward(self, x):
        loudest = x.abs().max().item()
        if loudest > 1:
            x = x / loudest
        return {"loudest": loudest, "mean": x.mean()}


def test_a_number_may_be_given_as_the_tensor_that_it_comes_of():
    exported = aotpipe.export(Loudness().eval(), args=(X,))
    code = generate_class(exported)
    assert proved(exported, code, "m.py").calls > 6
    assert ".mean(" in code.text
    wide = code.text.replace(".mean(", ".to(torch.float64).mean(")
    with pytest.raises(RewriteFailed, match="dtype is float64, not float32"):
        proved(exported, replace(code, text=wide), "m.py")
