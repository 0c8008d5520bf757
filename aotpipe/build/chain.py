"""The whole build: the one place that knows the order of the stages.

    load -> canonicalize -> export -> legalize -> lower -> reference      (front: once, with torch)
    compile, meanwhile                                                    (compiling: per target)
    validate                                                              (matrix: per target)
    pack -> report

`build` is the public function; `run` is what the command calls: it gives the report of a failed build too.
Every stage's result is kept in the store, so that a build that was killed goes on where it was, and one of a
model that has not changed does nothing and imports no torch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any, Final

from aotpipe.build import matrix, requirements, source
from aotpipe.build import report as reports
from aotpipe.build import variants as all_variants
from aotpipe.build.cache import Cache
from aotpipe.build.compile_stage import CompileSettings, Compiling
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.lowering_plan import Form
from aotpipe.build.prepared import Prepared
from aotpipe.build.record import BuildRecord, build_key
from aotpipe.build.report import Report
from aotpipe.core.precision import Precision
from aotpipe.core.stages import Failed
from aotpipe.core.targets import DEFAULT, Target, expand
from aotpipe.errors import AotpipeError, CompileError, ParityError
from aotpipe.runtime import tensor_file, toolchain
from aotpipe.runtime.bundle import Bundle, open_bundle, pack, require_replaceable
from aotpipe.runtime.bundle.manifest import STATE_PREFIX
from aotpipe.runtime.loading import why_not_runnable
from aotpipe.runtime.store import typed_os_errors
from aotpipe.runtime.xla.buckets import Declared
from aotpipe.runtime.xla.mesh import DeclaredMesh, DeclaredRules

if TYPE_CHECKING:
    from aotpipe.model.spec import EntryPoint

__all__ = ["Built", "Outcome", "build", "run"]

DEFAULT_FOLDER: Final = Path("artifacts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a build came to.

    Attributes:
        path: The bundle; None where none was written.
        folder: Where the report lies.
        error: Of the first target that failed.
    """

    path: Path | None
    report: Report
    folder: Path
    error: AotpipeError | None = None


@dataclass(frozen=True, slots=True)
class Built(Bundle):
    """A bundle, and the report of the build that wrote it."""

    report: Report


def build(model_or_spec: object, **settings: Any) -> Built:
    """Build a verified bundle; takes what `run` takes.

    Returns:
        The bundle; `bundle.report.targets` has a row per target.

    Raises:
        AotpipeError: With its own class per cause. Of several targets that fail, the first one's; with
            `keep_going`, and where a compiler refuses it for another machine, only where no target is left
            to pack.
    """
    outcome = run(model_or_spec, **settings)
    if outcome.path is None:
        assert outcome.error is not None
        raise outcome.error
    found = open_bundle(outcome.path)
    return Built(path=found.path, manifest=found.manifest, report=outcome.report)


