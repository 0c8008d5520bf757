"""Models as people write them, Python deciding on tensors: one IREE program each, with eager's answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import aotpipe
from aotpipe.uncompiled import uncompiled
from tests.programs import unedited

QUICK = {
    "beam_search",
    "capacity_moe",
    "dynamic_size",
    "masked_gather",
    "nms",
    "refactored_newton",
    "valid_tokens",
    "variable_length_rnn",
}


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in unedited.MODELS],
)
def test_an_unedited_model_has_eagers_answers(name: str, tmp_path: Path):
    model, calls, shapes = unedited.case(name)
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
    with aotpipe.load(bundle.path, target="iree-cpu-host") as runner, torch.no_grad(), uncompiled():
        for call in calls:
            want = pytree.tree_leaves(model(**call))
            got = runner.infer({key: value.numpy() for key, value in call.items()}).values()
            for mine, other in zip(want, got, strict=True):
                np.testing.assert_allclose(other, np.asarray(mine), rtol=1e-4, atol=1e-5)


def test_what_eager_raises_the_program_refuses(tmp_path: Path):
    model, calls, _ = unedited.case("validated")
    bundle = aotpipe.build(
        model, kwargs=calls[0], targets=["iree-cpu-host"], out=tmp_path / "bundle", latency=False
    )
    assert "talk-left-out" in {finding.code for finding in bundle.report.findings}
    with aotpipe.load(bundle.path, target="iree-cpu-host") as runner:
        with pytest.raises(aotpipe.errors.AssertionViolated, match=r"ValueError: not finite: \.\.\."):
            runner.infer({"x": np.full(3, np.inf, np.float32), "mode": np.array(1)})
        runner.infer({"x": np.ones(3, np.float32), "mode": np.array(1)})
