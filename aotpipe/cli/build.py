"""`aotpipe build`: from a model to a verified bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aotpipe.cli import options, progress, text


@click.command()
@options.model()
@options.targets
@options.out
@options.fat
@options.variants
@options.compiling
@click.option("--latency/--no-latency", default=True, help="Time each program beside eager.")
@click.option("--keep-going", is_flag=True, help="Pack the targets that passed where others fail.")
@click.option("--profile", is_flag=True, help="Say what each stage took: seconds, peak memory, bytes made.")
@options.as_json
@options.quiet
def build(
    *,
    model: str,
    options: dict[str, Any],
    targets: tuple[str, ...],
    out: Path | None,
    variants: bool,
    latency: bool,
    keep_going: bool,
    cache: bool,
    as_json: bool,
    quiet: bool,
    profile: bool,
    **compiling: Any,
) -> int:
    """Build a verified bundle from MODEL.

    Each program that can run here is run and compared with PyTorch, number by number; one that differs fails
    the build. A model that has not changed since the last build is not built again.
    """
    from aotpipe.build.build import Settings, run
    from aotpipe.build.compile_stage import CompileSettings
    from aotpipe.build.request import Request
    from aotpipe.cli import estimates, result
    from aotpipe.core.targets import DEFAULT

    with progress.shown(quiet=quiet) as listener:
        settings = Settings(
            out=out,
            compiling=CompileSettings(**compiling),
            variants=variants,
            latency=latency,
            keep_going=keep_going,
            cache=cache,
        )
        outcome = run(Request.of(model, targets or DEFAULT, **options), settings, listener)
    report = outcome.report
    if as_json:
        text.echo_json(report.to_json())
        return report.exit_code
    click.echo(result.targets_table(report))
    if cost := estimates.table((row.target, estimates.largest(row.estimates)) for row in report.targets):
        click.echo("\n" + cost)
    if profile:
        click.echo("\n" + result.profile_table(report))
        click.echo(f"\ntrace   {outcome.folder / 'trace.json'} (opens in ui.perfetto.dev)")
    click.echo("\n" + result.paths(report, outcome.folder))
    if report.up_to_date:
        click.echo("up to date")
    if not report.ok:
        text.say("\n" + result.failures(report))
    return report.exit_code
