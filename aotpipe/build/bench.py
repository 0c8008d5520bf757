"""Times the programs of a finished bundle, beside eager where its model is given."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from aotpipe.build.chain import Chain
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.request import ModelOptions, Request
from aotpipe.build.rerun import Reopened, fitting, reopened, why_not_here
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Compiled
from aotpipe.runtime.goldens import Golden
from aotpipe.runtime.worker import Worker
from aotpipe.validate import Caller, Loadable, loaded

if TYPE_CHECKING:
    from aotpipe.validate.eager.eager import Eager

_WARM_UP: Final = 3
_MOST_SAMPLES: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
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

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


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
                found = _measure_program(timed, opened, loadable, eager, budget_s)
                rows += [replace(row, target=str(program.target)) for row in found]
    return rows


def _eager(chain: Chain, signatures: Mapping[str, Signature], threads: int | None) -> Eager:
    canonical = chain.canonical
    import torch

    from aotpipe.validate.eager.eager import Eager
    from aotpipe.validate.reference import eager_options

    if threads is not None:
        torch.set_num_threads(threads)
    return Eager(canonical.entries, **eager_options(signatures))


def _measure_program(
    program: Compiled, opened: Reopened, loadable: Loadable, eager: Eager | None, budget_s: float
) -> list[Row]:
    first: dict[str, Golden] = {}
    for golden in opened.goldens:
        first.setdefault(golden.entry_point, golden)
    rows = []
    with Worker() as process:
        worker = loaded(process, program, loadable)
        for golden in first.values():
            name = str(program.target)
            row = Row(target=name, program=name, entry_point=golden.entry_point)
            share_s = budget_s / len(first)
            stateful = loadable.is_stateful
            rows.append(
                _alone(worker, golden, row, share_s, stateful=stateful)
                if eager is None
                else _beside(worker, eager, golden, row, share_s, stateful=stateful)
            )
    return rows


def _alone(worker: Caller, golden: Golden, row: Row, budget_s: float, *, stateful: bool) -> Row:
    def samples(count: int) -> list[float]:
        return worker.time(golden.inputs, entry_point=golden.entry_point, samples=count, reset=stateful)

    start = time.monotonic()
    once_us = statistics.median(samples(_WARM_UP))
    left_s = budget_s - (time.monotonic() - start)
    found = samples(max(1, min(_MOST_SAMPLES, int(left_s * 1e6 / once_us))))
    return replace(
        row,
        samples=len(found),
        median_us=statistics.median(found),
        p90_us=statistics.quantiles(found, n=10)[-1] if len(found) > 1 else found[0],
    )


def _beside(
    worker: Caller, eager: Eager, golden: Golden, row: Row, budget_s: float, *, stateful: bool
) -> Row:
    from aotpipe.validate import latency

    found = latency.measure(worker, eager, golden, stateful=stateful, budget_s=budget_s)
    return replace(
        row,
        samples=found.samples,
        median_us=found.median_us,
        p90_us=found.p90_us,
        eager_median_us=found.eager_median_us,
        eager_p90_us=found.eager_p90_us,
    )
