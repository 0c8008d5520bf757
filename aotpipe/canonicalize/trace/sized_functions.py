"""Functions of torch that take a size as an int alone, for sizes that are Dims or that only a run knows.

torch would fix such a size to the example's. Here the same values are computed by ops that take any.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
import torch._refs
import torch.nn.functional as F
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.trace import squeezed_sizes
from aotpipe.canonicalize.values import host_scalars, trace

# The mode of `torch.cdist` that asks for no size.
_EXACT: Final = "donot_use_mm_for_euclid_dist"


def of(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[], Any] | None:
    """What computes a call, if its function takes no size that varies and is given one."""
    kwargs = {_OWN_NAMES.get(name, name): value for name, value in kwargs.items()}
    if func in squeezed_sizes.SQUEEZES:
        names = {"input" if name == "tensor" else name: value for name, value in kwargs.items()}
        return squeezed_sizes.of(func, *args, **names)
    if func in _PIECES:
        return _pieces(func, *args, **kwargs)
    if func in _SHAPED:
        return _inferred(func, *args, **kwargs)
    if func in _LOG_SUMS:
        return _log_sum(*args, **kwargs)
    if func is F.scaled_dot_product_attention:
        return _attention(*args, **kwargs)
    if func in _POOLS:
        return _pooled(_POOLS[func], *args, **kwargs)
    leaves = pytree.tree_leaves((args, kwargs)) if func in _FUNCTIONS else []
    if func in _BY_SHAPE and _EXACT not in leaves:
        leaves = [size for leaf in leaves if isinstance(leaf, torch.Tensor) for size in leaf.shape]
    # A tensor may be a size, too; the first argument may be the tensor that a function is about.
    varies = [
        isinstance(leaf, torch.SymInt | torch.SymFloat)
        or host_scalars.is_host_scalar(leaf)
        or (place and isinstance(leaf, torch.Tensor) and not leaf.dim() and not leaf.is_floating_point())
        for place, leaf in enumerate(leaves)
    ]
    if not any(varies) or (func in _OF_NUMBERS and any(isinstance(leaf, torch.Tensor) for leaf in leaves)):
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


def _triangle(
    is_inside: Callable[[Any, Any], Any], row: Any, col: Any, offset: Any = 0, **options: Any
) -> torch.Tensor:
    wanted = options.pop("dtype", None) or torch.int64
    rows, columns = torch.arange(_size(row), **options)[:, None], torch.arange(_size(col), **options)
    found: torch.Tensor = is_inside(columns - rows, offset).nonzero()
    return found.t().to(wanted)


def _window(made: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A window, from its values at the parts of a period that have passed."""

    def window(size: Any, periodic: bool = True, *more: Any, **options: Any) -> torch.Tensor:
        wanted = options.pop("dtype", None) or torch.get_default_dtype()
        own = {name: options.pop(name) for name in ("beta",) if name in options}
        length = _size(size)
        count = torch.full((), length, dtype=torch.int64)
        period = (count if periodic else count - 1).clamp_min(1)
        passed = torch.arange(length, **options).to(wanted) / period
        values: torch.Tensor = torch.where(count == 1, 1.0, made(passed, *more, **own))
        return values.to(wanted)

    return window


def _cosines(*weights: float) -> Callable[..., torch.Tensor]:
    return _window(
        lambda passed: sum(
            weight * torch.cos(order * (2 * math.pi) * passed) for order, weight in enumerate(weights)
        )  # type: ignore[arg-type,return-value]
    )


def _kaiser(passed: torch.Tensor, beta: float = 12.0) -> torch.Tensor:
    width = (1 - (2 * passed - 1).square()).clamp_min(0).sqrt()
    made: torch.Tensor = torch.i0(beta * width) / torch.i0(torch.full((), beta, dtype=passed.dtype))
    return made


