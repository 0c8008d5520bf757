from dataclasses import replace

import numpy as np
import pytest

from aotpipe.errors import BundleCorrupt, BundleNotFound, IncompatibleHost, NoProgram
from aotpipe.runtime import bundle
from tests.unit.runtime.bundle import samples


def test_a_good_bundle_passes(tmp_path):
    made = samples.packed(
        tmp_path / "b", programs=[samples.validated(), samples.validated(samples.HOST, "llvm-cpu")]
    )
    result = bundle.selftest(made)
    assert result.passed
    assert [(each.target, each.outcome, each.calls) for each in result.targets] == [
        (samples.VMVX, "passed", 3),
        (samples.HOST, "passed", 3),
    ]
    assert all(each.worst.passed for each in result.targets)


def test_one_target(tmp_path):
    result = bundle.selftest(samples.packed(tmp_path / "b"), samples.VMVX)
    assert [each.target for each in result.targets] == [samples.VMVX]


def test_variants_are_run_too(tmp_path):
    """Each once, also where it is another target's own program."""
    host = samples.validated(samples.HOST, "llvm-cpu")
    greedy = samples.validated("iree-cpu-x86_64_v4", "llvm-cpu", needs=("x86_64", "avx1024"))
    both = replace(samples.validated(), variants=(host, greedy))
    made = samples.packed(tmp_path / "b", programs=[both, host])
    outcomes = {each.target: each.outcome for each in bundle.selftest(made).targets}
    assert outcomes == {samples.VMVX: "passed", samples.HOST: "passed", "iree-cpu-x86_64_v4": "skipped"}
    targets = [each.target for each in bundle.selftest(made, samples.VMVX).targets]
    assert targets == [samples.VMVX, samples.HOST, "iree-cpu-x86_64_v4"]


def test_a_wrong_answer_fails_and_is_shown(tmp_path):
    first, second, third = samples.goldens()
    wrong = replace(second, outputs={**second.outputs, "y": second.outputs["y"] + np.float32(0.5)})
    result = bundle.selftest(samples.packed(tmp_path / "b", goldens=(first, wrong, third)))
    assert not result.passed
    [target, _] = result.targets
    assert target.outcome == "failed"
    assert (target.worst.case, target.worst.output) == ("seed 0/1", "y")
    assert target.worst.max_abs_error == pytest.approx(0.5)


def test_a_program_of_other_numbers_fails(tmp_path):
    made = samples.packed(tmp_path / "b", weights=samples.weight_files(weight=np.full(4, 2, np.float32)))
    assert not bundle.selftest(made).passed


def test_what_cannot_run_here_is_skipped_with_its_reason(tmp_path):
    greedy = samples.validated(samples.HOST, "llvm-cpu", needs=("x86_64", "avx1024"))
    made = samples.packed(tmp_path / "b", programs=[*samples.contents()["programs"].items(), greedy])
    result = bundle.selftest(made)
    assert result.passed
    assert [(each.outcome, each.reason) for each in result.targets] == [
        ("passed", ""),
        ("skipped", "it crashed"),
        ("skipped", "this CPU lacks avx1024"),
    ]
    with pytest.raises(IncompatibleHost):
        bundle.selftest(made, samples.HOST)
    with pytest.raises(IncompatibleHost):
        bundle.selftest(samples.packed(tmp_path / "only", programs=[greedy]))


def test_a_bundle_that_cannot_be_read(tmp_path):
    with pytest.raises(BundleNotFound):
        bundle.selftest(tmp_path)
    made = samples.packed(tmp_path / "b")
    with pytest.raises(NoProgram):
        bundle.selftest(made, "iree-cpu-host")
    samples.flip(made.path / "goldens.safetensors")
    with pytest.raises(BundleCorrupt, match=r"goldens\.safetensors"):
        bundle.selftest(made)


def test_a_program_that_fails_is_a_result_and_the_others_are_run(tmp_path):
    first, *_ = samples.goldens()
    ones = np.full((1, 4), 200, np.float32)
    violating = replace(first, inputs={"x": ones, "ids": np.array([1])}, outputs={"y": ones})
    programs = [samples.validated(), samples.validated(samples.HOST, "llvm-cpu")]
    result = bundle.selftest(samples.packed(tmp_path / "b", programs=programs, goldens=(first, violating)))
    assert not result.passed
    assert [each.outcome for each in result.targets] == ["failed", "failed"]
    assert "total must stay below 100" in result.targets[0].reason


def test_a_program_that_dies_is_a_result(tmp_path, monkeypatch):
    from aotpipe.runtime.worker import Worker

    infer = Worker.infer

    def kill_then_infer(self, inputs, *, entry_point):
        self._process.kill()
        return infer(self, inputs, entry_point=entry_point)

    monkeypatch.setattr(Worker, "infer", kill_then_infer)
    [target, _] = bundle.selftest(samples.packed(tmp_path / "b")).targets
    assert target.outcome == "failed"
    assert "died by SIGKILL" in target.reason


def test_goldens_that_are_none(tmp_path):
    import hashlib

    made = samples.packed(tmp_path / "b")
    (made.path / "goldens.safetensors").write_bytes(b"\0" * 64)
    entry = {"sha256": hashlib.sha256(b"\0" * 64).hexdigest(), "size_bytes": 64}
    samples.rewrite_manifest(
        made.path, lambda content: content["files"].update({"goldens.safetensors": entry})
    )
    with pytest.raises(BundleCorrupt, match="no recorded calls"):
        bundle.selftest(made)
