"""Builds that are killed at random moments: what is left of bundle, processes and temporary folders."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

WANTED = (
    "SIGKILL at 40 random moments: bundle whole or absent, no process left after 2 s, no temporary folder "
    "after the next build"
)
UNITS = [f"10 moments, seed {seed}" for seed in (1, 2, 3, 4)]
_SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "kills.py"
_SAID = {
    "ran": r"; (\d+) of running builds",
    "torn": r"neither whole nor absent: (\d+)",
    "alive": r"left after 2 s: (\d+)",
    "folders": r"after the next build: (\d+)",
}


def run(unit: str, folder: Path) -> dict[str, float]:
    moments, seed = re.findall(r"\d+", unit)
    argv = [sys.executable, str(_SCRIPT), "--moments", moments, "--seed", seed]
    done = subprocess.run(argv, cwd=folder, stdout=subprocess.PIPE, text=True)
    print(done.stdout, file=sys.stderr)
    found = {name: int(re.search(pattern, done.stdout)[1]) for name, pattern in _SAID.items()}
    return {"moments": int(moments), **found}


def judge(counts: Any) -> tuple[str, bool]:
    figure = (
        f"{counts['moments']:.0f} kills ({counts['ran']:.0f} of running builds): {counts['torn']:.0f} torn "
        f"bundles, {counts['alive']:.0f} processes, {counts['folders']:.0f} temporary folders left"
    )
    return figure, counts["moments"] >= 10 and not counts["torn"] + counts["alive"] + counts["folders"]
