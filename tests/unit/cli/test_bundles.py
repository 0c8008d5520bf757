"""Targets and bundles, looked at from the command line."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.build import rerun
from aotpipe.cli import cli, guarded, host
from aotpipe.core.stages import Schedule
from aotpipe.core.targets import Target
from aotpipe.errors import BundleCorrupt, IslandNotFound, SignatureInvalid
from aotpipe.runtime import process
from tests.unit.build.reports import TIME
from tests.unit.cli.commands import run
from tests.unit.runtime.bundle import samples
from tests.unit.runtime.bundle.samples import keys


def test_targets():
    text = run("targets")
    assert text.startswith("target")
    assert "iree-vmvx" in text
    rows = {row["target"]: row for row in json.loads(run("targets", "--json"))}
    assert rows["iree-cpu-host"]["runs_here"] is True
    assert rows["iree-metal"] == {
        "target": "iree-metal",
        "summary": Target.parse("iree-metal").row.summary,
        "compiles_here": True,
        "runs_here": False,
        "reason": "this iree-base-runtime has no metal driver: that of macOS has it",
    }


@pytest.mark.parametrize(
    ("compiling", "running", "here", "reason"),
    [
        ("", "", "compiles, runs", ""),
        ("", "b", "compiles", "b"),
        ("a", "", "runs", "a"),
        ("a", "b", "no", "a; b"),
    ],
)
def test_what_a_host_can_do(monkeypatch, compiling: str, running: str, here: str, reason: str):
    monkeypatch.setattr("aotpipe.backends.why_not_compilable", lambda _: compiling)
    monkeypatch.setattr("aotpipe.runtime.loading.why_not_runnable", lambda _: running)
    found = host.ability(Target.parse("iree-vmvx"))
    assert (found.here, found.reason) == (here, reason)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return samples.packed(tmp_path / "out").path


def test_inspect(bundle: Path):
    found = json.loads(run("inspect", str(bundle), "--json", "--verify"))
    assert found["name"] == "accumulate"
    programs = {program["target"]: program for program in found["programs"]}
    assert programs["iree-vmvx"]["runs_here"]
    assert not programs["iree-cpu-x86_64"]["runs_here"]
    text = run("inspect", str(bundle))
    assert found["digest"] in text
    assert "it crashed" in text
    assert "warning[unused-input]: model.py:7" in text


def test_inspect_shows_what_a_program_does_and_its_flags(tmp_path: Path):
    first = samples.validated()
    counts = Schedule(dispatches=71, kernels=62, copies=1, fills=0, waits=2, allocated_bytes=4096)
    told = replace(first, compiled=replace(first.compiled, schedule=counts))
    bundle = samples.packed(tmp_path / "out", programs=[told]).path
    (program,) = json.loads(run("inspect", str(bundle), "--json"))["programs"]
    assert program["schedule"] == counts.to_json()
    text = run("inspect", str(bundle))
    assert "dispatches  kernels  allocates" in text
    assert "71          62       4.1 kB" in text
    assert "--iree-hal-target-device=local" in text


def test_inspect_lists_variants_below_their_target(tmp_path: Path):
    both = replace(samples.validated(), variants=(samples.validated(samples.HOST, "llvm-cpu"),))
    bundle = samples.packed(tmp_path / "out", programs=[both]).path
    (program,) = json.loads(run("inspect", str(bundle), "--json"))["programs"]
    assert [each["target"] for each in program["variants"]] == ["iree-cpu-host"]
    lines = run("inspect", str(bundle)).splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("iree-vmvx"))
    assert lines[place + 1].startswith("  iree-cpu-host")


def test_selftest(bundle: Path):
    found = json.loads(run("selftest", str(bundle), "--json"))
    assert found["passed"]
    outcomes = {row["target"]: row["outcome"] for row in found["targets"]}
    assert outcomes == {"iree-vmvx": "passed", "iree-cpu-x86_64": "skipped"}
    assert "iree-vmvx" in run("selftest", str(bundle), "-t", "iree-vmvx")


def test_archive(bundle: Path, tmp_path: Path):
    path = str(tmp_path / "b.tar")
    found = json.loads(run("archive", str(bundle), "-o", path, "--json"))
    assert found == {"path": path, "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}
    assert json.loads(run("inspect", path, "--verify", "--json"))["path"] == path
    assert json.loads(run("selftest", path, "--json"))["passed"]
    assert json.loads(run("bench", path, "--seconds", "0.01", "--json", "-q"))[0]["latency"]["program"][
        "samples"
    ]


def test_attest(bundle: Path, tmp_path: Path):
    found = json.loads(run("attest", str(bundle), "-o", str(tmp_path / "x"), "--json"))
    assert found == {"provenance": str(tmp_path / "x.intoto.json"), "bom": str(tmp_path / "x.cdx.json")}
    assert json.loads(Path(found["bom"]).read_text())["bomFormat"] == "CycloneDX"


def test_sign_and_verify(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("model_signing")
    private, public = map(str, keys(tmp_path, "ours"))
    _, other = map(str, keys(tmp_path, "others"))
    path = str(bundle)
    assert json.loads(run("sign", path, "--key", private, "--json")) == {"signature": f"{path}.sig"}
    assert json.loads(run("verify", path, "--key", public, "--json"))["signed"].endswith(public)
    assert "not asked for" in run("verify", path)
    for command in (["inspect"], ["selftest"], ["bench", "--seconds", "0.01", "-q"]):
        run(*command, path, "--require-signature", public)
        assert guarded(cli, [*command, path, "--require-signature", other]) == SignatureInvalid.exit_code
    assert (
        guarded(cli, ["verify", path, "--key", public, "--signature", private]) == SignatureInvalid.exit_code
    )
    samples.flip(bundle / "weights.safetensors")
    assert guarded(cli, ["verify", path, "--key", public]) == BundleCorrupt.exit_code
    assert "is not of this bundle and key" in capsys.readouterr().err


def test_a_selftest_that_fails_is_a_parity_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first, *rest = samples.goldens()
    wrong = replace(first, outputs={**first.outputs, "y": first.outputs["y"] + 1})
    path = samples.packed(tmp_path / "out", goldens=(wrong, *rest)).path
    assert guarded(cli, ["selftest", str(path)]) == 40
    assert "failed" in capsys.readouterr().out


def test_a_bundle_alone(tmp_path: Path):
    path = str(samples.packed(tmp_path / "out").path)
    rows = json.loads(run("bench", path, "--seconds", "0.1", "--json", "-q"))
    assert [row["latency"]["entry_point"] for row in rows] == ["forward", "decode"]
    head, *lines = run("bench", path, "--seconds", "0.1", "-q").splitlines()
    assert head.split()[:6] == ["target", "entry", "point", "way", "median", "p90"]
    assert len(lines) == 4
    assert "peak memory" in lines[2]


def test_beside_eager_and_not_here(tmp_path: Path, monkeypatch):
    rows = [
        rerun.Row(target="iree-vmvx", latency=TIME, left_out={"openvino": "no"}),
        rerun.Row(target="iree-cpu-host", reason="this CPU lacks avx9"),
    ]
    monkeypatch.setattr(rerun, "measure", lambda *_, **__: rows)
    _, first, eager, second, *notes = run("bench", "out", "m.py").splitlines()
    assert first.split() == "iree-vmvx forward program 220.0 µs 251.5 µs 70 – 4545".split()
    # It was sampled less often, so that it has no p90.
    assert eager.split() == "eager 280.0 µs – 50 – 3571 ×0.79".split()
    assert "this CPU lacks avx9" in second
    assert notes == [
        "iree-vmvx: openvino does not take the model: no",
        "iree-vmvx forward: loaded in 3.00 ms, peak memory 40.0 MB, 2 threads; noise 2%",
    ]


NET = """
import numpy as np
import torch
import aotpipe

