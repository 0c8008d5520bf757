"""The chain of a bundle with islands: its steps in order, why each island is one, and what time each takes.

`steps(path)` runs the first recorded call of each entry point some times in this process. A bundle without
islands is one step per entry point. Torch-free, but for islands that take torch's tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal

from aotpipe.core.serialization import Serializable
from aotpipe.core.targets import Target
from aotpipe.errors import BundleError, SourceLine
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle.load import load
from aotpipe.runtime.goldens import examples
from aotpipe.runtime.islands.chain_runner import ChainRunner, StepTime

CALLS: Final = 20
_WARM_UP: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Serializable):
    """One step of a chain.

    Attributes:
        kind: A segment of the `program`, a marked `function`, or an `op` without a lowering.
        reason: Why an island is one.
        median_us: Of a call, over the calls that were made.
        share: Of the time of the whole call.
    """

    entry_point: str
    kind: Literal["program", "function", "op"]
    name: str
    where: SourceLine | None
    reason: str
    calls: int
    median_us: float
    share: float


def steps(
    path: str | PathLike[str],
    target: str | Target | None = None,
    *,
    calls: int = CALLS,
    islands: Mapping[str, Callable[..., Any]] | None = None,
) -> tuple[Step, ...]:
    """Run a bundle's chains and time each step.

    Args:
        path: The bundle's folder.
        target: Which program; the best that this host can run where None.
        calls: How many calls of each entry point.
        islands: As for `load`.

    Raises:
        BundleError: The bundle has no islands, or cannot be used on this host.
    """
    root = Path(path)
    manifest = files.read_manifest(root)
    if manifest.parts is None:
        raise BundleError(
            f"the bundle at {root} has no islands",
            reason="each entry point is one program",
            hint="`aotpipe bench` times it",
        )
    first = examples(files.goldens(root, manifest))
    with load(root, target, islands=islands) as runner:
        assert isinstance(runner, ChainRunner)
        for samples in (_WARM_UP, calls):
            runner.forget_times()
            for golden in first:
                runner.time(golden.inputs, entry_point=golden.entry_point, samples=samples, reset=True)
        times = runner.times()
    names = {golden.entry_point for golden in first}
    total_us = {name: sum(each.median_us for each in times if each.entry_point == name) for name in names}
    return tuple(_step(runner, each, total_us[each.entry_point]) for each in times)


def _step(runner: ChainRunner, timed: StepTime, total_us: float) -> Step:
    islands = {each.name: each for each in runner.parts.islands} if timed.is_island else {}
    island = islands.get(timed.name)
    return Step(
        entry_point=timed.entry_point,
        kind=island.kind if island else "program",
        name=timed.name,
        where=island.where if island else None,
        reason=island.reason if island else "",
        calls=timed.calls,
        median_us=timed.median_us,
        share=timed.median_us / total_us if total_us else 0.0,
    )
