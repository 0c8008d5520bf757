"""Single steps as functions, and a bundle judged anew beside its model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import aotpipe
from aotpipe.build import steps
from aotpipe.build.compile_stage import CompileSettings
from aotpipe.errors import CompileFailed, SpecInvalid

ARGS = (torch.randn(2, 4),)


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3).eval()


def test_canonicalize_and_export_take_a_bare_module():
    canonical = aotpipe.canonicalize(model(), ARGS, name="line")
    assert canonical.spec.name == "line"
    exported = aotpipe.export(model(), ARGS, dynamic_shapes={"input": {0: aotpipe.Dim("batch", max=8)}})
    assert [str(leaf) for leaf in exported.entries[0].signature.inputs] == ["input: float32[batch, 4]"]


def test_compile_gives_programs_and_raises_the_first_failure():
    spec = aotpipe.model.spec.as_spec(model(), args=ARGS)
    lowered, programs = steps.compile(spec, targets=["iree-vmvx"], compiling=CompileSettings(cache=False))
    assert lowered["iree"].entry_points == ("forward",)
    assert [str(program.target) for program in programs] == ["iree-vmvx"]
    with pytest.raises(CompileFailed):
        steps.compile(
            spec,
            targets=["iree-vmvx"],
            compiling=CompileSettings(extra_flags=("--no-such-flag",), cache=False),
        )


def test_compile_takes_the_options_of_a_build():
    def scaled(x: torch.Tensor, mask: torch.Tensor | None = None, k: float = 2.0) -> torch.Tensor:
        return (x if mask is None else x @ mask) * k

    options = {"optional": ["mask"], "tensorize": ["k"], "dtype": "bf16"}
    x = torch.ones(3, 3)
    lowered, _ = steps.compile(
        scaled, (x, x, 3.0), targets=["iree-vmvx"], compiling=CompileSettings(cache=False), **options
    )
    assert b"bf16" in lowered["iree"].module
    plain, _ = steps.compile(
        scaled, (x, x, 3.0), targets=["iree-vmvx"], compiling=CompileSettings(cache=False)
    )
    assert lowered["iree"].module.count(b"%arg") > plain["iree"].module.count(b"%arg")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = aotpipe.build(
        model(),
        args=ARGS,
        targets=["iree-vmvx"],
        out=tmp_path_factory.mktemp("steps") / "out",
        latency=False,
        cache=False,
    )
    return built.path


def test_a_bundle_is_judged_beside_its_model(bundle: Path):
    report = steps.revalidate(bundle, aotpipe.model.spec.as_spec(model(), args=ARGS))
    assert [row.status for row in report.targets] == ["executed"]
    assert report.ok


@pytest.mark.slow
def test_a_bundle_in_fewer_bits_is_judged_under_its_policy(tmp_path: Path):
    built = aotpipe.build(
        model(),
        args=ARGS,
        targets=["iree-cpu-host"],
        dtype="bf16",
        out=tmp_path / "out",
        latency=False,
        cache=False,
    )
    assert built.manifest.precision is not None
    assert [finding.code for finding in built.manifest.findings if finding.code == "precision"]
    report = steps.revalidate(built.path, aotpipe.model.spec.as_spec(model(), args=ARGS))
    assert report.ok
    [row] = report.targets
    assert row.parity is not None
    assert row.parity.worst is not None
    assert row.parity.worst.eager_abs_error > 1e-4


def test_another_models_weights_fail(bundle: Path):
    other = model()
    torch.nn.init.ones_(other.weight)
    report = steps.revalidate(bundle, aotpipe.model.spec.as_spec(other, args=ARGS))
    (row,) = report.targets
    assert (row.status, row.error, report.exit_code) == ("failed", "ParityError", 40)


def test_another_signature_is_another_model(bundle: Path):
    other = aotpipe.model.spec.as_spec(torch.nn.Linear(5, 3).eval(), args=(torch.randn(2, 5),))
    with pytest.raises(SpecInvalid, match="another signature"):
        steps.revalidate(bundle, other)


def test_a_bundle_whose_call_may_leave_inputs_out_is_judged_with_the_option(tmp_path: Path):
    def masked(x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return x if mask is None else x * mask

    spec = aotpipe.model.spec.as_spec(masked, args=(torch.ones(3), torch.ones(3)))
    built = aotpipe.build(spec, targets=["iree-vmvx"], optional=["mask"], out=tmp_path / "out", latency=False)
    assert steps.revalidate(built.path, spec, optional=["mask"]).ok
    with pytest.raises(SpecInvalid, match="another signature") as caught:
        steps.revalidate(built.path, spec)
    assert "--optional" in caught.value.hint
    with pytest.raises(SpecInvalid, match="option dtype"):
        steps.revalidate(built.path, spec, dtype="bf16")


def test_a_bundle_with_islands_is_judged_beside_its_model(tmp_path: Path):
    @aotpipe.eager_island
    def outside(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def chained(x: torch.Tensor) -> torch.Tensor:
        return outside(x * 2) * 3

    spec = aotpipe.model.spec.as_spec(chained, args=(torch.ones(3),))
    built = aotpipe.build(
        spec, targets=["iree-vmvx"], allow_islands=True, out=tmp_path / "out", latency=False
    )
    assert steps.revalidate(built.path, spec).ok
