"""Turns `(name := value)` into statements where an operator would keep the name to itself, or lose it.

What is computed at times only (`a and (n := b)`), or in every iteration of a loop, becomes a function of its
own when it is staged, and a walrus in that one would assign a variable of it. So it is written out, in order:

    if a and (n := f(b)) > 1: ...          value = a
                                           if value:
                                               n = f(b)
                                               value = n > 1
                                           if value: ...

Those inside of lambdas, comprehensions and texts stay where they are.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Final, NamedTuple

from aotpipe.canonicalize.rewrite.ast_builders import COMPREHENSIONS, SCOPES, assign, blocks

_VALUE: Final = "__aotpipe_value"
_CLOSED: Final = (*COMPREHENSIONS, *SCOPES, ast.JoinedStr)
# What can be computed twice with nothing coming of it.
_PURE: Final = (
    ast.Name,
    ast.Constant,
    ast.Attribute,
    ast.Compare,
    ast.BoolOp,
    ast.UnaryOp,
    ast.BinOp,
    ast.cmpop,
    ast.boolop,
    ast.unaryop,
    ast.operator,
    ast.expr_context,
)


class LoopTest(NamedTuple):
    """The test of a loop, written out.

    Attributes:
        before: Goes before the loop.
        again: Goes to the end of an iteration.
        test: What is left.
    """

    before: list[ast.stmt]
    again: list[ast.stmt]
    test: ast.expr


class Walrus:
    """Writes out the walruses of one function."""

    def __init__(self) -> None:
        self._count = 0

    def lower(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements without walruses that are computed at times only; those in tests of loops are left."""
        return [written for node in body for written in self._statement(node)]

    def loop(self, test: ast.expr) -> LoopTest:
        """The test of a `while`; what comes before its first walrus stays its own."""
        going = self._name()
        is_and = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
        found = list(test.values) if isinstance(test, ast.BoolOp) and is_and else [test]
        split = next(at for at, each in enumerate(found) if assigns(each))
        if not all(map(_is_pure, found[:split])):
            split = 0
        kept, rest = found[:split], found[split:]
        decided = rest[0] if len(rest) == 1 else ast.BoolOp(ast.And(), rest)

        def computed() -> list[ast.stmt]:
            made: list[ast.stmt] = []
            made.append(assign(going, self._expression(copy.deepcopy(decided), made)))
            return [ast.If(_all_of(copy.deepcopy(kept)), made, [])] if kept else made

        before = [assign(going, ast.Constant(False)), *computed()]
        return LoopTest(before, computed(), _all_of([*kept, ast.Name(going, ast.Load())]))

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, SCOPES):
            return [node]
        for block in blocks(node):
            block[:] = self.lower(block)
        before: list[ast.stmt] = []
        for field in _FIELDS.get(type(node), ()):
            value = getattr(node, field)
            if value is not None and _is_at_times(value):
                setattr(node, field, self._expression(value, before))
        return [*(ast.copy_location(each, node) for each in before), node]

    def _expression(self, node: ast.expr, before: list[ast.stmt]) -> ast.expr:
        """An expression of the same value, after statements that are added to those before it."""
        if not assigns(node):
            return node
        if isinstance(node, ast.NamedExpr):
            before.append(assign(node.target.id, self._expression(node.value, before)))
            return ast.Name(node.target.id, ast.Load())
        if isinstance(node, ast.BoolOp):
            return self._logic(node, before)
        if isinstance(node, ast.IfExp):
            test = self._expression(node.test, before)
            name = self._name()
            before.append(ast.If(test, self._into(name, node.body), self._into(name, node.orelse)))
            return ast.Name(name, ast.Load())
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            return self._chain(node, before)
        self._operands(node, before)
        return node

    def _logic(self, node: ast.BoolOp, before: list[ast.stmt]) -> ast.expr:
        name = self._name()
        first, *rest = node.values
        before.append(assign(name, self._expression(first, before)))
        for value in rest:
            read: ast.expr = ast.Name(name, ast.Load())
            test = read if isinstance(node.op, ast.And) else ast.UnaryOp(ast.Not(), read)
            inner = self._into(name, value)
            before.append(ast.If(test, inner, []))
            before = inner
        return ast.Name(name, ast.Load())

    def _chain(self, node: ast.Compare, before: list[ast.stmt]) -> ast.expr:
        name = self._name()
        left = self._spilled(node.left, before)
        for at, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            if at:
                inner: list[ast.stmt] = []
                before.append(ast.If(ast.Name(name, ast.Load()), inner, []))
                before = inner
            value = self._spilled(right, before)
            before.append(assign(name, ast.Compare(copy.deepcopy(left), [op], [value])))
            left = copy.deepcopy(value)
        return ast.Name(name, ast.Load())

    def _operands(self, node: ast.AST, before: list[ast.stmt]) -> None:
        """Write out the operands of a node; what is computed before one that assigns is kept."""
        places = [
            (field, at, each)
            for field, value in ast.iter_fields(node)
            for at, each in enumerate(value if isinstance(value, list) else [value])
            if isinstance(each, ast.expr | ast.keyword)
        ]
        last = max((at for at, (_, _, each) in enumerate(places) if assigns(each)), default=-1)
        for at, (field, index, each) in enumerate(places[: last + 1]):
            made: ast.AST = each
            if isinstance(each, ast.keyword | ast.Starred):
                each.value = self._spilled(each.value, before)
            elif isinstance(each, ast.Slice):
                self._operands(each, before)
            elif isinstance(each, ast.expr):
                made = self._spilled(each, before) if at < last else self._expression(each, before)
            value = getattr(node, field)
            if isinstance(value, list):
                value[index] = made
            else:
                setattr(node, field, made)

    def _spilled(self, node: ast.expr, before: list[ast.stmt]) -> ast.expr:
        """A value that what comes later does not change."""
        if isinstance(node, ast.Constant):
            return node
        name = self._name()
        before.append(assign(name, self._expression(node, before)))
        return ast.Name(name, ast.Load())

    def _into(self, name: str, value: ast.expr) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        made.append(assign(name, self._expression(value, made)))
        return made

    def _name(self) -> str:
        self._count += 1
        return f"{_VALUE}_{self._count}"


