"""The order of the stages, from what a user asks to programs: nothing else knows it.

    load -> canonicalize -> export -> legalize -> cut -> lower -> reference      (with torch, for all targets)
                                                        lower -> compile         (per target)

`Chain(request, recorder)` runs them up to the one whose result somebody asks for: `chain.exported` exports,
`chain.lowered` goes on to the modules for the compilers. `prepare` runs all of them but the compilers, which
it starts as soon as there are modules, and keeps the result: a request of which nothing has changed is
answered from the store, without torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, get_args

from aotpipe.build import front
from aotpipe.build import prepared as prepared_file
from aotpipe.build.cache import Cache
from aotpipe.build.compile_stage import CompileSettings, Compiling, compile_all
from aotpipe.build.events import Recorder, Stage
from aotpipe.build.file_reads import ignore_this_thread, recorded_reads
from aotpipe.build.prepared import Prepared, digest_of, write_weights
from aotpipe.build.record import FrontRecord
from aotpipe.build.request import Request
from aotpipe.core.dtypes import Array
from aotpipe.core.stages import Finding
from aotpipe.islands.sites import recording
from aotpipe.model.garbage_collector import rarer_collections
from aotpipe.runtime import goldens as goldens_file
from aotpipe.runtime import toolchain
from aotpipe.runtime.islands.chain import Parts
from aotpipe.runtime.store import digest
from aotpipe.validate import Loadable

if TYPE_CHECKING:
    from aotpipe.backends import ModuleKey, Ruleset
    from aotpipe.core.stages import Canonical, Compiled, Exported, Legal, Lowered
    from aotpipe.core.targets import Target
    from aotpipe.errors import AotpipeError
    from aotpipe.validate.inputs import Call
    from aotpipe.validate.reference import Reference

FRONT_STAGES: Final[tuple[Stage, ...]] = (
    "load",
    "canonicalize",
    "export",
    "legalize",
    "lower",
    "reference",
    "weights",
)
assert set(FRONT_STAGES) <= set(get_args(Stage))


class Chain:
    """What each stage gave for one request; a stage runs once, when its result is first asked for.

    A property raises what its stage raises, and what those before it raise.

    Args:
        request: What is asked for.
        recorder: Told of each stage.
    """

    def __init__(self, request: Request, recorder: Recorder) -> None:
        self.request = request
        self.recorder = recorder

    @cached_property
    def canonical(self) -> Canonical:
        """The model, ready for export.

        Raises:
            TargetError, ModelError
        """
        with self._tracing():
            model = front.canonical(self.request, self.recorder)
            if self.request.islands:
                front.discover(model)
            return model

    @cached_property
    def exported(self) -> Exported:
        """The exported programs, in the precision that is asked for.

        Raises:
            ExportFailed, StaticDim
        """
        model = self.canonical
        with self._tracing(go_on=True):
            return front.narrowed(front.export(model, self.recorder), self.request.precision)

    @cached_property
    def legals(self) -> Mapping[Ruleset, Legal]:
        """The legal program by each set of rules, over one set of weights.

        Raises:
            UnsupportedOps, LowerFailed
        """
        exported = self.exported
        with self._tracing(go_on=True):
            return front.legalize(exported, self.recorder, self.request)

    @property
    def legal(self) -> Legal:
        """The legal program by the first rules, before it is cut: what eager is compared with."""
        return next(iter(self.legals.values()))

    @cached_property
    def _cut(self) -> tuple[Parts | None, Mapping[Ruleset, Legal]]:
        return front.cut(self.legals) if self.request.islands else (None, self.legals)

    @property
    def parts(self) -> Parts | None:
        """The chain of programs and Python that a model with islands becomes; None where it has none."""
        return self._cut[0]

    @property
    def lowerable(self) -> Mapping[Ruleset, Legal]:
        """What is lowered: the legal programs, or what is left of them beside their islands."""
        return self._cut[1]

    @cached_property
    def notes(self) -> tuple[Finding, ...]:
        """What is told of islands and planned sizes.

        Raises:
            NoBuckets
        """
        islands = self.parts.islands if self.parts else ()
        found = (*map(front.island_finding, islands), *front.planned_sizes(self.legal, self.request))
        for finding in found:
            self.recorder.found(finding)
        return found

    @cached_property
    def lowered(self) -> Mapping[ModuleKey, Lowered]:
        """The module for each compiler.

        Raises:
            LowerFailed, UnsupportedOps, NoBuckets, MeshError
        """
        lowerable = self.lowerable
        with rarer_collections():
            return front.lower(self.canonical, lowerable, self.recorder, self.request)

    def reference(self, calls: Sequence[Call] | None = None, *, compilers: int = 0) -> Reference:
        """Eager's answers to the calls that programs are judged on.

        Args:
            calls: These in place of planned ones.
            compilers: How many run meanwhile, each on a core.

        Raises:
            SpecInvalid: The model raises on its own example inputs.
        """
        legal = self.legal
        with _leaving_cores(compilers):
            return front.reference(self.canonical, legal, self.recorder, self.request, calls)

    def compiled(self, settings: CompileSettings, cache: Cache) -> dict[Target, Compiled | AotpipeError]:
        """The program of each target; an error stands in a failed one's place."""
        return compile_all(
            self.lowered, self.request.targets, settings=settings, cache=cache, recorder=self.recorder
        )

    @contextmanager
    def loadable(self) -> Iterator[Loadable]:
        """What the programs are loaded with, while the body runs: the weights are in a temporary file.

        Raises:
            DiskFull, ReadOnly: The weights cannot be written.
        """
        legal, (weights, state) = self.legal, self.arrays()
        with TemporaryDirectory(prefix="aotpipe-weights-", ignore_cleanup_errors=True) as folder:
            path, _ = write_weights(weights, state, Path(folder))
            yield Loadable(
                signatures={entry.name: entry.signature for entry in legal.entries},
                weights=path,
                initial_state=state,
                asserts={entry.name: entry.asserts for entry in legal.entries},
                parts=self.parts,
            )

    def arrays(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """The weights of all programs, and the initial state: views of what the model's tensors hold now."""
        from aotpipe.model.torch_arrays import view_all

        weights = {key: tensor for each in self.lowerable.values() for key, tensor in each.weights.items()}
        return view_all(weights), view_all(self.legal.initial_state)

    @contextmanager
    def _tracing(self, *, go_on: bool = False) -> Iterator[None]:
        with rarer_collections(), recording(go_on=go_on) if self.request.islands else nullcontext():
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A prepared model, its key in the store (None where it is not kept), and how to get the model."""

    prepared: Prepared
    key: str | None
    canonical: Callable[[], Canonical]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """The name of a prepared model of an unchanged request, and its key in the store."""

    name: str
    prepared: str


def unchanged(request: Request, cache: Cache) -> Unchanged | None:
    """Whether a model is what it was when it was last prepared; reads nothing but what it was made of."""
    record = FrontRecord.fresh(cache, request.key) if request.key else None
    return Unchanged(name=record.name, prepared=record.prepared) if record else None


def prepare(
    request: Request, compiling: Compiling, cache: Cache, *, folder: Path, exclude: Sequence[Path]
) -> Ready:
    """Prepare a model, or take it from the store where nothing has changed, and start the compilers.

    Args:
        request: What is wanted.
        compiling: Started as soon as there are modules.
        cache: Where the prepared model may lie.
        folder: Where the file of the weights is put.
        exclude: Folders that aotpipe itself writes, so that a model is not made of them.

    Raises:
        ModelError, ExportFailed, UnsupportedOps, LowerFailed
    """
    recorder = compiling.recorder
    recorder.planned(dict.fromkeys(FRONT_STAGES, 1))
    ready = _from_store(request, cache, recorder, folder)
    if ready is not None:
        compiling.start(ready.prepared.lowered)
        return ready
    chain, key = Chain(request, recorder), request.key
    if key is None or cache.store is None:
        made = _through_torch(chain, compiling, folder)
        return Ready(prepared=made, key=None, canonical=lambda: chain.canonical)
    with recorded_reads(exclude=(*exclude, folder, cache.store.root)) as reads:
        made = _through_torch(chain, compiling, folder)
        dependencies = reads.dependencies(extra_packages=toolchain.PACKAGES)
    prepared_key = None
    if dependencies is not None:
        prepared_key = digest([key, dependencies.digest, made.digest])
        cache.put("prepared", prepared_key, lambda: prepared_file.files(made))
        FrontRecord(name=made.name, dependencies=dependencies, prepared=prepared_key).save(cache, key)
    return Ready(prepared=made, key=prepared_key, canonical=lambda: chain.canonical)


def _from_store(request: Request, cache: Cache, recorder: Recorder, folder: Path) -> Ready | None:
    """The prepared model of an unchanged request; imports no torch."""
    record = FrontRecord.fresh(cache, request.key) if request.key else None
    if record is None:
        return None
    found = cache.load("prepared", record.prepared, lambda entry: prepared_file.read(entry, folder))
    if found is None:
        return None
    for stage in FRONT_STAGES:
        with recorder.stage(stage) as running:
            running.cached = True
    for finding in found.findings:
        recorder.found(finding)
    again = Chain(request, Recorder())
    return Ready(prepared=found, key=record.prepared, canonical=lambda: again.canonical)


def _through_torch(chain: Chain, compiling: Compiling, folder: Path) -> Prepared:
    legal, lowerable, notes = chain.legal, chain.lowerable, chain.notes
    weights, state = chain.arrays()
    # Hashing and writing leave the interpreter to the rest, eager among it, which puts other data into the
    # model's tensors meanwhile: the arrays are views of what these hold now.
    with ThreadPoolExecutor(1, thread_name_prefix="weights", initializer=ignore_this_thread) as beside:
        writing = beside.submit(_write_weights, weights, state, folder, chain.recorder)
        found = chain.reference(compilers=compiling.start(chain.lowered))
        weights_path, weights_sha256 = writing.result()
    from aotpipe.passes.digest import digest as digest_of_legal

    digests = [digest_of_legal(each, weights_sha256) for each in lowerable.values()]
    return Prepared(
        name=legal.name,
        lowered=chain.lowered,
        signatures={entry.name: entry.signature for entry in legal.entries},
        asserts={entry.name: entry.asserts for entry in legal.entries},
        weights=weights_path,
        weights_sha256=weights_sha256,
        initial_state=state,
        goldens=found.goldens,
        parts=chain.parts,
        findings=(*chain.exported.findings, *notes, *found.findings),
        digest=digest_of(digests, chain.lowered, goldens_file.dumps(found.goldens)),
    )


def _write_weights(
    weights: Mapping[str, Array], state: Mapping[str, Array], folder: Path, recorder: Recorder
) -> tuple[Path, str]:
    with recorder.stage("weights") as running:
        path, sha256 = write_weights(weights, state, folder)
        running.size_bytes = path.stat().st_size
    return path, sha256


@contextmanager
def _leaving_cores(busy: int) -> Iterator[None]:
    """Leave so many cores to others: threads of OpenMP that wait for one that cannot run burn its time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(before, (os.cpu_count() or 1) - busy)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
