"""The sizes that both branches of a `torch.cond` give a result, where only a run knows them.

torch names such a size anew after each `cond`, since it may come from within a branch: `x = x[mask]`, then
`if c: x = x * 2` gives `x` another size, without a bound, for all that torch knows. Here a size that both
branches take from an operand stays what it was. `kept()` does that for a trace, and for one of its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch._higher_order_ops.cond import cond_op  # there is no public way to a higher-order op's shapes
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values.trace import assigned

_MODULE: Any = import_module("torch._higher_order_ops.cond")  # the package has a function of this name


@contextmanager
def kept() -> Iterator[None]:
    """Let results of a `cond` have the operands' own sizes."""
    kernels: Any = cond_op.python_key_table
    torchs = kernels[FakeTensorMode]

    def kernel(mode: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> Any:
        known: set[Any] = set().union(*map(_symbols, pytree.tree_leaves(operands)))
        if not known:
            return torchs(mode, pred, true_fn, false_fn, operands)
        merge = partial(_merged, _MODULE._merge_output, known)  # noqa: SLF001
        with assigned(_MODULE, _merge_output=merge):
            return torchs(mode, pred, true_fn, false_fn, operands)

    kernels[FakeTensorMode] = kernel
    try:
        yield
    finally:
        kernels[FakeTensorMode] = torchs


def _merged(torchs: Callable[..., Any], known: set[Any], one: Any, other: Any, mode: Any) -> Any:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.layout is torch.strided:
        shapes = [[*each.size(), *each.stride()] for each in (one, other)]
        symbols = _symbols(one)
        if (
            symbols
            and symbols <= known
            and one.dtype == other.dtype
            and _expressions(shapes[0]) == _expressions(shapes[1])
        ):
            with mode:
                return torch.empty_strided(one.size(), one.stride(), dtype=one.dtype, device=one.device)
    return torchs(one, other, mode)


def _symbols(value: Any) -> set[Any]:
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return set().union(*(free_unbacked_symbols(each) for each in (*value.size(), *value.stride())))
    return set(free_unbacked_symbols(value)) if isinstance(value, torch.SymInt) else set()


def _expressions(sizes: list[Any]) -> list[Any]:
    return [size.node.expr if isinstance(size, torch.SymInt) else size for size in sizes]