# The expressions of a statement that are computed first, and once.
_FIELDS: Final[dict[type[ast.stmt], tuple[str, ...]]] = {
    ast.If: ("test",),
    ast.Assert: ("test",),
    ast.For: ("iter",),
    ast.Assign: ("value",),
    ast.Return: ("value",),
    ast.Expr: ("value",),
    ast.Raise: ("exc",),
}


def _all_of(tests: list[ast.expr]) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)


def assigns(node: ast.AST) -> bool:
    """Whether a walrus is in an expression that can be written out."""
    if isinstance(node, ast.NamedExpr):
        return True
    return not isinstance(node, _CLOSED) and any(map(assigns, ast.iter_child_nodes(node)))


def _is_at_times(node: ast.AST) -> bool:
    """Whether a walrus is in what is computed at times only."""
    if isinstance(node, ast.BoolOp | ast.IfExp) or (isinstance(node, ast.Compare) and len(node.ops) > 1):
        return assigns(node)
    return not isinstance(node, _CLOSED) and any(map(_is_at_times, ast.iter_child_nodes(node)))


def _is_pure(node: ast.expr) -> bool:
    """Whether an expression may be computed twice; `len(items)` may."""
    if isinstance(node, ast.Call):
        sized = isinstance(node.func, ast.Name) and node.func.id == "len" and not node.keywords
        return sized and all(map(_is_pure, node.args))
    if not isinstance(node, _PURE):
        return False
    return all(_is_pure(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))


__all__ = ["LoopTest", "Walrus", "assigns"]
