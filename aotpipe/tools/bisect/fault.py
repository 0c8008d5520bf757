"""What a bisection found: the op, its line, how wrong it is, and what shows it again. Torch-free."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.core.stages import Lowered, ParityCase
from aotpipe.errors import SourceLine
from aotpipe.runtime.store import typed_os_errors
from aotpipe.runtime.xla import container


@dataclass(frozen=True, slots=True)
class GraphValue:
    """A value of the graph: its name, the op that gives it, and the user's line."""

    name: str
    op: str
    where: SourceLine | None

    def __str__(self) -> str:
        return f"{self.op} (`{self.name}`)" + (f" at {self.where}" if self.where else "")

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"name": self.name, "op": self.op, "where": str(self.where) if self.where else None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproducer:
    """A program that is wrong, what it is called with, and what it must answer.

    Attributes:
        lowered: The compiler's input.
        flags: Every flag of the compiler.
        weights: By the keys that the module names.
    """

    lowered: Lowered
    flags: tuple[str, ...]
    inputs: Mapping[str, Array]
    weights: Mapping[str, Array]
    wanted: Mapping[str, Array]

    def save(self, folder: Path) -> None:
        """Write `module.mlir`, `flags.json`, `inputs.npz`, `weights.npz` and `wanted.npz`.

        Raises:
            ReadOnly, DiskFull, StoreError: They cannot be written.
        """
        with typed_os_errors("the reproducer", folder):
            folder.mkdir(parents=True, exist_ok=True)
            suffix = "xla" if container.is_one(self.lowered.module) else "mlir"
            (folder / f"module.{suffix}").write_bytes(self.lowered.module)
            (folder / "flags.json").write_text(
                json.dumps(list(self.flags), indent=2) + "\n", encoding="utf-8"
            )
            for name, arrays in (
                ("inputs", self.inputs),
                ("weights", self.weights),
                ("wanted", self.wanted),
            ):
                plain: dict[str, Any] = {key: _plain(array) for key, array in arrays.items()}
                np.savez(folder / f"{name}.npz", **plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An op whose value is wrong though all that it is computed from is right.

    Attributes:
        target: Of the program.
        failed: The comparison of the model's output that the search began at.
        place: The op.
        case: How wrong its value is in the model's program.
        operands: What it takes, as the signature of a program of its own.
        alone: How wrong it is there; None where it is right, or makes no program.
        cures: Values that, given as results too, make the numbers right: the fault lies in fusing the op
            with these.
        programs: How many were compiled to find it.
        reproducer: The op alone where that is wrong, else the graph up to it.
    """

    target: str
    failed: ParityCase
    place: GraphValue
    case: ParityCase
    operands: tuple[str, ...]
    alone: ParityCase | None
    cures: tuple[GraphValue, ...]
    programs: int
    reproducer: Reproducer

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "target": self.target,
            "failed": self.failed.to_json(),
            "place": self.place.to_json(),
            "case": self.case.to_json(),
            "operands": list(self.operands),
            "alone": self.alone and self.alone.to_json(),
            "cures": [place.to_json() for place in self.cures],
            "programs": self.programs,
        }


def _plain(array: Array) -> Array:
    """As an array that numpy alone reads: bfloat16 and its kin as their bytes."""
    return array if array.dtype.isbuiltin else array.view(np.dtype(f"u{array.dtype.itemsize}"))
