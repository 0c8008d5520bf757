"""Models that decide on tensors in plain Python, unedited: one IREE program each, with eager's answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import aotpipe
from aotpipe import Dim


class DynamicActivation(torch.nn.Module):
    def forward(self, x):
        if x.mean() > 0:
            return torch.relu(x)
        else:  # noqa: RET505  # as people write it
            return torch.sigmoid(x)


class NewtonRaphsonSolver(torch.nn.Module):
    def __init__(self, tol=1e-6, max_iter=100):
        super().__init__()
        self.tol = tol
        self.max_iter = max_iter

    def forward(self, x_init):
        x = x_init
        diff = torch.tensor(1.0)
        iterations = 0
        while diff.abs().max() > self.tol and iterations < self.max_iter:
            x_new = x - 0.1 * x
            diff = x_new - x
            x = x_new
            iterations += 1
        return x


class EarlyExit(torch.nn.Module):
    """Layers until the answer is sure, and how many of them ran."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x):
        ran = 0
        for layer in self.layers:
            x = torch.tanh(layer(x))
            ran += 1
            if self.head(x).softmax(-1).max() > 0.4:
                break
        return self.head(x), ran


class Smoothed(torch.nn.Module):
    """Keeps a running mean and a count of the calls whose input was large."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("large", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if x.abs().max() > 1:
            self.large += 1
            self.mean = self.mean * 0.5 + x * 0.5
        return x - self.mean, self.large * 1


class Decoder(torch.nn.Module):
    """Greedy decoding until a stop token, into a buffer of fixed length."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embed = torch.nn.Embedding(11, 16)
        self.cell = torch.nn.RNNCell(16, 16)
        self.out = torch.nn.Linear(16, 11)

    def forward(self, h, limit):
        token = torch.zeros(1, dtype=torch.int64)
        tokens = torch.full((8,), -1)
        for step in range(limit):
            h = self.cell(self.embed(token), h)
            token = self.out(h).argmax(-1)
            tokens = torch.where(torch.arange(8) == step, token, tokens)
            if token[0] == 7 or step >= 7:
                break
        return tokens, h


class Several(Smoothed):
    """Models of inputs of their own as one: a build costs more than what is in it."""

    def __init__(self):
        super().__init__()
        self.branch = DynamicActivation()
        self.loop = NewtonRaphsonSolver()
        self.exit = EarlyExit()

    def forward(self, x, start, features, signal):
        return self.branch(x), self.loop(start), *self.exit(features), *super().forward(signal)


X = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)
CASES = [
    pytest.param(
        Several(),
        [
            {
                "x": x,
                "start": torch.tensor([start]),
                "features": torch.full((1, 8), feature),
                "signal": torch.full((4,), signal),
            }
            for x, start, feature, signal in (
                (X, 5.0, 0.0, 0.5),
                (-X, 1e-3, 0.5, 2.0),
                (X[:1], 0.0, 3.0, -3.0),
                (X, -80.0, 0.5, 0.1),
                (-X, 5.0, 0.0, 4.0),
            )
        ],
        {"x": {0: Dim("n", max=8)}, "start": None, "features": None, "signal": None},
        4,
        id="several",
    ),
    pytest.param(
        Decoder(),
        [{"h": torch.full((1, 16), 0.3), "limit": torch.tensor(n)} for n in (5, 0, 1, 8)],
        None,
        1,
        id="decoding",
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(("model", "calls", "shapes", "decisions"), CASES)
def test_one_program_with_eagers_answers(
    model: Any, calls: list[dict[str, Any]], shapes: Any, decisions: int, tmp_path: Path
):
    model = model.eval()
    bundle = aotpipe.build(
        model,
        kwargs=calls[0],
        dynamic_shapes=shapes,
        targets=["iree-cpu-host"],
        out=tmp_path / "bundle",
        latency=False,
    )
    [row] = bundle.report.targets
    assert row.status == "executed", row.reason
    found = [finding.where for finding in bundle.report.findings if finding.code == "control-flow-in-graph"]
    assert len(found) >= decisions
    with aotpipe.load(bundle.path, target="iree-cpu-host") as runner, torch.no_grad():
        for call in calls:
            want = model(**call)
            want = want if isinstance(want, tuple) else (want,)
            got = list(runner.infer({name: value.numpy() for name, value in call.items()}).values())
            for mine, other in zip(want, got, strict=True):
                np.testing.assert_allclose(other, np.asarray(mine), rtol=1e-5, atol=1e-6)
