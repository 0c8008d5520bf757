"""Modes in which a model runs in other dtypes than its code names: in float64, or under a precision policy.

`widened(tensor)` is its float64 (complex64: complex128) form; inside `with widen():` every op gets widened
tensors and widened dtypes, so that `x.to(torch.float32)`, a constant of float32 or `torch.zeros(...,
dtype=torch.float16)` compute in float64 too. Raises `CannotWiden` where the bits of a float are looked at.

Inside `with narrow(policy):` products get operands in the lower dtype, islands in float32, and all other ops
the widest that they are given; `passes.precision` writes the same into programs.

Inside `with dtypes_unwidened():` a wide tensor's `dtype` is that which the model would see.

Inside `with ties_decided(first=...):` it is known which of equal elements an op takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch._ops import HigherOrderOperator
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

# Both imports are private: a dispatch mode is the one place that sees every op, and torch's own tools
# (flop counter, debug mode) are written with it; higher-order ops are told apart by their class.
from torch.utils._python_dispatch import TorchDispatchMode

from aotpipe.core.precision import Precision
from aotpipe.passes.precision import Cast, Casting, is_mutable, name_of

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
_DTYPE: Final = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]  # torch's stubs have a value there
_NO_DEVICE: Final = "xla"
TIES: Final = frozenset({"topk", "sort", "kthvalue", "median", "nanmedian", "mode"})
"""Ops that may take any of equal elements."""


class CannotWiden(Exception):
    """The model reinterprets a float's bits, which float64 has others of."""


def widened(value: Any) -> Any:
    """A tensor or a dtype in its wide form; anything else as it is."""
    return _in(WIDE, value)


def _in(dtypes: Mapping[torch.dtype, torch.dtype], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtypes[value.dtype]) if value.dtype in dtypes else value
    return dtypes.get(value, value) if isinstance(value, torch.dtype) else value


class _Ops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every op, within torch's functions and within the branches of higher-order ops too.

    `run` runs one op that has no branches; `carried` gives what a branch takes or gives the dtype that
    branches carry.
    """

    supports_higher_order_operators = True

    def __init__(
        self, run: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any], carried: Callable[[Any], Any]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run
        self._carried = carried

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one op."""
        if isinstance(func, HigherOrderOperator):
            # Its branches run while the mode is off, so each turns it on again.
            args, kwargs = pytree.tree_map(self._inside, (args, kwargs or {}))
            return func(*args, **kwargs)
        return self._run(func, args, kwargs or {})

    def _inside(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor | torch.dtype) or not callable(value):
            return self._carried(value)
        body: Callable[..., Any] = value

        def run(*args: Any) -> Any:
            with self:
                return pytree.tree_map(self._carried, body(*args))

        return run


@contextmanager
def widen() -> Iterator[None]:
    """In this block all floating-point work is done in float64."""
    before = torch.get_default_dtype()
    # Factories and int / int use the default dtype without naming it.
    torch.set_default_dtype(torch.float64)
    try:
        with _Ops(_run_wide, widened):
            yield
    finally:
        torch.set_default_dtype(before)


