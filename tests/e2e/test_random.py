"""Bundles of models that draw random numbers: eager's own numbers, on every target, call after call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import aotpipe
from aotpipe.canonicalize import canonicalize
from aotpipe.errors import AotpipeError, InputValue
from aotpipe.model.spec import as_spec

TARGETS = ["iree-cpu-host", "xla-cpu-host"]
X = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)


class Sampler(nn.Module):
    """Rejection, a branch that draws another number of times, and a draw of a size that varies."""

    def forward(self, x):
        drawn = torch.randn(())
        while drawn < 0.3:
            drawn = torch.randn(())
        if x.sum() > 0:
            x = x + torch.rand_like(x)
        return x * drawn, torch.multinomial(x.softmax(-1), 1), torch.randperm(5)


def _build(tmp_path: Path, source: Any) -> Path:
    out = tmp_path / "bundle"
    built = aotpipe.build(
        Sampler().eval(),
        targets=TARGETS,
        args=(torch.from_numpy(X),),
        dynamic_shapes={"x": {0: aotpipe.Dim("rows", min=1, max=5)}},
        buckets={"rows": (1, 5)},
        random=source,
        latency=False,
        out=out,
    )
    assert [each.status for each in built.report.targets] == ["executed", "executed"]
    return out


def test_a_generator_is_state_of_the_program(tmp_path: Path):
    out = _build(tmp_path, "state")
    model = canonicalize(as_spec(Sampler().eval(), args=(torch.from_numpy(X),), random="state"))
    eager = model.entries[0].module
    calls = [X, -X, X[:1], np.repeat(X, 2, 0), X]
    with torch.no_grad():
        want = [[each.numpy() for each in eager(torch.from_numpy(call))] for call in calls]
    for target in TARGETS:
        with aotpipe.load(out, target=target) as runner:
            for _ in range(2):
                for call, answer in zip(calls, want, strict=True):
                    found = runner.infer({"x": call})
                    np.testing.assert_allclose(found["output.0"], answer[0], rtol=1e-5, atol=1e-6)
                    np.testing.assert_array_equal(found["output.1"], answer[1])
                    np.testing.assert_array_equal(found["output.2"], answer[2])
                runner.reset()


@pytest.mark.slow
def test_a_seed_is_an_input(tmp_path: Path):
    out = _build(tmp_path, "input")
    for target in TARGETS:
        with aotpipe.load(out, target=target) as runner:
            answers = [
                runner.infer({"x": X, "random_seed": np.int64(seed)})["output.0"]
                for seed in (1, 2**32 - 1, 1)
            ]
            assert (answers[0] == answers[2]).all()
            assert (answers[0] != answers[1]).any()
            with pytest.raises(AotpipeError, match="random_seed"):
                runner.infer({"x": X})
            with pytest.raises(InputValue, match="random_seed"):
                runner.infer({"x": X, "random_seed": np.int64(2**32)})
