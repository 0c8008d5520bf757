"""Builds public models that nobody prepared and prints which are at parity.

usage: public_models.py [--filter TEXT]... [--target TARGET] [--json FILE] [--limit-s SECONDS]

Each model is built in a process of its own, under a time limit, so that a crash costs one row. A model that
torch.export itself refuses is shown, and not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
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

    def __str__(self) -> str:
        detail = f"{self.ratio:.3f}" if self.status == "executed" else f"{self.stage}: {self.reason}"
        return f"{self.case:48} {self.status:9} {self.seconds:6.1f} s  {detail[:160]}"


def build_one(case: str, target: str) -> Row:
    """Build one case in this process."""
    import torch

    import aotpipe
    from aotpipe.errors import AotpipeError
    from tests.e2e import public_cases

    stage = "eager"
    try:
        model, inputs = public_cases.make(case)
        with torch.no_grad():
            model(**inputs)
            stage = "torch.export"
            torch.export.export(model, (), inputs, strict=False)
    except Exception as error:
        return Row(case, "refused", stage, f"{type(error).__name__}: {_one_line(error)}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            bundle = aotpipe.build(model, kwargs=inputs, targets=[target], out=Path(folder, "bundle"))
        except AotpipeError as error:
            return Row(case, "failed", error.stage, _one_line(error))
    [row] = bundle.report.targets
    worst = row.parity.worst if row.parity else None
    if row.status != "executed" or worst is None or not row.parity.passed:
        return Row(case, "failed", row.status, row.reason)
    return Row(case, "executed", ratio=worst.ratio)


def build_all(cases: Iterable[str], *, target: str = TARGET, limit_s: float = LIMIT_S) -> Iterator[Row]:
    """Build each case in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    for case in cases:
        command = [sys.executable, "-W", "ignore", __file__, "--one", case, "--target", target]
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


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:600]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", action="append", default=[], help="part of a case's name")
    parser.add_argument("--target", default=TARGET)
    parser.add_argument(
        "--json", type=Path, help="append a line for each case; cases that it holds are skipped"
    )
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asdict(build_one(options.one, options.target))))
        return
    sys.path.insert(0, str(ROOT))
    from tests.e2e import public_cases

    rows = [Row(**row) for row in _lines(options.json)]
    wanted = [
        case
        for case in public_cases.cases()
        if not options.filter or any(part in case for part in options.filter)
    ]
    done = {row.case for row in rows}
    for row in build_all(
        [case for case in wanted if case not in done], target=options.target, limit_s=options.limit_s
    ):
        print(row, flush=True)
        rows.append(row)
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
    built, taken = summary(rows)
    print(f"{built} of {taken} that torch.export takes are at parity ({len(rows) - taken} refused by it)")


def _lines(path: Path | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


if __name__ == "__main__":
    main()
