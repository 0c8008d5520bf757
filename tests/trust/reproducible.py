"""Models that are built twice, under circumstances that must not matter: every byte is the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

WANTED = (
    "two builds byte-identical over folder, user, day, cache and jobs; the archive and the digest of the OCI "
    "artifact too"
)
_ROOT = Path(__file__).resolve().parents[2]
UNITS = [
    "cond_activation",
    "newton",
    "dynamic_batch -t iree-cpu-x86_64",
    "cond_activation -t xla-cpu-host --buckets batch=1,64",
    "mtcnn_detect -t xla-cpu-host",
]


def run(unit: str, folder: Path) -> dict[str, float]:
    name, *options = unit.split()
    script = [sys.executable, str(_ROOT / "scripts/reproduce.py"), str(_ROOT / "models" / f"{name}.py")]
    done = subprocess.run([*script, *options], cwd=folder, stdout=subprocess.PIPE, text=True)
    print(done.stdout, file=sys.stderr)
    return {
        "models": 1,
        "equal": int(not done.returncode and "equal, byte for byte" in done.stdout),
        "days": int("jobs, day" in done.stdout),
    }


def judge(counts: Any) -> tuple[str, bool]:
    figure = (
        f"{counts['equal']:.0f} of {counts['models']:.0f} models equal, byte for byte (bundle, OCI digest, "
        f"archive, attestations); the day varied for {counts['days']:.0f}"
        + (" (it takes a C compiler)" if counts["days"] < counts["models"] else "")
    )
    return figure, 0 < counts["models"] == counts["equal"] == counts["days"]
