"""From a model to a bundle: the stages of `chain`, then what each target adds.

    prepare, and compile meanwhile -> validate -> budgets -> pack -> report

`build` is the public function; `run` is what the command calls: it gives the report of a failed build too.
Every build leaves one, whatever ended it.
Every stage's result is kept in the store, so that a build that was killed goes on where it was, and one of a
model that has not changed does nothing and imports no torch.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Unpack

from aotpipe.build import budgets as limits
from aotpipe.build import matrix, report_folder
from aotpipe.build import report as reports
from aotpipe.build.budgets import Limit
from aotpipe.build.cache import Cache
from aotpipe.build.compile_stage import CompileSettings, Compiling, Engine
from aotpipe.build.draft import DEFAULT_FOLDER, Draft
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.formats import page
from aotpipe.build.prepared import Prepared, Ready, prepare
from aotpipe.build.record import Record, build_key, written
from aotpipe.build.report import Report
from aotpipe.build.request import ModelOptions, Request
from aotpipe.core.stages import Lowered
from aotpipe.core.targets import DEFAULT, Target
from aotpipe.errors import AotpipeError, BudgetExceeded, CompileError, SpecInvalid
from aotpipe.runtime.bundle import Bundle, open_bundle, pack, require_replaceable
from aotpipe.runtime.bundle.manifest import TOKENIZER, TOKENIZER_CONFIG
from aotpipe.runtime.loading import why_not_runnable
from aotpipe.runtime.store import typed_os_errors, workspace
from aotpipe.validate.kept import to_keep


@dataclass(frozen=True, kw_only=True)
class Settings(CompileSettings):
    """How a request becomes a bundle; each attribute is an argument of `build`."""

    out: str | Path | None = None
    variants: bool = True
    latency: bool = True
    keep_going: bool = False
    allow_unproven: bool = False
    keep_modules: bool = False
    budgets: tuple[Limit, ...] = ()
    tokenizer: str | Path | None = None

    @cached_property
    def tokenizer_files(self) -> Mapping[str, bytes]:
        """What the bundle holds of the tokenizer, by name.

        Raises:
            SpecInvalid: A file cannot be read.
        """
        if self.tokenizer is None:
            return {}
        file = Path(self.tokenizer)
        try:
            found = {TOKENIZER: file.read_bytes()}
            if (config := file.with_name(TOKENIZER_CONFIG)).is_file():
                found[TOKENIZER_CONFIG] = config.read_bytes()
        except OSError as error:
            raise SpecInvalid(
                f"the tokenizer {file} cannot be read",
                reason=error.strerror or "",
                hint="name a tokenizer.json",
            ) from error
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a build came to.

    Attributes:
        path: The bundle; None where none was written.
        error: What ended the build, or else the first target that failed; or that a budget does not hold.
    """

    path: Path | None
    report: Report
    folder: Path
    error: AotpipeError | None = None


@dataclass(frozen=True, slots=True)
class Built(Bundle):
    """A bundle, and the report of the build that wrote it."""

    report: Report


def build(
    model_or_spec: object,
    *,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    targets: Sequence[str] = DEFAULT,
    out: str | Path | None = None,
    extra_flags: Sequence[str] = (),
    fat: bool = False,
    variants: bool = True,
    jobs: int | None = None,
    engine: Engine = "local",
    timeout_s: float | None = None,
    memory_limit_bytes: int | None = None,
    latency: bool = True,
    keep_going: bool = False,
    allow_unproven: bool = False,
    keep_modules: bool = False,
    budgets: Sequence[str] = (),
    require_coverage: float | None = None,
    tokenizer: str | Path | None = None,
    cache: bool = True,
    on_event: Listener | None = None,
    **options: Unpack[ModelOptions],
) -> Built:
    """Build a verified bundle.

    Args:
        model_or_spec: A reference such as `model.py`, a Spec, an nn.Module, or a function of tensors.
        args: Example inputs of an object that is no Spec.
        kwargs: Example inputs passed by name.
        targets: Target strings, shorthands and globs.
        out: The bundle's folder; `artifacts/NAME` where None. A bundle that is there is replaced.
        extra_flags: Flags of the compilers, passed last: XLA's begin with `--xla`.
        fat: One program for several devices: of IREE's targets, the first of each driver.
        variants: Give targets that have them (`Target.variants`) the programs for CPUs that have more than
            they ask for, which are loaded there; a fat program has none.
        jobs: Compiles at a time; one per core where None, or all of them where Ray runs them.
        engine: What runs the compilers: this host, or `ray`, the hosts of a cluster.
        timeout_s: Limit of one compile.
        memory_limit_bytes: Limit of one compile.
        latency: Time each program beside eager.
        keep_going: Pack the targets that passed where others fail; those that the compiler refuses for other
            machines never stand in their way.
        budgets: What programs may take, as `aotpipe.build.budgets` reads them: `size=2MB`.
        allow_unproven: Pack programs of which no output says whether they are right: each is empty or one
            constant in all calls (`validate.informative`). They fail otherwise.
        keep_modules: Keep what IREE's compiler is given, so that `replay` can compile it anew.
        require_coverage: The percent of the model's branches, trips of loops and sizes that the calls which
            programs are compared on have to reach: the budget `coverage` of all targets.
        tokenizer: A `tokenizer.json` that the bundle holds, and the `tokenizer_config.json` beside it.
        cache: Keep the results of stages, and use those of earlier builds.
        on_event: Told what happens while it happens.
        **options: What may vary, the precision, buckets, a mesh and more: the fields of
            `build.request.ModelOptions`.

    Returns:
        The bundle; `bundle.report.targets` has a row per target.

    Raises:
        AotpipeError: With its own class per cause. Of several targets that fail, the first one's; with
            `keep_going`, and where a compiler refuses it for another machine, only where no target is left
            to pack.
    """
    settings = Settings(
        out=out,
        extra_flags=tuple(extra_flags),
        fat=fat,
        variants=variants,
        jobs=jobs,
        engine=engine,
        timeout_s=timeout_s,
        memory_limit_bytes=memory_limit_bytes,
        latency=latency,
        keep_going=keep_going,
        allow_unproven=allow_unproven,
        keep_modules=keep_modules,
        budgets=(*map(Limit.parse, budgets), *limits.of_coverage(require_coverage)),
        tokenizer=tokenizer,
        cache=cache,
    )
    outcome = run(Request.of(model_or_spec, targets, args, kwargs, **options), settings, on_event)
    if outcome.path is None:
        assert outcome.error is not None
        raise outcome.error
    found = open_bundle(outcome.path)
    return Built(path=found.path, manifest=found.manifest, report=outcome.report)


