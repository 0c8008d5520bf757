"""Other ways to run a model, on the same inputs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from aotpipe.build import baselines, rerun
from aotpipe.build.baselines import made
from aotpipe.core.stages import CanonicalEntry
from aotpipe.errors import TargetError
from aotpipe.model.spec import EntryPoint
from aotpipe.runtime.goldens import Golden

X = np.ones((2, 4), np.float32)


def _entries() -> tuple[CanonicalEntry, ...]:
    return (
        CanonicalEntry(
            name="forward",
            entry=EntryPoint(args=(torch.ones(2, 4),)),
            module=torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval(),
            input_names=("input",),
            constants={},
            output_names=("output",),
        ),
    )


@pytest.mark.parametrize("name", ["eager", "onnxruntime", "openvino"])
def test_a_baseline_is_timed(name: str):
    if missing := [package for package in baselines._NEEDS.get(name, ()) if not find_spec(package)]:
        with pytest.raises(TargetError, match=f"{missing[0]}.* is not installed"):
            made([name], _entries(), {}, 1)
        pytest.skip(f"{', '.join(missing)} is not installed")
    found = made([name], _entries(), {}, 1)[name]
    samples = found.time({"input": X}, entry_point="forward", samples=3)
    assert len(samples) == 3
    assert min(samples) > 0


@pytest.mark.slow  # inductor compiles C++
def test_torch_compile_is_timed_with_frozen_weights():
    found = made(["torch.compile"], _entries(), {}, 1)["torch.compile"]
    first, *warm = found.time({"input": X}, entry_point="forward", samples=4)
    assert first > 100 * min(warm)


def test_a_baseline_that_does_not_take_the_model_is_left_out_with_the_reason():
    class Refusing:
        def time(self, *_: object, **__: object) -> list[float]:
            raise RuntimeError("no such op\nand more")

    golden = Golden(entry_point="forward", case="example", reset=True, inputs={}, outputs={}, allowed={})
    found = rerun.first_calls({"openvino": Refusing()}, golden, stateful=False)  # type: ignore[dict-item]
    assert found == ({}, {"openvino": "RuntimeError: no such op"})
    with pytest.raises(RuntimeError):
        rerun.first_calls({"eager": Refusing()}, golden, stateful=False)  # type: ignore[dict-item]


def test_calls_come_at_random_and_at_the_rate_that_was_asked_for(tmp_path: Path):
    arrivals = rerun.Load(scenario="Server", per_s=1000.0).arrivals_s(5000.0, 2.0)
    assert arrivals[0] == 0.0
    assert arrivals == sorted(arrivals)
    assert len(arrivals) == 2000
    gaps = np.diff(arrivals)
    # Of a Poisson process the gaps' mean is their standard deviation.
    assert np.mean(gaps) == pytest.approx(1e-3, rel=0.1)
    assert np.std(gaps) == pytest.approx(1e-3, rel=0.15)
    assert arrivals == rerun.Load(scenario="Server", per_s=1000.0).arrivals_s(9.0, 2.0)
    assert len(rerun.Load(scenario="Server").arrivals_s(600.0, 1.0)) == 662
