"""Single steps, for those who want to look at what one gives: the functions behind the commands of that name.

Each takes what `build` takes: a reference, a Spec, an nn.Module, or a function of tensors.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotpipe.build import matrix
from aotpipe.build import report as reports
from aotpipe.build.cache import Cache
from aotpipe.build.compile_stage import CompileSettings, compile_all
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.lowering_plan import Form
from aotpipe.build.report import Report
from aotpipe.build.rerun import reopened
from aotpipe.build.source import Model
from aotpipe.core.precision import Precision
from aotpipe.core.stages import Compiled, Lowered
from aotpipe.core.targets import Backend, expand
from aotpipe.errors import AotpipeError, SpecInvalid
from aotpipe.runtime import toolchain
from aotpipe.runtime.xla.buckets import Declared
from aotpipe.runtime.xla.mesh import DeclaredMesh, DeclaredRules
from aotpipe.validate import validate

if TYPE_CHECKING:
    from aotpipe.core.stages import Canonical, Exported
    from aotpipe.model.spec import EntryPoint


def canonicalize(
    model_or_spec: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    value_ranges: Mapping[str, tuple[float, float]] | None = None,
    examples: Sequence[Any] = (),
    optional: Sequence[str] = (),
    tensorize: Sequence[str] = (),
    entry_points: Mapping[str, EntryPoint] | None = None,
    name: str | None = None,
    on_event: Listener | None = None,
) -> Canonical:
    """Build a model and make it ready for export; the arguments are those of `spec.as_spec`.

    Raises:
        ModelError: It cannot be used as it is.
    """
    from aotpipe.build import front

    overrides = {
        "args": args,
        "kwargs": kwargs,
        "dynamic_shapes": dynamic_shapes,
        "value_ranges": value_ranges,
        "examples": examples,
        "optional": tuple(optional),
        "tensorize": tuple(tensorize),
        "entry_points": entry_points,
        "name": name,
    }
    return front.canonical(Model(given=model_or_spec, overrides=overrides).load, Recorder(on_event))


def export(
    model_or_spec: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    on_event: Listener | None = None,
    **settings: Any,
) -> Exported:
    """Export a model, one program per entry point; the arguments are those of `canonicalize`.

    Raises:
        ModelError, ExportFailed, StaticDim
    """
    from aotpipe.build import front

    model = canonicalize(model_or_spec, args, kwargs, on_event=on_event, **settings)
    return front.export(model, Recorder(on_event))


def compile(  # noqa: A001  # the step's name
    model_or_spec: object,
    *,
    targets: Sequence[str],
    compiling: CompileSettings,
    buckets: Mapping[str, Declared] | None = None,
    dialect: str | None = None,
    mesh: DeclaredMesh | None = None,
    shard: DeclaredRules = (),
    dtype: str | None = None,
    keep_float32: Sequence[str] = (),
    cache: bool = True,
    on_event: Listener | None = None,
) -> tuple[Mapping[Backend, Lowered], tuple[Compiled, ...]]:
    """Compile a model for each target, and run nothing.

    Args:
        model_or_spec: What to compile.
        targets: Target strings, shorthands and globs.
        compiling: How compilers are run.
        buckets: By Dim, the sizes that XLA programs are built for.
        dialect: What the model is lowered to for IREE: `torch` where None, or `stablehlo`.
        mesh: The devices that each XLA program is for, such as `data=2,model=2`; one where None.
        shard: How arrays are split over them: by a pattern of their names, the axes of each dim.
        dtype: What products are computed in; as `build` takes it.
        keep_float32: What stays in float32 beside norms and their like.
        cache: Keep programs, and use those of earlier builds.
        on_event: Told what happens while it happens.

    Raises:
        AotpipeError: Of the first target that failed.
    """
    from aotpipe.build import front

    chosen = expand(targets)
    recorder = Recorder(on_event)
    kept = Cache.open(recorder, enabled=cache)
    recorder.planned({"compile": len(compiling.groups(chosen))})
    precision = Precision.of(dtype, keep_float32)
    form = Form.of(chosen, buckets, iree=dialect, mesh=mesh, shard=shard, precision=precision)
    model = front.canonical(Model(given=model_or_spec).load, recorder, form)
    exported = front.narrowed(front.export(model, recorder), form.precision)
    legals = front.joined(front.legalize(exported, recorder, form.dialects))
    lowered = front.lower(model, legals, recorder, form)
    results = compile_all(lowered, chosen, settings=compiling, cache=kept, recorder=recorder)
    kept.close()
    programs = []
    for result in results.values():
        if isinstance(result, AotpipeError):
            raise result
        programs.append(result)
    return lowered, tuple(programs)


def revalidate(
    bundle: Path, model: object, *, targets: Sequence[str] = (), on_event: Listener | None = None
) -> Report:
    """Compare a bundle's programs with a model, on fresh answers of eager.

    Args:
        bundle: The bundle's folder.
        model: What it was built from.
        targets: Which programs; all where empty.
        on_event: Told what happens while it happens.

    Raises:
        BundleError, ModelError, ExportFailed
        SpecInvalid: The model's signature is not the bundle's.
    """
    from aotpipe.build import front

    start = time.perf_counter()
    recorder = Recorder(on_event)
    with reopened(bundle, targets) as opened:
        recorder.planned({"validate": len(opened.programs)})
        form = _form_of(opened.programs)
        canonical = front.canonical(Model(given=model).load, recorder, form)
        precision = opened.manifest.precision
        exported = front.narrowed(front.export(canonical, recorder), precision)
        legal = next(iter(front.legalize(exported, recorder, form.dialects[:1]).values()))
        signatures = {entry.name: entry.signature for entry in legal.entries}
        if signatures != dict(opened.manifest.signatures):
            raise SpecInvalid(
                f"the bundle at {bundle} was built from a model with another signature",
                hint="`aotpipe inspect` shows the bundle's, `aotpipe export` the model's",
            )
        found = front.reference(canonical, legal, recorder, Form(precision=precision))
        rows = []
        for program in opened.programs:
            with recorder.stage("validate", str(program.target)):
                result: matrix.Result
                try:
                    own, *others = (
                        validate(each, opened.loadable, found.goldens)
                        for each in (program, *opened.variants[program.target])
                    )
                    ran = tuple(each for each in others if each.status == "executed")
                    result = replace(own, variants=ran)
                except AotpipeError as error:
                    result = error
            rows.append(reports.row_of(program.target, result))
    return Report(
        name=legal.name,
        bundle=str(bundle),
        targets=tuple(rows),
        findings=(*exported.findings, *found.findings),
        stages=reports.costs_of(recorder.finished),
        toolchain=toolchain.current().versions,
        wall_s=time.perf_counter() - start,
    )


def _form_of(programs: Sequence[Compiled]) -> Form:
    """The form that a bundle was built in."""
    iree = {program.dialect for program in programs if program.target.backend == "iree"}
    return Form.of((program.target for program in programs), iree=next(iter(iree), None))
