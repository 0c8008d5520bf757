"""Python expressions for what stands in a graph: numbers, dtypes, devices, lists, tensors, attributes.

Everything is given as `ast.expr`, so that what is put together is bracketed where Python needs it.
"""

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

MOST_LITERAL: Final = 64
"""Elements of a tensor that is written as numbers."""


def name(text: str) -> ast.expr:
    """A variable."""
    return ast.Name(text, ast.Load())


def dotted(text: str) -> ast.expr:
    """`a.b.c`."""
    first, *rest = text.split(".")
    made = name(first)
    for each in rest:
        made = ast.Attribute(made, each, ast.Load())
    return made


def call(function: str | ast.expr, *args: ast.expr, **kwargs: ast.expr) -> ast.Call:
    """`function(*args, **kwargs)`."""
    called = dotted(function) if isinstance(function, str) else function
    return ast.Call(called, list(args), [ast.keyword(key, value) for key, value in kwargs.items()])


def method(owner: ast.expr, called: str, *args: ast.expr, **kwargs: ast.expr) -> ast.Call:
    """`owner.called(*args, **kwargs)`."""
    return call(ast.Attribute(owner, called, ast.Load()), *args, **kwargs)


def tuple_of(items: Sequence[ast.expr]) -> ast.expr:
    """`(a, b)`."""
    return ast.Tuple(list(items), ast.Load())


def literal(value: Any, inner: Callable[[Any], ast.expr] | None = None) -> ast.expr:
    """The expression of a constant, and of lists, tuples, dicts and slices of what `inner` knows.

    Raises:
        TypeError: A value that no expression stands for.
    """
    again = inner or literal
    match value:
        case bool() | None | str() | bytes():
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
        case _ if value is ...:
            return ast.Constant(...)
        case _:
            raise TypeError(f"a {type(value).__name__} has no expression")


def _number(value: float) -> ast.expr:
    if not math.isfinite(value):
        text = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return call("float", ast.Constant(text))
    # A minus is an operator: the tree of `-1` is that of one, so that `(-1) ** 2` gets its brackets.
    if value < 0 or (value == 0 and math.copysign(1, value) < 0):
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
        if value in (0, 1) and not _is_negative_zero(value):
            return call("torch.ones" if value else "torch.zeros", shape, **dtype)
        return call("torch.full", shape, literal(value), **dtype)
    if flat.numel() <= MOST_LITERAL:
        return call("torch.tensor", literal(tensor.detach().cpu().tolist()), **dtype)
    return None


def _is_negative_zero(value: float) -> bool:
    return value == 0 and math.copysign(1, value) < 0


def attribute(path: str, numbered: Callable[[str], bool]) -> ast.expr:
    """`self.a.b[0].c` for the path `a.b.0.c`.

    Args:
        path: Of a parameter, a buffer or a module.
        numbered: Whether the module at a path is a list.
    """
    made: ast.expr = name("self")
    above: list[str] = []
    for part in path.split(".") if path else []:
        if numbered(".".join(above)):
            made = ast.Subscript(made, ast.Constant(int(part)), ast.Load())
        elif is_name(part):
            made = ast.Attribute(made, part, ast.Load())
        else:
            made = call("getattr", made, ast.Constant(part))
        above.append(part)
    return made


def is_name(text: str) -> bool:
    """Whether a text can be an attribute or a variable."""
    return text.isidentifier() and not keyword.iskeyword(text)
