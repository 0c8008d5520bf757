"""Which line of the user's a node of a graph comes from, and what that line calls its result."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from torch.fx import Node

from aotpipe.errors import SourceLine
from aotpipe.model import source

_FRAME: Final = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+)')


class Lines:
    """The lines of a graph's nodes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._place = {node: _place(node) for node in nodes}
        self._last: set[Node] = set()
        computed = [node for node in nodes if node.op == "call_function"]
        for node, after in zip(computed, [*computed[1:], None], strict=True):
            if after is None or self._place[node] != self._place[after]:
                self._last.add(node)

    def is_same(self, node: Node, other: Node) -> bool:
        """Whether two nodes come from one line, as far as is known."""
        return self._place.get(node) == self._place.get(other)

    def target(self, node: Node) -> str | None:
        """The variable that a line gives its result to, where this node is the last of the line."""
        place = self._place.get(node)
        return _target(*place) if place is not None and node in self._last else None

    def where(self, node: Node) -> SourceLine | None:
        """The user's line."""
        return source.from_stack_trace(node.meta.get("stack_trace"))


def _place(node: Node) -> tuple[str, int] | None:
    """The innermost frame of a file that is not torch's own."""
    found = [(m["path"], int(m["line"])) for m in _FRAME.finditer(node.meta.get("stack_trace") or "")]
    return next((each for each in reversed(found) if source.is_model_code(each[0])), None)


def _target(path: str, line: int) -> str | None:
    return _targets(path).get(line)


@functools.lru_cache(maxsize=64)
def _targets(path: str) -> dict[int, str]:
    """For each line of a file that is a whole assignment to one variable, that variable."""
    try:
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return {}
    found: dict[int, str] = {}
    for node in ast.walk(tree):
        target = None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            target = node.target
        if isinstance(target, ast.Name) and isinstance(node, ast.stmt):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                found[line] = target.id
    return found
