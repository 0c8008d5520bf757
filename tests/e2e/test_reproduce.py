"""Builds under hostile circumstances, by the scripts that print what they found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(*argv: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *argv], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=550
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_two_builds_are_equal_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(
        "import torch\nmodel = torch.nn.Linear(2, 2).eval()\nEXAMPLE_INPUTS = (torch.ones(1, 2),)\n"
    )
    found = script("scripts/reproduce.py", str(tmp_path / "small.py"), "-t", "iree-vmvx")
    assert found.endswith("equal, byte for byte\n")
    assert ("jobs, day\n" in found) == any(map(shutil.which, ("cc", "gcc", "clang")))


@pytest.mark.slow
def test_every_target_and_a_model_that_branches() -> None:
    found = script("scripts/reproduce.py", "-t", "iree-cpu-x86_64", "-t", "iree-vmvx")
    assert found.endswith("equal, byte for byte\n")


@pytest.mark.slow
def test_a_killed_build_leaves_nothing() -> None:
    assert "processes left after 2 s: 0" in script("scripts/kills.py", "--moments", "8")
