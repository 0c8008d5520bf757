"""`load(check="goldens")`: what dies, hangs or answers otherwise stays in another process, and is refused."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aotpipe.errors import AotpipeError, BundleCorrupt, ProgramCrashed
from aotpipe.runtime import bundle, loading, process
from aotpipe.runtime.worker import Worker
from tests.sweep import sweep
from tests.unit.runtime.bundle import samples

# Loads a bundle without the check and compares its answers with numpy alone.
_CALLS = """\
import sys
import numpy as np
import aotpipe
from aotpipe.runtime.bundle import files, open_bundle

with aotpipe.load(sys.argv[1], sys.argv[2]) as runner:
    for golden in files.goldens(open_bundle(sys.argv[1])):
        if golden.reset:
            runner.reset()
        got = runner.infer(golden.inputs, entry_point=golden.entry_point)
        for name, want in golden.outputs.items():
            atol, rtol = golden.allowed.get(name, (0.0, 0.0))
            np.testing.assert_allclose(got[name], want, atol=atol, rtol=rtol, strict=True)
"""


def hashed_again(root: Path, name: str, content: bytes) -> None:
    """Put a file in a bundle as a forger would: with a manifest that names its digest."""
    (root / name).write_bytes(content)
    entry = {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    samples.rewrite_manifest(root, lambda manifest: manifest["files"].update({name: entry}))


def answers_as_recorded(root: Path, target: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", _CALLS, str(root), target],
        capture_output=True,
        timeout=60,
        env={"PYTHONPATH": process.python_path(), "PATH": ""},
    )
    return done.returncode == 0


@pytest.mark.parametrize("target", [samples.VMVX, samples.HOST])
def test_a_right_program_is_loaded(tmp_path, target):
    programs = [samples.validated(), samples.validated(samples.HOST, "llvm-cpu")]
    made = samples.packed(tmp_path / "b", programs=programs)
    with bundle.load(made, target, check="goldens") as runner:
        assert runner.infer(samples.call())["y"].shape == (2, 4)


def test_a_program_of_other_numbers_is_refused(tmp_path):
    made = samples.packed(tmp_path / "b", weights=samples.weight_files(weight=np.full(4, 2, np.float32)))
    bundle.load(made).close()
    with pytest.raises(BundleCorrupt, match="does not answer as it did") as found:
        bundle.load(made, check="goldens")
    assert found.value.reason.startswith("y of forward, seed 0")


def test_a_program_that_raises_is_refused(tmp_path):
    first, *_ = samples.goldens()
    ones = np.full((1, 4), 200, np.float32)
    violating = replace(first, inputs={"x": ones, "ids": np.array([1])}, outputs={"y": ones})
    made = samples.packed(tmp_path / "b", goldens=(first, violating))
    with pytest.raises(BundleCorrupt) as found:
        bundle.load(made, check="goldens")
    assert "total must stay below 100" in found.value.reason


def test_a_program_that_dies_or_hangs_never_comes_into_this_process(tmp_path, monkeypatch):
    infer = Worker.infer
    made = samples.packed(tmp_path / "b")
    monkeypatch.setattr(loading, "runtime", lambda _: pytest.fail("it was loaded here"))

    def kill_then_infer(self, inputs, *, entry_point):
        self._process.kill()
        return infer(self, inputs, entry_point=entry_point)

    monkeypatch.setattr(Worker, "infer", kill_then_infer)
    with pytest.raises(ProgramCrashed, match="died by SIGKILL"):
        bundle.load(made, check="goldens")

    def never(self, inputs, *, entry_point):
        self._timeout_s = 0.0
        return infer(self, inputs, entry_point=entry_point)

    monkeypatch.setattr(Worker, "infer", never)
    with pytest.raises(ProgramCrashed, match="did not answer within"):
        bundle.load(made, check="goldens")


def test_calls_that_prove_nothing_are_refused(tmp_path):
    first, *_ = samples.goldens()
    for number, calls in enumerate([(), (replace(first, outputs={}),)]):
        made = samples.packed(tmp_path / f"{number}", goldens=calls)
        with pytest.raises(BundleCorrupt, match="no recorded call"):
            bundle.load(made, check="goldens")


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": {"other": np.zeros(1)}},
        {"allowed": {"y": ("a", "b")}, "outputs": {"y": np.ones((2, 4), np.float32)}},
        {"unsure": {"y": np.ones((3, 3), bool)}},
        {"inputs": {"x": np.zeros(3)}},
        {"entry_point": "none"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_calls_that_are_not_the_programs_are_refused(tmp_path, changes):
    first, *_ = samples.goldens()
    made = samples.packed(tmp_path / "b", goldens=(replace(first, **changes),))
    with pytest.raises((BundleCorrupt, ProgramCrashed)):
        bundle.load(made, check="goldens")


def forged(folder: Path, seed: int) -> str:
    """What becomes of a bundle with a program, or weights, of other bytes: `refused`, `right` or `wrong`."""
    draw = np.random.default_rng(seed)
    programs = [samples.validated(), samples.validated(samples.HOST, "llvm-cpu")]
    made = samples.packed(folder, programs=programs)
    target = [samples.VMVX, samples.HOST][seed % 2]
    name = (
        "weights.safetensors"
        if seed % 3 == 2
        else next(each.file for each in made.manifest.programs if each.target == target)
    )
    content = bytearray((made.path / name).read_bytes())
    for place in draw.integers(len(content), size=1 + seed % 8):
        content[place] = draw.integers(256)
    hashed_again(made.path, name, bytes(content))
    try:
        bundle.load(made.path, target, check="goldens").close()
    except AotpipeError:
        return "refused"
    return "right" if answers_as_recorded(made.path, target) else "wrong"


@pytest.mark.parametrize("seed", sweep(range(120), quick=3))
def test_wrong_programs_that_are_hashed_again_are_refused(tmp_path, seed):
    """Of a program or of weights with other bytes, all that change a recorded answer."""
    assert forged(tmp_path / "b", seed) != "wrong"
