"""What programs may take: budgets, given as texts and judged on a report. Torch-free.

    TARGET:NAME=LIMIT       of a target, a shorthand or a glob; of all targets without `TARGET:`

`Limit.parse(str(limit)) == limit`. The names, and their limits:

    parity      the share of the allowed error that the worst element may use: 50% or 0.5
    p50, p90    a call's time over a baseline's of the same run: 0.8 eager, 1.1 torch.compile
    size        the bytes of the target's programs: 2 MB
    memory      the peak resident memory of the process that ran the program: 500 MB
    compile     seconds of the compiler: 60 s
    programs    how many programs the model may become, of all targets: 3
    coverage    the share of the model's branches and trips that must have been reached: 100%

A budget of which nothing says whether it holds does not hold. One for all targets that takes a run is not
asked of a target that could not run here; one that names the target is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from aotpipe.build.report import Budget, Report, TargetReport
from aotpipe.core.targets import Target, expand
from aotpipe.core.units import duration, share, size
from aotpipe.errors import BudgetInvalid, StoreError, UnknownTarget
from aotpipe.runtime.store import parse_size

_OF_A_RUN: Final = frozenset({"parity", "p50", "p90", "memory", "coverage"})
_RATIOS: Final = frozenset({"p50", "p90"})
_SHARES: Final = frozenset({"parity", "coverage"})
_SIZES: Final = frozenset({"size", "memory"})
NAMES: Final = ("parity", "p50", "p90", "size", "memory", "compile", "programs", "coverage")
_TABLE: Final = "[tool.aotpipe.budgets]"


@dataclass(frozen=True, slots=True)
class Limit:
    """One budget; `target` is empty where it is for all, `baseline` where it is no ratio."""

    target: str
    name: str
    value: float
    baseline: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `TARGET:NAME=LIMIT` or `NAME=LIMIT`.

        Raises:
            BudgetInvalid: It is none.
        """
        place, _, limit = text.partition("=")
        target, _, name = place.strip().rpartition(":")
        return cls.of(target.strip(), name.strip(), limit.strip())

    @classmethod
    def of(cls, target: str, name: str, limit: object) -> Self:
        """Read a limit such as `50%`, `0.8 eager`, `2 MB`, `60 s` or a number.

        Raises:
            BudgetInvalid: It is none, or nothing has that name.
        """
        if name not in NAMES:
            raise BudgetInvalid(f"there is no budget {name!r}", hint=f"the budgets are: {', '.join(NAMES)}")
        try:
            if target:
                expand([target])
            value, baseline = _read(name, str(limit).strip())
        except UnknownTarget as error:
            raise BudgetInvalid(
                f"the budget {name} is for {target!r}, which is no target", hint=error.hint
            ) from error
        except (ValueError, StoreError) as error:
            raise BudgetInvalid(
                f"the budget {name} is no limit: {str(limit)!r}", hint=f"write it as {name}={_example(name)}"
            ) from error
        return cls(target, name, value, baseline)

    def __str__(self) -> str:
        place = f"{self.target}:" if self.target else ""
        return f"{place}{self.name}={self.limit}"

    @property
    def limit(self) -> str:
        """The limit alone, as `parse` reads it."""
        if self.name in _RATIOS:
            return f"{self.value:g} {self.baseline}"
        if self.name in _SHARES:
            return f"{100 * self.value:g}%"
        return f"{self.value:g} s" if self.name == "compile" else f"{self.value:.0f}"

    @property
    def shown(self) -> str:
        """The limit for people."""
        return size(int(self.value)) if self.name in _SIZES else self.limit

    def covers(self, target: str) -> bool:
        """Whether it is for a target."""
        return not self.target or Target.parse(target) in expand([self.target])


def of_coverage(percent: float | None) -> tuple[Limit, ...]:
    """The budget of what calls have to reach, for all targets; none where nothing is required."""
    return () if percent is None else (Limit.of("", "coverage", f"{percent}%"),)


def _read(name: str, text: str) -> tuple[float, str]:
    if name in _SIZES:
        return float(parse_size(text.replace(" ", ""))), ""
    if name in _RATIOS:
        found = re.fullmatch(r"×?(\d+(?:\.\d+)?)\s*(?:(?:of|x|×)\s+)?(\S.*)?", text)
        if found is None:
            raise ValueError(text)
        return float(found[1]), found[2] or "eager"
    suffix = {"compile": "s", "programs": ""}.get(name, "%")
    number = float(text.removesuffix(suffix) if suffix else int(text))
    if not 0 <= number < float("inf"):
        raise ValueError(text)
    return (number / 100 if suffix == "%" and text.endswith("%") else number), ""


def _example(name: str) -> str:
    if name in _RATIOS:
        return "'0.8 eager'"
    if name in _SIZES:
        return "2MB"
    return {"compile": "60s", "programs": "3"}.get(name, "50%")


