"""Measures what the gate of a build must reach: prints for each line the figure, and whether it is met.

usage: gate.py [--record FOLDER] [--only LINE]... [--all]

Without `--all` the lines are measured that take minutes: how random and vacuous models, failing stages and
bad input are met. With it also the seeded faults, the false alarms and coverage, and the latency beside a
busy loop: hours on two cores. What the command of a line printed is kept in FOLDER as LINE.log, and
`false_alarms.jsonl` there lets a sweep that was cut go on. The exit code is 1 where a line is not met.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_BUILDS: Final = 300
_SEARCH_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Line:
    """One thing to reach.

    Attributes:
        command: After the interpreter; `{record}` in it is the folder of records.
        judge: From what the command printed and its exit code to the figure, and whether it is met.
    """

    name: str
    what: str
    command: tuple[str, ...]
    judge: Callable[[str, int], tuple[str, bool]]
    long: bool = False


def _tests(printed: str, code: int) -> tuple[str, bool]:
    """Of tests: pytest's own count; one that is skipped measures nothing."""
    counts = re.findall(r"(\d+) (passed|failed|error|skipped)", printed)
    return ", ".join(f"{number} {word}" for number, word in counts) or f"exit code {code}", (
        code == 0 and any(word == "passed" for _, word in counts)
    )


def _faults(printed: str, code: int) -> tuple[str, bool]:
    found = re.search(r"the gate catches (\d+) of (\d+), one random call (\d+)", printed)
    if found is None:
        return f"exit code {code}", False
    caught, telling, by_one = found.groups()
    return f"{caught} of {telling} caught, {by_one} by one random input", code == 0 and caught == telling


def _alarms(printed: str, code: int) -> tuple[str, bool]:
    built = sum(map(int, re.findall(r"(\d+) (?:executed|failed|unproven|compiled)\b", printed)))
    passed = sum(map(int, re.findall(r"(\d+) executed\b", printed)))
    is_met = code == 0 and built == passed and built >= _BUILDS
    return f"{passed} of {built} builds executed", is_met


def _coverage(printed: str, code: int) -> tuple[str, bool]:
    reached = re.search(r"coverage: (\d+) of (\d+) reached, (\d+) named", printed)
    seconds = re.search(r"longest search for calls: ([\d.]+) s", printed)
    if reached is None or seconds is None:
        return f"exit code {code}", False
    got, total, named = map(int, reached.groups())
    figure = f"{got} of {total} reached, {named} named; the longest search {seconds[1]} s"
    return figure, got + named == total and float(seconds[1]) < _SEARCH_S


def _pytest(*paths: str) -> tuple[str, ...]:
    # The configuration says -q already: of a second one pytest prints no count.
    return ("-m", "pytest", "-s", "-p", "no:cacheprovider", *paths)


_SWEEP: Final = ("scripts/false_alarms.py", "--record", "{record}/false_alarms.jsonl")
_UNIT: Final = "tests/unit"
LINES: Final = (
    Line(
        "random",
        "what varies between calls is refused with the line",
        _pytest(f"{_UNIT}/validate/test_repeatability.py"),
        _tests,
    ),
    Line(
        "vacuous",
        "models of which no call says anything are unproven",
        _pytest(f"{_UNIT}/validate/test_informative_models.py", f"{_UNIT}/build/test_build_unproven.py"),
        _tests,
    ),
    Line(
        "failures",
        "a failure at each stage, a kill, a time-out: report, JUnit, JSON",
        _pytest(f"{_UNIT}/build/test_draft.py", f"{_UNIT}/build/formats"),
        _tests,
    ),
    Line(
        "bad input",
        "bad goldens, metrics, budgets, samples and targets are contained",
        _pytest(
            f"{_UNIT}/build/test_budgets.py",
            f"{_UNIT}/build/test_replay.py",
            f"{_UNIT}/validate/test_accuracy.py",
            f"{_UNIT}/validate/test_samples.py",
            f"{_UNIT}/build/test_matrix.py",
            f"{_UNIT}/runtime/test_worker.py",
        ),
        _tests,
    ),
    Line("faults", "seeded faults that change an output", ("scripts/seeded_faults.py",), _faults, long=True),
    Line("false alarms", f"{_BUILDS} correct builds", _SWEEP, _alarms, long=True),
    Line(
        "coverage",
        f"branches, trips and sizes of them; searched in under {_SEARCH_S:g} s",
        _SWEEP,
        _coverage,
        long=True,
    ),
    Line(
        "latency",
        "ten runs, five beside a busy loop: within 10% or noisy",
        _pytest("tests/e2e/test_latency_noise.py"),
        _tests,
        long=True,
    ),
)


def measure(line: Line, record: Path) -> tuple[str, bool]:
    """Run the command of a line; its figure, and whether the line is met."""
    command = [sys.executable, *(each.format(record=record) for each in line.command)]
    # The commands import the tests too.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    (record / f"{line.name.replace(' ', '_')}.log").write_text(ran.stdout + ran.stderr)
    return line.judge(ran.stdout, ran.returncode)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="also the lines that take hours")
    parser.add_argument("--only", action="append", choices=[line.name for line in LINES], help="this line")
    parser.add_argument("--record", type=Path, default=Path("gate"), metavar="FOLDER", help="default: gate")
    given = parser.parse_args()
    record = given.record.resolve()
    record.mkdir(parents=True, exist_ok=True)
    chosen = [
        line for line in LINES if (line.name in given.only if given.only else given.all or not line.long)
    ]
    met = True
    for line in chosen:
        figure, is_met = measure(line, record)
        print(f"{line.name:13} {'met' if is_met else 'NOT MET':8} {figure:52} {line.what}", flush=True)
        met &= is_met
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
