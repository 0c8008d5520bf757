"""Calls that differ in what they have: one program for all, at parity and with eager's answers."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import aotpipe
from aotpipe.canonicalize.example_call import uncompiled
from tests.programs import enriched


def arrays(value: Any) -> Any:
    """A batch of numpy arrays as a host without torch has it: nested as the model takes it."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, dict):
        return {key: arrays(each) for key, each in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {key: arrays(each) for key, each in vars(value).items()}
    return value


def answers(result: Any) -> dict[str, Any]:
    named = result if isinstance(result, dict) else {f"output.{n}": each for n, each in enumerate(result)}
    return {name: value for name, value in named.items() if value is not None}


QUICK = {"capacity_moe"}


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in enriched.MODELS],
)
def test_one_program_takes_any_subset(name: str, tmp_path: Path):
    model, build, calls = enriched.case(name)
    bundle = aotpipe.build(
        copy.deepcopy(model), **build, targets=["iree-cpu-host"], out=tmp_path / "bundle", latency=False
    )
    [row] = bundle.report.targets
    assert row.status == "executed", row.reason
    assert len(bundle.manifest.programs) == 1
    assert aotpipe.runtime.bundle.selftest(bundle.path).passed
    held = {
        name: getattr(model, name.removeprefix("self.")) for name in build.get("tensorize", ()) if "." in name
    }
    with aotpipe.load(bundle.path, target="iree-cpu-host") as runner, torch.no_grad(), uncompiled():
        for args, kwargs in calls:
            want = answers(model(*args, **kwargs))
            given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
            given |= given.pop("extra", {})
            got = runner.infer({**{key: arrays(value) for key, value in given.items()}, **held})
            assert got.keys() == want.keys()
            for key, value in want.items():
                np.testing.assert_allclose(got[key], np.asarray(value), rtol=1e-4, atol=1e-5, err_msg=key)
