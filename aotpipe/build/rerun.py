"""A finished bundle's programs, to be judged or timed once more: `reopened`, and `measure` behind `bench`.

What is used is checked against the manifest before anything runs. Torch-free; torch is imported where eager
is timed beside the programs.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, Literal, Unpack, cast

import numpy as np

from aotpipe import backends
from aotpipe.backends import ModuleKey
from aotpipe.build.chain import Chain
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.request import ModelOptions, Request
from aotpipe.core.serialization import Serializable, attributes
from aotpipe.core.stages import P99_SAMPLES, Compiled, CompileStats, Dialect, Latency, Lowered, Timing
from aotpipe.core.targets import Target, expand
from aotpipe.errors import NoProgram, ProgramCrashed
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle.files import open_bundle, parted
from aotpipe.runtime.bundle.load import fitting, why_not_runnable
from aotpipe.runtime.bundle.manifest import OF_COMPILED, Manifest, Program
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.store import workspace
from aotpipe.runtime.tensor_file import Shard, read_shards
from aotpipe.runtime.worker import Worker
from aotpipe.validate import Caller, Loadable, loaded, measure_latency
from aotpipe.validate.timing import Timed, timing

Scenario = Literal["SingleStream", "Offline", "Server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """A bundle's content.

    Attributes:
        programs: Those that were asked for, whether they can run here or not.
        payloads: By file, the bytes of these and of their variants.
        modules: What its compilers were given, where it keeps that.
    """

    manifest: Manifest
    programs: tuple[Program, ...]
    payloads: Mapping[str, bytes]
    loadable: Loadable
    goldens: tuple[Golden, ...]
    modules: Mapping[ModuleKey, Lowered]

    def compiled(self, program: Program) -> Compiled:
        """A program, or a variant of one, as its compiler gave it."""
        return Compiled(
            target=Target.parse(program.target),
            payload=self.payloads[program.file],
            stats=CompileStats(wall_s=0.0, peak_rss_bytes=0),
            notes=program.notes,
            **(attributes(program, OF_COMPILED) | {"dialect": dialect_of(program)}),
        )


def dialect_of(program: Program) -> Dialect:
    """What a program was compiled from, also where an older release did not say so."""
    return program.dialect or backends.dialect(Target.parse(program.target))


def _chosen(name: str, found: Collection[Target]) -> list[Target]:
    """Those of a bundle's programs that a target string, a shorthand or a glob names."""
    matches = [target for target in expand([name]) if target in found]
    if not matches:
        raise NoProgram(
            f"the bundle has no program for {name}", reason=f"it has: {', '.join(map(str, found))}"
        )
    return matches


