"""`aotpipe canonicalize`: the model as PyTorch with its branches, loops and state in one graph; the proof."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotpipe.cli import options, progress, text

if TYPE_CHECKING:
    from aotpipe.tools.rewrite import Written


@click.command()
@options.model("canonicalize")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file to write. [default: the code is printed]",
)
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
        click.echo(found.diff(), nl=False)
    elif out is None:
        click.echo(found.text, nl=False)
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
