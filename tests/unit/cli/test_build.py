"""`aotpipe build`: what is asked of the pipeline, and what is shown of its outcome."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotpipe.build import build
from aotpipe.build.build import Outcome, Settings
from aotpipe.build.compile_stage import CompileSettings
from aotpipe.build.request import Request
from aotpipe.cli import cli
from aotpipe.cli.guard import guarded
from tests.unit.build.report.samples import REPORT
from tests.unit.core.test_estimate import SAMPLE

GOOD = replace(REPORT, targets=REPORT.targets[:1])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the pipeline was asked for; `report` in it is what it answers."""
    found: dict[str, Any] = {"report": GOOD}

    def run(request: Request, settings: Settings, _: object) -> Outcome:
        found.update(request=request, settings=settings)
        return Outcome(path=Path("/tmp/out"), report=found["report"], folder=Path("/tmp/out.report"))

    monkeypatch.setattr(build, "run", run)
    return found


def test_defaults(asked: dict[str, Any]):
    assert guarded(cli, ["build", "m.py"]) == 0
    assert asked["request"] == Request.of("m.py", ["iree-cpu-host"])
    assert asked["settings"] == Settings()


def test_options_reach_the_pipeline(asked: dict[str, Any]):
    argv = "build m.py:NET -t cpu -t iree-vmvx -o here --name n --jobs 3 --no-cache --no-latency --keep-going"
    argv += " --fat --no-variants --flag=--x --compile-timeout 9 --compile-memory 2GB"
    argv += " --optional batch.mask --tensorize self.scale --tensorize k --dialect stablehlo"
    argv += " --dtype bf16 --keep-float32 gelu --keep-float32 attention"
    assert guarded(cli, argv.split()) == 0
    assert asked["request"] == Request.of(
        "m.py:NET",
        ["cpu", "iree-vmvx"],
        name="n",
        optional=("batch.mask",),
        tensorize=("self.scale", "k"),
        dialect="stablehlo",
        dtype="bf16",
        keep_float32=("gelu", "attention"),
    )
    assert asked["settings"] == Settings(
        out=Path("here"),
        compiling=CompileSettings(
            extra_flags=("--x",), fat=True, jobs=3, timeout_s=9.0, memory_limit_bytes=2 * 10**9
        ),
        variants=False,
        latency=False,
        keep_going=True,
        cache=False,
    )
    argv = "build m.py -t xla-cpu-host --buckets batch=1,8 --buckets seq=16 --mesh data=2 --shard x=(data,)"
    assert guarded(cli, argv.split()) == 0
    assert asked["request"] == Request.of(
        "m.py",
        ["xla-cpu-host"],
        buckets={"batch": [1, 8], "seq": [16]},
        mesh="data=2",
        shard=["x=(data,)"],
    )
    assert guarded(cli, ["build", "m.py", "--allow-islands"]) == 0
    assert asked["request"].islands


def test_a_result_is_a_table_and_two_places(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    assert guarded(cli, ["build", "m.py", "--profile"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "iree-cpu-host  executed" in out
    assert "peak memory" in out
    assert out.endswith("bundle  /tmp/out\nreport  /tmp/out.report/report.html\n")


def test_up_to_date_is_said(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    asked["report"] = replace(GOOD, up_to_date=True)
    assert guarded(cli, ["build", "m.py"]) == 0
    assert capsys.readouterr().out.endswith("up to date\n")


def test_a_failed_target_is_its_exit_code_and_is_said_on_stderr(asked, capsys: pytest.CaptureFixture[str]):
    asked["report"] = REPORT
    assert guarded(cli, ["build", "m.py"]) == 40
    out, err = capsys.readouterr()
    assert "iree-vmvx         failed" in out
    assert err.strip().startswith("error[validate]: output[]")


def test_json_is_all_of_stdout(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    asked["report"] = REPORT
    assert guarded(cli, ["build", "m.py", "--json"]) == 40
    out, err = capsys.readouterr()
    assert err == ""
    assert [row["target"] for row in json.loads(out)["targets"]] == [row.target for row in REPORT.targets]


def test_what_a_chip_that_is_not_here_will_take_is_shown(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    asked["report"] = replace(GOOD, targets=(replace(GOOD.targets[0], estimates=(SAMPLE,)),))
    assert guarded(cli, ["build", "m.py"]) == 0
    assert "estimate for" in capsys.readouterr().out
    assert guarded(cli, ["build", "m.py", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["targets"]
    assert row["estimates"][0]["bound_by"] == "memory"


@pytest.mark.parametrize("argv", ["--mesh two", "--shard x", "--mesh 2x2 --shard x=(a,a)"])
def test_what_is_no_mesh_and_no_rule_is_a_wrong_command_line(argv: str, asked: dict[str, Any], capsys):
    assert guarded(cli, ["build", "m.py", *argv.split()]) == 2
    said = capsys.readouterr().err
    assert "such as" in said or "one dim" in said
