"""A program of which no output says anything fails the build, unless that is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import torch

import aotpipe
from aotpipe.build import report_folder, steps
from aotpipe.build.formats.junit import to_junit
from aotpipe.build.formats.page import render
from aotpipe.cli import cli, guarded
from aotpipe.cli.result import failures, targets_table
from aotpipe.errors import Unproven
from aotpipe.model.spec import as_spec

ARGS = (torch.randn(2, 4),)
BYTECODE = "iree-vmvx"


def nothing(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(3), x > 1e30


def build(out: Path, **options: Any) -> aotpipe.Bundle:
    return aotpipe.build(nothing, args=ARGS, targets=[BYTECODE], out=out, latency=False, **options)


def test_an_unproven_program_fails_the_build_with_a_remedy(tmp_path: Path) -> None:
    for keep_going in (False, True):
        with pytest.raises(Unproven, match="no output says whether it is right") as caught:
            build(tmp_path / "out", keep_going=keep_going)
    assert "`output.1` of forward is False in every call" in caught.value.reason
    assert "--allow-unproven" in caught.value.hint
    assert caught.value.parity is not None
    assert caught.value.parity.worst is None
    assert [path.name for path in tmp_path.iterdir()] == ["out.report"]
    report = report_folder.read(tmp_path / "out.report")
    assert report is not None
    [row] = report.targets
    assert (row.status, row.error, report.exit_code) == ("unproven", "Unproven", Unproven.exit_code)
    assert "unproven" in targets_table(report)
    assert "--allow-unproven" in failures(report)
    assert ET.fromstring(to_junit(report).encode()).get("failures") == "1"


def test_an_unproven_program_is_packed_where_that_is_allowed(tmp_path: Path) -> None:
    built = build(tmp_path / "out", allow_unproven=True)
    [row], [program] = built.report.targets, built.manifest.programs
    assert (row.status, program.status, built.report.ok) == ("unproven", "unproven", True)
    assert program.file
    assert row.parity is not None
    assert all(case.uninformative and case.note.startswith("not counted: is") for case in row.parity.cases)
    assert f"{BYTECODE}  unproven  –" in targets_table(built.report)
    assert "of forward is 0.0 in every call" in targets_table(built.report)
    assert "not counted" in render(built.report)
    suite = ET.fromstring(to_junit(built.report).encode())
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")
    again = steps.revalidate(built.path, as_spec(nothing, args=ARGS))
    assert ([each.status for each in again.targets], again.ok) == (["unproven"], True)


def test_a_program_that_was_executed_must_be_proven_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = aotpipe.build(torch.nn.ReLU(), args=ARGS, targets=[BYTECODE], out=tmp_path / "out", latency=False)
    constant: Callable[..., Any] = lambda goldens: {("forward", "output"): "is 0 in every call"}  # noqa: E731
    monkeypatch.setattr("aotpipe.validate.uninformative", constant)
    report = steps.revalidate(built.path, as_spec(torch.nn.ReLU(), args=ARGS))
    assert [(row.status, row.error) for row in report.targets] == [("unproven", "Unproven")]
    assert report.exit_code == Unproven.exit_code


def test_what_was_allowed_once_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "import torch\nEXAMPLE_INPUTS = (torch.ones(3),)\nmodel = torch.nn.Threshold(1e9, 0.0).eval()\n"
    (tmp_path / "constant.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    argv = ["build", "constant.py:model", "-t", BYTECODE, "--no-latency", "--json", "-q"]
    assert guarded(cli, [*argv, "--allow-unproven"]) == 0
    assert json.loads(capsys.readouterr().out)["targets"][0]["status"] == "unproven"
    assert guarded(cli, argv) == Unproven.exit_code


def test_a_wrong_constant_is_no_parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aotpipe.runtime.worker import Worker

    infer = Worker.infer
    monkeypatch.setattr(
        Worker,
        "infer",
        lambda *args, **kwargs: {
            name: ~array if array.dtype == bool else array for name, array in infer(*args, **kwargs).items()
        },
    )
    with pytest.raises(aotpipe.AotpipeError) as caught:
        build(tmp_path / "out", allow_unproven=True, cache=False)
    assert caught.value.exit_code == 40
