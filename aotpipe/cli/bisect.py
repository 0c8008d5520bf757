"""`aotpipe bisect`: which op makes a program's numbers wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotpipe.cli import options, progress, text

if TYPE_CHECKING:
    from aotpipe.tools.bisect.fault import Fault


@click.command()
@options.model()
@click.option(
    "-t",
    "--target",
    default="iree-cpu-host",
    show_default=True,
    metavar="TARGET",
    help="The target whose program is wrong; it must run here.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="A folder for the smallest program that is wrong, its flags, inputs and answers. "
    "[default: nothing is written]",
)
@options.compiling
@options.as_json
@options.quiet
def bisect(
    *,
    model: str,
    target: str,
    out: Path | None,
    options: dict[str, Any],
    cache: bool,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> int:
    """Find the op of MODEL that makes its program wrong on a target, with the line it comes from.

    The exit code is 0 where the program is right, else that of a build whose numbers differ.
    """
    from aotpipe.build.compile_stage import CompileSettings
    from aotpipe.errors import ParityError
    from aotpipe.tools.bisect import bisect as find

    with progress.shown(quiet=quiet) as listener:
        fault = find(
            model,
            target=target,
            settings=CompileSettings(**settings),
            cache=cache,
            on_event=listener,
            **options,
        )
    if fault is not None and out is not None:
        fault.reproducer.save(out)
    if as_json:
        text.echo_json({"target": target, "fault": fault and fault.to_json()})
    elif fault is None:
        click.echo(f"{target}: every recorded call is at parity")
    else:
        click.echo(fault_text(fault, out))
    return 0 if fault is None else ParityError.exit_code


def fault_text(fault: Fault, out: Path | None = None) -> str:
    """What was found, for people."""
    from aotpipe.validate.parity import describe

    rows = {
        "op": str(fault.place),
        "operands": "; ".join(fault.operands) or "none",
        "value": describe(fault.case),
        "alone": describe(fault.alone)
        if fault.alone
        else "right in a program of its own: what it is fused with takes part",
        "output": describe(fault.failed),
    }
    if fault.cures:
        rows["cured by"] = "giving as a result too: " + ", ".join(map(str, fault.cures))
    rows["programs"] = f"{fault.programs} were compiled"
    if out is not None:
        rows["written"] = str(out)
    return text.fields(rows)