def _vander(x: torch.Tensor, N: Any = None, increasing: bool = False) -> torch.Tensor:  # noqa: N803  # torch's
    columns = x.shape[0] if N is None else N
    wide = x if x.is_floating_point() or x.is_complex() else x.to(torch.int64)
    factors = wide[:, None].expand(-1, columns)
    powers: torch.Tensor = torch.where(torch.arange(columns) == 0, torch.ones_like(factors), factors).cumprod(
        1
    )
    return powers if increasing else powers.flip(1)


def _tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> torch.Tensor:
    del requires_grad  # a program has no gradients
    if isinstance(data, list | tuple):
        return torch.stack([_tensor(each, dtype=dtype, device=device) for each in data])
    is_real = isinstance(data, float | torch.SymFloat)
    kind = dtype or (
        torch.get_default_dtype() if is_real else torch.bool if isinstance(data, bool) else torch.int64
    )
    return torch.full((), data, dtype=kind, device=device)


def _kron(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    dims = max(tensor.dim(), other.dim())
    left, right = (each[(None,) * (dims - each.dim())] for each in (tensor, other))
    sizes = [one * other for one, other in zip(left.shape, right.shape, strict=True)]
    for dim in range(dims):
        left, right = left.unsqueeze(2 * dim + 1), right.unsqueeze(2 * dim)
    return (left * right).reshape(sizes)


def _combinations(tensor: torch.Tensor, r: int = 2, with_replacement: bool = False) -> torch.Tensor:
    if r != 2:
        return torch.combinations(tensor, r, with_replacement)
    size = tensor.shape[0]
    return tensor[_triangle(operator.ge, size, size, 0 if with_replacement else 1)].t()


def _pooled(
    reduced: Callable[..., torch.Tensor], tensor: torch.Tensor, kernel_size: Any, *more: Any, **options: Any
) -> Callable[[], Any] | None:
    """A pool whose window is all of each axis, so that each has one."""
    sizes = kernel_size if isinstance(kernel_size, tuple | list) else (kernel_size,)
    usual = {"padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}
    given = {name: value for name, value in options.items() if name != "stride"}
    is_usual = not more[1:] and given.items() <= usual.items()
    if not is_usual or not any(isinstance(each, torch.SymInt) for each in sizes):
        return None
    dims = range(-len(sizes), 0)
    if not all(statically_known_true(tensor.shape[dim] == sizes[dim]) for dim in dims):
        return None
    return lambda: reduced(tensor, tuple(dims), keepdim=True)


def _log_sum(tensor: torch.Tensor, dim: Any, keepdim: bool = False) -> Callable[[], Any] | None:
    """`logsumexp` of a tensor of which only a run knows whether it is empty; torch would ask."""
    if not tensor.is_floating_point() or not free_unbacked_symbols(tensor):
        return None
    dims = tuple(dim) if isinstance(dim, list | tuple) else (dim,)

    def computed() -> torch.Tensor:
        found = tensor
        for each in dims:
            row = [1 if at == each % found.dim() else size for at, size in enumerate(found.shape)]
            most = torch.cat((found, found.new_full(row, -math.inf)), each).amax(each, keepdim=True)
            most = torch.where(most.isinf(), 0.0, most)
            found = (found - most).exp().sum(each, keepdim=True).log() + most
        return found if keepdim else found.squeeze(dims)

    return computed


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Callable[[], Any] | None:
    """Attention over as many rows as only a run knows: torch asks for their number to choose a kernel."""
    given = [each for each in (query, key, value, attn_mask) if each is not None]
    if not any(map(free_unbacked_symbols, given)):
        return None
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, -math.inf).to(query.dtype)

    def computed() -> torch.Tensor:
        found: torch.Tensor = torch._scaled_dot_product_attention_math(  # noqa: SLF001  # has no public name
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]
        return found

    return computed


def _frequencies(size: Any, d: float = 1.0, *, real: bool, **options: Any) -> torch.Tensor:
    length = _size(size)
    at = torch.arange(length // 2 + 1 if real else length, **options)
    signed = at if real else torch.where(at < (length + 1) // 2, at, at - length)
    return signed.to(torch.get_default_dtype()).mul(1.0 / (length * d))


def _one_hot(tensor: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
    size = _size(num_classes)
    inside = (tensor >= 0).logical_and(tensor < size).all()
    trace.operators().require(inside, RuntimeError("Class values must be smaller than num_classes."))
    return (tensor[..., None] == torch.arange(size, device=tensor.device)).to(torch.int64)


def _istft(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch._refs.istft(tensor, *args, **kwargs)  # noqa: SLF001  # by ops


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


def _inferred(func: Any, tensor: torch.Tensor, *sizes: Any, **options: Any) -> Callable[[], Any] | None:
    """`reshape` with a -1 beside sizes that only a run knows: torch would ask whether one is zero."""
    given = tuple(options.get("shape", sizes))
    if len(given) == 1 and isinstance(given[0], tuple | list):
        given = tuple(given[0])
    whole = [each for each in given if not _is_inferred(each)]
    if len(whole) != len(given) - 1 or not free_unbacked_symbols(tensor):
        return None
    if not free_unbacked_symbols(product := math.prod(map(_size, whole))):
        return None
    rest = tensor.numel() // product
    if not statically_known_true(tensor.numel() == rest * product):
        return None

    def computed() -> torch.Tensor:
        torch._check(product != 0, lambda: _AMBIGUOUS)  # type: ignore[no-untyped-call]  # noqa: SLF001
        found: torch.Tensor = func(tensor, tuple(rest if _is_inferred(each) else each for each in given))
        return found

    return computed


def _is_inferred(size: Any) -> bool:
    return isinstance(size, int) and size == -1


_SHAPED: Final = (torch.reshape, torch.Tensor.reshape, torch.Tensor.view)
_AMBIGUOUS: Final = "a dim of -1 can be any beside a size of zero"
_PIECES: Final = (torch.chunk, torch.Tensor.chunk, torch.split, torch.Tensor.split)
_LOG_SUMS: Final = (torch.logsumexp, torch.Tensor.logsumexp, torch.special.logsumexp)
_OWN_NAMES: Final = {
    "input": "tensor",
    **dict.fromkeys(("chunks", "split_size", "split_size_or_sections"), "by"),
    **dict.fromkeys(("n", "window_length"), "size"),
    "axis": "dim",
    "keepdims": "keepdim",
}
"""Arguments of torch that functions give by name -> what they are called here."""
_OF_NUMBERS: Final = (torch.tensor, torch.as_tensor)
_BY_SHAPE: Final = (torch.cdist, torch.vander, torch.kron, torch.combinations)
"""Functions that ask for the sizes of their tensors."""
_POOLS: Final[dict[Any, Callable[..., torch.Tensor]]] = {
    **dict.fromkeys((F.avg_pool1d, F.avg_pool2d, F.avg_pool3d), torch.mean),
    **dict.fromkeys((F.max_pool1d, F.max_pool2d, F.max_pool3d, torch.max_pool1d), torch.amax),
}
_FUNCTIONS: Final[dict[Any, Callable[..., torch.Tensor]]] = {
    torch.linspace: _linspace,
    torch.logspace: _logspace,
    torch.tril_indices: functools.partial(_triangle, operator.le),
    torch.triu_indices: functools.partial(_triangle, operator.ge),
    torch.hann_window: _cosines(0.5, -0.5),
    torch.hamming_window: _cosines(0.54, -0.46),
    torch.blackman_window: _cosines(0.42, -0.5, 0.08),
    torch.bartlett_window: _window(lambda passed: 1 - (2 * passed - 1).abs()),
    torch.kaiser_window: _window(_kaiser),
    **dict.fromkeys(_OF_NUMBERS, _tensor),
    **dict.fromkeys((torch.istft, torch.Tensor.istft), _istft),
    torch.vander: _vander,
    torch.kron: _kron,
    torch.combinations: _combinations,
    torch.fft.fftfreq: functools.partial(_frequencies, real=False),
    torch.fft.rfftfreq: functools.partial(_frequencies, real=True),
    F.one_hot: _one_hot,
    torch.cdist: lambda x1, x2, p=2.0, *_, **__: torch.cdist(x1, x2, p, _EXACT),
}
