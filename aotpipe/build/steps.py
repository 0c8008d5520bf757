"""Single steps, for those who want to look at what one gives: the functions behind the commands of that name.

Each takes what `build` takes: a reference, a Spec, an nn.Module, or a function of tensors.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from aotpipe.backends import ModuleKey
from aotpipe.build import matrix
from aotpipe.build import report as reports
from aotpipe.build.chain import Chain
from aotpipe.build.compile_stage import CompileSettings, program_of
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.report import Report
from aotpipe.build.request import ModelOptions, Request
from aotpipe.build.rerun import Reopened, dialect_of, reopened
from aotpipe.core.stages import Canonical, Compiled, Exported, Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, SpecInvalid
from aotpipe.runtime import toolchain
from aotpipe.validate import validate


def canonicalize(
    model_or_spec: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    on_event: Listener | None = None,
    **options: Unpack[ModelOptions],
) -> Canonical:
    """Build a model and make it ready for export; the arguments are those of `build`.

    Raises:
        ModelError: It cannot be used as it is, or an option changes a later stage only.
    """
    request = Request.of(model_or_spec, (), args, kwargs, until="canonicalize", **options)
    return Chain(request, Recorder(on_event)).canonical


def export(
    model_or_spec: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    on_event: Listener | None = None,
    **options: Unpack[ModelOptions],
) -> Exported:
    """Export a model, one program per entry point; the arguments are those of `build`.

    Raises:
        ModelError: It cannot be used as it is, or an option changes a later stage only.
        ExportFailed, StaticDim: It cannot be one graph for all that may vary.
    """
    request = Request.of(model_or_spec, (), args, kwargs, until="export", **options)
    return Chain(request, Recorder(on_event)).exported


def compile(  # noqa: A001  # the step's name
    model_or_spec: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    targets: Sequence[str],
    compiling: CompileSettings,
    on_event: Listener | None = None,
    **options: Unpack[ModelOptions],
) -> tuple[Mapping[ModuleKey, Lowered], tuple[Compiled, ...]]:
    """Compile a model for each target, and run nothing; the arguments are those of `build`.

    Raises:
        AotpipeError: Of the first target that failed.
    """
    request = Request.of(model_or_spec, targets, args, kwargs, **options)
    recorder = Recorder(on_event)
    recorder.planned({"compile": len(compiling.groups(request.targets))})
    chain = Chain(request, recorder)
    programs = tuple(map(program_of, chain.compiled(compiling).values()))
    return chain.lowered, programs


def revalidate(
    bundle: Path,
    model: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    targets: Sequence[str] = (),
    on_event: Listener | None = None,
    **options: Unpack[ModelOptions],
) -> Report:
    """Compare a bundle's programs with a model, on fresh answers of eager.

    The model comes with the `args`, `kwargs` and options up to the stage canonicalize that it was built with;
    the bundle knows the others. All programs are compared where no target is named.

    Raises:
        BundleError, ModelError, ExportFailed
        SpecInvalid: The model's signature is not the bundle's.
    """
    start = time.perf_counter()
    recorder = Recorder(on_event)
    Request.of(model, (), args, kwargs, until="canonicalize", **options)  # refuses what the bundle knows
    with reopened(bundle, targets) as opened:
        recorder.planned({"validate": len(opened.programs)})
        built_for, known = _built_as(opened)
        options.update(known)
        chain = Chain(Request.of(model, built_for, args, kwargs, **options), recorder)
        legal = chain.legal
        if legal.signatures != dict(opened.manifest.signatures):
            raise SpecInvalid(
                f"the bundle at {bundle} was built from a model with another signature",
                hint="`aotpipe inspect` shows the bundle's, `aotpipe export` the model's; give --optional "
                "and --tensorize as the build had them",
            )
        found = chain.reference()
        loadable = replace(opened.loadable, islands=chain.island_names)
        rows = []
        for program in opened.programs:
            target = Target.parse(program.target)
            with recorder.stage("validate", program.target):
                result: matrix.Result
                try:
                    own, *others = (
                        validate(opened.compiled(each), loadable, found.goldens) for each in program.all
                    )
                    ran = tuple(each for each in others if each.status != "compiled")
                    result = replace(own, variants=ran)
                    if program.status != "unproven":
                        result = matrix.proven(result)
                except AotpipeError as error:
                    result = error
            rows.append(reports.row_of(target, result))
    return Report(
        name=legal.name,
        bundle=str(bundle),
        targets=tuple(rows),
        findings=(*chain.exported.findings, *found.findings),
        stages=recorder.by_start,
        toolchain=toolchain.versions(),
        wall_s=time.perf_counter() - start,
        coverage=found.coverage,
    )


def _built_as(opened: Reopened) -> tuple[list[str], ModelOptions]:
    """Targets of a bundle that share a dialect, and the options that eager's answers depend on."""
    dialects = {program.target: dialect_of(program) for program in opened.programs}
    dialect = max(dialects.values())
    targets = [target for target, own in dialects.items() if own == dialect]
    options, precision = ModelOptions(), opened.manifest.precision
    if any(Target.parse(target).backend == "iree" for target in targets):
        options["dialect"] = dialect
    if precision is not None:
        options["dtype"], options["keep_float32"] = precision.dtype, precision.keep
    if opened.manifest.quantization is not None:
        options["quantize"] = opened.manifest.quantization
    if opened.manifest.parts is not None:
        options["allow_islands"] = True
    return targets, options
