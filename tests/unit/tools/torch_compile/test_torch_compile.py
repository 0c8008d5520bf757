"""torch.compile with the backend, against eager."""

from __future__ import annotations

import copy
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import aotpipe.tools.torch_compile
from aotpipe.errors import TrainingNotSupported

ROOT = Path(__file__).resolve().parents[4]
OPTIONS = {"target": "iree-vmvx", "cache": False, "verify": False}


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    aotpipe.tools.torch_compile.reset()


class Written(torch.nn.Module):
    """Writes a buffer, decides on a tensor, returns views, and takes a number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor, k: int = 2) -> tuple[torch.Tensor, ...]:
        self.total.add_(x.sum(0))
        x.mul_(2)
        y = self.linear(x)
        if y.sum() > 0:
            y = y * 2
        return y.t(), y[:k] * x.shape[0], x.view(-1)


def compare(compiled: Any, eager: Any, *args: Any) -> None:
    mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
    got, want = compiled(*mine), eager(*theirs)
    torch.testing.assert_close(got, want, check_stride=True)
    torch.testing.assert_close(mine, theirs)


def test_writes_views_sizes_and_branches_are_as_in_eager() -> None:
    eager = Written().eval()
    compiled = copy.deepcopy(eager)
    run = torch.compile(compiled, backend="aotpipe", options=OPTIONS, dynamic=True)
    with torch.no_grad():
        for size, k in ((3, 2), (5, 3)):
            compare(run, eager, torch.randn(size, 4), k)
            torch.testing.assert_close(compiled.total, eager.total)
    counts = aotpipe.tools.torch_compile.counts()
    assert counts.compiled == len(counts.graphs) > 1
    assert counts.eager_calls == 0
    assert counts.graphs[0].where.path.endswith("test_torch_compile.py")


def test_a_view_of_a_result_with_an_order_of_its_own() -> None:
    def call(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x + 1).permute(1, 2, 0).clone()
        return y, y[1:]

    with torch.no_grad():
        compare(torch.compile(call, backend="aotpipe", options=OPTIONS), call, torch.randn(2, 3, 4))
    assert aotpipe.tools.torch_compile.counts().compiled == 1


def test_the_first_answer_is_compared_with_eager() -> None:
    options = {**OPTIONS, "verify": True}
    run = torch.compile(torch.nn.Linear(3, 3), backend="aotpipe", options=options)
    with torch.no_grad():
        run(torch.randn(2, 3))
    [graph] = aotpipe.tools.torch_compile.counts().graphs
    assert graph.status == "compiled"
    assert 0 <= graph.ratio <= 1
    assert graph.compile_s > 0


@pytest.mark.slow
def test_a_write_into_one_of_two_results_is_seen_in_the_other() -> None:
    def call(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        z = y[1:]
        torch._dynamo.graph_break()
        y.mul_(3)
        return y, z

    with torch.no_grad():
        compare(torch.compile(call, backend="aotpipe", options=OPTIONS), call, torch.randn(3, 4))
    assert aotpipe.tools.torch_compile.counts().compiled == 2


def test_training_is_eager_and_counted_or_refused() -> None:
    linear = torch.nn.Linear(3, 3)
    run = torch.compile(linear, backend="aotpipe", options=OPTIONS)
    run(torch.ones(1, 3)).sum().backward()
    assert linear.weight.grad is not None
    [graph] = aotpipe.tools.torch_compile.counts().fallbacks
    assert "no backward pass" in graph.reason
    assert "torch.no_grad()" in graph.hint
    torch._dynamo.reset()
    with pytest.raises(TrainingNotSupported):
        torch.compile(linear, backend="aotpipe", options={**OPTIONS, "fallback": "error"})(torch.ones(1, 3))


def test_a_graph_without_tensors_and_one_that_falls_back_beside_one_that_does_not() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.linalg.eigvals(x)
        torch._dynamo.graph_break()
        return y.real + x

    with torch.no_grad():
        compare(torch.compile(call, backend="aotpipe", options=OPTIONS), call, torch.eye(3) * 2)
    counts = aotpipe.tools.torch_compile.counts()
    assert (counts.compiled, len(counts.fallbacks)) == (1, 1)


def test_an_option_that_there_is_not_is_told() -> None:
    run = torch.compile(torch.nn.Linear(3, 3), backend="aotpipe", options={"level": 3})
    with torch.no_grad(), pytest.raises(BackendCompilerFailed, match="no option 'level'"):
        run(torch.ones(1, 3))


def test_torch_knows_the_name() -> None:
    assert aotpipe.tools.torch_compile.NAME in torch._dynamo.list_backends()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = project["entry-points"]["torch_dynamo_backends"]
    assert EntryPoint("aotpipe", named["aotpipe"], "").load() is aotpipe.tools.torch_compile.aotpipe
