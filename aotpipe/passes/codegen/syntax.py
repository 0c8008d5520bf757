"""Python syntax: trees for what stands in a graph, and the text of statements.

Everything is given as `ast.expr`, so that what is put together is bracketed where Python needs it. `mark`
keeps with each statement of a function its own text (`verbatim`, and as `dumped` what it was then) and the
comments above it (`leading`); `text_of` writes long calls over several lines, and unchanged statements as
they were written.
"""

from __future__ import annotations

import ast
import copy
import keyword
import math
import textwrap
from collections.abc import Callable, Container, Iterator, Sequence
from types import EllipsisType
from typing import Any, Final

import torch

from aotpipe.canonicalize.rewrite import ast_builders
from aotpipe.canonicalize.rewrite.dataflow import reference
from aotpipe.model import source

MOST_LITERAL: Final = 64
"""Elements of a tensor that is written as numbers."""
WIDTH: Final = 100
_INDENT: Final = "    "


def name(text: str) -> ast.expr:
    """A variable."""
    return ast.Name(text, ast.Load())


def dotted(text: str) -> ast.expr:
    """`a.b.c`."""
    return reference(text, ast.Load())


def call(function: str | ast.expr, *args: ast.expr, **kwargs: ast.expr) -> ast.Call:
    """`function(*args, **kwargs)`."""
    called = dotted(function) if isinstance(function, str) else function
    return ast.Call(called, list(args), [ast.keyword(key, value) for key, value in kwargs.items()])


def method(owner: ast.expr, called: str, *args: ast.expr, **kwargs: ast.expr) -> ast.Call:
    """`owner.called(*args, **kwargs)`."""
    return call(ast.Attribute(owner, called, ast.Load()), *args, **kwargs)


def item(owner: ast.expr, index: int | str) -> ast.expr:
    """`owner[index]`."""
    return ast.Subscript(owner, ast.Constant(index), ast.Load())


def tuple_of(items: Sequence[ast.expr]) -> ast.expr:
    """`(a, b)`."""
    return ast.Tuple(list(items), ast.Load())


def function(called: str, parameters: Sequence[str], body: list[ast.stmt]) -> ast.FunctionDef:
    """A function of plain parameters."""
    return ast.FunctionDef(called, ast_builders.parameters(*parameters), body or [ast.Pass()], [])


def literal(value: Any, inner: Callable[[Any], ast.expr] | None = None) -> ast.expr:
    """The expression of a constant, and of lists, tuples, dicts and slices of what `inner` knows.

    An expression stands for itself.

    Raises:
        TypeError: A value that no expression stands for.
    """
    again = inner or literal
    match value:
        case ast.expr():
            return value
        case bool() | None | str() | bytes() | EllipsisType():
            return ast.Constant(value)
        case int() | float():
            return _number(value)
        case complex():
            return call("complex", _number(value.real), _number(value.imag))
        case list():
            return ast.List([again(each) for each in value], ast.Load())
        case torch.Size() | tuple():
            return tuple_of([again(each) for each in value])
        case dict():
            return ast.Dict([again(key) for key in value], [again(each) for each in value.values()])
        case slice():
            parts = [None if each is None else again(each) for each in (value.start, value.stop, value.step)]
            return ast.Slice(*parts)
        case torch.device():
            return call("torch.device", ast.Constant(str(value)))
        case torch.dtype() | torch.memory_format() | torch.layout():
            return dotted(str(value))
        case _:
            raise TypeError(f"a {type(value).__name__} has no expression")


def _number(value: float) -> ast.expr:
    if not math.isfinite(value):
        return call("float", ast.Constant(str(value)))
    # A minus is an operator: the tree of `-1` is that of one, so that `(-1) ** 2` gets its brackets.
    if str(value).startswith("-"):
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def of_tensor(tensor: torch.Tensor) -> ast.expr | None:
    """The expression of a tensor on the CPU whose elements are few or all the same; else None."""
    dtype = {"dtype": literal(tensor.dtype)}
    if tensor.is_quantized or tensor.layout is not torch.strided or tensor.is_complex():
        return None
    if tensor.is_floating_point() and tensor.element_size() < 2:
        return None  # no number of Python becomes a float8
    flat = tensor.detach().cpu().reshape(-1)
    if not tensor.dim():
        return call("torch.tensor", literal(flat[0].item()), **dtype)
    if not flat.numel() or bool((flat == flat[0]).all()):
        value = flat[0].item() if flat.numel() else 0
        shape = literal(tuple(tensor.shape))
        if value in (0, 1) and math.copysign(1, value) > 0:
            return call("torch.ones" if value else "torch.zeros", shape, **dtype)
        return call("torch.full", shape, literal(value), **dtype)
    if flat.numel() <= MOST_LITERAL:
        return call("torch.tensor", literal(tensor.detach().cpu().tolist()), **dtype)
    return None


def free_name(wanted: str, taken: Container[str]) -> str:
    """`wanted`, or `wanted_2` and so on where that is taken or is a keyword."""
    made, number = wanted, 1
    while made in taken or not is_name(made):
        number += 1
        made = f"{wanted}_{number}"
    return made


def is_name(text: str) -> bool:
    """Whether a text can be an attribute or a variable."""
    return text.isidentifier() and not keyword.iskeyword(text)


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
            yield from _compound(statement, depth, said)
            if index + 1 < len(statements) and not isinstance(statements[index + 1], ast.FunctionDef):
                yield ""
        elif getattr(statement, "dumped", None) == ast.dump(statement):
            own: Sequence[str] = statement.verbatim  # type: ignore[attr-defined]  # set by outline
            yield from (pad + line if line else "" for line in own)
        elif isinstance(statement, ast.If | ast.With | ast.For | ast.While):
            yield from _compound(statement, depth, said)
        else:
            yield from _statement(statement, depth)


def _compound(statement: Any, depth: int, said: str | None) -> Iterator[str]:
    """A statement with blocks: its head, and each block by itself."""
    pad = _INDENT * depth
    bare = copy.copy(statement)
    bare.body, bare.orelse, bare.decorator_list = [ast.Pass()], [], []
    yield from (pad + line for line in ast.unparse(ast.fix_missing_locations(bare)).splitlines()[:-1])
    yield from _lines(statement.body, depth + 1, said)
    if orelse := getattr(statement, "orelse", None):
        yield f"{pad}else:"
        yield from _lines(orelse, depth + 1, said)


def _is_doc(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _doc(text: str, pad: str) -> Iterator[str]:
    lines = [
        line for each in text.split("\n") for line in (textwrap.wrap(each, WIDTH - len(pad) - 6) or [""])
    ]
    quoted = [f'"""{lines[0]}', *lines[1:], '"""'] if len(lines) > 1 else [f'"""{lines[0]}"""']
    yield from (pad + line if line else "" for line in quoted)


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
            if isinstance(target, ast.Tuple) and len(target.elts) > 1:
                shown = shown.strip("()")
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
        case ast.Tuple(elts=elts) | ast.List(elts=elts) if elts:
            parts = [("", each) for each in elts]
            opening, closing = "()" if isinstance(node, ast.Tuple) else "[]"
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


def mark(body: Sequence[ast.stmt], lines: Sequence[str], after: int = 0) -> None:
    """Mark a block of statements, which are as they were parsed.

    `after` is the line of the statement that the block belongs to.
    """
    # Comments right above the first statement are its own.
    end = source.first_line(body[0]) - 1
    while end > after and lines[end - 1].strip().startswith("#"):
        end -= 1
    end = max(end, after)
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
                if inner := getattr(node, field, None):
                    mark(inner, lines, node.lineno)
        end = last
