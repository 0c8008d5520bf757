"""The part of a user's file that a model needs: its classes and functions, and what they name.

Gives the top-level statements to keep, in their order. What is left out are other models, Specs, examples.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from aotpipe.tools.rewrite import liveness


def needed(tree: ast.Module, roots: Iterable[str]) -> list[ast.stmt]:
    """The statements of a file that define some names, and what these mention, imports included."""
    homes: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for name in defined(statement):
            homes.setdefault(name, []).append(statement)
    kept: dict[int, ast.stmt] = {}
    waiting = list(roots)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for statement in homes.get(name, ()):
            if id(statement) not in kept:
                kept[id(statement)] = statement
                if not isinstance(statement, ast.Import | ast.ImportFrom):
                    waiting += _mentioned(statement)
    return [_narrowed(each, seen) for each in tree.body if id(each) in kept or _is_future(each)]


def defined(statement: ast.stmt) -> list[str]:
    """The names that a top-level statement gives a value."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Import(names=names):
            return [(each.asname or each.name).partition(".")[0] for each in names]
        case ast.ImportFrom(names=names):
            return [each.asname or each.name for each in names]
        case _:
            return liveness.assigned([statement])


def _mentioned(statement: ast.stmt) -> list[str]:
    found = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    # An annotation may be a text.
    texts = [node.value for node in ast.walk(statement) if isinstance(node, ast.Constant)]
    return found + [each for each in texts if isinstance(each, str) and each.isidentifier()]


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _narrowed(statement: ast.stmt, names: set[str]) -> ast.stmt:
    """An import of what is used only."""
    if not isinstance(statement, ast.Import | ast.ImportFrom) or _is_future(statement):
        return statement
    used = [each for each in statement.names if (each.asname or each.name).partition(".")[0] in names]
    if len(used) == len(statement.names):
        return statement
    if isinstance(statement, ast.Import):
        made: ast.stmt = ast.Import(used)
    else:
        made = ast.ImportFrom(statement.module, used, statement.level)
    return ast.copy_location(made, statement)


def imports(statements: Iterable[ast.stmt]) -> set[str]:
    """The packages that statements import."""
    found: set[str] = set()
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                found |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add("." if node.level else (node.module or "").partition(".")[0])
    return found
