"""Lets gradients that a model takes (`torch.autograd.grad`) be part of a trace of torch.export.

What autograd keeps of an op for its gradient, torch's tracing knows only where it is an operand of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental import proxy_tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import autograd_would_have_decomposed

from aotpipe.canonicalize.values import trace


def known() -> AbstractContextManager[None]:
    """Let gradients read what the ops before them gave (`tanh`), or what was made inside (`linear`).

    Autograd keeps a result as another tensor over the same memory, which torch takes for a constant. It is
    not written in between: autograd raises where it was. An op that is made of others, and keeps results
    of these, is recorded as they are.
    """
    get_slot, set_slot = proxy_tensor.get_proxy_slot, proxy_tensor.set_proxy_slot
    record: Callable[..., Any] = proxy_tensor.proxy_call
    # The tensors are kept, so that no other memory gets the address of theirs.
    results: dict[int, list[torch.Tensor]] = {}

    def noted(found: Any, tracer: Any, proxy: Any) -> None:
        set_slot(found, tracer, proxy)
        if isinstance(found, FakeTensor) and found.requires_grad:
            results.setdefault(_memory(found), []).append(found)

    def looked_up(sought: Any, tracer: Any, *args: Any) -> Any:
        if isinstance(sought, FakeTensor) and sought not in tracer.tensor_tracker:
            same = (each for each in results.get(_memory(sought), ()) if _layout(each) == _layout(sought))
            sought = next((each for each in same if each in tracer.tensor_tracker), sought)
        return get_slot(sought, tracer, *args)

    def recorded(mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        differs = any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)
        if differs and torch.is_grad_enabled() and autograd_would_have_decomposed(func, leaves):
            with mode:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        return record(mode, func, pre_dispatch, args, kwargs)

    return trace.assigned(proxy_tensor, get_proxy_slot=looked_up, set_proxy_slot=noted, proxy_call=recorded)


def _memory(tensor: torch.Tensor) -> int:
    is_strided = tensor.layout is torch.strided
    return tensor.untyped_storage()._cdata if is_strided else 0  # noqa: SLF001  # it has no address


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    sizes = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    numbers = (size.node.expr if isinstance(size, torch.SymInt) else size for size in sizes)
    return (tensor.dtype, tensor.is_conj(), tensor.is_neg(), *numbers)
