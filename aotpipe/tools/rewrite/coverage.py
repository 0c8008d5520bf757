"""Watches which branches and loops of a written file a run goes through, and how often.

`watching(path)` counts the calls of the local functions that stand for them:
both sides of a `torch.cond`, the test and the trip of a `torch.while_loop`.
"""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How one branch or loop went.

    Attributes:
        what: Which it is.
        line: Of the written file.
        then, otherwise: How often each side of a branch was taken.
        seen: How often a loop made no trip, one, and more.
        most: The most trips of a loop.
    """

    what: Literal["cond", "while_loop"]
    line: int
    then: int = 0
    otherwise: int = 0
    seen: tuple[int, int, int] = (0, 0, 0)
    most: int = 0

    @property
    def is_full(self) -> bool:
        """Whether it went every way: both sides, or no trip, one trip and more."""
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
            f"line {self.line}: torch.while_loop, {none} times without a trip, {one} with one, "
            f"{many} with more (at most {self.most})"
        )


_MOST_S: Final = 100.0


@dataclass(slots=True)
class _Loop:
    trips: int = 0
    running: bool = False
    seen: list[int] = field(default_factory=lambda: [0, 0, 0])
    most: int = 0

    def tested(self) -> None:
        """A test that follows no trip begins the loop anew."""
        if self.running:
            return
        self.running = True
        self.trips = 0

    def ended(self) -> None:
        if self.running:
            self.seen[min(self.trips, 2)] += 1
            self.most = max(self.most, self.trips)
            self.running = False


class Watch:
    """What the calls of a file's functions say about its branches and loops."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._deadline = time.monotonic() + _MOST_S
        self._pairs = list(_pairs(path))
        self._calls: dict[tuple[str, int], int] = {}
        self._loops: dict[tuple[str, int], _Loop] = {}
        self._ends: dict[tuple[str, int], _Loop] = {}
        for what, _, first, second in self._pairs:
            if what == "while_loop":
                self._loops[first] = self._ends[second] = _Loop()

    def entered(self, frame: FrameType) -> None:
        """A function of the file is called.

        Raises:
            TimeoutError: The run takes too long: a loop may have no end.
        """
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"{frame.f_code.co_name} is called without end")
        key = (frame.f_code.co_name, frame.f_code.co_firstlineno)
        self._calls[key] = self._calls.get(key, 0) + 1
        if key in self._loops:
            self._loops[key].tested()
        elif key in self._ends:
            self._ends[key].trips += 1

    def left(self, frame: FrameType, result: Any) -> None:
        """A function of the file returns."""
        key = (frame.f_code.co_name, frame.f_code.co_firstlineno)
        if key in self._loops and result is not None and not bool(result):
            self._loops[key].ended()

    def coverage(self) -> tuple[Coverage, ...]:
        """How each went so far."""
        return tuple(self._coverage())

    def _coverage(self) -> Iterator[Coverage]:
        for what, line, first, second in self._pairs:
            if what == "cond":
                then, otherwise = self._calls.get(first, 0), self._calls.get(second, 0)
                yield Coverage(what="cond", line=line, then=then, otherwise=otherwise)
            else:
                loop = self._loops[first]
                none, one, many = loop.seen
                yield Coverage(what="while_loop", line=line, seen=(none, one, many), most=loop.most)

    def is_covered(self) -> bool:
        """Whether each went every way."""
        return all(each.is_full for each in self._coverage())


_Pair = tuple[Literal["cond", "while_loop"], int, tuple[str, int], tuple[str, int]]


def _pairs(path: str) -> Iterator[_Pair]:
    """The branches and loops of a file: the op, its line, and both functions with their lines."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    for scope in ast.walk(tree):
        body = getattr(scope, "body", None)
        if not isinstance(body, list):
            continue
        local = {node.name: (node.name, node.lineno) for node in body if isinstance(node, ast.FunctionDef)}
        for statement in body:
            for node in _own(statement):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                arguments = node.args
                first = 1 if node.func.attr == "cond" else 0
                names = [each.id for each in arguments[first : first + 2] if isinstance(each, ast.Name)]
                if (
                    node.func.attr in ("cond", "while_loop")
                    and len(names) == 2
                    and all(n in local for n in names)
                ):
                    what: Literal["cond", "while_loop"] = "cond" if node.func.attr == "cond" else "while_loop"
                    yield what, node.lineno, local[names[0]], local[names[1]]


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return
    yield from ast.walk(statement)


@contextmanager
def watching(path: str) -> Iterator[Watch]:
    """Watch the functions of a file while the body runs."""
    watch = Watch(path)
    before = sys.getprofile()
    sys.setprofile(_listener(watch, path))
    try:
        yield watch
    finally:
        # A profiler written in C cannot be given back to Python.
        sys.setprofile(before if callable(before) else None)


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
        sys.setprofile(before if callable(before) else None)


def _listener(watch: Watch, path: str) -> Callable[[FrameType, str, Any], None]:
    def listen(frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_filename != path:
            return
        if event == "call":
            watch.entered(frame)
        elif event == "return":
            watch.left(frame, argument)

    return listen
