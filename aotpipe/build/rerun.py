"""A finished bundle's programs, to be judged or timed once more: `reopened`, and `measure` behind `bench`.

Every byte is checked against the manifest before anything runs. Torch-free; torch is imported where eager is
timed beside the programs.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Unpack

from aotpipe import backends
from aotpipe.build.chain import Chain, read_state
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.request import ModelOptions, Request
from aotpipe.core.serialization import Serializable
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Compiled, CompileStats
from aotpipe.core.targets import Target, expand
from aotpipe.errors import NoProgram
from aotpipe.runtime import goldens as goldens_file
from aotpipe.runtime.bundle import verify
from aotpipe.runtime.bundle.load import why_not_runnable
from aotpipe.runtime.bundle.manifest import GOLDENS, WEIGHTS, Manifest, Program
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.worker import Worker
from aotpipe.validate import Caller, Loadable, loaded, measure_latency

if TYPE_CHECKING:
    from aotpipe.validate.eager.eager import Eager

_WARM_UP: Final = 3
_MOST_SAMPLES: Final = 2000
_SAME: Final = "partition schedule flags toolchain host_features digest notes estimates".split()
"""The attributes that a program in a manifest shares with a compiled one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """A bundle's content.

    Attributes:
        programs: Those that were asked for, whether they can run here or not.
        variants: By target, the programs that it has for CPUs that have more.
        goldens: The recorded calls.
    """

    manifest: Manifest
    programs: tuple[Compiled, ...]
    variants: Mapping[Target, tuple[Compiled, ...]]
    loadable: Loadable
    goldens: tuple[Golden, ...]


def _chosen(name: str, found: Collection[Target]) -> list[Target]:
    """Those of a bundle's programs that a target string, a shorthand or a glob names."""
    matches = [target for target in expand([name]) if target in found]
    if not matches:
        raise NoProgram(
            f"the bundle has no program for {name}", reason=f"it has: {', '.join(map(str, found))}"
        )
    return matches


@contextmanager
def reopened(root: Path, targets: Sequence[str] = ()) -> Iterator[Reopened]:
    """Open a bundle for as long as the body runs.

    Args:
        root: Its folder.
        targets: Target strings, shorthands and globs, of whose matches those count that the bundle has, as
            variants too; all of its targets where empty.

    Raises:
        BundleError: The bundle cannot be read, or has no such program.
    """
    manifest = verify(root)
    own = {Target.parse(each.target): each for each in manifest.programs if each.file}
    found = {Target.parse(each.target): each for program in own.values() for each in program.variants} | own
    chosen = tuple(dict.fromkeys(each for name in targets for each in _chosen(name, found))) or tuple(own)
    with TemporaryDirectory(prefix="aotpipe-rerun-") as folder:
        # Workers map the file for as long as they run, whatever happens to the bundle meanwhile.
        weights = Path(folder) / WEIGHTS
        shutil.copyfile(root / WEIGHTS, weights)
        yield Reopened(
            manifest=manifest,
            programs=tuple(_compiled(root, found[target]) for target in chosen),
            variants={
                target: tuple(_compiled(root, each) for each in found[target].variants) for target in chosen
            },
            loadable=Loadable(
                signatures=manifest.signatures,
                weights=weights,
                initial_state=read_state(weights),
                asserts=manifest.asserts,
                parts=manifest.parts,
            ),
            goldens=goldens_file.loads((root / GOLDENS).read_bytes()),
        )


def why_not_here(reopened: Reopened, target: Target) -> str:
    """Why a program of a bundle cannot run on this host; empty where it can."""
    every = (each for program in reopened.manifest.programs for each in program.all)
    return next(why_not_runnable(each) for each in every if each.target == str(target))


def fitting(reopened: Reopened, program: Compiled) -> Compiled:
    """What is loaded on this host for a target's program: a variant of it, or itself."""
    able = (each for each in reopened.variants[program.target] if not why_not_here(reopened, each.target))
    return next(able, program)


