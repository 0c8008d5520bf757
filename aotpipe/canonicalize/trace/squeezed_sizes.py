"""Lets a trace decide whether `squeeze` drops a dim whose size varies.

`x.squeeze()` of one row has a dim less than of two. Torch takes a size that varies for other than one, and
says nothing: at one, what is lowered would give another shape than eager. Here a Dim is compared with one, as
Python would, so that its guard says for which sizes the program is; of a size that only a run knows it is an
assert of the program. `decided()` does so where a model is traced as it is, `of` where it is staged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.overrides import TorchFunctionMode

SQUEEZES: Final = (torch.squeeze, torch.Tensor.squeeze, torch.Tensor.squeeze_)
_SAID: Final = "`squeeze` has a dim of one element, whose number only this call knows"


class decided(TorchFunctionMode):  # noqa: N801  # entered as a function is
    """Inside, each `squeeze` compares the sizes that it may drop with one."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        found = of(func, *args, **kwargs) if func in SQUEEZES else None
        return func(*args, **kwargs) if found is None else found()


class _Dropped(list[int]):
    """Dims that `squeeze` is sure to drop."""


def of(func: Any, input: torch.Tensor, dim: Any = None) -> Callable[[], Any] | None:  # noqa: A002  # torch's name
    """What computes a call of `squeeze`, if a size that it looks at varies.

    It is an op of the dims that are dropped, whatever the sizes of a call. The op by itself looks at them in
    each call of the exported program: one that assumes a size would seem to hold for one element, too.
    """
    dims: Iterable[int] = range(input.dim()) if dim is None else (dim,) if isinstance(dim, int) else dim
    if isinstance(dims, _Dropped) or not all(-input.dim() <= each < input.dim() for each in dims):
        return None
    if not any(isinstance(input.shape[each], torch.SymInt) for each in dims):
        return None
    dropped = _Dropped(each for each in dims if _is_one(input.shape[each]))
    if dropped:
        return lambda: func(input, dropped)
    return lambda: input if func is torch.Tensor.squeeze_ else input.permute(*range(input.dim()))


def _is_one(size: Any) -> bool:
    if (
        isinstance(size, torch.SymInt)
        and free_unbacked_symbols(size)
        and not statically_known_true(size != 1)
    ):
        torch._check(size != 1, lambda: _SAID)  # type: ignore[no-untyped-call]  # noqa: SLF001
        return False
    return bool(size == 1)
