"""Raises what Python raises where a variable is read that the path taken has not set.

A graph has a value for a variable on every path. Where some path to a read sets none, a flag goes with the
variable, and its reads ask for it:

    for row in x:                      is_set = False
        best = row                     for row in x:
    return best                            best = row; is_set = True
                                       return best if ops.require_set("best", is_set) else None

Not followed are names that something else than an assignment, a `for` or a `with` binds.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Container, Iterable, Sequence
from typing import Any, Final

from aotpipe.canonicalize.rewrite.ast_builders import COMPREHENSIONS, SCOPES, assign, below, blocks, calling
from aotpipe.canonicalize.rewrite.dataflow import Liveness

_FLAG: Final = "__aotpipe_is_set_"


def assert_set(function: ast.FunctionDef, outer: Collection[str]) -> None:
    """Put the flags and their reads into a function's body.

    Args:
        function: It holds no `global` and no `nonlocal` of its own.
        outer: The names that it declared by these.
    """
    nodes = list(below(function))
    otherwise = {
        *outer,
        *(each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)),
        *(each.target.id for each in nodes if isinstance(each, ast.NamedExpr)),
        *(each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Del)),
        *(name for node in nodes if (name := getattr(node, "name", None) or getattr(node, "rest", None))),
        *(each.asname or each.name for each in nodes if isinstance(each, ast.alias)),
        *(name for each in ast.walk(function) if isinstance(each, ast.Nonlocal) for name in each.names),
    }
    bound = {name for node in nodes for name in _names(_targets(node))}
    flagged = sorted((bound & Liveness(function).first) - otherwise)
    if flagged:
        body = _with_flags(_Asked(flagged).visit(ast.Module(function.body, [])).body, flagged)
        function.body = [*(assign(_FLAG + name, ast.Constant(False)) for name in flagged), *body]


def _targets(node: ast.AST) -> Sequence[ast.expr]:
    """What a statement assigns to by its own syntax."""
    match node:
        case ast.Assign():
            return node.targets
        case ast.AugAssign() | ast.For() | ast.AnnAssign(value=ast.expr()):
            return [node.target]
        case ast.With():
            return [item.optional_vars for item in node.items if item.optional_vars is not None]
        case _:
            return []


def _names(targets: Iterable[ast.expr]) -> dict[str, None]:
    inside = (each for target in targets for each in ast.walk(target))
    return {
        each.id: None for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


class _Asked(ast.NodeTransformer):
    """Asks for the flags where names are read, in the functions inside too, but for names of their own."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._names or not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(ast.IfExp(_asked(node.id), node, ast.Constant(None)), node)

    def generic_visit(self, node: ast.AST) -> Any:
        if not isinstance(node, (*SCOPES, *COMPREHENSIONS)):
            return super().generic_visit(node)
        around = self._names
        names = [each for each in below(node) if isinstance(each, ast.Name)]
        hidden = around & {each.id for each in names if isinstance(each.ctx, ast.Store)}
        hidden |= around & {each.arg for each in below(node) if isinstance(each, ast.arg)}
        self._names = around - hidden
        super().generic_visit(node)
        if isinstance(node, COMPREHENSIONS):
            # It goes through what is outside of it.
            self._names = hidden
            node.generators[0].iter = self.visit(node.generators[0].iter)
        self._names = around
        return node


def _asked(name: str) -> ast.Call:
    return calling("require_set", ast.Constant(name), ast.Name(_FLAG + name, ast.Load()))


def _with_flags(body: Sequence[ast.stmt], flagged: Container[str]) -> list[ast.stmt]:
    """The statements, with the flags of what they set."""
    out: list[ast.stmt] = []
    for node in body:
        if isinstance(node, SCOPES):
            out.append(node)
            continue
        for inner in blocks(node):
            inner[:] = _with_flags(inner, flagged)
        names = [name for name in _names(_targets(node)) if name in flagged]
        set_now: list[ast.stmt] = [assign(_FLAG + name, ast.Constant(True)) for name in names]
        if isinstance(node, ast.For | ast.With):
            node.body[:0] = set_now
            set_now = []
        # `best += x` reads it.
        asked = [ast.Expr(_asked(name)) for name in names] if isinstance(node, ast.AugAssign) else []
        out += [*(ast.copy_location(each, node) for each in asked), node]
        out += [ast.copy_location(each, node) for each in set_now]
    return out
