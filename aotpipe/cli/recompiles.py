"""`aotpipe recompiles`: how many programs varied calls take, and which line caused each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aotpipe.cli import options, progress, text


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
    inputs: Path | None,
    calls: int | None,
    seed: int,
    ways: tuple[str, ...],
    dynamic: bool | None,
    at_most: int | None,
    options: dict[str, Any],
    cache: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Count the programs that varied calls of MODEL take: torch.compile's, and aotpipe's.

    Each program of torch.compile is told with the call, the line, the value that varied and the reason.
    aotpipe's are made before the first call; their answers are compared with eager's, and a call that they do
    not take is refused. The exit code is 0, or 24 beyond --at-most (a call that is refused counts as beyond),
    or that of the error that kept a target from having a program.
    """
    from aotpipe.errors import AotpipeError
    from aotpipe.tools.recompiles import DEFAULT_WAYS
    from aotpipe.tools.recompiles import recompiles as count
    from aotpipe.tools.recompiles.text import render

    with progress.shown(quiet=quiet) as listener:
        found = count(
            model,
            inputs=inputs,
            calls=calls,
            seed=seed,
            ways=ways or DEFAULT_WAYS,
            dynamic=dynamic,
            cache=cache,
            on_event=listener,
            **options,
        )
    if as_json:
        text.echo_json(found.to_json())
    else:
        click.echo(render(found))
    try:
        found.require(at_most)
    except AotpipeError as error:
        if not as_json:
            text.say(str(error))
        return error.exit_code
    return 0
