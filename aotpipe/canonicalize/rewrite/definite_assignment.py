"""Raises what Python raises where a variable is read that the path taken has not set.

A graph has a value for a variable on every path. Where some path to a read sets none, a flag goes with the
variable, and the read asks for it:

    for row in x:                      is_set = False
        best = row                     for row in x:
    return best                            best = row; is_set = True
                                       return best if ops.require_set("best", is_set) else None

Not followed are names that something else than an assignment, a `for` or a `with` binds.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import Final

from aotpipe.canonicalize.rewrite.ast_builders import COMPREHENSIONS, SCOPES, assign, below, blocks, calling
from aotpipe.canonicalize.rewrite.dataflow import assigned, lets_pass

_FLAG: Final = "__aotpipe_is_set_"
Names = frozenset[str]
Known = Names | None
"""The variables that are set on every path to a statement; None where no path leads to it."""


def assert_bound(function: ast.FunctionDef, outer: Collection[str]) -> None:
    """Put the flags and their reads into a function's body.

    Args:
        function: It holds no `global` and no `nonlocal` of its own.
        outer: The names that it declared by these.
    """
    paths = _Paths(function, outer)
    flagged = {read.id for read in paths.unsure.values()}
    if not flagged:
        return
    _Asked(paths.unsure).visit(function)
    function.body = [
        *(assign(_FLAG + name, ast.Constant(False)) for name in sorted(flagged)),
        *_with_flags(function.body, flagged, paths.unsure),
    ]


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


def _names(targets: Iterable[ast.expr]) -> list[str]:
    inside = (each for target in targets for each in ast.walk(target))
    return [each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]


class _Paths:
    """The reads of variables that some path to them has not set.

    Attributes:
        unsure: The nodes by identity.
    """

    def __init__(self, function: ast.FunctionDef, outer: Collection[str]) -> None:
        self.unsure: dict[int, ast.Name] = {}
        own = list(below(function))
        bound = [name for node in own for name in _names(_targets(node))]
        others = {
            *outer,
            *(each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)),
            *(each.target.id for each in own if isinstance(each, ast.NamedExpr)),
            *(each.id for each in own if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Del)),
            *(name for node in own if (name := getattr(node, "name", None) or getattr(node, "rest", None))),
            *(each.asname or each.name for each in own if isinstance(each, ast.alias)),
            *(
                name
                for each in ast.walk(function)
                if isinstance(each, ast.Global | ast.Nonlocal)
                for name in each.names
            ),
        }
        self._followed = frozenset(bound) - others
        # What is set where a loop around is left by `break`.
        self._breaks: list[list[Known]] = []
        self._block(function.body, frozenset())

    def _block(self, body: Sequence[ast.stmt], known: Known) -> Known:
        for node in body:
            if known is None:
                return None
            known = self._statement(node, known)
        return known

    def _statement(self, node: ast.stmt, known: Names) -> Known:
        match node:
            case ast.If():
                self._reads(node.test, known)
                return _joined(self._block(node.body, known), self._block(node.orelse, known))
            case ast.While() | ast.For():
                return self._loop(node, known)
            case ast.With():
                for item in node.items:
                    self._reads(item, known)
                    known |= set(_names([item.optional_vars] if item.optional_vars else []))
                after = self._block(node.body, known)
                return after if all(map(lets_pass, node.items)) else _joined(after, known)
            case ast.Try() | ast.TryStar():
                after = self._block(node.body, known)
                after = after if after is None else self._block(node.orelse, after)
                for handler in node.handlers:
                    self._reads(handler.type, known)
                    after = _joined(after, self._block(handler.body, known))
                last = self._block(node.finalbody, known)
                return None if after is None or last is None else after | last
            case ast.Match():
                self._reads(node.subject, known)
                for case in node.cases:
                    self._reads(case.pattern, known)
                    self._reads(case.guard, known)
                return _joined(known, *(self._block(case.body, known) for case in node.cases))
            case ast.AugAssign(target=ast.Name() as target) if target.id in self._followed - known:
                self.unsure[id(target)] = target
        self._reads(node, known)
        if isinstance(node, ast.Break) and self._breaks:
            self._breaks[-1].append(known)
        if isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue):
            return None
        return known | set(_names(_targets(node)))

    def _loop(self, node: ast.While | ast.For, known: Names) -> Known:
        self._reads(node.test if isinstance(node, ast.While) else node.iter, known)
        self._breaks.append([])
        self._block(node.body, known | set(_names(_targets(node))))
        left = self._breaks.pop()
        endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value
        return _joined(*left, None if endless else self._block(node.orelse, known))

    def _reads(self, node: ast.AST | None, known: Names) -> None:
        asked = self._followed - known
        for read in _loads(node, frozenset()) if asked and node is not None else ():
            if read.id in asked:
                self.unsure[id(read)] = read


def _joined(*paths: Known) -> Known:
    reached = [path for path in paths if path is not None]
    return frozenset.intersection(*reached) if reached else None


def _loads(node: ast.AST, hidden: Names) -> Iterator[ast.Name]:
    """The names that an expression reads, those of functions in it too, but for names of their own."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in hidden:
            yield node
        return
    inner = hidden
    if isinstance(node, COMPREHENSIONS):
        inner |= set(_names(each.target for each in node.generators))
        yield from _loads(node.generators[0].iter, hidden)
    elif isinstance(node, SCOPES):
        arguments = getattr(node, "args", None)
        inner |= (
            {each.arg for each in ast.walk(arguments) if isinstance(each, ast.arg)} if arguments else set()
        )
        if not isinstance(node, ast.Lambda):
            inner |= set(assigned(node.body).names)
    first = node.generators[0].iter if isinstance(node, COMPREHENSIONS) else None
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.comprehension):
            for each in ast.iter_child_nodes(child):
                if each is not first:
                    yield from _loads(each, inner)
        else:
            yield from _loads(child, inner)


class _Asked(ast.NodeTransformer):
    def __init__(self, unsure: Container[int]) -> None:
        self._unsure = unsure

    def visit_Name(self, node: ast.Name) -> ast.expr:
        is_asked = id(node) in self._unsure and isinstance(node.ctx, ast.Load)
        made = ast.IfExp(_asked(node.id), node, ast.Constant(None)) if is_asked else node
        return ast.copy_location(made, node)


def _asked(name: str) -> ast.Call:
    return calling("require_set", ast.Constant(name), ast.Name(_FLAG + name, ast.Load()))


def _with_flags(body: Sequence[ast.stmt], flagged: Container[str], unsure: Container[int]) -> list[ast.stmt]:
    """The statements, with the flags of what they set."""
    out: list[ast.stmt] = []
    for node in body:
        targets = _targets(node)
        set_now = [assign(_FLAG + name, ast.Constant(True)) for name in _names(targets) if name in flagged]
        for inner in () if isinstance(node, SCOPES) else blocks(node):
            inner[:] = _with_flags(inner, flagged, unsure)
        if isinstance(node, ast.For | ast.With):
            node.body[:0] = set_now
            out.append(node)
            continue
        # `best += x` reads it.
        read = [each for each in targets if isinstance(each, ast.Name) and id(each) in unsure]
        asked = [ast.Expr(_asked(each.id)) for each in read]
        out += [*(ast.copy_location(each, node) for each in asked), node]
        out += [ast.copy_location(each, node) for each in set_now]
    return out
