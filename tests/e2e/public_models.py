"""Builds public models that nobody prepared and prints which are at parity.

usage: public_models.py [CASE]... [--filter TEXT]... [--sample N [--seed S]] [--target TARGET]...
                        [--json FILE] [--limit-s SECONDS]

Each model is built in a process of its own, under a time limit, so that a crash costs one row. A model that
torch.export itself refuses is shown, and not counted. Cases named on the command line need not be in the
sample. A target that this machine cannot run must compile, where another one is executed. A row shows the
time, the worst error by its tolerance, and how the outputs that were compared vary: their standard deviation
and how much of them changes with the inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
TARGET = "iree-cpu-host"
LIMIT_S = 900


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one model: `refused` by torch.export or eager, `failed` at a stage, or `executed`."""

    case: str
    status: Literal["executed", "failed", "refused"]
    stage: str = ""
    reason: str = ""
    ratio: float = 0.0
    seconds: float = 0.0
    std: float = 0.0
    change: float = 0.0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.status == "executed":
            notes = "".join(f"  {note}" for note in self.notes if note.startswith("compiled "))
            detail = f"{self.ratio:.3f}  std {self.std:.2g}, {self.change:.0%} of it by the inputs{notes}"
        else:
            detail = f"{self.stage}: {self.reason}"
        return f"{self.case:48} {self.status:9} {self.seconds:6.1f} s  {detail[:200]}"


def build_one(case: str, targets: Sequence[str]) -> Row:
    """Build one case in this process."""
    import aotpipe
    from aotpipe.errors import AotpipeError
    from tests.e2e import public_cases, public_weights

    stage = "eager"
    try:
        model, inputs = public_cases.make(case)
        found = public_weights.spread(model, inputs)
        stage = "torch.export"
        _export(model, inputs)
    except public_weights.Unvaried as error:
        return Row(case, "failed", "weights", str(error))
    except Exception as error:
        return Row(case, "refused", stage, f"{type(error).__name__}: {_one_line(error)}")
    varies = {"std": found.std, "change": found.change}
    with tempfile.TemporaryDirectory() as folder:
        try:
            bundle = aotpipe.build(
                model, kwargs=inputs, targets=targets, out=Path(folder, "bundle"), latency=False
            )
        except AotpipeError as error:
            return Row(case, "failed", error.stage, _one_line(error), **varies)
    rows = bundle.report.targets
    failed = [row for row in rows if row.status not in {"executed", "compiled"}]
    parities = [row.parity for row in rows if row.status == "executed" and row.parity is not None]
    if failed or not parities:
        [row, *_] = failed or rows
        return Row(case, "failed", f"{row.target} {row.status}", row.reason, **varies)
    worst = max(parity.worst.ratio for parity in parities if parity.worst is not None)
    notes = tuple(note for row in rows for note in row.notes)
    return Row(case, "executed", ratio=worst, notes=notes, **varies)


def _export(model: Any, inputs: dict[str, Any]) -> None:
    """torch.export, first with recurrent layers as loops: written out step by step they take minutes."""
    import torch

    from aotpipe.canonicalize import recurrent_layers

    try:
        with torch.no_grad(), recurrent_layers.scanned():
            torch.export.export(model, (), inputs, strict=False)
    except Exception:
        with torch.no_grad():
            torch.export.export(model, (), inputs, strict=False)


def build_all(
    cases: Iterable[str], *, targets: Sequence[str] = (TARGET,), limit_s: float = LIMIT_S
) -> Iterator[Row]:
    """Build each case in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    for case in cases:
        command = [sys.executable, "-W", "ignore", __file__, "--one", case]
        command += [part for target in targets for part in ("--target", target)]
        start = time.perf_counter()
        try:
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit_s)
        except subprocess.TimeoutExpired:
            yield Row(case, "failed", "time limit", f"{limit_s:.0f} s", seconds=limit_s)
            continue
        seconds = round(time.perf_counter() - start, 1)
        if ran.returncode:
            tail = " | ".join(ran.stderr.strip().splitlines()[-3:])
            yield Row(case, "failed", f"exit {ran.returncode}", tail, seconds=seconds)
        else:
            yield Row(**{**json.loads(ran.stdout.splitlines()[-1]), "seconds": seconds})


def summary(rows: Iterable[Row]) -> tuple[int, int]:
    """How many were built at parity, of how many that torch.export takes."""
    taken = [row for row in rows if row.status != "refused"]
    return sum(row.status == "executed" for row in taken), len(taken)


def count(rows: Sequence[Row]) -> str:
    """The last line of a table."""
    built, taken = summary(rows)
    return f"{built} of {len(rows)} at parity ({taken} taken by torch.export)"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:600]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*", help="timm/NAME or transformers/TYPE[/HEAD]; default: the sample")
    parser.add_argument("--sample", type=int, help="draw so many of them at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--filter", action="append", default=[], help="part of a case's name")
    parser.add_argument("--target", action="append", default=[], help=f"default: {TARGET}")
    parser.add_argument(
        "--json", type=Path, help="append a line for each case; cases that it holds are skipped"
    )
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    targets = options.target or [TARGET]
    if options.one:
        print(json.dumps(asdict(build_one(options.one, targets))))
        return
    sys.path.insert(0, str(ROOT))
    from tests.e2e import public_cases

    rows = [Row(**row) for row in _lines(options.json)]
    wanted = [
        case
        for case in options.case or public_cases.cases()
        if not options.filter or any(part in case for part in options.filter)
    ]
    if options.sample is not None:
        wanted = random.Random(options.seed).sample(wanted, min(options.sample, len(wanted)))
    done = {row.case for row in rows}
    left = [case for case in wanted if case not in done]
    built = build_all(left, targets=targets, limit_s=options.limit_s)
    for number, row in enumerate(built, start=1):
        print(f"[{number}/{len(left)}]", row, flush=True)
        rows.append(row)
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
    print(count(rows))


def _lines(path: Path | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


if __name__ == "__main__":
    main()