@aotpipe.eager_island(arrays="numpy", reason="numpy's sort")
def order(x):
    return np.sort(x)

class Net(torch.nn.Module):
    def forward(self, x):
        return order(x * 2) + 1

MODEL = Net().eval()
EXAMPLE_INPUTS = (torch.ones(3),)
"""


def test_a_model_file_with_an_island(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sorting.py").write_text(NET)
    settings = ["-t", "iree-vmvx", "--allow-islands", "-q", "--no-cache", "--no-latency", "--out", "b"]
    run("build", "sorting.py", *settings)
    with pytest.raises(IslandNotFound, match="not allowed: sorting:order"):
        run("selftest", "b")
    allowed = ("--island", "sorting:order")
    assert "passed" in run("selftest", "b", *allowed)
    listed = run("islands", "b", "--calls", "2", "--check", "goldens", *allowed)
    assert "function  sorting:order" in listed
    assert "sorting.py:12" in listed
    assert [step["kind"] for step in json.loads(run("islands", "b", "--calls", "2", "--json", *allowed))] == [
        "program",
        "function",
        "program",
    ]
    assert "sorting:order  sorting.py:12  numpy's sort" in run("inspect", "b")
    assert "forward" in run("bench", "b", "--seconds", "0.1", *allowed)


def test_a_command_runs_no_python_of_the_working_folder(tmp_path: Path) -> None:
    """`cd BUNDLE; aotpipe selftest .` imported what a bundle's author put there."""
    samples.packed(tmp_path / "b")
    (tmp_path / "b" / "numpy.py").write_text("raise SystemExit('it ran')")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "aotpipe", "selftest", "."],
        cwd=tmp_path / "b",
        env={**os.environ, "PYTHONPATH": process.python_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "numpy.py was added" in done.stderr) == (BundleCorrupt.exit_code, True), (
        done.stderr
    )
