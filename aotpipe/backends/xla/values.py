"""What every op of the lowering is written with: result types, sizes, dtypes, promotion, broadcasting.

An op's lowering is a function of `Out`, the type of what it must give, and of the op's own arguments, in
which tensors are jax arrays. Nothing here depends on jax's settings: each dtype is named.
`relations(placeholders, shapes)` reads off what each symbol of torch's stands for where a graph's inputs have
given shapes, of numbers or expressions; `Sizes.out(value)` gives the `Out` of a node's fake value under that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
import sympy
import torch
from jax import lax
from torch.fx import Node

DType = np.dtype[Any]
Array = Any
"""A jax array or tracer; jax's own annotations are too wide to be of use to a checker."""
Scalar = int | float | bool | complex

BOOL: Final = np.dtype(np.bool_)
INT32: Final = np.dtype(np.int32)
INT64: Final = np.dtype(np.int64)
FLOAT32: Final = np.dtype(np.float32)
FLOAT64: Final = np.dtype(np.float64)


@dataclass(frozen=True, slots=True)
class Out:
    """What an op must give: a shape of known sizes, and a dtype."""

    shape: tuple[int, ...]
    dtype: DType


def dtype_of(dtype: torch.dtype) -> DType:
    """The numpy dtype of a torch dtype, also of those that ml_dtypes adds to numpy's."""
    return np.dtype(str(dtype).removeprefix("torch."))


def is_float(dtype: DType) -> bool:
    """Whether it is a real floating dtype, those of ml_dtypes included."""
    return bool(jax.dtypes.issubdtype(dtype, np.floating))


def is_complex(dtype: DType) -> bool:
    """Whether it is a complex dtype."""
    return dtype.kind == "c"


def wide(dtype: DType) -> DType:
    """The dtype that eager computes an op in: float32 for the narrower floats."""
    return FLOAT32 if is_float(dtype) and dtype.itemsize < FLOAT32.itemsize else dtype


def is_array(value: object) -> bool:
    """Whether a value is an array and no Python number."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def cast(value: Any, dtype: DType) -> Array:
    """An array or number in a dtype, by torch's rules: what is not zero is True."""
    if not is_array(value):
        return constant(value, dtype)
    if value.dtype == dtype:
        return value
    if dtype == BOOL:
        return lax.ne(value, constant(0, value.dtype, value.shape))
    if is_complex(value.dtype) and not is_complex(dtype):
        return cast(lax.real(value), dtype)
    if dtype.kind in "iu" and is_float(value.dtype):
        # As on x86, NaN and what has no room give the least number, and short integers are cut from a longer
        # one; the conversion alone clamps.
        if value.dtype.itemsize == 1:
            value = lax.convert_element_type(value, FLOAT32)  # 8-bit floats do not hold the ends
        held = INT32 if dtype.kind == "i" and dtype.itemsize <= INT32.itemsize else INT64
        least = int(np.iinfo(held).min)
        start, end = (constant(each, value.dtype, value.shape) for each in (least, -least))
        fits = lax.bitwise_and(lax.ge(value, start), lax.lt(value, end))
        whole = lax.convert_element_type(value, held)
        value = lax.select(fits, whole, constant(least, held, value.shape))
    return lax.convert_element_type(value, dtype)


def constant(value: Any, dtype: DType, shape: Sequence[int] = ()) -> Array:
    """A number in a dtype, also one that only a run knows, as an array of equal elements."""
    if is_array(value):
        return lax.broadcast(cast(value, dtype), tuple(shape))
    with np.errstate(all="ignore"):
        if dtype.kind in "iu" and isinstance(value, float):
            value = int(value)
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            value = (int(value) - int(info.min)) % (1 << (8 * dtype.itemsize)) + int(info.min)
        fill = np.asarray(value).astype(dtype)
    return lax.full(tuple(shape), fill, dtype)


def result_dtype(left: Any, right: Any) -> DType:
    """What torch computes two operands in, of which one is an array."""
    operands = [
        torch.empty((1,) * min(each.ndim, 1), dtype=getattr(torch, each.dtype.name), device="meta")
        if is_array(each)
        else each
        for each in (left, right)
    ]
    return dtype_of(torch.result_type(*operands))


def axis_of(dim: int, rank: int) -> int:
    """A dim counted from the front; a 0-d tensor counts as one of rank 1."""
    return dim % max(rank, 1)


def axes_of(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Dims counted from the front; all where none is named."""
    if dims is None or (not isinstance(dims, int) and not dims):
        return tuple(range(rank))
    listed = [dims] if isinstance(dims, int) else list(dims)
    return tuple(sorted({dim % rank for dim in listed})) if rank else ()


class UnknownSize(Exception):
    """A size that depends on data."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of each symbol of a graph."""

    values: Mapping[sympy.Symbol, sympy.Integer]

    def size(self, size: int | torch.SymInt) -> int:
        """A size as a number.

        Raises:
            UnknownSize: It depends on data.
        """
        if isinstance(size, int):
            return size
        found = size.node.expr.xreplace(self.values)
        if not found.is_number:
            raise UnknownSize(str(found))
        return int(found)

    def out(self, value: torch.Tensor) -> Out:
        """The type of a fake tensor."""
        return Out(tuple(map(self.size, value.shape)), dtype_of(value.dtype))


def relations(
    placeholders: Sequence[Node], shapes: Sequence[Sequence[int | sympy.Expr]]
) -> dict[sympy.Symbol, sympy.Expr]:
    """The symbols of a graph as expressions, where its last inputs have shapes that are expressions.

    Raises:
        UnknownSize: No number for a symbol gives these shapes.
    """
    values: dict[sympy.Symbol, sympy.Expr] = {}
    equations: list[tuple[sympy.Expr, sympy.Expr]] = []
    for node, shape in zip(placeholders[len(placeholders) - len(shapes) :], shapes, strict=True):
        for size, known in zip(node.meta["val"].shape, shape, strict=True):
            if isinstance(size, torch.SymInt):
                equations.append((size.node.expr, sympy.sympify(known)))
    for expr, known in sorted(equations, key=lambda pair: pair[0].count_ops()):
        free = expr.free_symbols - values.keys()
        if len(free) != 1:
            continue
        (symbol,) = free
        roots = [known] if expr == symbol else sympy.solve(expr.xreplace(values) - known, symbol)
        whole = [root for root in roots if root.is_integer is not False]
        if not whole:
            raise UnknownSize(str(expr))
        values[symbol] = whole[0]
    return values