def run(request: Request, settings: Settings, on_event: Listener | None = None) -> Outcome:
    """Build a bundle and tell all about it; of a build that fails, too, wherever it does.

    What is no typed error, such as Ctrl-C, goes on as it is once the report tells of it.
    """
    draft = Draft.of(request.model, request.spec_options.get("name"), settings.out or None)
    recorder = Recorder(draft.listening(on_event))
    try:
        return _run(request, settings, draft, recorder)
    except BaseException as error:
        report = draft.ended(error, recorder)
        if not isinstance(error, AotpipeError):
            raise
        return Outcome(path=None, report=report, folder=draft.folder, error=error)


def refused(model: object, name: str | None, out: str | Path | None, error: AotpipeError) -> Outcome:
    """The outcome of a request that was refused before there was a build."""
    draft = Draft.of(model, name, out)
    return Outcome(path=None, report=draft.ended(error, Recorder()), folder=draft.folder, error=error)


def _run(request: Request, settings: Settings, draft: Draft, recorder: Recorder) -> Outcome:
    work = _Work(request, settings, Cache.open(recorder, enabled=settings.cache), draft)
    if (unchanged := _unchanged(work)) is not None:
        return unchanged
    if request.key and (before := Record.read(work.cache, request.key)):
        draft.rename(before.name)
    draft.write("before its first stage", recorder)
    request.require_installed()
    try:
        with workspace("build") as folder:
            return _build(work, folder)
    finally:
        work.cache.close()


@dataclass(frozen=True, slots=True)
class _Work:
    request: Request
    settings: Settings
    cache: Cache
    draft: Draft

    @property
    def has_variants(self) -> bool:
        """Whether targets get programs for better CPUs; a fat program has none."""
        return self.settings.variants and not self.settings.fat

    @property
    def every_target(self) -> tuple[Target, ...]:
        """Those that were asked for, and their variants."""
        targets = self.request.targets
        return (*targets, *(matrix.beside(targets) if self.has_variants else ()))

    @property
    def out(self) -> Path | None:
        return None if self.settings.out is None else Path(self.settings.out).absolute()

    def folder(self, name: str) -> Path:
        return self.out or (DEFAULT_FOLDER / name).absolute()

    def key(self, name: str) -> str | None:
        """The digest of the whole request; None where objects are part of it."""
        front, targets = self.request.key, self.request.targets
        if front is None:
            return None
        settings = {
            "targets": list(map(str, targets)),
            "flags": list(self.settings.extra_flags),
            "fat": self.settings.fat,
            "variants": list(map(str, self.every_target)),
            "latency": self.settings.latency,
            "allow_unproven": self.settings.allow_unproven,
            "keep_modules": self.settings.keep_modules,
            "budgets": list(map(str, self.settings.budgets)),
            "tokenizer": {
                name: hashlib.sha256(each).hexdigest() for name, each in self.settings.tokenizer_files.items()
            },
            # What could not run before may run now: a driver was installed, a container given a GPU.
            "why_not_runnable": list(map(why_not_runnable, targets)),
        }
        return build_key(front, self.folder(name), settings)


def _unchanged(work: _Work) -> Outcome | None:
    """The outcome of the build before, where nothing has changed since; imports no torch."""
    found = Record.fresh(work.cache, work.request.key)
    built = Record.fresh(work.cache, work.key(found.name)) if found else None
    if found is None or built is None or built.prepared != found.prepared:
        return None
    path = work.folder(found.name)
    folder = report_folder.folder_of(path)
    if (report := report_folder.read(folder)) is None:
        return None
    return Outcome(path=path, report=replace(report, up_to_date=True), folder=folder)


