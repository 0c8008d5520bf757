"""A finished bundle's programs, to be judged or timed once more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.build.rerun import fitting, reopened, why_not_here
from aotpipe.core.targets import Target
from aotpipe.errors import BundleCorrupt, NoProgram, UnknownTarget
from aotpipe.validate import validate
from tests.unit.runtime.bundle import samples


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return samples.packed(tmp_path / "out").path


def test_its_programs_pass_once_more(bundle: Path):
    with reopened(bundle) as opened:
        (program,) = opened.programs  # the failed one has none
        assert why_not_here(opened, program.target) == ""
        assert sorted(opened.loadable.initial_state) == ["count", "total"]
        found = validate(program, opened.loadable, opened.goldens)
    assert found.status == "executed"
    assert found.parity is not None
    assert found.parity.calls == len(samples.goldens())


def test_programs_are_chosen_by_target(bundle: Path):
    with reopened(bundle, ["iree-v*"]) as opened:
        assert [program.target for program in opened.programs] == [Target.parse("iree-vmvx")]
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
        (other,) = opened.variants[program.target]
        assert other.payload == variant.compiled.payload
        assert fitting(opened, program) == other
    with reopened(path, [samples.HOST]) as opened:
        assert opened.programs == (other,)
        assert fitting(opened, other) == other


def test_a_changed_bundle_is_not_run(bundle: Path):
    (bundle / "goldens.safetensors").write_bytes(b"x")
    with pytest.raises(BundleCorrupt), reopened(bundle):
        pass


def test_the_bundle_may_go_while_it_is_used(bundle: Path):
    with reopened(bundle) as opened:
        (bundle / "weights.safetensors").write_bytes(b"gone")
        assert validate(opened.programs[0], opened.loadable, opened.goldens).status == "executed"
