"""What a node of a graph is: its op, who reads it, the user's line behind it, and the name of its result."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.errors import SourceLine
from aotpipe.model import source
from aotpipe.tools.rewrite import no_ops, op_syntax
from aotpipe.tools.rewrite.expressions import call
from aotpipe.tools.rewrite.torch_ops import (
    ATEN,
    is_higher,
    is_op,
    name_of,
    name_of_higher,
    schema_of,
    short_of,
)


def at(graph: GraphModule, path: str) -> Any:
    """What a graph's module has under a dotted name; None where it has nothing."""
    found: Any = graph
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def is_effect(node: Node) -> bool:
    """Whether a node is there for more than its result."""
    if node.op != "call_function":
        return False
    if is_higher(node.target):
        return True
    return op_syntax.is_effect(node.target) and name_of(node.target) not in op_syntax.NO_OPS


def unused(nodes: Sequence[Node]) -> set[Node]:
    """What nothing reads, and is there for its result only."""
    dead: set[Node] = set()
    for node in reversed(nodes):
        if node.op in ("call_function", "get_attr") and not is_effect(node) and dead.issuperset(node.users):
            dead.add(node)
    return dead


def parts(node: Node) -> Mapping[int, list[Node]]:
    """The nodes that take one part each of a node's result; none where anything takes the whole."""
    found: dict[int, list[Node]] = {}
    value = node.meta.get("val")
    if not isinstance(value, tuple | list):
        return {}
    for user in node.users:
        if user.target is not operator.getitem or not isinstance(user.args[1], int):
            return {}
        found.setdefault(user.args[1], []).append(user)
    return found


def only_user(node: Node) -> tuple[Node, Node] | None:
    """The one node that reads a result, and the node as which it does so; None where there are more."""
    if len(node.users) != 1:
        return None
    [user] = node.users
    return only_user(user) if no_ops.replacement(user) is node else (user, node)


def is_single(node: Node) -> bool:
    """Whether a node is a branch that gives one tensor."""
    target = node.target
    is_cond = name_of_higher(target) == "cond"
    return is_cond and len(node.meta.get("val") or ()) == 1 and set(parts(node)) == {0}


def times(user: Node, node: Node) -> int:
    """How often a node stands among another's arguments."""
    count = 0

    def counted(each: Node) -> Node:
        nonlocal count
        count += each is node
        return each

    torch.fx.node.map_arg((user.args, user.kwargs), counted)
    return count


def short(node: Node) -> str:
    """What a result is called for its op: `linear` for `aten.linear.default`."""
    target = node.target
    if target is operator.getitem:
        return part_name(*node.args)
    if is_op(target):
        return short_of(target).strip("_")
    return str(node.name).rstrip("0123456789").rstrip("_") or str(node.name)


def part_name(whole: Any, index: Any) -> str:
    """What a part of a result is called: `values` and `indices` of topk, `chosen` of a branch."""
    op = whole.target if isinstance(whole, Node) else None
    if is_higher(op):
        return {"cond": "chosen", "while_loop": "final"}.get(name_of_higher(op), "result")
    if is_op(op):
        returns = schema_of(op).returns
        if isinstance(index, int) and index < len(returns) and returns[index].name:
            return str(returns[index].name)
        return f"{short_of(op).strip('_')}_part"
    return "part"


def index_op(node: Node, args: Sequence[ast.expr]) -> ast.expr | None:
    """An index of no dimensions as the op: Python's brackets would ask it for its value."""
    if node.target is not ATEN.index.Tensor:
        return None
    indices: Any = node.args[1]
    if any(isinstance(each, Node) and each.meta["val"].dim() == 0 for each in indices):
        return call("torch.ops.aten.index.Tensor", *args)
    return None


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
