"""`aotpipe build`: what is asked of the pipeline, and what is shown of its outcome."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotpipe.build import build
from aotpipe.build.build import Outcome, Settings
from aotpipe.build.request import Request
from aotpipe.cli import cli, guarded
from aotpipe.cli.build import signature_text
from aotpipe.core.signature import Constant, Signature, Symbol, TensorSpec
from tests.unit.build.reports import REPORT
from tests.unit.cli.commands import run
from tests.unit.core.test_estimate import SAMPLE

GOOD = replace(REPORT, targets=REPORT.targets[:1])


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the pipeline was asked for; `report` in it is what it answers."""
    found: dict[str, Any] = {"report": GOOD, "folder": tmp_path}
    monkeypatch.chdir(tmp_path)

    def run(request: Request, settings: Settings, _: object) -> Outcome:
        found.update(request=request, settings=settings)
        return Outcome(path=Path("/tmp/out"), report=found["report"], folder=tmp_path)

    monkeypatch.setattr(build, "run", run)
    return found


def test_defaults(asked: dict[str, Any]):
    assert guarded(cli, ["build", "m.py"]) == 0
    assert asked["request"] == Request.of("m.py", ["iree-cpu-host"])
    assert asked["settings"] == Settings()


def test_options_reach_the_pipeline(asked: dict[str, Any]):
    argv = "build m.py:NET -t cpu -t iree-vmvx -o here --name n --jobs 3 --no-cache --no-latency --keep-going"
    argv += " --allow-unproven"
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
        extra_flags=("--x",),
        fat=True,
        jobs=3,
        timeout_s=9.0,
        memory_limit_bytes=2 * 10**9,
        variants=False,
        latency=False,
        keep_going=True,
        allow_unproven=True,
        cache=False,
    )
    argv = "build m.py -t xla-cpu-host --buckets batch=1,8 --buckets seq=16 --mesh data=2 --shard x=(data,)"
    assert guarded(cli, argv.split()) == 0
    assert asked["request"] == Request.of(
        "m.py", ["xla-cpu-host"], buckets={"batch": [1, 8], "seq": [16]}, mesh="data=2", shard=["x=(data,)"]
    )
    assert guarded(cli, ["build", "m.py", "--allow-islands"]) == 0
    assert asked["request"].islands


def test_a_result_is_a_table_and_two_places(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    assert guarded(cli, ["build", "m.py", "--profile"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "iree-cpu-host  executed" in out
    assert "peak memory" in out
    assert out.endswith(f"bundle  /tmp/out\nreport  {asked['folder'] / 'report.html'}\n")


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


NET = """
import torch
torch.manual_seed(0)
NET = torch.nn.Linear(4, 3).eval()
EXAMPLE_INPUTS = (torch.ones(2, 4),)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(NET)
    (tmp_path / "other.py").write_text(NET.replace("manual_seed(0)", "manual_seed(1)"))
    return tmp_path


def test_export(folder: Path):
    assert run("export", "m.py", "-o", "programs", "-q") == (
        "forward\n  in    input: float32[2, 4]\n  out   output: float32[2, 3]\n"
    )
    assert (folder / "programs" / "forward.pt2").is_file()
    found = json.loads(run("export", "m.py", "--json", "-q"))
    assert found["entry_points"]["forward"]["inputs"] == ["input: float32[2, 4]"]


def test_compile(folder: Path):
    (program,) = json.loads(run("compile", "m.py", "-t", "iree-vmvx", "-o", "p", "--json", "-q"))["programs"]
    assert (folder / "p" / "iree-vmvx" / "program.vmfb").stat().st_size == program["size_bytes"]
    assert b"@forward" in (folder / "p" / "module.mlir").read_bytes()
    assert "iree-vmvx  " in run("compile", "m.py", "-t", "iree-vmvx", "-o", "p", "-q")


def test_validate(folder: Path, capsys: pytest.CaptureFixture[str]):
    run("build", "m.py", "-t", "iree-vmvx", "-o", "out", "--no-latency", "-q")
    assert json.loads(run("validate", "out", "m.py", "--json", "-q"))["ok"]
    assert guarded(cli, ["validate", "out", "other.py", "-q"]) == 40
    out, err = capsys.readouterr()
    assert "iree-vmvx  failed" in out
    assert "error[validate]: iree-vmvx: `output` of forward" in err


def test_a_signature_for_people():
    signature = Signature(
        inputs=(TensorSpec("ids", "int64", ("batch",), (0, 9)), Constant("scale", 2.5)),
        outputs=(TensorSpec("y", "float32", ("batch",)),),
        state=(TensorSpec("count", "int64", ()),),
        symbols=(Symbol("batch", 1, 8),),
    )
    assert signature_text("decode", signature).splitlines() == [
        "decode",
        "  in    ids: int64[batch] in [0, 9]",
        "  in    scale = 2.5 (fixed)",
        "  out   y: float32[batch]",
        "  state count: int64[]",
        "  size  batch=1..8",
    ]
