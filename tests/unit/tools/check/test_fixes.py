"""Fixes: shown only if they were executed, gave eager's answers, and took the obstacle away."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import torch

import aotpipe
from aotpipe.tools.check.diagnostics import Diagnostic
from tests.unit.tools.check.models import X


def only(module: torch.nn.Module, *args: Any) -> Diagnostic:
    [found] = aotpipe.check(module.eval(), args).obstacles
    return found


class Numpy(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x + 1
        return torch.from_numpy(np.exp(x.numpy())) * 2


class Sampled(torch.nn.Module):
    """numpy's function of that name does something else than torch's."""

    def forward(self, x):
        if x.sum() > 0:
            x = x + 1
        return torch.from_numpy(np.std(x.numpy(), keepdims=True)) * 2


def test_numpys_functions_become_torchs():
    before = Numpy.forward.__code__
    found = only(Numpy(), X)
    assert found.code == "tensor-to-numpy"
    assert found.fix is not None
    assert found.fix.verified
    assert found.fix.line.strip() == "return torch.exp(x) * 2"
    assert found.fix.calls == 5
    assert Numpy.forward.__code__ is before
    assert "x.numpy()" in linecache.getline(__file__, before.co_firstlineno + 3)


def test_an_edit_that_answers_otherwise_is_not_shown():
    found = only(Sampled(), X)
    assert found.code == "tensor-to-numpy"
    assert found.fix is None


def test_what_no_edit_helps_has_none():
    class Growing(torch.nn.Module):
        def forward(self, x):
            found = []
            while x.sum() > 1:
                x = x / 2
                found.append(x)
            return sum(found)

    assert only(Growing(), X).fix is None