def of_project(start: Path) -> tuple[Limit, ...]:
    """The budgets of the first pyproject.toml in a folder or above it that has a table `[tool.aotpipe]`.

    Raises:
        BudgetInvalid: The file is no TOML, or has a budget that is none.
    """
    for folder in (start.absolute(), *start.absolute().parents):
        path = folder / "pyproject.toml"
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError:
            continue
        except ValueError as error:
            raise BudgetInvalid(f"{path} cannot be read", reason=str(error)) from error
        if (own := data.get("tool", {}).get("aotpipe")) is not None:
            return tuple(_of_table(own, path))
    return ()


def _of_table(own: Mapping[str, Any], path: Path) -> Iterable[Limit]:
    if unknown := own.keys() - {"budgets"}:
        raise BudgetInvalid(
            f"[tool.aotpipe] of {path} has an unknown key {min(unknown)!r}", hint=f"budgets are in {_TABLE}"
        )
    for key, given in own.get("budgets", {}).items():
        if isinstance(given, Mapping):
            yield from (Limit.of(key, name, limit) for name, limit in given.items())
        else:
            yield Limit.of("", key, given)


def chosen(project: Iterable[Limit], given: Iterable[Limit], targets: Sequence[Target]) -> tuple[Limit, ...]:
    """The project's budgets, and in their place those that were given for the same thing.

    Raises:
        BudgetInvalid: One that was given is for a target that is not built.
    """
    given = tuple(given)
    for limit in given:
        if limit.target and not any(limit.covers(str(target)) for target in targets):
            raise BudgetInvalid(
                f"the budget {limit} is for a target that is not built",
                reason=f"the targets are: {', '.join(map(str, targets))}",
                hint="build it too, or leave the budget out",
            )
    found = {(limit.target, limit.name): limit for limit in (*project, *given)}
    return tuple(found.values())


def least_coverage(limits: Iterable[Limit], target: str) -> float | None:
    """The percent of the model that calls have to reach before a target's program passes; None for any."""
    limit = _own(limits, target).get("coverage")
    return None if limit is None else 100 * limit.value


def judged(limits: Iterable[Limit], report: Report) -> tuple[Budget, ...]:
    """Say for each target which of its budgets hold; one that names the target comes before one for all."""
    found = []
    limits = tuple(limits)
    for row in report.targets:
        own = _own(limits, row.target).values()
        # What failed has failed already, and so has what reaches too little (`matrix.covered`).
        found += [_judged(limit, row, report) for limit in own if _is_asked(limit, row)]
    return tuple(found)


def _own(limits: Iterable[Limit], target: str) -> dict[str, Limit]:
    """A target's budgets by name."""
    found = sorted(limits, key=lambda limit: bool(limit.target))
    return {limit.name: limit for limit in found if limit.covers(target)}


def _is_asked(limit: Limit, row: TargetReport) -> bool:
    has_run = row.status in {"executed", "unproven"}
    return row.failure is None and (has_run or bool(limit.target) or limit.name not in _OF_A_RUN)


def _judged(limit: Limit, row: TargetReport, report: Report) -> Budget:
    value, reason = _measured(limit, row, report)
    passed = value is not None and (
        value >= limit.value if limit.name == "coverage" else value <= limit.value
    )
    found = "" if value is None else _shown(limit, value)
    return Budget(
        target=row.target, name=limit.name, limit=limit.shown, found=found, passed=passed, reason=reason
    )


def _shown(limit: Limit, value: float) -> str:
    if limit.name in _RATIOS:
        return f"×{value:.3g} of {limit.baseline}"
    if limit.name in _SIZES:
        return size(int(value))
    if limit.name in _SHARES:
        return share(value) if limit.name == "parity" else f"{100 * value:.3g}%"
    return duration(value) if limit.name == "compile" else f"{value:g}"


def _measured(limit: Limit, row: TargetReport, report: Report) -> tuple[float | None, str]:
    """What a target took; where nothing says it, why."""
    match limit.name:
        case "size":
            return row.size_bytes, ""
        case "compile":
            return row.compile_s, ""
        case "programs":
            return len(report.entry_points), ""
        case "parity":
            worst = row.parity.worst if row.parity else None
            return (worst.ratio, "") if worst else (None, "no output was compared")
        case "coverage":
            found = report.coverage
            return (None, "; ".join(found.notes)) if found.notes else (found.percent / 100, "")
        case "memory":
            peaks = [latency.peak_rss_bytes for latency in row.latency if latency.peak_rss_bytes]
            return (max(peaks), "") if peaks else (None, "the program was not timed")
        case _:
            return _worst_ratio(limit, row)


def _worst_ratio(limit: Limit, row: TargetReport) -> tuple[float | None, str]:
    worst: float | None = None
    for latency in row.latency:
        ratio, reason = latency.compared(limit.baseline, limit.name)
        if ratio is None:
            return None, f"{latency.entry_point}: {reason}"
        worst = max(ratio, worst or 0.0)
    return (worst, "") if worst is not None else (None, "the program was not timed")
