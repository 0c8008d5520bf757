"""A `for` over a range as a counter that a loop carries."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from aotpipe.canonicalize.rewrite.ast_builders import assign
from aotpipe.tools.rewrite import liveness
from aotpipe.tools.rewrite.expression_rewrites import Unstaged
from aotpipe.tools.rewrite.expressions import name


@dataclass(frozen=True, slots=True)
class Counter:
    """What counts a loop.

    Attributes:
        index: The variable that counts: the loop's own where it can be.
        before: What is computed before the loop.
        test: Whether it goes on.
        begin: The first count.
        step: From trip to trip.
    """

    index: str
    before: list[ast.stmt]
    test: ast.expr
    begin: ast.expr
    step: int


def counter(node: ast.For) -> Counter:
    """The counter of a `for`.

    Raises:
        Unstaged: It goes over other things than a range, or one that begins with something computed.
    """
    items = node.iter
    is_range = isinstance(items, ast.Call) and isinstance(items.func, ast.Name) and items.func.id == "range"
    if not is_range or not isinstance(items, ast.Call) or not isinstance(node.target, ast.Name):
        raise Unstaged("a loop over other things than a range", node)
    bounds = [ast.Constant(0), *items.args] if len(items.args) == 1 else list(items.args)
    begin, stop = bounds[:2]
    if not isinstance(begin, ast.Constant | ast.Name):
        raise Unstaged("a range begins with something that is computed", node)
    try:
        step = int(ast.literal_eval(bounds[2])) if len(bounds) == 3 else 1
    except ValueError:
        raise Unstaged("a range has a step that is computed", node) from None
    before: list[ast.stmt] = []
    if not isinstance(stop, ast.Name | ast.Constant | ast.Attribute):
        before.append(assign("count", stop))
        stop = name("count")
    used = node.target.id
    index = used if not used.startswith("_") and used not in liveness.assigned(node.body) else "index"
    order = ast.Lt() if step > 0 else ast.Gt()
    return Counter(index, before, ast.Compare(name(index), [order], [stop]), begin, step)
