"""Functions of torch that take a size as an int alone, for sizes that are Dims or that only a run knows.

torch would fix such a size to the example's. Here the same values are computed by ops that take any.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.values import host_scalars, trace

# The mode of `torch.cdist` that asks for no size.
_EXACT: Final = "donot_use_mm_for_euclid_dist"


def of(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[], Any] | None:
    """What computes a call, if its function takes no size that varies and is given one."""
    if func in _PIECES:
        return _pieces(func, *args, **kwargs)
    leaves = pytree.tree_leaves((args, kwargs)) if func in _FUNCTIONS else []
    if func is torch.cdist and _EXACT not in leaves:
        leaves = [size for leaf in leaves if isinstance(leaf, torch.Tensor) for size in leaf.shape]
    # A tensor may be a size, too; the first argument may be the tensor that a function is about.
    varies = [
        isinstance(leaf, torch.SymInt)
        or host_scalars.is_host_scalar(leaf)
        or (place and isinstance(leaf, torch.Tensor) and not leaf.dim() and not leaf.is_floating_point())
        for place, leaf in enumerate(leaves)
    ]
    if not any(varies):
        return None
    return functools.partial(_FUNCTIONS[func], *args, **kwargs)


def _size(given: Any) -> Any:
    return host_scalars.as_symbol(given) if isinstance(given, torch.Tensor) else given


def _linspace(start: Any, end: Any, steps: Any, **options: Any) -> torch.Tensor:
    wanted = options.pop("dtype", None) or torch.get_default_dtype()
    size = _size(steps)
    at = torch.arange(size, **options)
    last = torch.full((), size, dtype=torch.int64) - 1
    step = (end - start) / last.clamp_min(1).to(wanted)
    # As torch does it, so that both ends are exact.
    from_start, from_end = start + step * at, end - step * (last - at)
    near = (at * 2 <= last - 1).logical_or(at == 0)
    return torch.where(near, from_start, from_end).to(wanted)


def _logspace(start: Any, end: Any, steps: Any, base: float = 10.0, **options: Any) -> torch.Tensor:
    return torch.pow(base, _linspace(start, end, steps, **options))


def _triangle(*, upper: bool) -> Callable[..., torch.Tensor]:
    def indices(row: Any, col: Any, offset: Any = 0, **options: Any) -> torch.Tensor:
        wanted = options.pop("dtype", None) or torch.int64
        rows, columns = torch.arange(_size(row), **options)[:, None], torch.arange(_size(col), **options)
        away = columns - rows
        found: torch.Tensor = (away >= offset if upper else away <= offset).nonzero()
        return found.t().to(wanted)

    return indices


def _window(*weights: float) -> Callable[..., torch.Tensor]:
    def window(size: Any, periodic: bool = True, **options: Any) -> torch.Tensor:
        wanted = options.pop("dtype", None) or torch.get_default_dtype()
        length = _size(size)
        count = torch.full((), length, dtype=torch.int64)
        period = (count if periodic else count - 1).clamp_min(1)
        angle = torch.arange(length, **options).to(wanted) * (2 * math.pi) / period
        made = sum(weight * torch.cos(order * angle) for order, weight in enumerate(weights))
        values: torch.Tensor = torch.where(count == 1, 1.0, made)
        return values.to(wanted)

    return window


def _frequencies(size: Any, d: float = 1.0, **options: Any) -> torch.Tensor:
    length = _size(size)
    at = torch.arange(length, **options)
    signed = torch.where(at < (length + 1) // 2, at, at - length).to(torch.get_default_dtype())
    return signed.mul(1.0 / (length * d))


def _real_frequencies(size: Any, d: float = 1.0, **options: Any) -> torch.Tensor:
    length = _size(size)
    at = torch.arange(length // 2 + 1, **options).to(torch.get_default_dtype())
    return at.mul(1.0 / (length * d))


def _one_hot(classes: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
    size = _size(num_classes)
    inside = (classes >= 0).logical_and(classes < size).all()
    trace.operators().add_assert(inside, "RuntimeError: Class values must be smaller than num_classes.")
    return (classes[..., None] == torch.arange(size, device=classes.device)).to(torch.int64)


def _distances(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, compute_mode: str = "") -> torch.Tensor:
    del compute_mode
    return torch.cdist(x1, x2, p, _EXACT)


def _pieces(func: Any, tensor: torch.Tensor, by: Any, dim: int = 0) -> Callable[[], Any] | None:
    """`chunk` and `split` into pieces that are as many and equal whatever the size is."""
    size = tensor.shape[dim]
    if not isinstance(by, int | torch.SymInt) or not isinstance(size, torch.SymInt):
        return None
    is_chunk = func in (torch.chunk, torch.Tensor.chunk)
    count = by if is_chunk else size.node.hint // (by.node.hint if isinstance(by, torch.SymInt) else by)
    if not isinstance(count, int) or not statically_known_true(size == count * (length := size // count)):
        return None
    if not is_chunk and not statically_known_true(length == by):
        return None
    return lambda: tuple(tensor.narrow(dim, at * length, length) for at in range(count))


_PIECES: Final = (torch.chunk, torch.Tensor.chunk, torch.split, torch.Tensor.split)
_FUNCTIONS: Final[dict[Any, Callable[..., torch.Tensor]]] = {
    torch.linspace: _linspace,
    torch.logspace: _logspace,
    torch.tril_indices: _triangle(upper=False),
    torch.triu_indices: _triangle(upper=True),
    torch.hann_window: _window(0.5, -0.5),
    torch.hamming_window: _window(0.54, -0.46),
    torch.blackman_window: _window(0.42, -0.5, 0.08),
    torch.fft.fftfreq: _frequencies,
    torch.fft.rfftfreq: _real_frequencies,
    torch.nn.functional.one_hot: _one_hot,
    torch.cdist: _distances,
}
