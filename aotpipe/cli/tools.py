"""`aotpipe check`, `canonicalize`, `recompiles`, `bisect`: what becomes of a model, where it goes wrong."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotpipe.cli import options, progress, text
from aotpipe.errors import AotpipeError, ParityError
from aotpipe.runtime.store import typed_os_errors

if TYPE_CHECKING:
    from aotpipe.tools.bisect.fault import Fault
    from aotpipe.tools.rewrite import Written


@click.command()
@options.model()
@click.option(
    "--sarif",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the result as SARIF 2.1.0, too.",
)
@options.as_json
@options.quiet
def check(*, model: str, options: dict[str, Any], sarif: Path | None, as_json: bool, quiet: bool) -> int:
    """List all that keeps MODEL from becoming one program, with the line, the reason and a fix.

    What Python's control flow becomes, what is kept as state and what is fixed at the build is said too. The
    exit code is 0 where nothing blocks, and 22 where something does.
    """
    from aotpipe.tools.check import check as checks
    from aotpipe.tools.check.formats import render, to_sarif

    checked = checks(model, **options)
    if sarif is not None:
        with typed_os_errors("the SARIF file", sarif):
            sarif.parent.mkdir(parents=True, exist_ok=True)
            sarif.write_text(json.dumps(to_sarif(checked), indent=2) + "\n", encoding="utf-8")
    text.show(checked.to_json(), lambda: render(checked, quiet=quiet), as_json=as_json)
    return checked.exit_code


@click.command()
@options.model("canonicalize")
@options.out("The file to write. [default: the code is printed]", is_file=True)
@click.option("--diff", is_flag=True, help="Print a unified diff from the model's file to the code.")
@options.as_json
@options.quiet
def canonicalize(
    *, model: str, options: dict[str, Any], out: Path | None, diff: bool, as_json: bool, quiet: bool
) -> None:
    """Write MODEL as PyTorch that torch.export takes: torch.cond, torch.while_loop, buffers for state.

    The code needs torch only, and takes the weights by `load_state_dict(model.state_dict())`. It is written
    when the same calls gave the same answers, and not otherwise.
    """
    from aotpipe.tools.rewrite import written

    # stdout is the answer's; that the model prints is no part of it.
    with progress.shown(quiet=quiet) as listener, redirect_stdout(io.StringIO()):
        found = written(
            model, file_name=out.name if out is not None else "model.py", on_event=listener, **options
        )
    if out is not None:
        found.save(out)
    if as_json:
        text.echo_json(found.to_json() | {"path": None if out is None else str(out)})
        return
    if diff:
        text.echo(found.diff(), nl=False)
    elif out is None:
        text.echo(found.text, nl=False)
    if not quiet:
        text.say(summary(found, out))


def summary(found: Written, out: Path | None) -> str:
    """What was written and what was proved, for people."""
    proof = found.proof
    how = "from the model's source" if found.way == "source" else "from the model's graph"
    where = f" to {out}" if out is not None else ""
    lines = [f"{found.class_name} was written {how}{where}"]
    if found.reason:
        lines.append(f"  not from its source: {found.reason}")
    if found.state:
        how = "in buffers" if found.way == "source" else "which reset() makes what it was"
        lines.append(f"  state, {how}: {', '.join(found.state)}")
    calls = f"{proof.calls} calls in {proof.sequences} sequences" if found.state else f"{proof.calls} calls"
    lines.append(f"  proved: {calls} answer as the model does, largest difference {proof.max_abs_error:.2g}")
    sizes = "" if proof.varies else " at the example's sizes, though not with its Dims"
    lines.append(f"  proved: torch.export takes it as it is{sizes}, and its program answers alike")
    lines += [f"  {'covered' if each.is_full else 'partly covered'}: {each}" for each in proof.coverage]
    return "\n".join(lines)


@click.command()
@options.model()
@click.option(
    "--inputs",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The calls: .json, .npz or .py. [default: drawn to cover what the Spec lets vary]",
)
@click.option("--calls", type=click.IntRange(min=1), metavar="N", help="Make so many calls.")
@click.option("--seed", type=int, default=0, show_default=True, help="What calls are drawn from.")
@click.option(
    "--of",
    "ways",
    multiple=True,
    metavar="WAY",
    help="torch.compile or a target; may be given several times. [default: torch.compile, iree-cpu-host]",
)
@click.option(
    "--dynamic/--static",
    default=None,
    help="torch.compile's own `dynamic`. [default: a size is dynamic once it varied]",
)
@click.option(
    "--at-most", type=click.IntRange(min=0), metavar="N", help="Fail where a way takes more programs."
)
@click.option("--cache/--no-cache", default=True, help="Keep programs for the next run.")
@options.as_json
@options.quiet
def recompiles(
    *,
    model: str,
    options: dict[str, Any],
    ways: tuple[str, ...],
    at_most: int | None,
    as_json: bool,
    quiet: bool,
    **asked: Any,
) -> int:
    """Count the programs that varied calls of MODEL take: torch.compile's, and aotpipe's.

    Each program of torch.compile is told with the call, the line, the value that varied and the reason.
    aotpipe's are made before the first call; their answers are compared with eager's, and a call that they do
    not take is refused. The exit code is 0, or 24 beyond --at-most (a call that is refused counts as beyond),
    or that of the error that kept a target from having a program.
    """
    from aotpipe.tools.recompiles import DEFAULT_WAYS
    from aotpipe.tools.recompiles import recompiles as count

    with progress.shown(quiet=quiet) as listener:
        found = count(model, ways=ways or DEFAULT_WAYS, on_event=listener, **asked, **options)
    text.show(found.to_json(), lambda: str(found), as_json=as_json)
    try:
        found.require(at_most)
    except AotpipeError as error:
        if not as_json:
            text.say(str(error))
        return error.exit_code
    return 0


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
@options.out(
    "A folder for the smallest program that is wrong, its flags, inputs and answers. "
    "[default: nothing is written]"
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
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> int:
    """Find the op of MODEL that makes its program wrong on a target, with the line it comes from.

    The exit code is 0 where the program is right, else that of a build whose numbers differ.
    """
    from aotpipe.build.compile_stage import CompileSettings
    from aotpipe.tools.bisect import bisect as find

    with progress.shown(quiet=quiet) as listener:
        compiling = CompileSettings(**settings)
        fault = find(model, target=target, settings=compiling, on_event=listener, **options)
    if fault is not None and out is not None:
        fault.reproducer.save(out)
    text.show(
        {"target": target, "fault": fault and fault.to_json()},
        lambda: fault_text(fault, out) if fault else f"{target}: every recorded call is at parity",
        as_json=as_json,
    )
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
