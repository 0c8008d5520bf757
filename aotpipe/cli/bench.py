"""`aotpipe bench`: how long a bundle's programs take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aotpipe.cli import options, progress, text
from aotpipe.cli.options import find_in_working_folder


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path), metavar="BUNDLE")
@options.model("canonicalize", required=False)
@options.targets
@click.option(
    "--variants/--no-variants", default=True, help="Time the variant of a program that would be loaded here."
)
@click.option(
    "--threads", type=click.IntRange(min=1), help="Of the programs and of eager. [default: one per core]"
)
@click.option(
    "--seconds", type=click.FloatRange(min=0.01), default=5.0, show_default=True, help="Per program."
)
@options.as_json
@options.quiet
def bench(
    *,
    bundle: Path,
    model: str | None,
    options: dict[str, Any],
    targets: tuple[str, ...],
    variants: bool,
    threads: int | None,
    seconds: float,
    as_json: bool,
    quiet: bool,
) -> None:
    """Time the programs of BUNDLE on their example inputs, in turns with MODEL in eager where it is given."""
    from aotpipe.build.bench import measure
    from aotpipe.core.units import duration

    find_in_working_folder()
    with progress.shown(quiet=quiet) as listener:
        rows = measure(
            bundle,
            model,
            targets=targets,
            variants=variants,
            threads=threads,
            budget_s=seconds,
            on_event=listener,
            **options,
        )
    if as_json:
        text.echo_json([row.to_json() for row in rows])
        return
    lines = [
        (
            row.target if row.program in {"", row.target} else f"{row.target} ({row.program})",
            row.entry_point,
            *(
                (duration(row.median_us / 1e6), duration(row.p90_us / 1e6))
                if row.samples
                else ("–", row.reason)
            ),
            duration(row.eager_median_us / 1e6) if row.eager_median_us else "–",
            f"×{row.median_us / row.eager_median_us:.2g}" if row.eager_median_us else "–",
            str(row.samples),
        )
        for row in rows
    ]
    head = ("target", "entry point", "median", "p90", "eager", "of eager", "n")
    click.echo(text.table(head, lines))