def _compiled(root: Path, program: Program) -> Compiled:
    target = Target.parse(program.target)
    return Compiled(
        target=target,
        payload=(root / program.file).read_bytes(),
        dialect=program.dialect or backends.dialect(target),
        stats=CompileStats(wall_s=0.0, peak_rss_bytes=0),
        **{name: getattr(program, name) for name in _SAME},
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
    bundle: Path,
    model: object = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    targets: Sequence[str] = (),
    variants: bool = True,
    threads: int | None = None,
    budget_s: float = 5.0,
    on_event: Listener | None = None,
    **options: Unpack[ModelOptions],
) -> list[Row]:
    """Time each program on the first recorded call of each entry point.

    Args:
        bundle: Its folder.
        model: What the bundle was built from, to be timed in turns with the programs.
        args: Example inputs of an object that is no Spec.
        kwargs: Example inputs passed by name.
        targets: Which programs; all where empty.
        variants: Time the variant of each that would be loaded here.
        threads: Of programs and of eager; one per core where None.
        budget_s: Seconds for each program.
        on_event: Told what happens while it happens.
        **options: Those of the model up to the stage canonicalize, as they were given to the build.

    Raises:
        BundleError, ModelError, ProgramCrashed
    """
    recorder = Recorder(on_event)
    request = Request.of(model, (), args, kwargs, until="canonicalize", **options)
    rows: list[Row] = []
    with reopened(bundle, targets) as opened:
        eager = (
            None if model is None else _eager(Chain(request, recorder), opened.loadable.signatures, threads)
        )
        if eager is not None:
            import torch

            threads = torch.get_num_threads()
        loadable = replace(opened.loadable, threads=threads)
        for program in opened.programs:
            if reason := why_not_here(opened, program.target):
                rows.append(Row(target=str(program.target), reason=reason))
                continue
            with recorder.stage("bench", str(program.target)):
                timed = fitting(opened, program) if variants else program
                found = _times(timed, opened, loadable, eager, budget_s)
                rows += [Row(target=str(program.target), program=str(timed.target), **each) for each in found]
    return rows


def _eager(chain: Chain, signatures: Mapping[str, Signature], threads: int | None) -> Eager:
    canonical = chain.canonical
    import torch

    from aotpipe.validate.eager.eager import Eager
    from aotpipe.validate.reference import eager_options

    if threads is not None:
        torch.set_num_threads(threads)
    return Eager(canonical.entries, **eager_options(signatures))


def _times(
    program: Compiled, opened: Reopened, loadable: Loadable, eager: Eager | None, budget_s: float
) -> list[dict[str, Any]]:
    """What a `Row` says of each entry point of a program."""
    first: dict[str, Golden] = {}
    for golden in opened.goldens:
        first.setdefault(golden.entry_point, golden)
    share_s, stateful = budget_s / len(first), loadable.is_stateful
    with Worker() as process:
        worker = loaded(process, program, loadable)
        if eager is None:
            return [_alone(worker, golden, share_s, stateful=stateful) for golden in first.values()]
        found = [
            measure_latency(worker, eager, golden, stateful=stateful, budget_s=share_s)
            for golden in first.values()
        ]
    return [{key: value for key, value in asdict(each).items() if key != "threads"} for each in found]


def _alone(worker: Caller, golden: Golden, budget_s: float, *, stateful: bool) -> dict[str, Any]:
    def samples(count: int) -> list[float]:
        return worker.time(golden.inputs, entry_point=golden.entry_point, samples=count, reset=stateful)

    start = time.monotonic()
    once_us = statistics.median(samples(_WARM_UP))
    left_s = budget_s - (time.monotonic() - start)
    found = samples(max(1, min(_MOST_SAMPLES, int(left_s * 1e6 / once_us))))
    return {
        "entry_point": golden.entry_point,
        "samples": len(found),
        "median_us": statistics.median(found),
        "p90_us": statistics.quantiles(found, n=10)[-1] if len(found) > 1 else found[0],
    }