@contextmanager
def reopened(root: str | PathLike[str], targets: Sequence[str] = ()) -> Iterator[Reopened]:
    """Open a bundle for as long as the body runs.

    Those of the targets' matches count that the bundle has, as variants too; all of its targets where none is
    named.

    Raises:
        BundleError: The bundle cannot be read, or has no such program.
    """
    bundle = open_bundle(root)
    manifest = bundle.manifest
    files.require_as_named(bundle)
    own = {Target.parse(each.target): each for each in manifest.programs if each.file}
    found = {Target.parse(each.target): each for program in own.values() for each in program.variants} | own
    names = dict.fromkeys(each for name in targets for each in _chosen(name, found)) or own
    chosen = tuple(found[target] for target in names)
    with workspace("rerun") as folder:
        # Workers map the files for as long as they run, whatever happens to the bundle meanwhile.
        weights = tuple(Shard(folder / name, manifest.files[name].sha256) for name in manifest.weight_files)
        for each in weights:
            each.path.write_bytes(files.content(bundle, each.path.name).data)
        yield Reopened(
            manifest=manifest,
            programs=chosen,
            payloads={
                each.file: files.content(bundle, each.file).tobytes()
                for program in chosen
                for each in program.all
            },
            loadable=Loadable(
                signatures=manifest.signatures,
                weights=weights,
                initial_state=parted(read_shards(weights))[1],
                asserts=manifest.asserts,
                parts=manifest.parts,
            ),
            goldens=files.goldens(bundle),
            modules={
                cast("ModuleKey", name): Lowered(
                    module=files.content(bundle, each.file).tobytes(),
                    **attributes(each, "dialect entry_points digest"),
                )
                for name, each in manifest.modules.items()
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Serializable):
    """The times of one entry point of one program; `reason` says why there are none.

    Attributes:
        program: The target whose program was timed: this one's, or a variant's.
        latency: Of calls one after another, beside the baselines.
        server: Of calls that come at random, each from when it came; None in another scenario.
        per_s: How many came in a second, on average.
        left_out: Baselines that do not take the model, with the reason.
        exit_code: That of the error by which the program ended; 0 where it was timed, or cannot run here.
    """

    target: str
    program: str = ""
    scenario: Scenario = "SingleStream"
    latency: Latency | None = None
    server: Timing | None = None
    per_s: float | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    exit_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How calls come, by the names of MLPerf's LoadGen.

    Attributes:
        scenario: `SingleStream`, each call when the one before has ended; `Offline`, the same, and what
            counts is how many a second; `Server`, at random with a Poisson distribution.
        per_s: How many come in a second, of Server; half of what the program can do where None.
        seed: Of the arrivals.
    """

    scenario: Scenario = "SingleStream"
    per_s: float | None = None
    seed: int = 0

    def arrivals_s(self, capacity_per_s: float, budget_s: float) -> list[float]:
        """When calls come, in seconds from the first; where that takes not too long, enough for a p99."""
        rate = self.per_s or capacity_per_s / 2
        count = max(1, min(max(P99_SAMPLES, int(budget_s * rate)), int(4 * budget_s * rate) + 1))
        gaps = np.random.default_rng(self.seed).exponential(1 / rate, count - 1)
        return [0.0, *map(float, np.cumsum(gaps))]


def measure(
    bundle: str | PathLike[str],
    model: object = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    targets: Sequence[str] = (),
    variants: bool = True,
    threads: int | None = None,
    budget_s: float = 5.0,
    baselines: Sequence[str] = (),
    load: Load | None = None,
    islands: tuple[str, ...] = (),
    on_event: Listener | None = None,
    **options: Unpack[ModelOptions],
) -> list[Row]:
    """Time each program on the first recorded call of each entry point.

    A `model`, with the `args`, `kwargs` and options (up to the stage canonicalize) that the bundle was built
    with, is timed in turns with the programs, of which all are where no target is named: in eager, or in the
    ways that `baselines` names. `variants` times the variant of each that would be loaded here. Programs and
    baselines have `threads` threads, one per core where None, and `budget_s` seconds for each program.
    `islands` names what may run of a model with islands.

    Raises:
        BundleError, ModelError
        TargetError: A baseline's package is not installed.
    """
    recorder = Recorder(on_event)
    request = Request.of(model, (), args, kwargs, until="canonicalize", **options)
    rows: list[Row] = []
    with reopened(bundle, targets) as opened:
        others: dict[str, Timed] = {}
        if model is not None:
            others = _baselines(Chain(request, recorder), baselines or ["eager"], opened, threads)
            import torch

            threads = torch.get_num_threads()
        threads = threads or len(os.sched_getaffinity(0))
        bench = _Bench(opened, others, threads, budget_s, load or Load(), islands)
        for program in opened.programs:
            if reason := why_not_runnable(program):
                rows.append(Row(target=program.target, reason=reason))
                continue
            timed = fitting(program) if variants else program
            try:
                with recorder.stage("bench", program.target):
                    rows += bench.rows(program, timed)
            except ProgramCrashed as error:
                # The others are timed all the same.
                said = "\n".join(filter(None, (error.message, error.reason)))
                row = Row(target=program.target, program=timed.target, reason=said, exit_code=error.exit_code)
                rows.append(row)
    return rows


def _baselines(chain: Chain, names: Sequence[str], opened: Reopened, threads: int | None) -> dict[str, Timed]:
    canonical = chain.canonical
    import torch

    from aotpipe.build.baselines import made

    if threads is not None:
        torch.set_num_threads(threads)
    return made(names, canonical.entries, opened.loadable.signatures, torch.get_num_threads())


@dataclass(frozen=True)
class _Bench:
    opened: Reopened
    others: Mapping[str, Timed]
    threads: int
    budget_s: float
    load: Load
    islands: tuple[str, ...]

    def rows(self, program: Program, timed: Program) -> Iterator[Row]:
        """The rows of a program, timed by that of one of its variants."""
        loadable = replace(self.opened.loadable, threads=self.threads, islands=self.islands)
        # One that goes on from another's state is timed from the initial one.
        found = {golden.entry_point: golden for golden in reversed(self.opened.goldens)}
        first = [found[name] for name in self.opened.loadable.signatures if name in found]
        with Worker() as process:
            worker = loaded(process, self.opened.compiled(timed), loadable)
            for golden in first:
                row = Row(target=program.target, program=timed.target, scenario=self.load.scenario)
                yield self._row(row, worker, process, golden, self.budget_s / len(first))

    def _row(self, row: Row, worker: Caller, process: Worker, golden: Golden, budget_s: float) -> Row:
        stateful = self.opened.loadable.is_stateful
        first_us, left_out = first_calls(self.others, golden, stateful=stateful)
        [latency] = measure_latency(
            worker,
            {name: self.others[name] for name in first_us},
            [golden],
            stateful=stateful,
            budget_s=budget_s,
            threads=self.threads,
            process=process,
        )
        cold = {name: replace(each, first_us=first_us[name]) for name, each in latency.baselines.items()}
        row = replace(row, latency=replace(latency, baselines=cold), left_out=left_out)
        if self.load.scenario != "Server":
            return row
        arrivals = self.load.arrivals_s(latency.program.per_s, budget_s)
        samples = worker.time(
            golden.inputs,
            entry_point=golden.entry_point,
            samples=len(arrivals),
            reset=stateful,
            arrivals_s=arrivals,
        )
        per_s = self.load.per_s or latency.program.per_s / 2
        return replace(row, server=timing([samples]), per_s=per_s)


def first_calls(
    others: Mapping[str, Timed], golden: Golden, *, stateful: bool
) -> tuple[dict[str, float], dict[str, str]]:
    """The microseconds of the first call of each baseline that takes it, and why the others do not."""
    found, left_out = {}, {}
    for name, each in others.items():
        try:
            [found[name]] = each.time(
                golden.inputs, entry_point=golden.entry_point, samples=1, reset=stateful
            )
        except Exception as error:
            # Whatever a compiler or another runtime raises on a model.
            if name == "eager":
                raise
            left_out[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return found, left_out
