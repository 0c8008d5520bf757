"""How the branches and loops of a written file go: which ways, how often, and inputs that take others.

`counting(path)` counts the calls of `torch.cond` and `torch.while_loop` in that file: the truth of the test,
and the iterations of the loop. `variants` gives inputs that make a model go other ways than its example does.
All tensors at once in each of these ways, then each by itself, then drawn anew with other seeds:

    floats          negated, a tenth, three times plus one, a hundred times, zeros, turned around
    whole numbers   turned around, numbered; those of no dimensions also 0, 1, 2 and twice as large
    bools           all False, all True, negated

A declared value range is kept.
"""

from __future__ import annotations

import ast
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, get_args

import numpy as np
import torch

from aotpipe.canonicalize.values.trace import assigned
from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.validate.inputs import draw

What = Literal["cond", "while_loop"]
Change = Callable[[Array], Array]
_MOST_S: Final = 100.0
_SEEDS: Final = 24

# The kinds of numpy: floats, bools, whole numbers; whole numbers of no dimensions have others.
_CHANGES: Final[Mapping[str, Mapping[str, Change]]] = {
    "f": {
        "negated": np.negative,
        "a tenth": lambda array: array * 0.1,
        "three times plus one": lambda array: array * 3 + 1,
        "a hundred times": lambda array: array * 100,
        "zeros": np.zeros_like,
        "turned around": np.flip,
    },
    "b": {"all False": np.zeros_like, "all True": np.ones_like, "negated": np.logical_not},
    "i": {
        "turned around": np.flip,
        "numbered": lambda array: np.arange(array.size) % (int(array.max(initial=0)) + 2),
    },
}
_SCALARS: Final[Mapping[str, Change]] = {
    "0": np.zeros_like,
    "1": np.ones_like,
    "2": lambda array: np.full_like(array, 2),
    "twice": lambda array: array * 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How one branch or loop went.

    Attributes:
        line: Of the written file.
        counts: How often a branch's test had each truth, or a loop made each number of iterations.
    """

    what: What
    line: int
    counts: Counter[int] = field(default_factory=Counter)

    @property
    def ways(self) -> dict[str, int]:
        """How often it went each way: both sides of a branch; no iteration of a loop, one, and more."""
        none, one = self.counts[0], self.counts[1]
        if self.what == "cond":
            return {"true": one, "false": none}
        return {"no_trip": none, "one_trip": one, "more": self.counts.total() - none - one}

    @property
    def most(self) -> int:
        """The most iterations of a loop."""
        return max(self.counts, default=0)

    @property
    def is_full(self) -> bool:
        """Whether it went every way."""
        return all(self.ways.values())

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        most = {"most": self.most} if self.what == "while_loop" else {}
        return {"what": self.what, "line": self.line, "full": self.is_full, **self.ways, **most}

    def __str__(self) -> str:
        if self.what == "cond":
            true, false = self.ways.values()
            return f"line {self.line}: torch.cond, {true} times true, {false} times false"
        none, one, many = self.ways.values()
        return (
            f"line {self.line}: torch.while_loop, {none} times without an iteration, {one} with one, "
            f"{many} with more (at most {self.most})"
        )


class Counters:
    """Counts how the calls of `torch.cond` and `torch.while_loop` in a file go."""

    def __init__(self, path: str, most_s: float) -> None:
        self._path = path
        self._deadline = time.monotonic() + most_s
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
        self._counters = {
            (node.lineno, node.col_offset): Coverage(what=what, line=node.lineno)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            for what in get_args(What)
            if ast.unparse(node.func) in (f"torch.{what}", f"torch.ops.higher_order.{what}")
        }

    def counting(self, what: What, op: Callable[..., Any]) -> Callable[..., Any]:
        """The op, counting what the watched file calls it with."""

        def called(test: Any, *args: Any, **kwargs: Any) -> Any:
            counter = self._counter(sys._getframe(1))  # noqa: SLF001  # the code that calls
            if counter is not None and what == "cond":
                counter.counts[bool(test)] += 1
            if counter is None or what == "cond":
                return op(test, *args, **kwargs)
            body, *rest = args
            iterations = 0

            def counted(*carried: Any) -> Any:
                nonlocal iterations
                iterations += 1
                if time.monotonic() > self._deadline:
                    raise TimeoutError(f"the loop of line {counter.line} has no end")
                return body(*carried)

            result = op(test, counted, *rest, **kwargs)
            counter.counts[iterations] += 1
            return result

        return called

    def _counter(self, frame: FrameType) -> Coverage | None:
        if frame.f_code.co_filename != self._path:
            return None
        line, _, column, _ = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        return self._counters.get((line, column)) if line is not None and column is not None else None

    def coverage(self) -> tuple[Coverage, ...]:
        """How each went so far, in the order of the lines."""
        return tuple(self._counters[place] for place in sorted(self._counters))

    def is_covered(self) -> bool:
        """Whether each went every way."""
        return all(each.is_full for each in self.coverage())


@contextmanager
def counting(path: str, most_s: float = _MOST_S) -> Iterator[Counters]:
    """Count the branches and loops of a file while the body runs; a loop raises after so long."""
    counters = Counters(path, most_s)

    def counted(owner: object) -> dict[str, Any]:
        return {what: counters.counting(what, getattr(owner, what)) for what in get_args(What)}

    of_graphs = torch.ops.higher_order
    with assigned(torch, **counted(torch)), assigned(of_graphs, **counted(of_graphs)):
        yield counters


@contextmanager
def limited() -> Iterator[None]:
    """Let the body run for so long only.

    Raises:
        TimeoutError: It took longer: a loop may have no end.
    """
    deadline = time.monotonic() + _MOST_S

    def listen(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and time.monotonic() > deadline:
            raise TimeoutError(f"{frame.f_code.co_name} is called without end")

    before = sys.getprofile()
    sys.setprofile(listen)
    try:
        yield
    finally:
        # A profiler written in C cannot be given back to Python.
        sys.setprofile(before if callable(before) else None)


def variants(
    signature: Signature, example: Mapping[str, Array], seed: int
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Calls of one entry point, each with what was done to the example."""
    specs = {spec.name: spec for spec in signature.tensor_inputs}
    ways: dict[str, Mapping[str, Change]] = {}
    for name, array in example.items():
        kind = array.dtype.kind.replace("u", "i")
        ways[name] = _SCALARS if kind == "i" and not array.ndim else _CHANGES.get(kind, {})

    def changed(inputs: Mapping[str, Array], changes: Mapping[str, Change]) -> dict[str, Array]:
        return {**inputs, **{name: _kept(specs[name], inputs[name], how) for name, how in changes.items()}}

    for name, mine in ways.items():
        for how, change in mine.items():
            yield f"{name} {how}", changed(example, {name: change})
    for how in dict.fromkeys(how for mine in ways.values() for how in mine):
        yield f"all {how}", changed(example, {name: mine[how] for name, mine in ways.items() if how in mine})
    floats = [name for name, array in example.items() if array.dtype.kind == "f"]
    for number in range(_SEEDS):
        random = np.random.default_rng([seed, 7, number])
        drawn = {name: draw(specs[name], array.shape, array, random) for name, array in example.items()}
        yield f"drawn {number}", drawn
        scale = 10.0 ** float(random.uniform(-2, 2))
        larger = dict.fromkeys(floats, partial(np.multiply, scale))
        yield f"drawn {number} times {scale:.3g}", changed(drawn, larger)


def _kept(spec: TensorSpec, array: Array, change: Change) -> Array:
    """A changed array of the old dtype, within its value range."""
    changed = np.asarray(change(array))
    if spec.value_range is not None:
        changed = np.clip(changed, *spec.value_range)
    return np.ascontiguousarray(changed).astype(array.dtype).reshape(array.shape)
