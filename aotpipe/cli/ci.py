"""`aotpipe diff` and `aotpipe replay`: whether a build, or a toolchain, is worse than the one before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from aotpipe.cli import options, progress, text
from aotpipe.errors import Regressed

if TYPE_CHECKING:
    from aotpipe.build.difference import Kind

KINDS: Final = ("status", "parity", "latency", "size", "signature", "ops", "flags", "toolchain")
_LONGEST: Final = 60


@click.command()
@click.argument("old", type=click.Path(path_type=Path), metavar="OLD")
@click.argument("new", type=click.Path(path_type=Path), metavar="NEW")
@click.option(
    "--parity",
    type=click.FloatRange(min=0),
    default=0.1,
    show_default=True,
    help="The share of the allowed error that a program may use more.",
)
@click.option(
    "--latency",
    type=click.FloatRange(min=1),
    default=1.1,
    show_default=True,
    help="How many times as long as before a call may take, each as a ratio to eager in its run.",
)
@click.option(
    "--size",
    type=click.FloatRange(min=1),
    default=1.05,
    show_default=True,
    help="How many times as large as before a program may be.",
)
@click.option(
    "--allow", type=click.Choice(KINDS), multiple=True, help="What may be worse; may be given several times."
)
@options.as_json
def diff(
    *,
    old: Path,
    new: Path,
    parity: float,
    latency: float,
    size: float,
    allow: tuple[Kind, ...],
    as_json: bool,
) -> int:
    """Compare two builds by their reports: parity, latency, size, signatures, ops, flags, toolchain.

    OLD and NEW are bundles, their reports' folders, or files report.json. Something that is worse fails.
    """
    from aotpipe.build.difference import Tolerance, difference, read

    found = difference(read(old), read(new), Tolerance(parity=parity, latency=latency, size=size))
    changes = tuple(
        replace(change, regressed=change.regressed and change.kind not in allow) for change in found.changes
    )
    found = replace(found, changes=changes)
    rows = (
        (
            change.kind,
            change.subject,
            _short(change.old),
            _short(change.new),
            "worse" if change.regressed else "",
        )
        for change in changes
    )
    head = ("what", "of", "old", "new", "")
    text.show(found, lambda: text.table(head, rows) if changes else "nothing differs", as_json=as_json)
    if not found.regressed:
        return 0
    worse = [f"{each.kind} of {each.subject}: {each.old} -> {each.new}" for each in changes if each.regressed]
    error = Regressed(worse[0], reason="\n".join(worse[1:]), hint="--allow KIND takes a change that is meant")
    text.annotate(error)
    if not as_json:
        text.say(f"\n{error}")
    return error.exit_code


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"


@click.command()
@options.bundle
@options.targets
@options.compiling
@options.as_json
@options.quiet
def replay(*, bundle: Path, targets: tuple[str, ...], as_json: bool, quiet: bool, **settings: Any) -> int:
    """Compile the modules that BUNDLE keeps with this toolchain, and run BUNDLE's recorded calls.

    BUNDLE was built with --keep-modules. `aotpipe selftest` runs the programs that BUNDLE holds.
    """
    from aotpipe.build.compile_stage import CompileSettings
    from aotpipe.build.replay import replay as run
    from aotpipe.cli import result

    with progress.shown(quiet=quiet) as listener:
        report = run(bundle, targets=targets, compiling=CompileSettings(**settings), on_event=listener)
    text.show(report, lambda: result.targets_table(report), as_json=as_json)
    if not report.ok:
        text.say("\n" + result.failures(report))
    return report.exit_code