def run(
    model_or_spec: object,
    *,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    value_ranges: Mapping[str, tuple[float, float]] | None = None,
    examples: Sequence[Any] = (),
    optional: Sequence[str] = (),
    tensorize: Sequence[str] = (),
    entry_points: Mapping[str, EntryPoint] | None = None,
    name: str | None = None,
    targets: Sequence[str] = DEFAULT,
    out: str | Path | None = None,
    buckets: Mapping[str, Declared] | None = None,
    dialect: str | None = None,
    mesh: DeclaredMesh | None = None,
    shard: DeclaredRules = (),
    extra_flags: Sequence[str] = (),
    fat: bool = False,
    variants: bool = True,
    jobs: int | None = None,
    timeout_s: float | None = None,
    memory_limit_bytes: int | None = None,
    latency: bool = True,
    keep_going: bool = False,
    allow_islands: bool = False,
    dtype: str | None = None,
    keep_float32: Sequence[str] = (),
    cache: bool = True,
    on_event: Listener | None = None,
) -> Outcome:
    """Build a bundle and tell all about it.

    Args:
        model_or_spec: A reference such as `model.py`, a Spec, an nn.Module, or a function of tensors.
        args: Example inputs of an object that is no Spec; this and the next seven are `spec.as_spec`'s.
        kwargs: Example inputs passed by name.
        dynamic_shapes: What may vary.
        value_ranges: What values may be passed.
        examples: More example calls: what one has and another lacks, a call may leave out.
        optional: Names of further inputs that a call may leave out.
        tensorize: Names of Python numbers that become inputs.
        entry_points: Several ways to call the model, in place of `args` and its kin.
        name: Names the bundle; by default the Spec's name.
        targets: Target strings, shorthands and globs.
        out: The bundle's folder; `artifacts/NAME` where None. A bundle that is there is replaced.
        buckets: By Dim, the sizes that XLA programs are built for, beside those of the example.
        dialect: What the model is lowered to for IREE: `torch` where None, or `stablehlo`, as for XLA.
        mesh: The devices that each XLA program is for, such as `data=2,model=2`; one where None.
        shard: How arrays are split over them: by a pattern of their names, the axes of each dim.
        extra_flags: Flags of the compilers, passed last: XLA's begin with `--xla`.
        fat: One program for several devices: of IREE's targets, the first of each driver.
        variants: Give targets that have them (`Target.variants`) the programs for CPUs that have more than
            they ask for, which are loaded there; a fat program has none.
        jobs: Compiles at a time; one per core where None.
        timeout_s: Limit of one compile.
        memory_limit_bytes: Limit of one compile.
        latency: Time each program beside eager.
        keep_going: Pack the targets that passed where others fail; those that the compiler refuses for other
            machines never stand in their way.
        allow_islands: Cut out what cannot be in a program: functions marked by `eager_island`, and ops that
            have no lowering. The bundle then holds a chain of programs and Python.
        dtype: `bf16` or `f16`: what products of matrices are computed in, and their weights stored in
            (`aotpipe.core.precision`).
        keep_float32: Ops, and groups of ops, that stay in float32 beside norms, softmax, losses and sums.
        cache: Keep the results of stages, and use those of earlier builds.
        on_event: Told what happens while it happens.

    Raises:
        AotpipeError: Where the build did not come as far as its targets.
    """
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
    recorder = Recorder(on_event)
    chosen = expand(targets)
    form = Form.of(
        chosen,
        buckets,
        islands=allow_islands,
        iree=dialect,
        mesh=mesh,
        shard=shard,
        precision=Precision.of(dtype, keep_float32),
    )
    order = _Order(
        model=source.Model(given=model_or_spec, overrides=overrides, form=form),
        targets=chosen,
        out=None if out is None else Path(out).absolute(),
        compiling=CompileSettings(
            extra_flags=tuple(extra_flags),
            fat=fat,
            jobs=jobs,
            timeout_s=timeout_s,
            memory_limit_bytes=memory_limit_bytes,
        ),
        variants=variants and not fat,
        latency=latency,
        keep_going=keep_going,
        cache=Cache.open(recorder, enabled=cache),
        recorder=recorder,
    )
    unchanged = _unchanged(order)
    if unchanged is not None:
        return unchanged
    requirements.require(form.backends)
    try:
        with TemporaryDirectory(prefix="aotpipe-build-", ignore_cleanup_errors=True) as folder:
            return _build(order, Path(folder))
    finally:
        order.cache.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """A request for a build, and what it works with."""

    model: source.Model
    targets: tuple[Target, ...]
    out: Path | None
    compiling: CompileSettings
    variants: bool
    latency: bool
    keep_going: bool
    cache: Cache
    recorder: Recorder

    @property
    def every_target(self) -> tuple[Target, ...]:
        """Those that were asked for, and their variants."""
        return (*self.targets, *(all_variants.beside(self.targets) if self.variants else ()))

    def folder(self, name: str) -> Path:
        """Where a bundle of that name goes."""
        return self.out or (DEFAULT_FOLDER / name).absolute()

    def key(self, name: str) -> str | None:
        """The digest of the whole request; None where objects are part of it."""
        front = self.model.key
        if front is None:
            return None
        settings = {
            "targets": list(map(str, self.targets)),
            "flags": list(self.compiling.extra_flags),
            "fat": self.compiling.fat,
            "variants": list(map(str, self.every_target)),
            "latency": self.latency,
            # What could not run before may run now: a driver was installed, a container given a GPU.
            "why_not_runnable": list(map(why_not_runnable, self.targets)),
        }
        return build_key(front, self.folder(name), settings)


