"""Looks for calls that reach what the planned ones do not, seeded and bounded in work.

A run of calls begins with a reset. Of each run the search knows what it reached and, for each goal that it
came near, how far it was from it (`distance`). It then takes the nearest run and changes its inputs: along
the gradient of the distance where there is one, else at random, one input or one element at a time; a
change that comes nearer is kept. First it tries values unlike the example's.

A goal that is reached only within rounding is looked for farther on: float64 might decide otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Final, cast

import ml_dtypes
import numpy as np
import torch

from aotpipe.core.dtypes import Array, is_inexact
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.validate.coverage import goals
from aotpipe.validate.coverage.distance import distance
from aotpipe.validate.coverage.goals import Key, Target
from aotpipe.validate.coverage.interpreter import ASSERTS, Decision, Interpreter, TooLong, Trace
from aotpipe.validate.inputs import Call, fitted

Run = tuple[Call, ...]
MOST_WORK: Final = 150_000
"""Of all searches of one model together, in ops and multiply-adds / 20,000: some seconds on one core.

The planned runs may take as much before.

A limit of seconds would find other calls on each machine, and make other bundles.
"""
_MOST_OF_ONE: Final = MOST_WORK // 4
_MULTIPLY_ADDS: Final = 20_000
"""As many as a core does in the time of an op."""
_PLANNED_MULTIPLY_ADDS: Final = 8 * _MULTIPLY_ADDS
"""Of planned runs, which eager has made already: all may take as many as it is asked for in float64."""
_BACKWARD: Final = 3
"""How much longer a run takes of which gradients are asked for."""
_FUTILE: Final = 24
"""So many changes in a row that bring nothing nearer end the search for a goal for this time."""
_PATIENCE: Final = (1, 4)
"""How many times as many they are in each round over the goals that are no options."""
_STEPS: Final = (1.05, 2.0, 8.0, 0.5, 64.0)
"""How far along the gradient: 1 is where a linear distance would be 0."""
_WIGGLE: Final = 1e-4
_POOL, _FIRST = 256, 64
_LARGE: Final = 2**31
_LONGEST, _LONGER = 16, 0.4
"""How many calls a run may have, of a model with state, and how often one is added."""


@dataclass(slots=True, eq=False)
class Seen:
    """What is known of a run: what its calls reached, and how far it was from the goals that it came near."""

    run: Run
    reached: Mapping[Key, int]
    costs: dict[Key, float] = field(default_factory=dict)
    answered: int = 0
    refused: bool = False


class Search:
    """The goals of a model, and the runs that reached them.

    `accept` is asked of a run that reaches something new whether eager takes it: then it is one to compare.
    `products` says how many multiply-adds a call takes.

    Attributes:
        targets: Everything to reach.
        by: The first call that reached each goal.
        notes: Why runs that eager answers say less than they should: the interpreter's faults.
        unseen: How many of them were too dear to look at.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        targets: Mapping[Key, Target],
        signatures: Mapping[str, Signature],
        seed: int,
        *,
        accept: Callable[[Seen], bool],
        products: Callable[[Call], float] = lambda _: 0.0,
        most_work: int = MOST_WORK,
    ) -> None:
        self._accept = accept
        self._interpreter = interpreter
        self.targets = targets
        self.by: dict[Key, Call] = {}
        self.notes: list[str] = []
        self.unseen = 0
        self._entered: set[str] = set()
        self._signatures = signatures
        self._has_state = any(signature.state for signature in signatures.values())
        self._random = np.random.default_rng([seed, 20_011])
        self._pool: list[Seen] = []
        self._products = products
        self._most_work = self._left = most_work
        self._numbers = count(1)

    @property
    def open(self) -> list[Key]:
        """What no run has reached."""
        return [key for key in self.targets if key not in self.by]

    @property
    def is_over(self) -> bool:
        """Whether all work is done that may be."""
        return self._left < 0

    def observe(self, run: Run) -> None:
        """Run calls that eager answers and note what they reach; the first of an entry point at any cost."""
        entered = {call.entry_point for call in run}
        trace = None if self.is_over else self._traced(run, rate=_PLANNED_MULTIPLY_ADDS)
        if trace is None and not entered <= self._entered:
            with suppress(TooLong):
                trace = self._interpreter.run(run, limit=None)
        self._entered |= entered
        if trace is None:
            self.unseen += 1
            return
        if trace.answered < len(run):
            call = run[trace.answered]
            self.notes.append(
                f"{call.entry_point}, {call.case}: eager answers, and in the program {trace.fault}"
            )
        self._note(self._seen(run, trace))

    def _seen(self, run: Run, trace: Trace) -> Seen:
        costs = {key: cost for key in self.open if (cost := self._cost(trace, key)) is not None}
        return Seen(
            run,
            goals.reached(trace, self.targets),
            {key: _number(cost) for key, cost in costs.items()},
            trace.answered,
            trace.refused,
        )

    def _traced(self, run: Run, *, gradients: bool = False, rate: int = _MULTIPLY_ADDS) -> Trace | None:
        """Run calls op by op; None where that takes too long."""
        factor = _BACKWARD if gradients else 1
        products = int(sum(map(self._products, run)) / rate)
        limit = _MOST_OF_ONE // factor - products
        if limit < 0:
            self._left -= 1
            return None
        try:
            trace = self._interpreter.run(run, limit=limit, gradients=gradients)
        except TooLong:
            self._left -= _MOST_OF_ONE
            return None
        self._left -= factor * (trace.work + products)
        return trace

    def _note(self, seen: Seen) -> None:
        self._pool.append(seen)
        for key, number in seen.reached.items():
            self.by.setdefault(key, seen.run[number])

    def look(self, unlike: Iterable[Run]) -> None:
        """Try runs, then change the nearest ones, until every goal is reached or the work is done."""
        self._left = self._most_work
        for run in unlike:
            if not self.open or self.is_over:
                return
            self._try(self._named(run))
        # What comes near to an inner goal may be found by the search for an outer one.
        for optional in (False, True):
            for patience in _PATIENCE[: 1 if optional else None]:
                self._approach_all(patience, optional=optional)

    def _approach_all(self, patience: int, *, optional: bool) -> None:
        """Approach each open goal, and all again while that reaches anything."""
        before = -1
        while before != len(self.by):
            before = len(self.by)
            for key in self.open:
                if not self.is_over and key not in self.by and self.targets[key].optional == optional:
                    self._approach(key, patience * _FUTILE)

    def _try(self, run: Run) -> Seen | None:
        """Observe a run; keep it where it reaches something new, also a little beside, and eager takes it."""
        if (trace := self._traced(run)) is None:
            return None
        seen = self._seen(run, trace)
        new = seen.reached.keys() - self.by.keys()
        if new and new <= self._beside(run) and self._accept(seen):
            self._note(seen)
        elif seen.costs:
            # Within rounding of its goal, or refused by eager, it is one to go on from.
            self._pool.append(seen)
        return seen

    def _beside(self, run: Run) -> KeysView[Key]:
        """What a run reaches whose floats are a little off."""
        moved = tuple(
            replace(call, inputs={n: self._wiggled(a) for n, a in call.inputs.items()}) for call in run
        )
        if (trace := self._traced(moved)) is None:
            return dict[Key, int]().keys()
        return goals.reached(trace, self.targets).keys()

    def _wiggled(self, array: Array) -> Array:
        if not is_inexact(array.dtype) or not array.size:
            return array
        wide = _wide(array)
        # In few bits less than a unit in the last place is nothing.
        unit = float(ml_dtypes.finfo(array.dtype).eps)  # type: ignore[no-untyped-call]
        factor = 1 + max(_WIGGLE, unit) * self._random.uniform(-1, 1, array.shape)
        return np.where(wide == np.rint(wide), wide, wide * factor).astype(array.dtype)

    def _approach(self, key: Key, most_futile: int) -> None:
        """Change the runs nearest to a goal until it is reached."""
        near = self._nearest(key)
        if not near:
            return
        best, futile = near[0], 0
        others = iter(near[1:4])
        while key not in self.by and not self.is_over and futile < most_futile:
            changed = self._along_gradient(best, key) if futile == 0 else None
            tried = changed if changed is not None else [self._mutated(best.run, key)]
            for run in tried:
                seen = self._try(self._named(run))
                if seen is not None and key not in self.by and changed is None:
                    # Integers have no gradient: what a change brought says how large it should have been.
                    tried += self._extrapolated(best, seen, key) if len(tried) == 1 else []
                if key in self.by:
                    return
                if seen is not None and seen.costs.get(key, math.inf) < best.costs[key]:
                    best, futile = seen, -1
                    if changed is not None:
                        break
            futile += 1
            if futile % (_FUTILE // 2) == 0 and futile and (other := next(others, None)) is not None:
                best = other
            self._trim()

    def _trim(self) -> None:
        """Keep what is near to something."""
        if len(self._pool) > _POOL:
            near = {id(seen) for key in self.open for seen in self._nearest(key)[:4]}
            self._pool = [
                seen for number, seen in enumerate(self._pool) if number < _FIRST or id(seen) in near
            ]

    def _nearest(self, key: Key) -> list[Seen]:
        """The runs that came near to a goal, the nearest first."""
        near = (seen for seen in self._pool if key in seen.costs)
        return sorted(near, key=lambda seen: seen.costs[key])

    def _along_gradient(self, seen: Seen, key: Key) -> list[Run] | None:
        """The run with its inputs moved to where the distance would be 0, if it were linear."""
        if (trace := self._traced(seen.run, gradients=True)) is None:
            return None
        try:
            with torch.enable_grad():
                cost = self._cost(trace, key)
            if cost is None or not cost.requires_grad:
                return None
            leaves = {
                (place, name): leaf for place, each in enumerate(trace.leaves) for name, leaf in each.items()
            }
            slopes = torch.autograd.grad(cost, list(leaves.values()), allow_unused=True)
        except RuntimeError:
            return None
        given = [
            (*where, slope.double().nan_to_num(0.0, 0.0, 0.0).numpy())
            for where, slope in zip(leaves, cast("Sequence[torch.Tensor | None]", slopes), strict=True)
            if slope is not None
        ]
        norm = sum(float(np.square(slope).sum()) for _, _, slope in given)
        value = float(cost.detach())
        if not norm or not math.isfinite(norm) or not math.isfinite(value):
            return None
        return [self._moved(seen.run, given, -step * max(value, _WIGGLE) / norm) for step in _STEPS]

    def _moved(self, run: Run, slopes: Sequence[tuple[int, str, Array]], factor: float) -> Run:
        calls = list(run)
        for place, name, slope in slopes:
            call = calls[place]
            spec = self._spec(call, name)
            array = call.inputs[name]
            moved = array.astype(np.float64) + factor * slope
            calls[place] = replace(call, inputs={**call.inputs, name: fitted(moved, spec)})
        return tuple(calls)

    def _extrapolated(self, old: Seen, new: Seen, key: Key) -> list[Run]:
        """The run on the line through two runs where the distance would be 0, if it were linear."""
        before, after = old.costs[key], new.costs.get(key, math.inf)
        if not math.isfinite(before - after) or before == after or len(old.run) != len(new.run):
            return []
        share = before / (before - after)
        calls = []
        for one, other in zip(old.run, new.run, strict=True):
            inputs = dict(one.inputs)
            for name, array in one.inputs.items():
                changed = other.inputs[name]
                if array.shape == changed.shape and array.dtype.kind != "b" and array is not changed:
                    with np.errstate(over="ignore", invalid="ignore"):
                        wide = _wide(array)
                        moved = wide + share * (_wide(changed) - wide)
                    inputs[name] = fitted(np.nan_to_num(moved), self._spec(one, name))
            calls.append(replace(one, inputs=inputs))
        return [tuple(calls)]

    def _mutated(self, run: Run, key: Key) -> Run:
        """The run with one input of one call, or one element of it, changed at random, or one call longer."""
        calls = list(run)
        if self._has_state and len(calls) < _LONGEST and self._random.random() < _LONGER:
            given = self._pool[int(self._random.integers(len(self._pool)))].run
            more = (calls, given)[int(self._random.integers(2))]
            calls.append(more[int(self._random.integers(len(more)))])
            return tuple(calls)
        place = int(self._random.integers(len(calls)))
        call = calls[place]
        flags = {part.flag for part in self._signatures[call.entry_point].optional}
        names = [name for name, array in call.inputs.items() if array.size and name not in flags]
        if not names:
            return run
        name = names[int(self._random.integers(len(names)))]
        spec, array = self._spec(call, name), call.inputs[name]
        # Infinities are among the numbers that it tries.
        with np.errstate(over="ignore", invalid="ignore"):
            changed = self._changed(array, spec, key)
        calls[place] = replace(call, inputs={**call.inputs, name: changed})
        return tuple(calls)

    def _changed(self, array: Array, spec: TensorSpec, key: Key) -> Array:
        random = self._random
        if array.dtype.kind == "b":
            return np.asarray(array ^ (random.random(array.shape) < random.choice([0.05, 0.5])))
        low, high = spec.value_range or (-math.inf, math.inf)
        wide = _wide(array)
        reach = float(10.0 ** random.integers(-2, 4))
        match int(random.integers(5)):
            case 0:
                wide = wide + reach * random.standard_normal()
            case 1:
                wide = wide * random.choice([-1.0, 0.0, 0.1, 10.0])
            case 2 if math.isfinite(high - low):
                wide = random.uniform(low, high, array.shape)
            case 2:
                wide = reach * random.standard_normal(array.shape)
            case 3:
                at = int(random.integers(wide.size))
                wide = wide.copy()
                wide.reshape(-1)[at] += reach * random.standard_normal()
            case _:
                # The numbers that the model compares with are numbers to try.
                more = [math.nan, math.inf] if self.targets[key].optional and not spec.value_range else [0.0]
                at = random.random(wide.shape) < random.choice([0.2, 1.0])
                wide = np.where(at, random.choice([*self._constants, *more]), wide)
        return fitted(wide, spec)

    @cached_property
    def _constants(self) -> list[float]:
        graphs = {node.graph: None for node, _ in self.targets}
        numbers = {
            float(each)
            for graph in graphs
            for node in graph.nodes
            for each in node.args
            if isinstance(each, int | float) and abs(each) < _LARGE
        }
        return sorted(numbers | {-each for each in numbers})[:_POOL]

    def _spec(self, call: Call, name: str) -> TensorSpec:
        return next(spec for spec in self._signatures[call.entry_point].tensor_inputs if spec.name == name)

    def _named(self, run: Run) -> Run:
        """The run with the words of the search for its cases."""
        number = next(self._numbers)
        many = len(run) > 1
        return tuple(
            replace(call, case=f"found {number}" + (f"/{step}" if many else ""), reset=step == 0)
            for step, call in enumerate(run)
        )

    def _cost(self, trace: Trace, key: Key) -> torch.Tensor | None:
        """How far a run was from a goal; None where it did not come to it."""
        node, what = key
        bound = self.targets[key].bound
        costs = [_off(each, what, bound) for each in trace.decisions if each.node is node and each.tests]
        return min(costs, key=_number, default=None)


def _number(cost: torch.Tensor) -> float:
    """A distance; one that is no number is farther than any that is."""
    number = float(cost.detach())
    return math.inf if math.isnan(number) else number


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _off(decision: Decision, what: str, bound: int) -> torch.Tensor:
    tests = decision.tests
    if decision.node.target in ASSERTS or what in (goals.TRUE, goals.FALSE):
        return distance(*tests[0], what == goals.TRUE)
    if what in goals.OPERANDS:
        wanted = goals.OPERANDS.index(what)
        return distance(*tests[0], bool(wanted & 2)) + distance(*tests[1], bool(wanted & 1))
    if what == goals.NONE:
        return distance(*tests[0], wanted=False)
    first = distance(*tests[0], wanted=True)
    if what in (goals.ONE, goals.MANY):
        return first + distance(*tests[1], wanted=what == goals.MANY) if len(tests) > 1 else first + 1
    last = distance(*tests[-1], wanted=True)
    return max(bound - decision.outcome, 0) + last / (1 + last)
