"""Which variables are read after a statement, for each statement of a function.

`mark(body)` gives every statement an attribute `live`: the names that something after it may read before it
is set again. What a nested function reads, it may read at any time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
Names = frozenset[str]


def mark(body: Sequence[ast.stmt]) -> Names:
    """Mark the statements of a function; gives what it reads before it sets it."""
    lasting = frozenset(
        each.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, _SCOPES)
        for each in ast.walk(node)
        if isinstance(each, ast.Name)
    )
    return _Marker(lasting).block(body, lasting)


class _Marker:
    def __init__(self, lasting: Names, *, marks: bool = True) -> None:
        self._lasting = lasting
        self._marks = marks
        # What is read after the loop that stands around, and in its next iteration.
        self._jumps: list[tuple[Names, Names]] = []

    def block(self, body: Iterable[ast.stmt], live: Names) -> Names:
        for statement in reversed(list(body)):
            live = self.statement(statement, live)
        return live

    def statement(self, node: Any, live: Names) -> Names:
        if self._marks:
            node.live = live
        match node:
            case ast.Return() | ast.Raise():
                return reads(node) | self._lasting
            case ast.Break():
                return self._jumps[-1][0] if self._jumps else live
            case ast.Continue():
                return self._jumps[-1][1] if self._jumps else live
            case ast.If():
                return reads(node.test) | self.block(node.body, live) | self.block(node.orelse, live)
            case ast.While():
                after = self.block(node.orelse, live)
                return self._loop(node.body, after, reads(node.test) | _flag(node), frozenset())
            case ast.For():
                after = self.block(node.orelse, live)
                return reads(node.iter) | self._loop(node.body, after, _flag(node), stores(node.target))
            case ast.With():
                inner = self.block(node.body, live)
                return inner.union(*(reads(item) for item in node.items))
            case ast.Try() | ast.TryStar():
                # Any of its statements may be the last one that ran.
                everything = reads(node) | live
                for part in (node.body, node.orelse, node.finalbody, *(each.body for each in node.handlers)):
                    self.block(part, everything)
                return everything
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                return (live - {node.name}) | reads(node)
            case _:
                return (live - (stores(node) - self._lasting)) | reads(node)

    def _loop(self, body: Sequence[ast.stmt], after: Names, test: Names, target: Names) -> Names:
        head = after | test
        while True:
            self._jumps.append((after, head))
            found = (self.block(body, head) - target) | after | test
            self._jumps.pop()
            if found <= head:
                return head
            head |= found


def _flag(node: ast.While | ast.For) -> Names:
    """The flag that ends a loop whose jumps were taken out."""
    stop: str | None = getattr(node, "stop", None)
    return frozenset() if stop is None else frozenset({stop})


def reads(node: ast.AST) -> Names:
    """The variables that a node reads, and those whose items it writes."""
    found = {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    }
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        found.add(node.target.id)
    return frozenset(found)


def stores(node: ast.AST) -> Names:
    """The variables that a node sets as a whole."""
    return frozenset(
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
    )


def assigned(body: Iterable[ast.stmt]) -> list[str]:
    """The variables that statements set or whose items they write, in their order."""
    found: dict[str, None] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found[node.id] = None
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if isinstance(node.value, ast.Name):
                found[node.value.id] = None
        elif isinstance(node, _SCOPES):
            if isinstance(node, ast.FunctionDef):
                found[node.name] = None
            return
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    for statement in body:
        visit(statement)
    return list(found)


def needed(body: Sequence[ast.stmt], names: Iterable[str]) -> Names:
    """Which of these variables statements read before they set them."""
    return _Marker(frozenset(), marks=False).block(body, frozenset()) & frozenset(names)