def _run_wide(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if func is torch.ops.aten.view.dtype:
        raise CannotWiden("a tensor is viewed as another dtype")
    args, kwargs = pytree.tree_map(widened, (args, kwargs))
    try:
        return func(*args, **kwargs)
    except (RuntimeError, NotImplementedError):
        if func._schema.is_mutable:  # noqa: SLF001  # an op shows its schema nowhere else
            raise
    # A kernel without a float64 form: this one op is computed in float32.
    args, kwargs = pytree.tree_map(lambda value: _in(_NARROW, value), (args, kwargs))
    return pytree.tree_map(widened, func(*args, **kwargs))


class _Unwidened(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one function; the dtype of a tensor is its narrow one."""
        found = func(*args, **(kwargs or {}))
        return _NARROW.get(found, found) if func == _DTYPE else found


def dtypes_unwidened() -> AbstractContextManager[object]:
    """In this block `tensor.dtype` of float64 is float32, of complex128 complex64.

    A model that asks for its input's dtype (`if x.dtype != torch.float32: raise`) then does in float64 what
    it does in its own dtypes. A tensor that is float64 in the model too is shown as float32.
    """
    return _Unwidened()


@contextmanager
def narrow(policy: Precision) -> Iterator[None]:
    """In this block a policy decides what each op is computed in."""
    casting = Casting(policy)

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _narrowed(casting, name_of(func), func, args, kwargs, mutable=is_mutable(func))

    # torch's recurrent layers compare the dtypes of input and weights, unless some autocast is on: that of a
    # device without tensors changes nothing else.
    torch.set_autocast_enabled(_NO_DEVICE, True)
    try:
        # The branches of higher-order ops carry float32.
        with _NarrowFunctions(casting), _Ops(run, partial(_cast, cast=casting.up)):
            yield
    finally:
        torch.set_autocast_enabled(_NO_DEVICE, False)


@contextmanager
def ties_decided(*, first: bool) -> Iterator[None]:
    """Let ops take the first, or the last, of equal elements where torch leaves open which.

    These are `topk`, an unstable `sort`, and the indices of `kthvalue`, `median`, `nanmedian` and `mode`.
    """

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = func(*args, **kwargs)
        if name_of(func) not in TIES or not isinstance(found, tuple) or not args[0].dim():
            return found
        bound = _bound(func, args, kwargs)
        tensor, dim = bound["self"], bound["dim"]
        if bound.get("stable"):
            return found
        if name_of(func) in ("sort", "topk"):
            ordered = tensor if first else tensor.flip(dim)
            descending = bound.get("descending", bound.get("largest"))
            values, places = ordered.sort(dim=dim, descending=descending, stable=True)
            values, places = (each.narrow(dim, 0, found[0].shape[dim]) for each in (values, places))
            places = places if first else tensor.shape[dim] - 1 - places
        elif tensor.shape[dim]:
            values = found[0]
            kept = values if bound["keepdim"] else values.unsqueeze(dim)
            equal = (tensor == kept) | ((tensor != tensor) & (kept != kept))
            # Of equal elements `argmax` takes the first.
            place = (
                (equal if first else equal.flip(dim)).to(torch.uint8).argmax(dim, keepdim=bound["keepdim"])
            )
            places = place if first else tensor.shape[dim] - 1 - place
        else:
            return found
        return type(found)((values, places))

    with _Ops(run, lambda value: value):
        yield


def _bound(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an op by name, with their defaults."""
    # It is private, and the only place that names them.
    schema = func._schema.arguments  # noqa: SLF001
    defaults = {each.name: each.default_value for each in schema if each.has_default_value()}
    return defaults | dict(zip((each.name for each in schema), args, strict=False)) | kwargs


class _NarrowFunctions(TorchFunctionMode):
    """Sees functions that torch takes apart, and which refuse operands of different dtypes before."""

    def __init__(self, casting: Casting) -> None:
        super().__init__()
        self._casting = casting

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one function."""
        name = str(getattr(func, "__name__", ""))
        mutable = name.startswith("__") or name.endswith("_")
        return _narrowed(self._casting, name, func, args, kwargs or {}, mutable=mutable)


def _narrowed(
    casting: Casting, name: str, function: Any, args: Any, kwargs: dict[str, Any], *, mutable: bool
) -> Any:
    """Call a function on cast operands, in the first way that it takes."""
    leaves = pytree.tree_leaves((args, kwargs))
    dtypes = [leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if casting.lower not in dtypes and (torch.float32 not in dtypes or casting.policy.kind(name) == "other"):
        return function(*args, **kwargs)
    asked = any(isinstance(leaf, torch.dtype) for leaf in leaves)
    trials = list(casting.trials(name, dtypes, mutable=mutable))
    for number, (before, after) in enumerate(trials):
        try:
            found = function(*_cast(args, before), **_cast(kwargs, before))
        except (RuntimeError, NotImplementedError):
            if number + 1 == len(trials):
                raise
            continue
        return found if asked else _cast(found, after)
    raise AssertionError(name)


def _cast(values: Any, cast: Cast) -> Any:
    def one(tensor: torch.Tensor) -> torch.Tensor:
        wanted = cast(tensor.dtype)
        return tensor if wanted is tensor.dtype else tensor.to(wanted)

    return pytree.tree_map_only(torch.Tensor, one, values)
