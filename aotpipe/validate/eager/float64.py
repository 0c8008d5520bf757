"""Runs a model in float64 whatever dtypes its code names.

`widened(tensor)` is its float64 (complex64: complex128) form; inside `with Widen():` every op gets widened
tensors and widened dtypes, so that `x.to(torch.float32)`, a constant of float32 or `torch.zeros(...,
dtype=torch.float16)` compute in float64 too. Raises `CannotWiden` where the bits of a float are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import torch
from torch._ops import HigherOrderOperator
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

# Both imports are private: a dispatch mode is the one place that sees every op, and torch's own tools
# (flop counter, debug mode) are written with it; higher-order ops are told apart by their class.

WIDE: Final[Mapping[torch.dtype, torch.dtype]] = {
    torch.float8_e4m3fn: torch.float64,
    torch.float8_e5m2: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


_NARROW: Final[Mapping[torch.dtype, torch.dtype]] = {
    torch.float64: torch.float32,
    torch.complex128: torch.complex64,
}


class CannotWiden(Exception):
    """The model reinterprets a float's bits, which float64 has others of."""


def widened(value: Any) -> Any:
    """A tensor or a dtype in its wide form; anything else as it is."""
    if isinstance(value, torch.Tensor):
        wide = WIDE.get(value.dtype)
        return value if wide is None else value.to(wide)
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def _narrowed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        narrow = _NARROW.get(value.dtype)
        return value if narrow is None else value.to(narrow)
    return _NARROW.get(value, value) if isinstance(value, torch.dtype) else value


class Widen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode in which all floating-point work is done in float64."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._defaults: list[torch.dtype] = []

    def __enter__(self) -> Self:
        # Factories and int / int use the default dtype without naming it. Branches enter once more.
        self._defaults.append(torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)  # type: ignore[no-untyped-call]
        torch.set_default_dtype(self._defaults.pop())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one op on wide operands."""
        if func is torch.ops.aten.view.dtype:
            raise CannotWiden("a tensor is viewed as another dtype")
        if isinstance(func, HigherOrderOperator):
            # Its branches run while the mode is off, so each turns it on again.
            args, kwargs = pytree.tree_map(self._inside, (args, kwargs or {}))
            return func(*args, **kwargs)
        args, kwargs = pytree.tree_map(widened, (args, kwargs or {}))
        try:
            return func(*args, **kwargs)
        except (RuntimeError, NotImplementedError):
            if func._schema.is_mutable:  # noqa: SLF001  # an op shows its schema nowhere else
                raise
        # A kernel without a float64 form: this one op is computed in float32.
        args, kwargs = pytree.tree_map(_narrowed, (args, kwargs))
        return pytree.tree_map(widened, func(*args, **kwargs))

    def _inside(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) or not callable(value):
            return widened(value)
        body: Callable[..., Any] = value

        def run(*args: Any) -> Any:
            with self:
                return body(*args)

        return run
