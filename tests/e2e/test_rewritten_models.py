"""Unedited models as PyTorch with explicit control flow: each is proved, and takes calls that cover it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import aotpipe
from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.cli.tools import summary
from aotpipe.tools.rewrite import Written
from aotpipe.validate.rewritten.loading import loaded, made
from tests.programs import generating, seeds, unedited
from tests.programs.cases import case

TABLES = {"unedited": unedited.MODELS, "seeds": seeds.MODELS, "generating": generating.MODELS}
# From their own source, each with another construct: a branch, a loop with a break, an index, an assert.
QUICK = {"conditional", "iterative_addition", "conjugate_gradient", "validated"}
CASES = [
    pytest.param(table, name, id=name, marks=() if name in QUICK else pytest.mark.slow)
    for table, models in TABLES.items()
    for name in models
]


class Smoothed(nn.Module):
    """Keeps a counter and a mean that the first call makes."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.mean = None

    def forward(self, x):
        self.calls += 1
        self.mean = x if self.mean is None else self.mean * 0.9 + x * 0.1
        if self.calls % 3 == 0:
            self.mean = torch.zeros_like(x)
        return x - self.mean


def answers(module: Any, call: dict[str, Any]) -> list[torch.Tensor]:
    with torch.no_grad(), uncompiled():
        given = pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, call)
        return [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(module(**given))]


def compare(found: Written, model: nn.Module, calls: list[dict[str, Any]]) -> None:
    """Make calls of a model and of what was written, and compare the answers."""
    with loaded(found, "model.py") as (module, _):
        rewritten = made(module, found, model)
        for call in calls:
            want, got = answers(model, call), answers(rewritten, call)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, check_dtype=False)


@pytest.mark.parametrize(("table", "name"), CASES)
def test_an_unedited_model_is_written_and_proved(table: str, name: str):
    model, calls, shapes = case(TABLES[table], name)
    found = aotpipe.written(model, kwargs=calls[0], dynamic_shapes=shapes)
    assert found.proof.calls > 0
    assert (found.way == "source") is not bool(found.reason)
    assert "import aotpipe" not in found.text
    if name in QUICK:
        assert found.way == "source", found.reason
    compare(found, case(TABLES[table], name)[0], calls)


def test_state_in_python_is_buffers_and_reset():
    x = torch.arange(3.0)
    found = aotpipe.written(Smoothed().eval(), args=(x,))
    assert found.way == "graph"
    assert set(found.state) >= {"calls", "mean"}
    assert found.proof.sequences > 2
    compare(found, Smoothed().eval(), [{"x": x * n} for n in range(8)])


def test_the_page_shows_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = (Path(__file__).parents[2] / "docs" / "rewritten.md").read_text(encoding="utf-8")
    [model, diff] = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL)[1] for kind in ("python", "diff"))
    (tmp_path / "model.py").write_text(model)
    monkeypatch.chdir(tmp_path)
    found = aotpipe.written("model.py:MODEL", file_name="rewritten.py")
    assert found.diff() == diff
    assert summary(found, None) in page
