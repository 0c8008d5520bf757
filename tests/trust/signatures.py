"""Bundles that are signed, tampered with and verified."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

WANTED = "sign, tamper, verify: 100 of 100 tampered refused"
UNITS = ["all"]


def run(unit: str, folder: Path) -> dict[str, float]:
    import aotpipe
    from aotpipe.errors import BundleCorrupt, SignatureInvalid
    from tests.unit.runtime.bundle import samples
    from tests.unit.runtime.bundle.test_signatures import TAMPERING

    private, public = samples.keys(folder, "ours")
    made = samples.packed(folder / "b").path
    aotpipe.sign(made, private)
    counts = {"cases": 0, "refused": 0, "signed_taken": 0}
    for seed in range(100):
        copy = Path(shutil.copytree(made, folder / f"{seed}"))
        shutil.copy(f"{made}.sig", f"{copy}.sig")
        aotpipe.verify(copy, public)
        counts["signed_taken"] += 1
        TAMPERING[seed % len(TAMPERING)](copy, np.random.default_rng(seed))
        counts["cases"] += 1
        refusals = 0
        for check in (
            lambda copy=copy: aotpipe.verify(copy, public),
            lambda copy=copy: aotpipe.load(copy, require_signature=public, check="goldens").close(),
        ):
            try:
                check()
            except (SignatureInvalid, BundleCorrupt):
                refusals += 1
        counts["refused"] += refusals == 2
    return counts


def judge(counts: Any) -> tuple[str, bool]:
    figure = (
        f"{counts['refused']:.0f} of {counts['cases']:.0f} tampered refused by verify and load, "
        f"{counts['signed_taken']:.0f} untouched taken"
    )
    return figure, counts["refused"] == counts["cases"] == counts["signed_taken"] == 100
