"""Finds which variables a statement leaves behind that anything after it reads.

What nothing reads need have no form: a branch may give it another shape on each path, and a loop need not
carry it. A variable counts as read wherever that cannot be told: in a handler, after a `with`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from aotpipe.canonicalize.rewrite.ast_builders import LOOPS
from aotpipe.canonicalize.rewrite.jump_elimination import jumps
from aotpipe.canonicalize.rewrite.scopes import mentions

Names = frozenset[str]
_NONE: Names = frozenset()


class Liveness:
    """What is read after each branch and loop of a function, before its jumps became flags."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self._after: dict[int, Names] = {}
        # Of each statement that may jump.
        self._jumped: dict[int, Names] = {}
        # What a jump out of the loop around, or to its next iteration, goes on to read.
        self._targets: Names = _NONE
        # What an exception goes on to read.
        self._caught: Names = _NONE
        self._block(function.body, _NONE)

    def after(self, node: ast.stmt) -> Names | None:
        """What is read after a branch or a loop, or by its next iteration; None where that is not known."""
        if (goes_on := getattr(node, "goes_on", None)) is None:
            return self._after.get(id(node))
        jumping, last = goes_on
        jumped, after = self._jumped.get(id(jumping)), self._after.get(id(last))
        return None if jumped is None or after is None else jumped | after

    def _block(self, body: Sequence[ast.stmt], after: Names) -> Names:
        for node in reversed(body):
            self._after[id(node)] = after
            if jumps([node]):
                self._jumped[id(node)] = self._targets
            after = self._statement(node, after) | self._caught
        return after

    def _statement(self, node: ast.stmt, after: Names) -> Names:
        if isinstance(node, ast.If):
            # A jump inside becomes a flag: what follows the branch is then the jump's target too.
            if jumps([node]):
                after |= self._targets
            self._after[id(node)] = after
            return _read(node.test) | self._block(node.body, after) | self._block(node.orelse, after)
        if isinstance(node, LOOPS):
            return self._loop(node, after)
        if isinstance(node, ast.With):
            return frozenset().union(*map(_read, node.items)) | self._guarded(node.body, after, after)
        if isinstance(node, ast.Break | ast.Continue):
            return self._targets
        if isinstance(node, ast.Return | ast.Raise):
            return _read(node)
        if isinstance(node, ast.Try | ast.TryStar | ast.Match | ast.AsyncWith | ast.AsyncFor):
            inside = frozenset(mentions([node]))
            for block in _blocks(node):
                self._guarded(block, after, inside | after | self._targets)
            return inside | after
        return (after - _set(node)) | _read(node)

    def _guarded(self, body: Sequence[ast.stmt], after: Names, caught: Names) -> Names:
        before = self._caught
        self._caught = before | caught
        try:
            return self._block(body, after | caught)
        finally:
            self._caught = before

    def _loop(self, node: ast.While | ast.For, after: Names) -> Names:
        left = self._block(node.orelse, after) | after
        test = _read(node.test) if isinstance(node, ast.While) else _NONE
        taken = frozenset(_targets(node.target)) if isinstance(node, ast.For) else _NONE
        around, head = self._targets, left | test
        while True:
            self._targets = head
            begun = head | (self._block(node.body, head) - taken)
            if begun == head:
                break
            head = begun
        self._targets = around
        self._after[id(node)] = head
        if isinstance(node, ast.For):
            return head | _read(node.iter) | _read(node.target)
        return head


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        yield getattr(node, field, [])
    for each in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
        yield each.body


def _read(node: ast.AST) -> Names:
    """The names that a node reads, those of functions inside of it too."""
    names = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name)]
    augmented = [node.target] if isinstance(node, ast.AugAssign) else []
    return frozenset(each.id for each in names if not isinstance(each.ctx, ast.Store) or each in augmented)


def _set(node: ast.stmt) -> Names:
    """The names that a statement sets in any case."""
    if isinstance(node, ast.Assign):
        return frozenset(name for target in node.targets for name in _targets(target))
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return frozenset(_targets(node.target))
    return _NONE


def _targets(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _targets(each)
    elif isinstance(target, ast.Starred):
        yield from _targets(target.value)