def _unchanged(order: _Order) -> Outcome | None:
    """The outcome of the build before, where nothing has changed since; imports no torch."""
    found = source.unchanged(order.model, order.cache)
    key = order.key(found.name) if found else None
    if found is None or key is None:
        return None
    path = order.folder(found.name)
    folder = reports.folder_of(path)
    if not BuildRecord.intact(order.cache, key, found.prepared, (path, folder)):
        return None
    report = reports.read(folder)
    if report is None:
        return None
    return Outcome(path=path, report=replace(report, up_to_date=True), folder=folder)


def _require_place(out: Path) -> None:
    """Find out before the work whether a bundle can be written to a folder."""
    require_replaceable(out)
    parent = next(path for path in out.parents if path.exists())
    with typed_os_errors("the bundle", parent, hint="name another folder"):
        # Only trying tells: root may write where no permission is, but not to what is mounted read-only.
        Path(mkdtemp(prefix=".aotpipe-", dir=parent)).rmdir()


def _build(order: _Order, workspace: Path) -> Outcome:
    start = time.perf_counter()
    if order.out is not None:
        _require_place(order.out)
    every = order.every_target
    groups = order.compiling.groups(every)
    order.recorder.planned({"compile": len(groups), "validate": len(every)})
    with Compiling(every, settings=order.compiling, cache=order.cache, recorder=order.recorder) as compiling:
        ready = source.prepared(
            order.model,
            order.cache,
            order.recorder,
            folder=workspace,
            exclude=[order.out or DEFAULT_FOLDER],
            on_lowered=compiling.start,
        )
        prepared = ready.prepared
        path = order.folder(prepared.name)
        _require_place(path)
        # Compiling the page takes longer than all else here: it is done while the compilers run.
        threading.Thread(target=reports.get_ready, name="aotpipe-report", daemon=True).start()
        results = matrix.run(
            ready, compiling, latency=order.latency, cache=order.cache, recorder=order.recorder
        )
    if order.variants:
        results = all_variants.joined(order.targets, results)
    errors = [result for result in results.values() if isinstance(result, AotpipeError)]
    packed: Bundle | None = None
    gated = not order.keep_going and any(_gates(target, result) for target, result in results.items())
    if len(errors) < len(results) and not gated:
        with order.recorder.stage("pack"):
            packed = _pack(prepared, results, path, order.model.form.precision)
    report = Report(
        name=prepared.name,
        bundle=str(path) if packed else "",
        targets=tuple(reports.row_of(target, result) for target, result in results.items()),
        findings=prepared.findings,
        remarks=tuple(order.recorder.remarks),
        stages=reports.costs_of(order.recorder.finished),
        toolchain=toolchain.current().versions,
        wall_s=time.perf_counter() - start,
    )
    folder = reports.folder_of(path)
    with order.recorder.stage("report"):
        reports.write(report, folder)
    key = order.key(prepared.name)
    if key and ready.key and packed and not errors:
        digests = {path / name: file.sha256 for name, file in packed.manifest.files.items()}
        BuildRecord.of(ready.key, (path, folder), digests).save(order.cache, key)
    return Outcome(
        path=path if packed else None, report=report, folder=folder, error=errors[0] if errors else None
    )


def _gates(target: Target, result: matrix.Result) -> bool:
    """Whether a failed target keeps the others from being packed."""
    # What a compiler cannot do for another machine says nothing of the programs that passed here.
    refused_elsewhere = isinstance(result, CompileError) and why_not_runnable(target)
    return isinstance(result, AotpipeError) and not refused_elsewhere


def _pack(
    prepared: Prepared,
    results: Mapping[Target, matrix.Result],
    path: Path,
    precision: Precision | None,
) -> Bundle:
    arrays = tensor_file.read(prepared.weights)
    return pack(
        path,
        name=prepared.name,
        signatures=prepared.signatures,
        asserts=prepared.asserts,
        weights={key: array for key, array in arrays.items() if not key.startswith(STATE_PREFIX)},
        initial_state=prepared.initial_state,
        programs=[
            _failed(target, result) if isinstance(result, AotpipeError) else result
            for target, result in results.items()
        ],
        goldens=prepared.goldens,
        findings=prepared.findings,
        written=(prepared.weights, prepared.weights_sha256),
        parts=prepared.parts,
        precision=precision,
    )


def _failed(target: Target, error: AotpipeError) -> Failed:
    parity = error.parity if isinstance(error, ParityError) else None
    return Failed(target=target, stage=error.stage, reason=error.message, parity=parity)
