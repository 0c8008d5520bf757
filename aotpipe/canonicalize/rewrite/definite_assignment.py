"""Raises what Python raises where a variable is read that the path taken has not set.

A graph has a value for a variable on every path. Where some path to a read sets none, a flag goes with the
variable, and its reads ask for it:

    for row in x:                      is_set = False
        best = row                     for row in x:
    return best                            best = row; is_set = True
                                       return best if ops.require_set("best", is_set) else None

Not followed are names that `del`, `import`, `except`, a definition or a comprehension's walrus binds, too.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import Any, Final

from aotpipe.canonicalize.rewrite.ast_builders import COMPREHENSIONS, SCOPES, assign, below, blocks, calling
from aotpipe.canonicalize.rewrite.dataflow import Liveness

_FLAG: Final = "__aotpipe_is_set_{}__"  # which a class does not mangle


def assert_set(function: ast.FunctionDef, outer: Collection[str]) -> None:
    """Put the flags and their reads into a function's body; `outer` are its names of other scopes."""
    bound = {name for node in below(function) for name in (*_names(_targets(node)), *_walruses(node))}
    unsure = (bound & Liveness(function).first).difference(outer, _bound_otherwise(function))
    flagged = sorted(name for name in unsure if not name.startswith("__aotpipe"))
    if flagged:
        body = _with_flags(_Asked(flagged).visit(ast.Module(function.body, [])).body, flagged)
        function.body = [*(_marked(name, is_set=False) for name in flagged), *body]


def _bound_otherwise(function: ast.FunctionDef) -> Iterator[str]:
    for node in below(function):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Del()) | ast.alias(asname=str(name)):
                yield name
            case ast.While() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                again = ast.walk(node.test if isinstance(node, ast.While) else node)
                yield from (inner.target.id for inner in again if isinstance(inner, ast.NamedExpr))
            case _ if other := getattr(node, "name", None) or getattr(node, "rest", None):
                yield other
    yield from (name for each in ast.walk(function) if isinstance(each, ast.Nonlocal) for name in each.names)


def _targets(node: ast.AST) -> Sequence[ast.expr]:
    """What a statement assigns to by its own syntax."""
    match node:
        case ast.Assign():
            return node.targets
        case ast.AugAssign() | ast.For() | ast.AnnAssign(value=ast.expr()):
            return [node.target]
        case ast.With():
            return [item.optional_vars for item in node.items if item.optional_vars is not None]
    return []


def _walruses(node: ast.AST) -> list[str]:
    """What a statement assigns to in its own expressions."""
    children = ast.iter_child_nodes(node) if isinstance(node, ast.stmt) else ()
    own = [each for each in children if isinstance(each, ast.expr)]
    return [inner.target.id for each in own for inner in ast.walk(each) if isinstance(inner, ast.NamedExpr)]


def _names(targets: Iterable[ast.expr]) -> set[str]:
    inside = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    return {each.id for each in inside if isinstance(each.ctx, ast.Store)}


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
        # What it goes through, and defaults, are read outside of it.
        self._names = hidden
        if isinstance(node, COMPREHENSIONS):
            node.generators[0].iter = self.visit(node.generators[0].iter)
        elif not isinstance(node, ast.ClassDef):
            node.args.defaults = list(map(self.visit, node.args.defaults))
            node.args.kw_defaults = [each and self.visit(each) for each in node.args.kw_defaults]
        self._names = around
        return node


def _asked(name: str) -> ast.Call:
    return calling("require_set", ast.Constant(name), ast.Name(_FLAG.format(name), ast.Load()))


def _marked(name: str, *, is_set: bool = True) -> ast.stmt:
    return assign(_FLAG.format(name), ast.Constant(is_set))


def _with_flags(body: Sequence[ast.stmt], flagged: Container[str]) -> list[ast.stmt]:
    """The statements, with the flags of what they set."""
    out: list[ast.stmt] = []
    for node in body:
        if isinstance(node, SCOPES):
            out.append(node)
            continue
        for inner in blocks(node):
            inner[:] = _with_flags(inner, flagged)
        names = sorted(name for name in _names(_targets(node)) if name in flagged)
        set_now = [_marked(name) for name in names]
        # Nothing reads what a walrus sets before the statement.
        first = [_marked(name) for name in _walruses(node) if name in flagged]
        out += [ast.copy_location(each, node) for each in first]
        if isinstance(node, ast.For | ast.With):
            node.body[:0] = set_now
            set_now = []
        # `best += x` reads it.
        asked = [ast.Expr(_asked(name)) for name in names] if isinstance(node, ast.AugAssign) else []
        out += [*(ast.copy_location(each, node) for each in asked), node]
        out += [ast.copy_location(each, node) for each in set_now]
    return out
