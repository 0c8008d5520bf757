"""`aotpipe build`, and `export` and `compile`: one step each, for those who want to look at its result."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotpipe.cli import options, progress, text
from aotpipe.core.serialization import attributes
from aotpipe.core.signature import Signature
from aotpipe.core.targets import DEFAULT
from aotpipe.core.units import duration, size
from aotpipe.errors import AotpipeError
from aotpipe.runtime.store import typed_os_errors

if TYPE_CHECKING:
    from aotpipe.backends import ModuleKey
    from aotpipe.build.build import Outcome
    from aotpipe.build.events import Listener


@click.command()
@options.model()
@options.targets
@options.out()
@options.fat
@options.variants
@options.compiling
@click.option("--latency/--no-latency", default=True, help="Time each program beside eager.")
@click.option("--keep-going", is_flag=True, help="Pack the targets that passed where others fail.")
@click.option(
    "--allow-unproven", is_flag=True, help="Pack programs of which no output says if they are right."
)
@click.option(
    "--keep-modules", is_flag=True, help="Keep what IREE's compiler was given, for `aotpipe replay`."
)
@options.budgets
@click.option(
    "--require-coverage",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Fail unless the calls that programs are compared on reach so much of MODEL's branches, trips of "
    "loops and sizes: --budget coverage=PERCENT%. [default: nothing is required]",
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="A tokenizer.json that the bundle holds, and the tokenizer_config.json beside it. "
    "[default: none, so that token ids are served]",
)
@click.option("--profile", is_flag=True, help="Say what each stage took: seconds, peak memory, bytes made.")
@options.as_json
@options.quiet
def build(
    *,
    model: str,
    options: dict[str, Any],
    targets: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    profile: bool,
    **settings: Any,
) -> int:
    """Build a verified bundle from MODEL.

    Each program that can run here is run and compared with PyTorch, number by number; one that differs fails
    the build, and so does one whose outputs never vary, or that takes more than its budget. A model that has
    not changed since the last build is not built again. Whatever happens, a report is left: OUT.report.
    """
    from aotpipe.build.formats import github
    from aotpipe.cli import result

    with progress.shown(quiet=quiet) as listener:
        outcome = _outcome(model, options, targets or DEFAULT, settings, listener)
    report = outcome.report
    if github.is_here():
        github.add_summary(report)
        for line in github.commands(report):
            text.say(line)
    if as_json:
        text.echo_json(report)
        return report.exit_code
    if report.targets:
        text.echo(result.targets_table(report))
        text.echo(result.coverage(report))
    estimates = ((row.target, result.largest(row.estimates)) for row in report.targets)
    if cost := result.estimates_table(estimates):
        text.echo("\n" + cost)
    if profile:
        text.echo("\n" + result.profile_table(report))
        text.echo(f"\ntrace   {outcome.folder / 'trace.json'} (opens in ui.perfetto.dev)")
    if not report.ok:
        text.say(result.failures(report) if report.failure else "\n" + result.failures(report))
    if outcome.folder.is_dir():
        # Of a build that came to no result there is nothing on stdout.
        (text.say if report.failure else text.echo)("\n" + result.paths(report, outcome.folder))
    if report.up_to_date:
        text.echo("up to date")
    return report.exit_code


def _outcome(
    model: str, options: dict[str, Any], targets: Sequence[str], settings: dict[str, Any], listener: Listener
) -> Outcome:
    """The build's outcome; of a request that is refused, too."""
    from aotpipe.build import budgets
    from aotpipe.build.build import Settings, refused, run
    from aotpipe.build.request import Request

    try:
        request = Request.of(model, targets, **options)
        project = budgets.of_project(Path.cwd())
        given = (*settings["budgets"], *budgets.of_coverage(settings.pop("require_coverage")))
        settings["budgets"] = budgets.chosen(project, given, request.targets)
    except AotpipeError as error:
        return refused(model, options.get("name"), settings["out"], error)
    return run(request, Settings(**settings), listener)


@click.command()
@options.model("export")
@options.out("The folder for one ENTRY_POINT.pt2 each. [default: nothing is written]")
@options.as_json
@options.quiet
def export(*, model: str, options: dict[str, Any], out: Path | None, as_json: bool, quiet: bool) -> None:
    """Export MODEL and say what it takes, what it gives, and what was found."""
    from aotpipe.build import steps

    with progress.shown(quiet=quiet) as listener:
        exported = steps.export(model, on_event=listener, **options)
    if out is not None:
        import torch

        with typed_os_errors("the exported programs", out):
            out.mkdir(parents=True, exist_ok=True)
            for entry in exported.entries:
                torch.export.save(entry.program, out / f"{entry.name}.pt2")
    signatures = exported.signatures
    if as_json:
        name = exported.canonical.spec.name
        text.echo_json({"name": name, "entry_points": signatures, "findings": exported.findings})
        return
    text.echo("\n\n".join(signature_text(name, signature) for name, signature in signatures.items()))


@click.command()
@options.model()
@options.targets
@options.out()
@options.fat
@options.compiling
@options.as_json
@options.quiet
def compile(  # noqa: A001  # the command's name
    *,
    model: str,
    options: dict[str, Any],
    targets: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Compile MODEL for each target into OUT/TARGET/, and run nothing."""
    from aotpipe.build import steps
    from aotpipe.build.compile_stage import CompileSettings
    from aotpipe.cli import result

    with progress.shown(quiet=quiet) as listener:
        lowered, programs = steps.compile(
            model,
            targets=targets or DEFAULT,
            compiling=CompileSettings(**settings),
            on_event=listener,
            **options,
        )
    folder = out or Path("programs")
    with typed_os_errors("the programs", folder):
        for program in programs:
            path = folder / program.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(program.payload)
        modules = [_module_file(module, lowered) for module in lowered]
        for name, each in zip(modules, lowered.values(), strict=True):
            (folder / name).write_bytes(each.module)
    if as_json:
        rows = [
            {
                "target": str(program.target),
                "path": str(folder / program.file),
                "size_bytes": len(program.payload),
                **attributes(program.stats, "wall_s peak_rss_bytes"),
                **attributes(program, "flags notes estimates dialect partition"),
            }
            for program in programs
        ]
        text.echo_json({"module": str(folder / modules[0]), "programs": rows})
        return
    lines = [
        (
            str(program.target),
            size(len(program.payload)),
            duration(program.stats.wall_s),
            size(program.stats.peak_rss_bytes),
            str(folder / program.file),
        )
        for program in programs
    ]
    text.echo(text.table(("target", "size", "compiled in", "peak memory", "program"), lines))
    for program in programs:
        if program.partition is not None:
            text.echo(f"{program.target}: {program.partition}")
    if cost := result.estimates_table((str(program.target), program.estimates) for program in programs):
        text.echo("\n" + cost)


def _module_file(module: ModuleKey, lowered: Collection[ModuleKey]) -> str:
    if module == "xla":
        return "module.xla"
    return "module-gpu.mlir" if module == "iree-gpu" and "iree" in lowered else "module.mlir"


def signature_text(name: str, signature: Signature) -> str:
    """An entry point for people: its inputs, outputs, state and symbols, one a line."""
    rows = [
        *(("in", leaf) for leaf in signature.inputs),
        *(("out", leaf) for leaf in signature.outputs),
        *(("state", leaf) for leaf in signature.state),
        *(("size", symbol) for symbol in signature.symbols),
        *(("when", guard) for guard in signature.guards),
    ]
    return "\n".join([name, *(f"  {kind:<6}{leaf}" for kind, leaf in rows)])
