"""Seeded faults: small changes of lowerings and of the canonicalizer that make programs wrong.

`seeded.toml` beside this file holds them, in the form of `tests/faults`, but that a fault names the model
that meets it, below `models/`, in place of a commit and a test:

    [[fault]]
    id = "..."
    what = "..."            one sentence: what is wrong
    model = "branches"      the model that the gate is asked about
    dialect = "stablehlo"   where it shows in that dialect only

    [[fault.edit]]          as in tests/faults
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults.faults import Change, Edit

FOLDER: Final = Path(__file__).resolve().parent
MODELS: Final = FOLDER / "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededFault(Change):
    """A fault, and the model that meets it."""

    model: str
    dialect: str = "torch"


def load() -> tuple[SeededFault, ...]:
    """Every seeded fault, in the order of the file."""
    content = tomllib.loads((FOLDER / "seeded.toml").read_text(encoding="utf-8"))
    return tuple(
        SeededFault(
            **{key: value for key, value in each.items() if key != "edit"},
            edits=tuple(Edit(**edit) for edit in each["edit"]),
        )
        for each in content["fault"]
    )
