"""What torch functions do on traced values that stand for Python's: numbers, and indices that are tensors.

`Traced` is the mode that calls them so; `predicate` gives what an `if` makes of a traced value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch._C import DisableTorchFunction  # to read a tensor that no trace made
from torch._subclasses.fake_tensor import FakeTensor  # what torch.export calls the model with
from torch.fx.experimental.symbolic_shapes import (  # which symbols a run of the graph alone knows
    free_unbacked_symbols,
    statically_known_true,
)
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch  # likewise

from aotpipe.canonicalize.alias import rebinding, tensor_storage
from aotpipe.canonicalize.trace import constants, decisions, indexing
from aotpipe.canonicalize.values import dynamic_list, host_scalars, refusals, trace
from aotpipe.canonicalize.values.optional_values import OptionalValue

_set_grad_enabled: Final = torch._C._set_grad_enabled  # noqa: SLF001  # what `no_grad` calls
_MOST_LISTED: Final = 64
_TEXTS: Final = (torch.Tensor.__format__, torch.Tensor.__repr__)
_VALUES: Final = (
    torch.Tensor.__bool__,
    torch.Tensor.__int__,
    torch.Tensor.__float__,
    torch.Tensor.__index__,
    torch.Tensor.item,
    torch.Tensor.tolist,
)


def is_traced(value: object) -> bool:
    """Whether a value is known to a run of the graph only."""
    if isinstance(value, torch.Tensor):
        return isinstance(value, FakeTensor) and value.constant is None and constants.value_of(value) is None
    if isinstance(value, torch.SymBool):
        known = statically_known_true(value) or statically_known_true(value == False)  # noqa: E712
        return bool(free_unbacked_symbols(value)) and not known
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return bool(free_unbacked_symbols(value))
    return isinstance(value, OptionalValue) or dynamic_list.is_dynamic_list(value)


def is_staged(value: object) -> bool:
    """Whether a value is known to a run of the graph that is traced now only."""
    return trace.is_on() and is_traced(value)


def as_tensor(value: Any) -> torch.Tensor:
    """A traced value as a tensor; torch's symbols become numbers."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, OptionalValue):
        return as_tensor(value.payload)
    kind = torch.int64 if isinstance(value, torch.SymInt) else torch.get_default_dtype()
    dtype = torch.bool if isinstance(value, torch.SymBool) else kind
    return host_scalars.as_host_scalar(torch.full((), value, dtype=dtype))


def predicate(value: Any) -> torch.Tensor:
    """A traced value as what an `if` makes of it: one bool."""
    if isinstance(value, OptionalValue):
        held = value.payload
        return value.present.logical_and(predicate(held)) if is_traced(held) else value.present
    if isinstance(value, list):
        return dynamic_list.is_filled(value)
    tensor = as_tensor(value)
    if tensor.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    truth: torch.Tensor = tensor if tensor.dtype == torch.bool else tensor != 0
    return truth.reshape(()) if truth.dim() else truth


_LIKE_ANOTHER: Final = {
    torch.Tensor.view_as: torch.Tensor.view,
    torch.Tensor.reshape_as: torch.Tensor.reshape,
    torch.Tensor.expand_as: torch.Tensor.expand,
    torch.Tensor.type_as: torch.Tensor.to,
    torch.Tensor.to: torch.Tensor.to,
}


