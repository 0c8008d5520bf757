"""`aotpipe targets`, `inspect`, `selftest`: what there is, and whether it works here. None needs torch."""

from __future__ import annotations

import click

from aotpipe.cli import options, text
from aotpipe.targets import Target, table


@click.command()
@options.as_json
def targets(*, as_json: bool) -> None:
    """List the targets, and which can run here."""
    rows = {name: (runs_here(Target.parse(name)), row) for name, row in table().items()}
    if as_json:
        text.echo_json(
            [
                {"target": name, "summary": row.summary, "runs_here": not reason, "reason": reason}
                for name, (reason, row) in rows.items()
            ]
        )
        return
    lines = [(name, reason or "yes", row.summary) for name, (reason, row) in rows.items()]
    click.echo(text.table(("target", "runs here", "what for"), lines))


def runs_here(target: Target) -> str:
    """Why a program built here for a target could not run here; empty where it could."""
    from aotpipe.backends import unrunnable

    return unrunnable(target)