def _require_place(out: Path) -> None:
    """Find out before the work whether a bundle can be written to a folder."""
    require_replaceable(out)
    parent = next(path for path in out.parents if path.exists())
    with typed_os_errors("the bundle", parent, hint="name another folder"):
        # Only trying tells: root may write where no permission is, but not to what is mounted read-only.
        Path(mkdtemp(prefix=".aotpipe-", dir=parent)).rmdir()


def _build(work: _Work, workspace: Path) -> Outcome:
    settings, recorder = work.settings, work.cache.recorder
    settings.tokenizer_files  # noqa: B018  # it is read before the work, since it may be refused
    if work.out is not None:
        _require_place(work.out)
    every = work.every_target
    recorder.planned({"compile": len(settings.groups(every)), "validate": len(every)})
    with Compiling(every, settings=settings, cache=work.cache) as compiling:
        ready = prepare(work.request, compiling, folder=workspace, exclude=[work.out or DEFAULT_FOLDER])
        prepared = ready.prepared
        path = work.folder(prepared.name)
        work.draft.rename(prepared.name)
        _require_place(path)
        # Compiling the page takes longer than all else here: it is done while the compilers run.
        threading.Thread(target=page.template, name="aotpipe-report", daemon=True).start()
        results = matrix.run(ready, compiling, latency=settings.latency)
        results = matrix.triangulated(results, ready, compiling)
    least = {target: limits.least_coverage(settings.budgets, str(target)) for target in results}
    results = {t: matrix.covered(each, prepared.coverage, least[t]) for t, each in results.items()}
    if not settings.allow_unproven:
        results = {target: matrix.proven(result) for target, result in results.items()}
    if work.has_variants:
        results = matrix.joined(work.request.targets, results)
    report = Report(
        name=prepared.name,
        targets=tuple(reports.row_of(target, result) for target, result in results.items()),
        entry_points=prepared.loadable.signatures,
        ops=prepared.ops,
        findings=prepared.findings,
        coverage=prepared.coverage,
        source_diff=prepared.source_diff,
    )
    report = replace(report, budgets=limits.judged(settings.budgets, report))
    packed = _packed(work, prepared, results, path) if _is_packed(settings, results, report) else None
    report = replace(work.draft.completed(report, recorder), bundle=str(path) if packed else "")
    folder = report_folder.folder_of(path)
    with recorder.stage("report"):
        report_folder.write(report, folder)
    if packed and report.ok:
        _record(work, ready, packed, folder)
    return Outcome(
        path=path if packed else None, report=report, folder=folder, error=_first_error(results, report)
    )


def _first_error(results: Mapping[Target, matrix.Result], report: Report) -> AotpipeError | None:
    errors = (each for each in results.values() if isinstance(each, AotpipeError))
    exceeded = [str(each) for each in report.budgets if not each.passed]
    over = BudgetExceeded(exceeded[0], reason="\n".join(exceeded[1:])) if exceeded else None
    return next(errors, over)


def _is_packed(settings: Settings, results: Mapping[Target, matrix.Result], report: Report) -> bool:
    """Whether there is a bundle: of all targets that passed, where no other one failed."""
    errors = {target: each for target, each in results.items() if isinstance(each, AotpipeError)}
    if len(errors) == len(results):
        return False
    if settings.keep_going:
        return True
    # What a compiler cannot do for another machine says nothing of the programs that passed here.
    passed = all(
        isinstance(error, CompileError) and why_not_runnable(target) for target, error in errors.items()
    )
    return passed and all(each.passed for each in report.budgets)


def _packed(work: _Work, prepared: Prepared, results: Mapping[Target, matrix.Result], path: Path) -> Bundle:
    # XLA's is a container of several, for its compiler alone.
    texts: dict[str, Lowered] = {key: each for key, each in prepared.lowered.items() if key != "xla"}
    weights = prepared.loadable.weights
    goldens = to_keep(prepared.goldens, prepared.coverage, sum(each.size_bytes for each in weights))
    with work.cache.recorder.stage("pack"):
        return pack(
            path,
            name=prepared.name,
            signatures=prepared.loadable.signatures,
            asserts=prepared.loadable.asserts,
            weights=weights,
            programs=results,
            goldens=goldens,
            findings=prepared.findings,
            parts=prepared.loadable.parts,
            precision=work.request.precision,
            quantization=work.request.quantization,
            materials=prepared.materials,
            tokenizer=work.settings.tokenizer_files,
            modules=texts if work.settings.keep_modules else None,
        )


def _record(work: _Work, ready: Ready, packed: Bundle, folder: Path) -> None:
    """Keep what the next build compares itself with."""
    name = ready.prepared.name
    key = work.key(name)
    if key and ready.key:
        digests = {packed.path / name: file.sha256 for name, file in packed.manifest.files.items()}
        files = written((packed.path, folder), digests)
        Record(name=name, snapshot=files, prepared=ready.key).save(work.cache, key)
