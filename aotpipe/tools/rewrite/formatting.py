"""Formats syntax trees as text: long calls over several lines, unchanged statements as they were written.

`mark(function, lines)` keeps with each statement its own text (`verbatim`, and as `dumped` what it was then)
and the comments above it (`leading`); `text_of` gives the text of statements.
"""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

WIDTH: Final = 100
_INDENT: Final = "    "


def text_of(statements: Sequence[ast.stmt], depth: int = 0) -> str:
    """The text of statements."""
    return "\n".join(_lines(statements, depth))


def _lines(statements: Sequence[ast.stmt], depth: int, said: str | None = None) -> Iterator[str]:
    pad = _INDENT * depth
    for index, statement in enumerate(statements):
        where = getattr(statement, "where", None)
        is_scope = isinstance(statement, ast.FunctionDef | ast.ClassDef)
        if is_scope and index and not _is_doc(statements[index - 1]):
            yield ""
        if where is not None and str(where) != said:
            said = str(where)
            yield f"{pad}# {said}"
        yield from (pad + line if line else "" for line in getattr(statement, "leading", ()))
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            if index and _is_doc(statements[index - 1]):
                yield ""
            yield from (f"{pad}@{ast.unparse(each)}" for each in statement.decorator_list)
            yield pad + _head(statement)
            yield from _lines(statement.body, depth + 1, said)
            if index + 1 < len(statements) and not isinstance(statements[index + 1], ast.FunctionDef):
                yield ""
        elif getattr(statement, "dumped", None) == ast.dump(statement):
            own: Sequence[str] = statement.verbatim  # type: ignore[attr-defined]  # set by outline
            yield from (pad + line if line else "" for line in own)
        elif isinstance(statement, ast.If | ast.With | ast.For | ast.While):
            yield from _compound(statement, depth, said)
        else:
            yield from _statement(statement, depth)


def _compound(
    statement: ast.If | ast.With | ast.For | ast.While, depth: int, said: str | None
) -> Iterator[str]:
    """A statement with blocks: its head, and each block by itself."""
    pad = _INDENT * depth
    bare = copy.copy(statement)
    bare.body = [ast.Pass()]
    if not isinstance(bare, ast.With):
        bare.orelse = []
    yield from (pad + line for line in ast.unparse(ast.fix_missing_locations(bare)).splitlines()[:-1])
    yield from _lines(statement.body, depth + 1, said)
    if not isinstance(statement, ast.With) and statement.orelse:
        yield f"{pad}else:"
        yield from _lines(statement.orelse, depth + 1, said)


def _is_doc(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _doc(text: str, pad: str) -> Iterator[str]:
    lines = [
        line for each in text.split("\n") for line in (textwrap.wrap(each, WIDTH - len(pad) - 6) or [""])
    ]
    whole = [pad + line if line else "" for line in lines]
    whole[0] = f'{pad}"""{lines[0]}'
    yield from whole[:-1] if len(whole) > 1 else ()
    yield f'{whole[-1]}"""' if len(whole) == 1 else whole[-1]
    if len(whole) > 1:
        yield f'{pad}"""'


def _head(statement: ast.FunctionDef | ast.ClassDef) -> str:
    if isinstance(statement, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, statement.bases))
        return f"class {statement.name}({bases}):"
    returns = f" -> {ast.unparse(statement.returns)}" if statement.returns else ""
    return f"def {statement.name}({ast.unparse(statement.args)}){returns}:"


def _statement(statement: ast.stmt, depth: int) -> Iterator[str]:
    pad = _INDENT * depth
    whole = ast.unparse(ast.fix_missing_locations(statement))
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        yield from _doc(str(statement.value.value), pad)
        return
    if len(pad) + len(whole) <= WIDTH:
        yield pad + whole
        return
    match statement:
        case ast.Assign(targets=[target], value=value):
            shown = ast.unparse(target)
            if isinstance(target, ast.Tuple) and target.elts:
                shown = shown.strip("()") if len(target.elts) > 1 else shown
            yield from _expression(value, f"{pad}{shown} = ", depth)
        case ast.Return(value=ast.expr() as value):
            yield from _expression(value, f"{pad}return ", depth)
        case ast.Expr(value=value):
            yield from _expression(value, pad, depth)
        case _:
            yield from (pad + line for line in whole.splitlines())


def _expression(node: ast.expr, before: str, depth: int, after: str = "") -> Iterator[str]:
    """An expression, its parts on lines of their own where it is long."""
    whole = ast.unparse(node)
    if len(before) + len(whole) + len(after) <= WIDTH:
        yield before + whole + after
        return
    match node:
        case ast.Call(func=func, args=args, keywords=keywords) if args or keywords:
            parts = [("", each) for each in args]
            parts += [(f"{each.arg}=" if each.arg else "**", each.value) for each in keywords]
            opening, closing = f"{ast.unparse(func)}(", ")"
        case ast.Tuple(elts=elts) if elts:
            parts, opening, closing = [("", each) for each in elts], "(", ")"
        case ast.List(elts=elts) if elts:
            parts, opening, closing = [("", each) for each in elts], "[", "]"
        case ast.Dict(keys=keys, values=values) if keys and all(keys):
            parts = [
                (f"{ast.unparse(key)}: ", value)
                for key, value in zip(keys, values, strict=True)
                if key is not None
            ]
            opening, closing = "{", "}"
        case _:
            yield before + whole + after
            return
    yield before + opening
    inner = _INDENT * (depth + 1)
    for label, part in parts:
        yield from _expression(part, inner + label, depth + 1, ",")
    yield _INDENT * depth + closing + after


def mark(function: ast.FunctionDef, lines: Sequence[str]) -> None:
    """Mark the statements of a function.

    Args:
        function: As it was parsed.
        lines: Of its file.
    """
    first = _begin(function.body[0])
    _mark(function.body, first - 1 - _comments_above(lines, first), lines)


def _mark(body: Sequence[ast.stmt], end: int, lines: Sequence[str]) -> None:
    """Mark a block that begins after a line."""
    for node in body:
        above = [line.strip() for line in lines[end : node.lineno - 1]]
        while above and not above[0]:
            above.pop(0)
        node.leading = tuple(above) if all(not line or line.startswith("#") for line in above) else ()  # type: ignore[attr-defined]
        last = node.end_lineno or node.lineno
        text = textwrap.dedent("\n".join(lines[node.lineno - 1 : last]))
        node.verbatim = tuple(text.splitlines())  # type: ignore[attr-defined]
        node.dumped = ast.dump(node)  # type: ignore[attr-defined]
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(node, field, None)
                if inner:
                    first = min(
                        [inner[0].lineno, *(each.lineno for each in getattr(inner[0], "decorator_list", []))]
                    )
                    _mark(inner, max(node.lineno, first - 1 - _comments_above(lines, first)), lines)
        end = last


def _comments_above(lines: Sequence[str], line: int) -> int:
    """How many lines of comments stand right above a line."""
    count = 0
    while line - 2 - count >= 0 and lines[line - 2 - count].strip().startswith("#"):
        count += 1
    return count


def _begin(node: ast.stmt) -> int:
    """The first line of a statement, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])
