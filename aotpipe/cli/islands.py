"""`aotpipe islands`: the chain of a bundle of which a part is Python."""

from __future__ import annotations

from pathlib import Path

import click

from aotpipe.cli import options, text


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path), metavar="BUNDLE")
@click.option("-t", "--target", metavar="TARGET", help="Which program. [default: the best that runs here]")
@click.option(
    "--calls", type=click.IntRange(min=1), default=20, show_default=True, help="Time so many calls of each."
)
@options.as_json
def islands(*, bundle: Path, target: str | None, calls: int, as_json: bool) -> None:
    """Show the chain of BUNDLE: its programs and its islands of Python, with reasons, and what each takes.

    A bundle has a chain where it was built with --allow-islands and something could not be in a program.
    """
    from aotpipe.core.units import duration
    from aotpipe.runtime.bundle.chain_report import steps

    options.find_in_working_folder()
    found = steps(bundle, target, calls=calls)
    if as_json:
        text.echo_json([step.to_json() for step in found])
        return
    rows = [
        (
            step.entry_point,
            step.kind,
            step.name,
            duration(step.median_us / 1e6),
            f"{step.share:.0%}",
            str(step.where) if step.where else "",
            step.reason,
        )
        for step in found
    ]
    click.echo(text.table(("entry point", "step", "name", "median", "share", "line", "reason"), rows))
