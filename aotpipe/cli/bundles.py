"""The commands on a finished bundle, but for `serve`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from aotpipe.cli import options, progress, text
from aotpipe.cli.build import signature_text
from aotpipe.core.serialization import attributes
from aotpipe.core.units import duration, share, size
from aotpipe.errors import ParityError

if TYPE_CHECKING:
    from aotpipe.build.rerun import Scenario
    from aotpipe.runtime.bundle import Bundle, TargetResult
    from aotpipe.runtime.bundle.manifest import Manifest, Program

F = TypeVar("F", bound=Callable[..., Any])

_HEAD: Final = "target status dialect parity size dispatches kernels allocates".split()
_PROGRAM: Final = (
    "target status reason flags toolchain host_features notes estimates dialect partition schedule"
)
_WORST: Final = "entry_point case output ratio max_abs_error message"


@click.command()
@options.bundle
@click.option("--verify", is_flag=True, help="Check every byte against the manifest, too.")
@options.as_json
def inspect(*, bundle: Path, verify: bool, as_json: bool) -> None:
    """Show what BUNDLE holds: entry points, programs, sizes, dispatches, memory, flags, findings."""
    from aotpipe.runtime import bundle as bundles

    if verify:
        bundles.verify(bundle)
    opened = bundles.open_bundle(bundle)
    text.show(_inspected(opened), lambda: _inspected_text(opened), as_json=as_json)


def _inspected(bundle: Bundle) -> dict[str, Any]:
    manifest = bundle.manifest
    return {
        **attributes(manifest, "name digest weights quantization precision findings files"),
        "path": str(bundle.path),
        "entry_points": manifest.signatures,
        "programs": [
            {**_program(program), "variants": [_program(each) for each in program.variants]}
            for program in manifest.programs
        ],
        "islands": [
            {**attributes(each, "name kind reason"), "where": str(each.where or "")}
            for each in (manifest.parts.islands if manifest.parts else ())
        ],
    }


def _program(program: Program) -> dict[str, Any]:
    from aotpipe.runtime.bundle.load import why_not_runnable

    runs_here = bool(program.file) and not why_not_runnable(program)
    return {**attributes(program, _PROGRAM), "runs_here": runs_here}


def _inspected_text(bundle: Bundle) -> str:
    from aotpipe.cli import result

    manifest = bundle.manifest
    weights = sum(manifest.files[name].size_bytes for name in manifest.weight_files)
    total = sum(file.size_bytes for file in manifest.files.values())
    head = {
        "name": manifest.name,
        "path": str(bundle.path),
        "digest": manifest.digest,
        "size": f"{size(total)} in {len(manifest.files)} files, {len(manifest.weights)} weights",
        "weights": f"{size(weights)}, with the initial state, for all programs",
    }
    if manifest.quantization:
        head["quantization"] = f"linear layers in {manifest.quantization}"
    if manifest.precision:
        head["precision"] = str(manifest.precision)
    every = [
        (f"  {each.target}" if place else each.target, each)
        for program in manifest.programs
        for place, each in enumerate(program.all)
    ]
    rows = [(name, *_cells(program, manifest)) for name, program in every]
    flags = {each.target: shlex.join(each.flags) for _, each in every if each.flags}
    cost = result.estimates_table((program.target, program.estimates) for program in manifest.programs)
    parts = manifest.parts
    islands = [(each.name, str(each.where or ""), each.reason) for each in (parts.islands if parts else ())]
    return "\n\n".join(
        [
            text.fields(head),
            *(signature_text(name, signature) for name, signature in manifest.signatures.items()),
            text.table((*_HEAD, "runs here"), rows),
            *([text.table(("target", "flags"), list(flags.items()))] if flags else []),
            *([cost] if cost else []),
            *(f"{each.target}: {each.partition}" for each in manifest.programs if each.partition),
            *([text.table(("island", "line", "reason"), islands)] if islands else []),
            *map(progress.finding_line, manifest.findings),
        ]
    )


def _cells(program: Program, manifest: Manifest) -> tuple[str, ...]:
    from aotpipe.runtime.bundle.load import why_not_runnable

    schedule = program.schedule
    return (
        program.status,
        program.dialect or "–",
        share(program.parity.ratio) if program.parity else "–",
        size(manifest.files[program.file].size_bytes) if program.file else "–",
        *((f"{schedule.dispatches}", f"{schedule.kernels}") if schedule else ("–", "–")),
        size(schedule.allocated_bytes) if schedule else "–",
        (why_not_runnable(program) or "yes") if program.file else program.reason,
    )


@click.command()
@options.bundle
@click.option("-t", "--target", metavar="TARGET", help="One program. [default: every one that runs here]")
@options.islands
@options.as_json
def selftest(*, bundle: Path, target: str | None, islands: tuple[str, ...], as_json: bool) -> int:
    """Run the recorded calls of BUNDLE on this host and compare the answers; needs no torch."""
    from aotpipe.runtime import bundle as bundles

    found = bundles.selftest(bundle, target, islands=islands)
    rows = [
        {
            **attributes(each, "target outcome calls reason"),
            "worst": each.worst and attributes(each.worst, _WORST),
        }
        for each in found.targets
    ]
    text.show(
        {"name": found.name, "passed": found.passed, "targets": rows},
        lambda: text.table(
            ("target", "outcome", "calls", "parity", "worst"), map(_tested_line, found.targets)
        ),
        as_json=as_json,
    )
    return 0 if found.passed else ParityError.exit_code


def _tested_line(each: TargetResult) -> tuple[str, ...]:
    if each.worst is None:
        return (each.target, each.outcome, str(each.calls), "–", each.reason)
    worst = each.worst
    place = f"{worst.output} of {worst.entry_point}, {worst.case} {worst.message}".strip()
    return (each.target, each.outcome, str(each.calls), share(worst.ratio), place)


@click.command()
@options.bundle
@options.model("canonicalize")
@options.targets
@options.as_json
@options.quiet
def validate(
    *, bundle: Path, model: str, options: dict[str, Any], targets: tuple[str, ...], as_json: bool, quiet: bool
) -> int:
    """Compare the programs of BUNDLE with MODEL in PyTorch, number by number, on fresh answers of eager.

    `aotpipe selftest` compares them with the answers that were recorded when they were built.
    """
    from aotpipe.build import steps
    from aotpipe.cli import result

    with progress.shown(quiet=quiet) as listener:
        report = steps.revalidate(bundle, model, targets=targets, on_event=listener, **options)
    text.show(report, lambda: result.targets_table(report), as_json=as_json)
    if not report.ok:
        text.say("\n" + result.failures(report))
    return report.exit_code


@click.command()
@options.bundle
@options.model("canonicalize", required=False)
@options.targets
@click.option(
    "--variants/--no-variants", default=True, help="Time the variant of a program that would be loaded here."
)
@click.option(
    "--threads", type=click.IntRange(min=1), help="Of the programs and of eager. [default: one per core]"
)
@click.option(
    "--seconds",
    "budget_s",
    type=click.FloatRange(min=0.01),
    default=5.0,
    show_default=True,
    help="Per program.",
)
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    type=click.Choice(["eager", "torch.compile", "onnxruntime", "openvino"]),
    help="How MODEL is run beside the programs; may be given several times. [default: eager]",
)
@click.option(
    "--scenario",
    type=click.Choice(["SingleStream", "Offline", "Server"]),
    default="SingleStream",
    show_default=True,
    help="How calls come, by the names of MLPerf's LoadGen.",
)
@click.option(
    "--rate",
    "per_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="PER_SECOND",
    help="Of Server: how many calls come in a second. [default: half of what the program can do]",
)
@options.islands
@options.as_json
@options.quiet
def bench(
    *,
    bundle: Path,
    model: str | None,
    options: dict[str, Any],
    scenario: Scenario,
    per_s: float | None,
    as_json: bool,
    quiet: bool,
    **asked: Any,
) -> int:
    """Time the programs of BUNDLE on their example inputs, in turns with MODEL in eager where it is given.

    The ratio to a baseline is that of the least times: other work on the machine only adds. Where a fixed
    kernel between the calls, or the calls themselves, are slowed by other work, it is `noisy`.
    """
    from aotpipe.build.rerun import Load, measure
    from aotpipe.cli import result

    with progress.shown(quiet=quiet) as listener:
        load = Load(scenario=scenario, per_s=per_s)
        rows = measure(bundle, model, load=load, on_event=listener, **asked, **options)
    text.show(rows, lambda: result.bench_table(rows), as_json=as_json)
    return max((row.exit_code for row in rows), default=0)


@click.command()
@options.bundle
@click.option("-t", "--target", metavar="TARGET", help="Which program. [default: the best that runs here]")
@click.option(
    "--calls", type=click.IntRange(min=1), default=20, show_default=True, help="Time so many calls of each."
)
@options.islands
@options.check
@options.as_json
def islands(*, bundle: Path, target: str | None, as_json: bool, **asked: Any) -> None:
    """Show the chain of BUNDLE: its programs and its islands of Python, with reasons, and what each takes.

    A bundle has a chain where it was built with --allow-islands and something could not be in a program.
    """
    from aotpipe.runtime.bundle import steps

    found = steps(bundle, target, **asked)
    # Computed where they are printed.
    rows = (
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
    )
    head = ("entry point", "step", "name", "median", "share", "line", "reason")
    text.show(found, lambda: text.table(head, rows), as_json=as_json)


@click.command()
@options.bundle
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="The file to write.")
@options.as_json
def archive(*, bundle: Path, out: Path, as_json: bool) -> None:
    """Write BUNDLE as one file, which every command takes as it is: a tar, not compressed.

    Equal bundles give equal bytes, whoever makes the archive, where and when.
    """
    from aotpipe.runtime import bundle as bundles
    from aotpipe.runtime.store import file_digest

    path = bundles.archive(bundle, out)
    found = {"path": str(path), "sha256": file_digest(path)}
    text.show(found, lambda: text.fields(found), as_json=as_json)


def _key(which: str, help_text: str, *, required: bool) -> Callable[[F], F]:
    path = click.Path(path_type=Path)
    return click.option("--key", type=path, metavar=f"{which}_KEY", required=required, help=help_text)


@click.command()
@options.bundle_path
@_key("PRIVATE", "PEM of a key on a NIST curve (P-256, P-384, P-521), without a password.", required=True)
@options.signature
@options.as_json
def sign(*, bundle: Path, key: Path, signature: Path | None, as_json: bool) -> None:
    """Check every file of BUNDLE, and sign it: whoever has the public key can tell that it is unchanged."""
    from aotpipe.runtime import bundle as bundles

    found = {"signature": str(bundles.sign(bundle, key, signature=signature))}
    text.show(found, lambda: text.fields(found), as_json=as_json)


@click.command()
@options.bundle
@click.option("-o", "--out", type=click.Path(path_type=Path), help="What both names begin with.")
@options.as_json
def attest(*, bundle: Path, out: Path | None, as_json: bool) -> None:
    """Write what BUNDLE was made of: OUT.intoto.json, SLSA provenance, and OUT.cdx.json, a CycloneDX ML-BOM.

    Equal bundles give equal bytes, whoever writes them, where and when.
    """
    from aotpipe.runtime import bundle as bundles

    provenance, bom = map(str, bundles.attest(bundle, out))
    found = {"provenance": provenance, "bom": bom}
    text.show(found, lambda: text.fields(found), as_json=as_json)


@click.command()
@options.bundle_path
@_key("PUBLIC", "Whose signature it must have. [default: files alone are checked]", required=False)
@options.signature
@options.as_json
def verify(*, bundle: Path, key: Path | None, signature: Path | None, as_json: bool) -> None:
    """Check that BUNDLE holds the files that were packed and no others, and who signed it."""
    from aotpipe.runtime import bundle as bundles

    manifest = bundles.verify(bundle, key, signature=signature)
    found = {"name": manifest.name, "digest": manifest.digest, "files": len(manifest.files)}
    found["signed"] = "not asked for" if key is None else f"with the private key of {key}"
    text.show(
        found, lambda: text.fields({name: str(value) for name, value in found.items()}), as_json=as_json
    )
