"""`aotpipe targets`, `inspect`, `selftest`: what there is, and whether it works here. None needs torch."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from aotpipe.cli import options, text
from aotpipe.core.targets import Target, table

if TYPE_CHECKING:
    from aotpipe.core.stages import Schedule
    from aotpipe.runtime.bundle import Bundle, TargetResult
    from aotpipe.runtime.bundle.manifest import Program

_PROGRAM: Final = (
    "target",
    "status",
    "dialect",
    "parity",
    "size",
    "dispatches",
    "kernels",
    "allocates",
    "runs here",
)


@click.command()
@options.as_json
def targets(*, as_json: bool) -> None:
    """List the targets, what this host can do for each (compile, run), and what would change that."""
    rows = [ability(Target.parse(name)) for name in table()]
    if as_json:
        text.echo_json([asdict(row) for row in rows])
        return
    lines = [(row.target, row.here, row.summary, row.reason) for row in rows]
    click.echo(text.table(("target", "here", "what for", "what it lacks here"), lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """What this host can do for a target.

    Attributes:
        reason: Why it cannot do all, and what would change that; empty where it can.
    """

    target: str
    summary: str
    compiles_here: bool
    runs_here: bool
    reason: str

    @property
    def here(self) -> str:
        """What this host can do, in a word or two."""
        able = {"compiles": self.compiles_here, "runs": self.runs_here}
        return ", ".join(name for name, can in able.items() if can) or "no"


def ability(target: Target) -> Ability:
    """Ask the compilers and the drivers of this host."""
    from aotpipe.backends import why_not_compilable
    from aotpipe.runtime.loading import why_not_runnable

    compiling, running = why_not_compilable(target), why_not_runnable(target)
    return Ability(
        target=str(target),
        summary=target.row.summary,
        compiles_here=not compiling,
        runs_here=not running,
        reason="; ".join(dict.fromkeys(filter(None, (compiling, running)))),
    )


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path), metavar="BUNDLE")
@click.option("--verify", is_flag=True, help="Check every byte against the manifest, too.")
@options.as_json
def inspect(*, bundle: Path, verify: bool, as_json: bool) -> None:
    """Show what BUNDLE holds: entry points, programs, sizes, dispatches, memory, flags, findings."""
    from aotpipe.runtime import bundle as bundles

    if verify:
        bundles.verify(bundle)
    opened = bundles.open_bundle(bundle)
    if as_json:
        text.echo_json(_inspected(opened))
    else:
        click.echo(_inspected_text(opened))


def _inspected(bundle: Bundle) -> dict[str, Any]:

    manifest = bundle.manifest
    return {
        "name": manifest.name,
        "path": str(bundle.path),
        "digest": manifest.digest,
        "entry_points": {name: one.to_json() for name, one in manifest.signatures.items()},
        "weights": list(manifest.weights),
        "precision": manifest.precision and asdict(manifest.precision),
        "programs": [
            {**_program(program), "variants": [_program(each) for each in program.variants]}
            for program in manifest.programs
        ],
        "findings": [finding.to_json() for finding in manifest.findings],
        "islands": [
            {"name": each.name, "kind": each.kind, "where": str(each.where or ""), "reason": each.reason}
            for each in (manifest.parts.islands if manifest.parts else ())
        ],
        "files": {
            name: {"sha256": file.sha256, "size_bytes": file.size_bytes}
            for name, file in manifest.files.items()
        },
    }


def _program(program: Program) -> dict[str, Any]:
    from aotpipe.runtime.bundle.load import why_not_runnable

    return {
        "target": program.target,
        "status": program.status,
        "reason": program.reason,
        "runs_here": bool(program.file) and not why_not_runnable(program),
        "flags": list(program.flags),
        "toolchain": dict(program.toolchain),
        "host_features": list(program.host_features),
        "notes": list(program.notes),
        "estimates": [each.to_json() for each in program.estimates],
        "dialect": program.dialect,
        "partition": program.partition and program.partition.to_json(),
        "schedule": program.schedule and program.schedule.to_json(),
    }


def _inspected_text(bundle: Bundle) -> str:
    from aotpipe.cli import estimates
    from aotpipe.cli.progress import finding_line
    from aotpipe.cli.steps import signature_text
    from aotpipe.core.units import share, size
    from aotpipe.runtime.bundle.load import why_not_runnable
    from aotpipe.runtime.bundle.manifest import WEIGHTS

    manifest = bundle.manifest
    total = sum(file.size_bytes for file in manifest.files.values())
    head = {
        "name": manifest.name,
        "path": str(bundle.path),
        "digest": manifest.digest,
        "size": f"{size(total)} in {len(manifest.files)} files, {len(manifest.weights)} weights",
        "weights": f"{size(manifest.files[WEIGHTS].size_bytes)}, with the initial state, for all programs",
    }
    if manifest.precision:
        head["precision"] = str(manifest.precision)
    every = [
        (f"  {each.target}" if place else each.target, each)
        for program in manifest.programs
        for place, each in enumerate(program.all)
    ]
    rows = [
        (
            name,
            program.status,
            program.dialect or "–",
            share(program.parity.ratio) if program.parity else "–",
            size(manifest.files[program.file].size_bytes) if program.file else "–",
            *_schedule_cells(program.schedule),
            (why_not_runnable(program) or "yes") if program.file else program.reason,
        )
        for name, program in every
    ]
    flags = {each.target: shlex.join(each.flags) for _, each in every if each.flags}
    cost = estimates.table((program.target, program.estimates) for program in manifest.programs)
    parts = manifest.parts
    islands = [(each.name, str(each.where or ""), each.reason) for each in (parts.islands if parts else ())]
    return "\n\n".join(
        [
            text.fields(head),
            *(signature_text(name, signature) for name, signature in manifest.signatures.items()),
            text.table(_PROGRAM, rows),
            *([text.table(("target", "flags"), list(flags.items()))] if flags else []),
            *([cost] if cost else []),
            *(f"{each.target}: {each.partition}" for each in manifest.programs if each.partition),
            *([text.table(("island", "line", "reason"), islands)] if islands else []),
            *map(finding_line, manifest.findings),
        ]
    )


def _schedule_cells(schedule: Schedule | None) -> tuple[str, str, str]:
    from aotpipe.core.units import size

    if schedule is None:
        return ("–", "–", "–")
    return (str(schedule.dispatches), str(schedule.kernels), size(schedule.allocated_bytes))


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path), metavar="BUNDLE")
@click.option("-t", "--target", metavar="TARGET", help="One program. [default: every one that runs here]")
@options.as_json
def selftest(*, bundle: Path, target: str | None, as_json: bool) -> int:
    """Run the recorded calls of BUNDLE on this host and compare the answers; needs no torch."""
    from aotpipe.errors import ParityError
    from aotpipe.runtime import bundle as bundles

    options.find_in_working_folder()
    found = bundles.selftest(bundle, target)
    if as_json:
        rows = [_tested(each) for each in found.targets]
        text.echo_json({"name": found.name, "passed": found.passed, "targets": rows})
    else:
        lines = [_tested_line(each) for each in found.targets]
        click.echo(text.table(("target", "outcome", "calls", "parity", "worst"), lines))
    return 0 if found.passed else ParityError.exit_code


def _tested(each: TargetResult) -> dict[str, Any]:

    from aotpipe.core.serialization import to_json

    worst = each.worst and {
        "entry_point": each.worst.entry_point,
        "case": each.worst.case,
        "output": each.worst.output,
        "ratio": to_json(float(each.worst.measure.ratio)),
        "max_abs_error": to_json(float(each.worst.measure.max_abs_error)),
        "message": each.worst.measure.message,
    }
    return {
        "target": each.target,
        "outcome": each.outcome,
        "calls": each.calls,
        "reason": each.reason,
        "worst": worst,
    }


def _tested_line(each: TargetResult) -> tuple[str, ...]:
    from aotpipe.core.units import share

    if each.worst is None:
        return (each.target, each.outcome, str(each.calls), "–", each.reason)
    worst = each.worst
    place = f"{worst.output} of {worst.entry_point}, {worst.case} {worst.measure.message}".strip()
    return (each.target, each.outcome, str(each.calls), share(worst.measure.ratio), place)
