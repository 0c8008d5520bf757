"""numpy on sizes that vary: `np.hanning(n)`, and what is computed of the array until it is a tensor again.

numpy would fix the size to the example's. `torch._numpy`, with which torch.compile runs numpy, makes the same
arrays of tensors. What numpy computes of sizes as numbers (`np.prod(x.shape)`) it computes of symbols, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np
import torch
import torch._numpy
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.operators.unbacked_items import is_varying
from aotpipe.canonicalize.values import host_scalars, trace

torch_numpy: Final[Any] = torch._numpy  # noqa: SLF001  # it has no types, and no other name


def as_torch_takes_it(value: Any) -> Any:
    """The tensor of an array that was made of sizes; any other value itself."""
    if isinstance(value, torch_numpy.ndarray):
        return value.tensor
    if not isinstance(value, np.ndarray) or value.dtype != object:
        return value
    items = value.tolist()
    is_real = any(isinstance(each, float | torch.SymFloat) for each in pytree.tree_leaves(items))
    return torch.tensor(items, dtype=torch.float64 if is_real else torch.int64)


def method(function: Any) -> Callable[..., Any] | None:
    """What stands for a function of numpy's, and for a method of an array that was made of a size."""
    if isinstance(getattr(function, "__self__", None), torch_numpy.ndarray):
        return functools.partial(_called, function)
    if (getattr(function, "__module__", None) or "").split(".")[0] != "numpy":
        return None
    name = getattr(function, "__name__", "")
    own = _OWN.get(name) or getattr(torch_numpy, name, None)

    def either(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        varies = any(isinstance(leaf, torch_numpy.ndarray) for leaf in leaves) or (
            name in _MAKE_ARRAYS and any(map(is_varying, leaves))
        )
        return _called(own, *args, **kwargs) if varies and own is not None else function(*args, **kwargs)

    return either


def _called(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*pytree.tree_map(_argument, args), **pytree.tree_map(_argument, kwargs))


def _argument(value: Any) -> Any:
    if host_scalars.is_host_scalar(value):
        return host_scalars.as_symbol(value)
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return torch_numpy.dtype(np.dtype(value).name)
    return value


def of_no_length() -> AbstractContextManager[None]:
    """Let arrays of sizes that vary index tensors: torch asks for a length, and takes an int alone."""
    return trace.assigned(torch_numpy.ndarray, __len__=_known_length)


def _known_length(array: Any) -> int:
    (size, *_) = array.shape
    if not isinstance(size, int):
        raise TypeError("the length of an array of numpy's that varies")
    return size


def _linspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, **options: Any) -> Any:
    made = torch_numpy.linspace(start, stop, num if endpoint else num + 1, **options)
    return made if endpoint else made[:-1]


_OWN: Final[dict[str, Callable[..., Any]]] = {"linspace": _linspace, "asanyarray": torch_numpy.asarray}
"""Functions of numpy's that `torch._numpy` lacks, or has another form of."""
_MAKE_ARRAYS: Final = frozenset(
    "arange linspace logspace zeros ones full empty eye identity tri "
    "hanning hamming blackman bartlett kaiser".split()
)
