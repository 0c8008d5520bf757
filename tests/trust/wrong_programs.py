"""Programs and weights that are not those of the build, in bundles whose digests were made to fit.

`load(check="goldens")` refuses what changes a recorded answer. What it takes is run without the check, in a
process of its own, and compared with the recorded answers by numpy alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

WANTED = "re-hashed wrong programs: at least 99% of those that change a golden refused, the parent never dies"
_COUNT, _EACH = 300, 50
UNITS = [f"seeds {first}..{first + _EACH - 1}" for first in range(0, _COUNT, _EACH)]


def run(unit: str, folder: Path) -> dict[str, float]:
    from tests.unit.runtime.bundle.test_recorded import forged

    first, last = map(int, unit.removeprefix("seeds ").split(".."))
    found = [forged(folder / f"{seed}", seed) for seed in range(first, last + 1)]
    return {"cases": len(found)} | {each: found.count(each) for each in ("refused", "right", "wrong")}


def judge(counts: Any) -> tuple[str, bool]:
    changing = counts["refused"] + counts["wrong"]
    share = counts["refused"] / changing if changing else 0.0
    figure = (
        f"{counts['refused']:.0f} of {changing:.0f} that change a golden refused ({share:.1%}), "
        f"{counts['right']:.0f} of {counts['cases']:.0f} change none; the parent lived"
    )
    return figure, share >= 0.99
