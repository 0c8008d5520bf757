"""docs/ci: the action's steps are run as GitHub runs them, and the workflow names what is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from aotpipe.errors import Regressed
from tests.unit.build.test_draft import checked

CI = Path(__file__).resolve().parents[2] / "docs" / "ci"
ACTION = yaml.safe_load((CI / "action.yml").read_text(encoding="utf-8"))
WORKFLOW = yaml.safe_load((CI / "workflow.yml").read_text(encoding="utf-8"))
NET = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return {what}
NET = Net().eval()
EXAMPLE_INPUTS = (torch.arange(8.0).reshape(2, 4),)
"""


class Step:
    """Runs the action's steps with given inputs, each by bash with the variables that GitHub sets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tools = folder / "bin"
        tools.mkdir()
        (tools / "aotpipe").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aotpipe "$@"\n')
        (tools / "aotpipe").chmod(0o755)
        self.env = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(folder),
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        }

    def __call__(self, **inputs: str) -> subprocess.CompletedProcess[str]:
        """The last step that ran."""
        given = {name: each.get("default", "") for name, each in ACTION["inputs"].items()} | inputs
        for step in ACTION["runs"]["steps"]:
            assert step["shell"] == "bash"
            if step.get("if") == "inputs.baseline != ''" and not given["baseline"]:
                continue
            env = {name: _filled(text, given) for name, text in step.get("env", {}).items()}
            argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(
                argv,
                cwd=self.folder,
                env=self.env | env,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            if done.returncode:
                break
        return done


def _filled(text: str, given: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: given[found[1]], text)


def test_the_action_builds_and_compares(tmp_path: Path):
    run = Step(tmp_path)
    options: dict[str, Any] = {"model": "net.py", "targets": "iree-vmvx", "options": "--no-latency"}
    (tmp_path / "net.py").write_text(NET.format(what="x * 2"))
    done = run(**options, out="old")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "output").read_text() == "report=old.report\n"
    assert "| iree-vmvx | executed |" in (tmp_path / "summary.md").read_text()
    assert checked(tmp_path / "old.report").ok
    # Another output is another signature.
    (tmp_path / "net.py").write_text(NET.format(what="x * 2, x"))
    done = run(**options, out="new", baseline="old.report")
    assert done.returncode == Regressed.exit_code
    assert "::error title=aotpipe Regressed::signature of forward" in done.stderr


def test_a_build_that_fails_has_a_report_and_the_line(tmp_path: Path):
    run = Step(tmp_path)
    (tmp_path / "net.py").write_text(NET.format(what="x[__import__('numpy').argmax(x.numpy())]"))
    done = run(model="net.py", targets="iree-vmvx", out="out")
    report = checked(tmp_path / "out.report")
    assert done.returncode == report.exit_code
    assert re.search(r"^::error title=aotpipe \w+,file=net.py,line=5::", done.stderr, re.MULTILINE), (
        done.stderr
    )
    assert "report=out.report" in (tmp_path / "output").read_text()


def test_the_workflow_uses_the_action_and_what_it_gives():
    steps = WORKFLOW["jobs"]["build"]["steps"]
    (own,) = [step for step in steps if step.get("uses", "").endswith(".github/actions/aotpipe")]
    assert own["with"].keys() <= ACTION["inputs"].keys()
    assert {name for name, each in ACTION["inputs"].items() if each.get("required")} <= own["with"].keys()
    text = (CI / "workflow.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"steps\.(\w+)\.outputs\.(\w+)", text))
    assert named == {(own["id"], name) for name in ACTION["outputs"]}
    # What is shown of a failed build is uploaded whatever happened.
    after = steps[steps.index(own) + 1 :]
    assert all(step["if"] == "always()" for step in after)


@pytest.mark.parametrize("file", ["action.yml", "workflow.yml"])
def test_the_files_hold_no_script_that_an_input_could_end(file: str):
    data = yaml.safe_load((CI / file).read_text(encoding="utf-8"))
    steps = data["runs"]["steps"] if "runs" in data else data["jobs"]["build"]["steps"]
    assert not [step["run"] for step in steps if "${{" in step.get("run", "")]
