"""Puts texts that are made only to be raised into the `raise`, where they may show a traced value.

    if x.min() < low:                           if x.min() < low:
        found = [f"{v:.2e}" for v in x]
        msg = f"too low: {found}"
        raise ValueError(msg)                       raise ValueError(f"too low: {[f'{v:.2e}' for v in x]}")

Nothing else can read such a variable: each read of its name in the function follows an assignment of the same
block, with a `raise` at its end.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from typing import Final

from aotpipe.canonicalize.rewrite.ast_builders import COMPREHENSIONS, SCOPES, blocks

_FUNCTIONS: Final = frozenset(
    "str repr format len type int float bool round min max sum abs list tuple set sorted zip enumerate "
    "range getattr isinstance".split()
)
_METHODS: Final = frozenset(
    "join format item tolist size dim numel keys values items min max sum mean abs any all upper lower strip "
    "replace detach cpu".split()
)
_IMPURE: Final = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await, ast.Lambda)

_Assigned = ast.Assign | ast.AugAssign | ast.AnnAssign


def inline(function: ast.FunctionDef) -> None:
    """Rewrite the blocks of a function that end in a `raise` of such texts."""
    tails = [(block, _begin(block)) for block in _raising(function.body)]
    if all(begin == len(block) - 1 for block, begin in tails):
        return
    kept = _kept(function, [block[begin:] for block, begin in tails])
    for block, begin in tails:
        last = block[-1]
        assert isinstance(last, ast.Raise)
        while len(block) - 1 > begin and _name(block[-2]) not in kept:
            for node in (child for child in (last.exc, last.cause) if child is not None):
                replaced = _Replaced(block[-2]).visit(node)
                setattr(last, "exc" if node is last.exc else "cause", replaced)
            del block[-2]


def _raising(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    if body and isinstance(body[-1], ast.Raise) and body[-1].exc is not None:
        yield body
    for node in body:
        if not isinstance(node, SCOPES):
            for block in blocks(node):
                yield from _raising(block)


def _begin(block: Sequence[ast.stmt]) -> int:
    """Where the assignments begin that the `raise` at the end of a block follows."""
    begin = len(block) - 1
    while begin and _name(block[begin - 1]) and _is_pure(block[begin - 1]):
        begin -= 1
    return begin


def _name(node: ast.stmt) -> str:
    """The variable that a statement assigns, and no more; empty for any other statement."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)])
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr())
        ):
            return name
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add()):
            return name
        case _:
            return ""


def _is_pure(node: ast.stmt) -> bool:
    assert isinstance(node, _Assigned)
    assert node.value is not None
    return all(
        not isinstance(each, _IMPURE) and (not isinstance(each, ast.Call) or _is_of_texts(each.func))
        for each in ast.walk(node.value)
    )


def _is_of_texts(called: ast.expr) -> bool:
    match called:
        case ast.Name(id=name):
            return name in _FUNCTIONS
        case ast.Attribute(attr=name):
            return name in _METHODS
        case _:
            return False


def _kept(function: ast.FunctionDef, tails: Sequence[Sequence[ast.stmt]]) -> set[str]:
    """The names that are read elsewhere, or that stand for something else somewhere."""
    kept: set[str] = set()
    followed: set[int] = set()
    for tail in tails:
        known: set[str] = set()
        for node in tail:
            followed |= {
                id(each) for each in ast.walk(node) if isinstance(each, ast.Name) and each.id in known
            }
            if name := _name(node):
                if isinstance(node, ast.AugAssign) and name not in known:
                    kept.add(name)
                known.add(name)
    for each in ast.walk(function):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store) and id(each) not in followed:
            kept.add(each.id)
        elif isinstance(each, ast.Global | ast.Nonlocal):
            kept.update(each.names)
        elif isinstance(each, ast.arg):
            kept.add(each.arg)
        elif isinstance(each, COMPREHENSIONS):
            stored = (part for made in each.generators for part in ast.walk(made.target))
            kept.update(part.id for part in stored if isinstance(part, ast.Name))
    return kept


class _Replaced(ast.NodeTransformer):
    """Puts what a statement assigns in the place of its variable."""

    def __init__(self, node: ast.stmt) -> None:
        self._name, self._node = _name(node), node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id != self._name:
            return node
        assert isinstance(self._node, _Assigned)
        value = copy.deepcopy(self._node.value)
        assert value is not None
        if isinstance(self._node, ast.AugAssign):
            return ast.copy_location(ast.BinOp(node, ast.Add(), value), value)
        return value
