"""A finished bundle's programs, to be judged or timed once more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from aotpipe.build import rerun
from aotpipe.build.baselines import made
from aotpipe.build.chain import Chain
from aotpipe.build.events import Recorder
from aotpipe.build.request import Request
from aotpipe.build.rerun import reopened
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.errors import BundleCorrupt, NoProgram, ProgramCrashed, UnknownTarget
from aotpipe.validate import validate
from aotpipe.validate.eager.eager import Eager
from tests.unit.runtime.bundle import samples


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return samples.packed(tmp_path / "out").path


def test_its_programs_pass_once_more(bundle: Path):
    with reopened(bundle) as opened:
        (program,) = opened.programs  # the failed one has none
        assert sorted(opened.loadable.initial_state) == ["count", "total"]
        found = validate(opened.compiled(program), opened.loadable, opened.goldens)
    assert found.status == "executed"
    assert found.parity is not None
    assert found.parity.calls == len(samples.goldens())


def test_programs_are_chosen_by_target(bundle: Path):
    with reopened(bundle, ["iree-v*"]) as opened:
        assert [program.target for program in opened.programs] == ["iree-vmvx"]
    with pytest.raises(NoProgram, match="iree-cpu-host"), reopened(bundle, ["iree-cpu-host"]):
        pass
    with pytest.raises(UnknownTarget), reopened(bundle, ["iree-gpu"]):
        pass


def test_variants_come_with_their_target_and_by_their_own_name(tmp_path: Path):
    variant = samples.validated(samples.HOST, "llvm-cpu")
    both = replace(samples.validated(), variants=(variant,))
    path = samples.packed(tmp_path / "out", programs=[both]).path
    with reopened(path) as opened:
        (program,) = opened.programs
        (other,) = program.variants
        assert opened.compiled(other).payload == variant.compiled.payload
    with reopened(path, [samples.HOST]) as opened:
        assert opened.programs == (other,)


def test_a_changed_bundle_is_not_run(bundle: Path):
    (bundle / "goldens.safetensors").write_bytes(b"x")
    with pytest.raises(BundleCorrupt), reopened(bundle):
        pass


def test_the_bundle_may_go_while_it_is_used(bundle: Path):
    with reopened(bundle) as opened:
        (bundle / "weights.safetensors").write_bytes(b"gone")
        assert (
            validate(opened.compiled(opened.programs[0]), opened.loadable, opened.goldens).status
            == "executed"
        )


def test_a_program_alone(tmp_path: Path):
    path = samples.packed(tmp_path / "out").path
    rows = rerun.measure(path, None, budget_s=0.2, threads=1)
    assert [(row.target, row.latency and row.latency.entry_point) for row in rows] == [
        ("iree-vmvx", "forward"),
        ("iree-vmvx", "decode"),
    ]
    for row in rows:
        assert row.latency is not None
        assert row.latency.program.samples > 1
        assert 0 < row.latency.program.least_us <= row.latency.program.median_us
        assert row.latency.baselines == {}
        assert row.to_json()["latency"]["program"]["samples"] == row.latency.program.samples


def test_what_cannot_run_here_has_a_reason_and_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = samples.packed(tmp_path / "out").path
    monkeypatch.setattr(rerun, "why_not_runnable", lambda *_: "no such device")
    (row,) = rerun.measure(path, None)
    assert (row.reason, row.latency) == ("no such device", None)


def test_the_variant_that_would_be_loaded_is_timed(tmp_path: Path):
    variant = samples.validated(samples.HOST, "llvm-cpu")
    both = replace(samples.validated(), variants=(variant,))
    path = samples.packed(tmp_path / "out", programs=[both]).path

    def timed(**options: bool) -> set[tuple[str, str]]:
        rows = rerun.measure(path, None, budget_s=0.05, threads=1, **options)
        return {(row.target, row.program) for row in rows}

    assert timed() == {("iree-vmvx", "iree-cpu-host")}
    assert timed(variants=False) == {("iree-vmvx", "iree-vmvx")}


def test_a_program_that_dies_while_it_is_timed_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    programs = [samples.validated(samples.HOST, "llvm-cpu"), samples.validated()]
    path = samples.packed(tmp_path / "out", programs=programs).path
    real = rerun.measure_latency
    asked = []

    def dying(*given: Any, **more: Any) -> Any:
        asked.append(given)
        if len(asked) == 1:
            raise ProgramCrashed("the program died by SIGSEGV (time forward)")
        return real(*given, **more)

    monkeypatch.setattr(rerun, "measure_latency", dying)
    first, *others = rerun.measure(path, None, budget_s=0.05, threads=1)
    assert (first.exit_code, first.reason) == (41, "the program died by SIGSEGV (time forward)")
    assert [row.exit_code for row in others] == [0, 0]
    assert all(row.latency for row in others)


WRITES_A_PARAMETER = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        with torch.no_grad():
            self.weight.add_(1)
        return x * self.weight

import aotpipe
MODEL = Model().eval()
CALL = aotpipe.EntryPoint(args=(torch.ones(3),))
SPEC = aotpipe.Spec(name="writes", build=lambda: MODEL, entry_points={"forward": CALL})
"""


def test_the_reference_starts_from_the_models_own_parameters(tmp_path: Path):
    file = tmp_path / "writes.py"
    file.write_text(WRITES_A_PARAMETER)
    x = TensorSpec.parse("x: float32[3]")
    signature = Signature(
        inputs=(x,), outputs=(replace(x, name="output"),), state=(replace(x, name="weight"),)
    )
    entries = Chain(Request.of(str(file)), Recorder()).canonical.entries
    eager = cast("Eager", made(["eager"], entries, {"forward": signature}, 1)["eager"])
    for _ in range(2):
        eager.reset()
        assert eager.infer({"x": np.ones(3, np.float32)})["output"].tolist() == [2, 2, 2]
