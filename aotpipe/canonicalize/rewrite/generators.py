"""Rewrites a function that yields as one that calls what takes the values.

def rows(x):                def rows(x):
for row in x:               def plain(): ...                    # as it was
yield row               def staged(take):
for row in x:
if take(row): return        # the loop around it has stopped
return ops.generated(plain, staged)
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import Final

from aotpipe.canonicalize.rewrite.ast_builders import HELPER, Own, assign, calling, own, parameters
from aotpipe.canonicalize.rewrite.scopes import assigned
from aotpipe.canonicalize.values.trace import GENERATED

_TAKE: Final = f"{GENERATED}_take"  # a helper is taken to change nothing
_PLAIN: Final = f"{HELPER}_plain"
_STAGED: Final = f"{HELPER}_staged"
_ITEM: Final = f"{HELPER}_yielded"


def is_generator(function: ast.FunctionDef) -> bool:
    """Whether a function yields."""
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own(function.body))


def split(
    function: ast.FunctionDef, rewrite: Callable[[ast.FunctionDef], ast.FunctionDef | None]
) -> ast.FunctionDef | None:
    """Write a function that yields as one that gives a `Generated`; None where a yield has a value.

    Args:
        function: The function; it is changed.
        rewrite: Rewrites a function's control flow.
    """
    if not _only_yields(function):
        return None
    declared = {
        name
        for node in own(function.body)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    }
    body = function.body
    known = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    local = sorted({name for name in assigned(body).names if name not in declared} | (known & _stored(body)))
    shared: list[ast.stmt] = [ast.Nonlocal(local)] if local else []
    plain = ast.FunctionDef(_PLAIN, parameters(), [*copy.deepcopy(shared), *copy.deepcopy(body)], [])
    called = [line for node in body for line in _Calls().lines(node)]
    staged = rewrite(ast.FunctionDef(_STAGED, parameters(_TAKE), [*shared, *called], []))
    if staged is None:
        return None
    unbound: list[ast.stmt] = [assign(name, ast.Constant(None)) for name in local if name not in known]
    names: list[ast.expr] = [ast.Name(name, ast.Load()) for name in (_PLAIN, _STAGED)]
    function.body = [
        *([ast.If(ast.Constant(False), unbound, [])] if unbound else []),
        plain,
        staged,
        ast.Return(calling("generated", *names)),
    ]
    return function


def _only_yields(function: ast.FunctionDef) -> bool:
    """Whether no yield and no return of a function has a value that the function or its caller takes."""
    nodes = list(own(function.body))
    yields = [node for node in nodes if isinstance(node, ast.Yield | ast.YieldFrom)]
    statements = [node.value for node in nodes if isinstance(node, ast.Expr)]
    plain = [value for value in statements if isinstance(value, ast.Yield | ast.YieldFrom)]
    returns = any(isinstance(node, ast.Return) and node.value is not None for node in nodes)
    return len(plain) == len(yields) and not returns


def _stored(body: list[ast.stmt]) -> set[str]:
    return {
        node.id
        for node in own(body)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del)
    }


class _Calls(Own):
    """Calls in the place of yields."""

    def lines(self, node: ast.stmt) -> list[ast.stmt]:
        """The statements in the place of one."""
        found = self.visit(node)
        return found if isinstance(found, list) else [found]

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:  # noqa: N802  # of a NodeTransformer
        if isinstance(node.value, ast.YieldFrom):
            items = ast.For(ast.Name(_ITEM, ast.Store()), node.value.value, [], [])
            items.body = [self._taken(ast.Name(_ITEM, ast.Load()))]
            return ast.fix_missing_locations(ast.copy_location(items, node))
        if isinstance(node.value, ast.Yield):
            return ast.fix_missing_locations(
                ast.copy_location(self._taken(node.value.value or ast.Constant(None)), node)
            )
        return node

    @staticmethod
    def _taken(value: ast.expr) -> ast.stmt:
        return ast.If(ast.Call(ast.Name(_TAKE, ast.Load()), [value], []), [ast.Return(None)], [])
