"""`for` over numbers of which only a run of the graph knows how many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aotpipe.canonicalize.trace import fixpoint, regions, torch_functions
from aotpipe.canonicalize.values import host_scalars
from aotpipe.canonicalize.values.abstract_values import Variables
from aotpipe.canonicalize.values.refusals import refusal

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TensorRange:
    """`range` of traced tensors."""

    start: Any
    stop: Any
    step: Any
    most: Any = None

    @classmethod
    def of(cls, ends: Sequence[Any]) -> TensorRange:
        """From the arguments of `range`."""
        start, stop, step = (0, ends[0], 1) if len(ends) == 1 else (*ends, 1)[:3]
        if not isinstance(step, int):
            raise refusal("a range has a tensor as its step", "give a step that is a number")
        start, stop = (
            host_scalars.item(torch_functions.as_tensor(each)) if torch_functions.is_traced(each) else each
            for each in (start, stop)
        )
        return cls(start, stop, step)

    @property
    def iterations(self) -> Any:
        """How many numbers it has at most, where that is known before the run."""
        if self.most is not None:
            return self.most
        return fixpoint.most_in_range(self.start, self.stop, self.step)

    def __iter__(self) -> Any:
        """A range is not written out."""
        raise refusal(
            "a range whose length is known to a run of the graph only is used other than by a `for`",
            "loop over it with `for`, or over a range of known length with a test inside",
        )


def counted(
    items: TensorRange,
    body: Callable[[Any], None],
    stopped: Callable[[], object],
    variables: Variables,
) -> None:
    """`for item in range(...): body(item)`, until `stopped`, as one op."""
    index: list[Any] = [items.start]

    def test() -> object:
        at = index[0]
        left = at < items.stop if items.step > 0 else at > items.stop
        stop = stopped()
        if torch_functions.is_traced(stop):
            return torch_functions.predicate(left).logical_and(torch_functions.predicate(stop).logical_not())
        return left

    def iteration() -> None:
        at = index[0]
        body(at)
        index[0] = at + items.step

    iteration.__wrapped__ = body  # type: ignore[attr-defined]  # whose place in the source is the loop's

    def read() -> Values:
        return (index[0], *variables.get())

    def write(values: Values) -> None:
        index[0] = values[0]
        variables.set(values[1:])

    names = ("the index", *variables.names)
    dead = [at + 1 for at in variables.dead]
    regions.loop(
        test, iteration, Variables(read, write, names, variables.watched, dead), most=items.iterations
    )