def _without_example(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """`x.view(y.shape)` for `x.view_as(y)`: a region would take an operand that no op of it reads."""
    if func not in _LIKE_ANOTHER:
        return func, args, kwargs
    other = args[1] if len(args) > 1 else kwargs.get("other")
    if not isinstance(other, torch.Tensor):
        return func, args, kwargs
    plain = _LIKE_ANOTHER[func]
    given = other.dtype if plain is torch.Tensor.to else other.shape
    rest = {name: value for name, value in kwargs.items() if name != "other"}
    return plain, (args[0], given, *args[2:]), rest


def _equal(one: torch.Tensor, other: torch.Tensor) -> Any:
    if one.shape != other.shape:
        return False
    return host_scalars.as_host_scalar((one == other).all())


def _allclose(one: torch.Tensor, other: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return host_scalars.as_host_scalar(torch.isclose(one, other, *args, **kwargs).all())


def _is_nonzero(tensor: torch.Tensor) -> Any:
    return host_scalars.as_host_scalar(predicate(tensor))


# Torch's functions that give a bool of Python's.
_ANSWERS: Final[dict[Any, Callable[..., Any]]] = {
    torch.equal: _equal,
    torch.Tensor.equal: _equal,
    torch.allclose: _allclose,
    torch.Tensor.allclose: _allclose,
    torch.is_nonzero: _is_nonzero,
    torch.Tensor.is_nonzero: _is_nonzero,
}


class Traced(TorchFunctionMode):
    """Calls torch functions with numbers and indices in the form that they take.

    A write in place is repeated on the tensor's other names.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if args and dynamic_list.is_dynamic_list(args[0]):
            with self:  # what it does with the buffers is called as the model's own
                return dynamic_list.called(func, args, kwargs)
        target = rebinding.written(func, args, kwargs)
        if target is not None:
            rebinding.refuse_lost(target)
        result = self._called(func, args, kwargs)
        tensor_storage.made(result, (*args, *kwargs.values()))
        if target is None:
            return result
        with self:  # what is written then is called as the model's own
            rebinding.repeat(target)
        return result

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        if any(isinstance(each, OptionalValue) for each in (*args, *kwargs.values())):
            with self:
                return trace.operators().call_with_optional(func, args, kwargs)
        if func is _set_grad_enabled:
            # A program computes no gradients; torch.export would cut the graph there, and lose its branches.
            with DisableTorchFunction():
                return func(*args, **kwargs)
        func, args, kwargs = _without_example(func, args, kwargs)
        if func in _VALUES:
            # A tensor that the model keeps beside its buffers is a constant, as its numbers are.
            known = constants.value_of(args[0]) if isinstance(args[0], FakeTensor) else args[0]
            if known is not None:
                with DisableTorchFunction(), no_dispatch():
                    return func(known, *args[1:], **kwargs)
        if func in _ANSWERS:
            decisions.expression("answer")
            with self:
                return _ANSWERS[func](*args, **kwargs)
        if func is torch.Tensor.item and is_traced(args[0]):
            decisions.expression("item")
            return host_scalars.item(args[0])
        if func in _UNBINDS and any(map(is_traced, args[0].shape)):
            return _unbound(func, *args, **kwargs)
        if func is torch.Tensor.tolist and is_traced(args[0]) and args[0].numel() <= _MOST_LISTED:
            return _listed(args[0])
        if func is torch.Tensor.__getitem__ and indexing.is_traced_index(args[1]):
            decisions.expression("index")
            return indexing.get(*args)
        if func is torch.Tensor.__setitem__ and indexing.is_traced_index(args[1]):
            decisions.expression("index")
            return indexing.put(*args)
        if func in _TEXTS and host_scalars.is_host_scalar(args[0]):
            return refusals.text()
        func = host_scalars.out_of_place(func, args)
        args, kwargs = host_scalars.prepared(func, args, kwargs)
        result = func(*args, **kwargs)
        host_scalars.note(func, result, (args, kwargs))
        constants.note(func, result, args, kwargs)
        return result


_UNBINDS: Final = (torch.Tensor.unbind, torch.unbind)


def _unbound(func: Any, tensor: torch.Tensor, dim: int = 0) -> Any:
    return trace.operators().items_of(tensor.movedim(dim, 0)) or func(tensor, dim)


def _listed(tensor: torch.Tensor) -> Any:
    if not tensor.dim():
        return host_scalars.item(tensor)
    return [_listed(each) for each in tensor.unbind(0)]
