"""Builds every model of models/ for XLA's targets, and prints which program came to what.

usage: xla_models.py [MODEL]... [--target TARGET]... [--json FILE] [--limit-s SECONDS]

A Dim's bucket is the size in the middle of its range, by ratio; the example's sizes have a program beside it.
Each target of a model is built in a process of its own, under a time limit, so that a crash costs one row.
Rows that the file holds are not built again, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
TARGETS: Final = ("xla-cpu-host", "xla-tpu-v5e", "xla-tpu-v6e", "xla-cuda-h100")
WANTED: Final = {"xla-cpu-host": "executed"}
LIMIT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a model for one target, and the seconds that building it took."""

    model: str
    target: str
    status: str
    reason: str = ""
    seconds: float = 0.0

    @property
    def reached(self) -> bool:
        """Whether a program ran at parity, or was compiled where it cannot run here."""
        return self.status == WANTED.get(self.target, "compiled")

    def __str__(self) -> str:
        return f"{self.model:24} {self.target:14} {self.status:9} {self.seconds:6.1f} s  {self.reason[:300]}"


def models() -> list[str]:
    """Every model of models/ by its file."""
    return sorted(path.name for path in (ROOT / "models").glob("*.py") if not path.name.startswith("_"))


def buckets_of(spec: Any) -> dict[str, tuple[int, ...]]:
    """For each Dim of a Spec a size within its range."""
    from torch.utils import _pytree as pytree

    import aotpipe

    shapes = [entry.dynamic_shapes for entry in spec.entry_points.values()]
    dims = [leaf for leaf in pytree.tree_leaves(shapes) if isinstance(leaf, aotpipe.Dim)]
    return {dim.name: (math.ceil(math.sqrt(dim.min * (dim.max or dim.min))),) for dim in dims}


def build_one(model: str, target: str, limit_s: float) -> Row:
    """Build one model for one target in this process."""
    import aotpipe
    from aotpipe.errors import AotpipeError
    from aotpipe.model import spec

    with tempfile.TemporaryDirectory() as folder:
        try:
            loaded = spec.load(f"{ROOT}/models/{model}")
            bundle = aotpipe.build(
                loaded,
                targets=[target],
                buckets=buckets_of(loaded),
                out=Path(folder, "bundle"),
                latency=False,
                timeout_s=limit_s,
            )
        except AotpipeError as error:
            return Row(model, target, "failed", f"{error.stage}: {' '.join(str(error).split())}")
    [row] = bundle.report.targets
    return Row(model, target, row.status, row.reason)


def build_all(cells: Iterable[tuple[str, str]], *, limit_s: float) -> Iterator[Row]:
    """Build each model for each target in a process of its own."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    for model, target in cells:
        command = [sys.executable, "-W", "ignore", __file__, "--one", model, "--target", target]
        start = time.perf_counter()
        try:
            ran = subprocess.run(
                [*command, "--limit-s", str(limit_s)],
                env={**os.environ, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            yield Row(model, target, "failed", f"not built within {limit_s:.0f} s", limit_s)
            continue
        seconds = round(time.perf_counter() - start, 1)
        if ran.returncode:
            tail = " | ".join(ran.stderr.strip().splitlines()[-3:])
            yield Row(model, target, "failed", f"exit {ran.returncode}: {tail}", seconds)
        else:
            yield Row(**{**json.loads(ran.stdout.splitlines()[-1]), "seconds": seconds})


def count(rows: Sequence[Row]) -> str:
    """The last line of a table."""
    return f"{sum(row.reached for row in rows)} of {len(rows)} programs executed at parity or compiled"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="*", help="a file of models/; default: all")
    parser.add_argument("--target", action="append", default=[], help=f"default: {', '.join(TARGETS)}")
    parser.add_argument("--json", type=Path, help="append a line for each row; rows that it holds are kept")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    targets = options.target or TARGETS
    if options.one:
        print(json.dumps(asdict(build_one(options.one, targets[0], options.limit_s))))
        return
    file = options.json
    lines = file.read_text().splitlines() if file and file.exists() else []
    rows = [Row(**json.loads(line)) for line in lines]
    done = {(row.model, row.target) for row in rows}
    cells = [(model, target) for target in targets for model in options.model or models()]
    for row in build_all((cell for cell in cells if cell not in done), limit_s=options.limit_s):
        print(row, flush=True)
        rows.append(row)
        if file:
            with file.open("a", encoding="utf-8") as opened:
                opened.write(json.dumps(asdict(row)) + "\n")
    print(count(rows))


if __name__ == "__main__":
    main()
