"""Measures what an operator may rely on, and prints a table: the line, the figure, whether it is met.

usage: python -m tests.trust [--all] [--only LINE]... [--folder FOLDER] [--again] [--json] [--list]

Without --all one part of each line is run. Each part runs in a process of its own under a time limit; one
that hangs or dies by a signal counts against its line. Results are kept in FOLDER (artifacts/trust), so that
a run that was ended goes on where it stopped; --again forgets them. Exits 1 where a line is not met.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
LINES: Final = (
    *("arithmetic", "race", "mutations", "wrong_programs", "hostile", "concurrency", "overhead"),
    *("reproducible", "signatures", "kills", "big_weights"),
)
LIMIT_S: Final = 900.0
_RESULT: Final = "trust result: "
_FAULTS: Final = ("signals", "hangs", "failures")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trust", description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every part of the lines")
    parser.add_argument("--only", action="append", choices=LINES, metavar="LINE", help=", ".join(LINES))
    parser.add_argument("--folder", type=Path, default=ROOT / "artifacts" / "trust")
    parser.add_argument("--again", action="store_true", help="forget what was measured before")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    parser.add_argument("--list", action="store_true", help="print the parts of the lines")
    parser.add_argument("--unit", nargs=2, metavar=("LINE", "PART"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.unit:
        return _run_here(*asked.unit)
    lines = asked.only or LINES
    if asked.list:
        for name in lines:
            print(name, *map(repr, _line(name).UNITS))
        return 0
    asked.folder.mkdir(parents=True, exist_ok=True)
    rows = [_measured(name, asked.folder, every=asked.all, again=asked.again) for name in lines]
    if asked.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            met = "met" if row["met"] else "NOT MET"
            print(f"{row['line']:<15} {met:<8} {row['figure']}  [{row['parts']}]")
    return int(not all(row["met"] for row in rows))


def _line(name: str) -> Any:
    return import_module(f"tests.trust.{name}")


def _measured(name: str, folder: Path, *, every: bool, again: bool) -> dict[str, Any]:
    """The figure of a line over its parts, of which those are run that no result is kept of."""
    line, kept = _line(name), folder / f"{name}.jsonl"
    if again:
        kept.unlink(missing_ok=True)
    known = {}
    if kept.exists():
        known = {each["unit"]: each for each in map(json.loads, kept.read_text().splitlines())}
    units = line.UNITS if every else line.UNITS[:1]
    for unit in units:
        if unit not in known:
            print(f"{name}: {unit}", file=sys.stderr, flush=True)
            known[unit] = _run_apart(name, unit, folder)
            with kept.open("a") as file:
                file.write(json.dumps(known[unit]) + "\n")
    counts = _summed([known[unit]["counts"] for unit in units])
    figure, met = line.judge(counts)
    faults = {each: counts[each] for each in _FAULTS if counts[each]}
    if faults:
        figure += "; " + ", ".join(f"{count} {each} of parts" for each, count in faults.items())
    return {
        "line": name,
        "wanted": line.WANTED,
        "figure": figure,
        "met": bool(met and not faults),
        "parts": f"{len(units)} of {len(line.UNITS)} parts",
        "seconds": round(sum(known[unit]["seconds"] for unit in units), 1),
        "commits": sorted({known[unit]["commit"] for unit in units}),
        "counts": counts,
    }


class _Counts(dict[str, float]):
    def __missing__(self, key: str) -> float:
        return 0


def _summed(parts: list[Mapping[str, float]]) -> _Counts:
    counts = _Counts()
    for part in parts:
        for key, value in part.items():
            counts[key] = max(counts[key], value) if key.startswith("most_") else counts[key] + value
    return counts


def _run_apart(name: str, unit: str, folder: Path) -> dict[str, Any]:
    started = time.monotonic()
    argv = [sys.executable, "-P", "-m", "tests.trust", "--unit", name, unit]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # Where `tests.programs` keeps what it compiled.
    environment["AOTPIPE_TEST_PROGRAMS"] = str(folder.absolute() / "programs")
    # Its own group, so that what hangs ends with its children.
    process = subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, process_group=0
    )
    try:
        out, _ = process.communicate(timeout=LIMIT_S)
        found = [line for line in out.splitlines() if line.startswith(_RESULT)]
        if process.returncode < 0:
            counts: dict[str, float] = {"signals": 1}
        elif process.returncode or not found:
            counts = {"failures": 1}
        else:
            counts = json.loads(found[-1].removeprefix(_RESULT))
    except subprocess.TimeoutExpired:
        counts = {"hangs": 1}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return {
        "unit": unit,
        "counts": counts,
        "seconds": round(time.monotonic() - started, 1),
        "commit": _commit(),
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def _run_here(name: str, unit: str) -> int:
    with tempfile.TemporaryDirectory(prefix="aotpipe-trust-") as folder:
        counts = _line(name).run(unit, Path(folder))
    print(_RESULT + json.dumps(counts), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
