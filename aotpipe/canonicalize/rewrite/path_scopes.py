"""Statements that are traced once for each path, where a tensor decides between values of no common form.

    kind = Scale(2.0) if x.sum() > 0 else Shift(1.0)     # a class on each path, which no graph can join
    return kind.apply(x)                                 # what comes of it, it can

From the statement that decides to the end of its block, the statements stand in a `try: ... finally: pass`
that `statements` makes an operator of (`operators.path_scope`). Values that are needed after that block are
joined there, or kept apart by the statements around it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from aotpipe.canonicalize.rewrite.ast_builders import blocks
from aotpipe.model import source

_MARK = "__aotpipe_scope"
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def is_scope(node: ast.Try) -> bool:
    """Whether `with_scopes` made this `try`."""
    return hasattr(node, _MARK)


def with_scopes(function: ast.FunctionDef, lines: Collection[int]) -> None:
    """Let scopes begin at the statements of a function that begin on these lines."""
    for node in ast.walk(function):
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            held = [node.body] if not isinstance(node, ast.stmt) else blocks(node)
            for block in held:
                _scoped(block, lines)


def _scoped(block: list[ast.stmt], lines: Collection[int]) -> None:
    for at in reversed(range(len(block))):
        if block[at].lineno in lines and not isinstance(block[at], _DEFINES):
            scope = ast.Try(body=block[at:], handlers=[], orelse=[], finalbody=[ast.Pass()])
            setattr(scope, _MARK, True)
            ast.copy_location(scope.finalbody[0], scope.body[-1])
            block[at:] = [ast.copy_location(scope, scope.body[0])]


def beginning(path: str, line: int) -> tuple[str, int] | None:
    """Where the innermost statement of a function begins that a line is part of; None where it is of none."""
    tree = source.syntax(path)
    found: ast.stmt | None = None
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.FunctionDef):
            for each in ast.walk(node):
                if (
                    isinstance(each, ast.stmt)
                    and each is not node
                    and each.lineno <= line <= (each.end_lineno or each.lineno)
                    and (found is None or each.lineno >= found.lineno)
                ):
                    found = each
    return None if found is None or isinstance(found, _DEFINES) else (path, found.lineno)
