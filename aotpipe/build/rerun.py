"""A finished bundle's programs, to be judged or timed once more: `reopened`, and `measure` behind `bench`.

What is used is checked against the manifest before anything runs. Torch-free; torch is imported where eager
is timed beside the programs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from aotpipe import backends
from aotpipe.build.chain import Chain
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.request import ModelOptions, Request
from aotpipe.core.serialization import Serializable, attributes
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Compiled, CompileStats, Dialect
from aotpipe.core.targets import Target, expand
from aotpipe.errors import NoProgram
from aotpipe.runtime import tensor_file
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle.files import open_bundle, parted
from aotpipe.runtime.bundle.load import fitting, why_not_runnable
from aotpipe.runtime.bundle.manifest import OF_COMPILED, WEIGHTS, Manifest, Program
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.store import workspace
from aotpipe.runtime.worker import Worker
from aotpipe.validate import Caller, Loadable, loaded, median_and_p90, time_in_turns

if TYPE_CHECKING:
    from aotpipe.validate.eager.eager import Eager


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """A bundle's content.

    Attributes:
        programs: Those that were asked for, whether they can run here or not.
        payloads: By file, the bytes of these and of their variants.
    """

    manifest: Manifest
    programs: tuple[Program, ...]
    payloads: Mapping[str, bytes]
    loadable: Loadable
    goldens: tuple[Golden, ...]

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
        # Workers map the file for as long as they run, whatever happens to the bundle meanwhile.
        weights = folder / WEIGHTS
        weights.write_bytes(files.content(bundle, WEIGHTS).data)
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
                initial_state=parted(tensor_file.read(weights))[1],
                asserts=manifest.asserts,
                parts=manifest.parts,
            ),
            goldens=files.goldens(bundle),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Serializable):
    """The times of one entry point of one program, in microseconds; `reason` says why there are none.

    Attributes:
        program: The target whose program was timed: this one's, or a variant's.
    """

    target: str
    program: str = ""
    entry_point: str = ""
    samples: int = 0
    median_us: float = 0.0
    p90_us: float = 0.0
    eager_median_us: float | None = None
    eager_p90_us: float | None = None
    reason: str = ""


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
    islands: tuple[str, ...] = (),
    on_event: Listener | None = None,
    **options: Unpack[ModelOptions],
) -> list[Row]:
    """Time each program on the first recorded call of each entry point.

    A `model`, with the `args`, `kwargs` and options (up to the stage canonicalize) that the bundle was built
    with, is timed in turns with the programs, of which all are where no target is named. `variants` times the
    variant of each that would be loaded here. Programs and eager have `threads` threads, one per core where
    None, and `budget_s` seconds for each program. `islands` names what may run of a model with islands.

    Raises:
        BundleError, ModelError, ProgramCrashed
    """
    recorder = Recorder(on_event)
    request = Request.of(model, (), args, kwargs, until="canonicalize", **options)
    rows: list[Row] = []
    with reopened(bundle, targets) as opened:
        eager = None
        if model is not None:
            eager = _eager(Chain(request, recorder), opened.loadable.signatures, threads)
            import torch

            threads = torch.get_num_threads()
        loadable = replace(opened.loadable, threads=threads, islands=islands)
        for program in opened.programs:
            if reason := why_not_runnable(program):
                rows.append(Row(target=program.target, reason=reason))
                continue
            with recorder.stage("bench", program.target), Worker() as process:
                timed = fitting(program) if variants else program
                worker = loaded(process, opened.compiled(timed), loadable)
                row = Row(target=program.target, program=timed.target)
                rows += _timed(row, worker, eager, opened, budget_s)
    return rows


def _eager(chain: Chain, signatures: Mapping[str, Signature], threads: int | None) -> Eager:
    canonical = chain.canonical
    import torch

    from aotpipe.validate.eager.eager import Eager

    if threads is not None:
        torch.set_num_threads(threads)
    return Eager(canonical.entries, signatures)


def _timed(row: Row, worker: Caller, eager: Eager | None, opened: Reopened, budget_s: float) -> Iterator[Row]:
    first = {golden.entry_point: golden for golden in reversed(opened.goldens)}
    for golden in (first[name] for name in opened.loadable.signatures if name in first):
        ours, *theirs = time_in_turns(
            (worker, *([] if eager is None else [eager])),
            golden,
            stateful=opened.loadable.is_stateful,
            budget_s=budget_s / len(first),
        )
        row = replace(row, entry_point=golden.entry_point, samples=len(ours), **median_and_p90(ours))
        for each in theirs:
            row = replace(row, **median_and_p90(each, "eager_"))
        yield row
