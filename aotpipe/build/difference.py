"""What differs between two builds, by their reports, and what of it is worse. Torch-free.

status      a target is missing, failed, or no longer `executed`
parity      a program uses more of the allowed error
latency     a call takes longer, as a ratio to eager in the same run; noisy runs are not compared
size        a program has more bytes
signature   an entry point takes or gives something else: who calls it may have to change
ops, flags, toolchain    are told, and are no regression by themselves
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal

from aotpipe.build import report_folder
from aotpipe.build.report import Report, TargetReport
from aotpipe.core.serialization import Serializable
from aotpipe.core.signature import Signature
from aotpipe.core.units import share, size
from aotpipe.errors import BundleError, BundleNotFound

Kind = Literal["status", "parity", "latency", "size", "signature", "ops", "flags", "toolchain"]

_RANK: Final[Mapping[str, int]] = {"executed": 3, "unproven": 2, "compiled": 1, "failed": 0}
_EAGER: Final = "eager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How much worse is no regression.

    Attributes:
        parity: The share of the allowed error that is used more.
        latency, size: What was, times so much.
    """

    parity: float = 0.1
    latency: float = 1.1
    size: float = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that differs; `subject` is a target, an entry point, an op or a package."""

    kind: Kind
    subject: str
    old: str
    new: str
    regressed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Serializable):
    """What differs between two builds."""

    derived: ClassVar = ("regressed",)

    old: str
    new: str
    changes: tuple[Change, ...]

    @property
    def regressed(self) -> bool:
        """Whether something is worse."""
        return any(change.regressed for change in self.changes)


def read(path: Path) -> Report:
    """The report at a path: its file, its folder, or the bundle beside which it lies.

    Raises:
        BundleNotFound: There is none.
        BundleError: It is of another schema, or no report.
    """
    folder = report_folder.folder_of(path.absolute())
    places = (path, path / "report.json", folder / "report.json")
    found = next((place for place in places if place.is_file() and place.suffix == ".json"), None)
    if found is None:
        raise BundleNotFound(
            f"there is no report at {path}", hint="name a report.json, its folder, or the bundle beside it"
        )
    try:
        return Report.from_json(json.loads(found.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise BundleError(f"{found} is no report that this aotpipe reads", reason=str(error)) from error


def difference(old: Report, new: Report, tolerance: Tolerance = Tolerance()) -> Difference:
    """Compare two builds; what is the same is not told."""
    return Difference(
        old=old.bundle or old.name, new=new.bundle or new.name, changes=tuple(_all(old, new, tolerance))
    )


def _all(old: Report, new: Report, tolerance: Tolerance) -> Iterator[Change]:
    if new.failure is not None:
        before = old.failure.error if old.failure else "passed"
        yield Change(
            kind="status", subject="build", old=before, new=new.failure.error, regressed=old.failure is None
        )
    rows = {row.target: row for row in new.targets}
    for row in old.targets:
        if (other := rows.pop(row.target, None)) is None:
            yield Change(kind="status", subject=row.target, old=row.status, new="missing", regressed=True)
        else:
            yield from _of_target(row, other, tolerance)
    for row in rows.values():
        yield Change(kind="status", subject=row.target, old="missing", new=row.status)
    if new.failure is None and old.failure is None:
        yield from _signatures(old.entry_points, new.entry_points)
        yield from _values(
            "ops", {k: str(v) for k, v in old.ops.items()}, {k: str(v) for k, v in new.ops.items()}
        )
    yield from _values("toolchain", old.toolchain, new.toolchain)


def _of_target(old: TargetReport, new: TargetReport, tolerance: Tolerance) -> Iterator[Change]:
    if old.status != new.status:
        worse = _RANK[new.status] < _RANK[old.status]
        yield Change(kind="status", subject=old.target, old=old.status, new=new.status, regressed=worse)
    before, after = (row.parity.worst if row.parity else None for row in (old, new))
    if before and after and before.ratio != after.ratio:
        worse = after.ratio > before.ratio + tolerance.parity
        shown = (share(before.ratio), share(after.ratio))
        if worse or shown[0] != shown[1]:
            yield Change(kind="parity", subject=old.target, old=shown[0], new=shown[1], regressed=worse)
    yield from _latency(old, new, tolerance)
    if old.size_bytes and new.size_bytes and old.size_bytes != new.size_bytes:
        yield Change(
            kind="size",
            subject=old.target,
            old=size(old.size_bytes),
            new=size(new.size_bytes),
            regressed=new.size_bytes > old.size_bytes * tolerance.size,
        )
    if old.flags != new.flags and new.failure is None and old.failure is None:
        yield Change(kind="flags", subject=old.target, old=shlex.join(old.flags), new=shlex.join(new.flags))


def _latency(old: TargetReport, new: TargetReport, tolerance: Tolerance) -> Iterator[Change]:
    times = {each.entry_point: each for each in new.latency}
    for before in old.latency:
        if (after := times.get(before.entry_point)) is None:
            continue
        first, last = (each.compared(_EAGER, "p50") for each in (before, after))
        shown = tuple(f"×{ratio:.3g}" if ratio is not None else reason for ratio, reason in (first, last))
        worse = first[0] is not None and last[0] is not None and last[0] > first[0] * tolerance.latency
        if shown[0] != shown[1]:
            yield Change(
                kind="latency",
                subject=f"{old.target} {before.entry_point}",
                old=shown[0],
                new=shown[1],
                regressed=worse,
            )


def _signatures(old: Mapping[str, Signature], new: Mapping[str, Signature]) -> Iterator[Change]:
    texts = ({name: json.dumps(own.to_json()) for name, own in each.items()} for each in (old, new))
    for change in _values("signature", *texts):
        yield Change(kind="signature", subject=change.subject, old=change.old, new=change.new, regressed=True)


def _values(kind: Kind, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for name in (*old, *(name for name in new if name not in old)):
        if old.get(name) != new.get(name):
            yield Change(kind=kind, subject=name, old=old.get(name, "–"), new=new.get(name, "–"))
