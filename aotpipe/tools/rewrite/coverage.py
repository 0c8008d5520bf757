"""Counts which way the branches and loops of a written file go, and how often.

`counting(path)` counts the calls of `torch.cond` and `torch.while_loop` in that file: the truth of the test,
and the iterations of the loop.
"""

from __future__ import annotations

import ast
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, get_args

import torch

What = Literal["cond", "while_loop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How one branch or loop went.

    Attributes:
        what: Which it is.
        line: Of the written file.
        then, otherwise: How often each side of a branch was taken.
        seen: How often a loop made no iteration, one, and more.
        most: The most iterations of a loop.
    """

    what: What
    line: int
    then: int = 0
    otherwise: int = 0
    seen: tuple[int, int, int] = (0, 0, 0)
    most: int = 0

    @property
    def is_full(self) -> bool:
        """Whether it went every way: both sides, or no iteration, one and more."""
        return bool(self.then and self.otherwise) if self.what == "cond" else all(self.seen)

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        made: dict[str, Any] = {"what": self.what, "line": self.line, "full": self.is_full}
        if self.what == "cond":
            return {**made, "true": self.then, "false": self.otherwise}
        return {
            **made,
            "no_trip": self.seen[0],
            "one_trip": self.seen[1],
            "more": self.seen[2],
            "most": self.most,
        }

    def __str__(self) -> str:
        if self.what == "cond":
            return f"line {self.line}: torch.cond, {self.then} times true, {self.otherwise} times false"
        none, one, many = self.seen
        return (
            f"line {self.line}: torch.while_loop, {none} times without an iteration, {one} with one, "
            f"{many} with more (at most {self.most})"
        )


_MOST_S: Final = 100.0


@dataclass(slots=True)
class _Counter:
    """How often one call of an op went each way: false and true, or no iteration, one and more."""

    what: What
    line: int
    ways: list[int] = field(default_factory=lambda: [0, 0, 0])
    most: int = 0

    def coverage(self) -> Coverage:
        if self.what == "cond":
            return Coverage(what="cond", line=self.line, then=self.ways[1], otherwise=self.ways[0])
        none, one, many = self.ways
        return Coverage(what="while_loop", line=self.line, seen=(none, one, many), most=self.most)


class Counters:
    """Counts how the calls of `torch.cond` and `torch.while_loop` in a file go."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._deadline = time.monotonic() + _MOST_S
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
        self._counters = {
            (node.lineno, node.col_offset): _Counter(what, node.lineno)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            for what in get_args(What)
            if ast.unparse(node.func) in (f"torch.{what}", f"torch.ops.higher_order.{what}")
        }

    def counting(self, what: What, op: Callable[..., Any]) -> Callable[..., Any]:
        """The op, counting what the watched file calls it with."""

        def cond(test: Any, *args: Any, **kwargs: Any) -> Any:
            if (counter := self._counter(sys._getframe(1))) is not None:  # noqa: SLF001  # the code that calls
                counter.ways[bool(test)] += 1
            return op(test, *args, **kwargs)

        def while_loop(test: Any, body: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            counter = self._counter(sys._getframe(1))  # noqa: SLF001  # the code that calls
            if counter is None:
                return op(test, body, *args, **kwargs)
            iterations = 0

            def counted(*carried: Any) -> Any:
                nonlocal iterations
                iterations += 1
                if time.monotonic() > self._deadline:
                    raise TimeoutError(f"the loop of line {counter.line} has no end")
                return body(*carried)

            result = op(test, counted, *args, **kwargs)
            counter.ways[min(iterations, 2)] += 1
            counter.most = max(counter.most, iterations)
            return result

        return cond if what == "cond" else while_loop

    def _counter(self, frame: FrameType) -> _Counter | None:
        if frame.f_code.co_filename != self._path:
            return None
        line, _, column, _ = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        return self._counters.get((line, column)) if line is not None and column is not None else None

    def coverage(self) -> tuple[Coverage, ...]:
        """How each went so far, in the order of the lines."""
        return tuple(self._counters[place].coverage() for place in sorted(self._counters))

    def is_covered(self) -> bool:
        """Whether each went every way."""
        return all(each.is_full for each in self.coverage())


@contextmanager
def counting(path: str) -> Iterator[Counters]:
    """Count the branches and loops of a file while the body runs."""
    counters = Counters(path)
    owners: tuple[Any, ...] = (torch, torch.ops.higher_order)
    originals = [(owner, what, getattr(owner, what)) for owner in owners for what in get_args(What)]
    try:
        for owner, what, op in originals:
            setattr(owner, what, counters.counting(what, op))
        yield counters
    finally:
        for owner, what, op in originals:
            setattr(owner, what, op)


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
