"""Values of tensors that are the same in every call: made of Python's numbers, and computed of such.

`torch.arange(2, x.dim()).tolist()` and `torch.linspace(0, 1, 5)[1] > 0` are known while a model is traced,
though torch.export takes them for data. `note` follows small tensors from torch's factories through pure
functions; `value_of` gives what such a tensor holds, else None. A tensor that any other function is given, or
that was written since, is not known any more: nor is another view of its memory.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._C import DisableTorchFunction  # to compute with what no trace made
from torch._ops import OpOverloadPacket  # which says what a function takes
from torch._subclasses.fake_tensor import FakeTensor  # what torch.export calls the model with
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch  # likewise

from aotpipe.canonicalize.alias.tensor_storage import storage_of
from aotpipe.canonicalize.values import trace

_MOST_ELEMENTS: Final = 1024

_FACTORIES: Final = frozenset(
    getattr(torch, name)
    for name in "arange as_tensor asarray eye full linspace logspace ones scalar_tensor tensor zeros".split()
)
# By name, as a function of torch's, a method and an operator are different objects.
_PURE: Final = frozenset(
    "abs add all amax amin any argmax argmin argsort bool cat ceil chunk clamp clone concat contiguous"
    " cos count_nonzero cumprod cumsum detach diff div double eq exp expand flatten flip float floor"
    " floor_divide ge gt int isclose isfinite isnan le log logical_and logical_not logical_or long lt"
    " max maximum mean min minimum mul narrow ne neg outer permute pow prod reciprocal remainder repeat"
    " reshape roll round rsqrt select sigmoid sign sin sort split sqrt square squeeze stack std sub"
    " subtract sum t tanh to transpose tril triu trunc type type_as unbind unique unsqueeze var view"
    " where"
    " acos asin atan atan2 bucketize cosh expm1 fmod gather index_select isinf lerp log10 log1p log2"
    " logsumexp nan_to_num searchsorted sinh softmax tan"
    " broadcast_to cartesian_prod clip column_stack dot dstack einsum expand_as fliplr flipud full_like"
    " hstack logical_xor matmul meshgrid movedim new_full new_ones new_tensor new_zeros ones_like pad"
    " reshape_as swapaxes swapdims tile unflatten unfold view_as vstack zeros_like"
    " __abs__ __add__ __and__ __eq__ __floordiv__ __ge__ __getitem__ __gt__ __invert__ __iter__ __le__"
    " __lt__ __mod__ __mul__ __ne__ __neg__ __or__ __pow__ __radd__ __rdiv__ __rfloordiv__ __rmod__"
    " __rmul__ __rpow__ __rsub__ __rtruediv__ __sub__ __truediv__ __xor__".split()
)
# What tells something of a tensor, and gives none.
_TELLING: Final = frozenset(
    "dim size numel stride element_size is_floating_point is_complex is_contiguous nelement ndimension"
    " __len__ item tolist __bool__ __int__ __float__ __index__ __hash__ __format__ __repr__".split()
)
_GETTERS: Final = frozenset(
    getattr(torch.Tensor, name).__get__
    for name in "shape dtype device ndim is_cuda layout requires_grad itemsize nbytes".split()
)


@dataclass(frozen=True, slots=True)
class _Known:
    tensor: torch.Tensor
    value: torch.Tensor
    version: int
    storage: int


class _Constants(dict[int, _Known]):
    """The tensors of a trace whose values are known, by identity."""


def value_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """What a traced tensor holds in every call; None where that is not known."""
    found = trace.part(_Constants).get(id(tensor))
    if found is None:
        return None
    if _version(tensor) != found.version:
        _forget(found.storage)
        return None
    return found.value


def _held(tensor: torch.Tensor) -> torch.Tensor | None:
    """What a tensor holds in every call: one that is not traced is a constant, as the model's numbers are."""
    if isinstance(tensor, FakeTensor):
        return value_of(tensor)
    return tensor if type(tensor) is torch.Tensor and tensor.numel() <= _MOST_ELEMENTS else None


class _Registered(dict[str, tuple[torch.Tensor, int]]):
    """The parameters and buffers of a trace whose values are known, with their versions at first."""


class _Written(set[str]):
    """The names of those that the trace has written or replaced."""


def as_ints(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments of a torch function with ints for known 0-d tensors, where it takes no tensor.

    torch itself would ask such a tensor for its value, and get a symbol.
    """
    if not trace.part(_Constants):
        return args, kwargs
    by_place, by_name = _tensor_places(getattr(func, "__name__", ""))
    given = (
        [
            each if by_place[min(place, len(by_place) - 1)] else pytree.tree_map(_as_int, each)
            for place, each in enumerate(args)
        ]
        if by_place
        else args
    )
    return given, {
        key: value if by_name.get(key, True) else pytree.tree_map(_as_int, value)
        for key, value in kwargs.items()
    }


@functools.cache
def _tensor_places(name: str) -> tuple[Sequence[bool], Mapping[str, bool]]:
    """Whether some form of a function takes tensors at a place, and under a name."""
    if name in ("__getitem__", "__setitem__"):
        return (True, False, True)[: 2 + (name == "__setitem__")], {}
    packet: Any = getattr(torch.ops.aten, name, None)  # a name of Python's may be anything
    overloads = packet.overloads() if isinstance(packet, OpOverloadPacket) else ()  # type: ignore[no-untyped-call]
    forms = [getattr(packet, each)._schema.arguments for each in overloads]  # noqa: SLF001
    by_name: dict[str, bool] = {}
    for each in itertools.chain(*forms):
        by_name[each.name] = by_name.get(each.name, False) or "Tensor" in str(each.type)
    ordered = [[str(each.type) for each in form if not each.kwarg_only] for form in forms]
    places = [
        any("Tensor" in kind for kind in kinds) for kinds in itertools.zip_longest(*ordered, fillvalue="")
    ]
    return places, by_name


def _as_int(value: Any) -> Any:
    if isinstance(value, slice):
        return slice(_as_int(value.start), _as_int(value.stop), _as_int(value.step))
    if not isinstance(value, FakeTensor) or value.dim() or value.dtype not in _INTEGERS:
        return value
    known = value_of(value)
    if known is None:
        return value
    with DisableTorchFunction(), no_dispatch():
        return known.item()


_INTEGERS: Final = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class _AsArrays(list[tuple[torch.Tensor, int]]):
    """The tensors that numpy was given the values of, each as of a version."""


def array_of(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What `numpy` or `__array__` of a known tensor gives, else NotImplemented.

    Eager's array is the tensor's memory: what a trace cannot follow, a write to either, is refused.
    """
    tensor = args[0]
    value = value_of(tensor) if isinstance(tensor, FakeTensor) else None
    if value is None:
        return NotImplemented
    trace.part(_AsArrays).append((tensor, _version(tensor)))
    with DisableTorchFunction(), no_dispatch(), torch.no_grad():
        array = func(value.clone(), *args[1:], **kwargs)
    array.flags.writeable = False
    return array


@contextmanager
def registered_known(module: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Take small parameters and buffers for what they hold, while a module is called in a trace."""
    known = trace.part(_Registered)
    for name, tensor in _registered(module).items():
        if name in values and _is_small(tensor):
            known[name] = (tensor, _version(tensor))
            _take(tensor, values[name])
    yield
    if any(_version(tensor) != version for tensor, version in trace.part(_AsArrays)):
        raise trace.refusal(
            "a tensor is written whose memory numpy has too", "copy one of them before: `.clone()`"
        )
    now = _registered(module)
    trace.part(_Written).update(name for name, (tensor, _) in known.items() if now.get(name) is not tensor)


def registered_values(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What parameters and buffers hold, by name, but for those that share memory with another one."""
    found = _registered(module)
    sharing: dict[int, set[int]] = {}
    for tensor in found.values():
        sharing.setdefault(tensor.untyped_storage().data_ptr(), set()).add(id(tensor))
    return {
        name: tensor.detach()
        for name, tensor in found.items()
        if len(sharing[tensor.untyped_storage().data_ptr()]) == 1
    }


def _registered(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    parameters = dict(module.named_parameters(remove_duplicate=False))
    found = parameters | dict(module.named_buffers(remove_duplicate=False))
    return {name: tensor for name, tensor in found.items() if tensor.layout is torch.strided}


def written() -> set[str]:
    """The names of the parameters and buffers that were taken for known, and that the trace has written."""
    known = trace.part(_Registered).items()
    return trace.part(_Written) | {name for name, (tensor, at) in known if _version(tensor) != at}


def stands_for(operand: torch.Tensor, tensor: torch.Tensor) -> None:
    """Say that an operand of a region holds what a tensor from outside does."""
    value = value_of(tensor)
    if value is not None:
        _take(operand, value)


def note(func: Callable[..., Any], result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Follow a call of a torch function that was traced."""
    if func in _FACTORIES:
        if all(isinstance(leaf, _PLAIN) for leaf in pytree.tree_leaves((args, kwargs))):
            _computed(func, result, args, kwargs)
        return
    if not trace.part(_Constants):
        return
    taken = _tensors((args, kwargs))
    values = {id(leaf): value for leaf in taken if (value := _held(leaf)) is not None}
    if not values:
        return
    name = getattr(func, "__name__", "")
    if name in _TELLING or func in _GETTERS:
        return
    if name not in _PURE or "out" in kwargs:
        for leaf in taken:
            _forget(storage_of(leaf))
        return
    if all(id(leaf) in values for leaf in taken):
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda leaf: values[id(leaf)], (args, kwargs))
        if all(
            isinstance(leaf, (*_PLAIN, torch.Tensor, slice)) for leaf in pytree.tree_leaves((args, kwargs))
        ):
            _computed(func, result, args, kwargs)


_PLAIN: Final = (bool, int, float, str, torch.dtype, torch.device, torch.layout, type(None), type(...))


def _computed(func: Callable[..., Any], result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Compute a call in earnest, and keep what each tensor of its traced result holds."""
    leaves = _tensors(result)
    if not all(map(_is_small, leaves)):
        return
    with DisableTorchFunction(), no_dispatch(), torch.no_grad():
        values = _tensors(func(*args, **kwargs))
    for leaf, value in zip(leaves, values, strict=True):
        if leaf.shape == value.shape and leaf.dtype == value.dtype:
            _take(leaf, value)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _is_small(tensor: torch.Tensor) -> bool:
    sizes: Iterable[Any] = tensor.shape
    if not isinstance(tensor, FakeTensor) or not all(type(size) is int for size in sizes):
        return False
    # A tensor of inference mode does not count how often it was written.
    return not tensor.is_inference() and tensor.device.type == "cpu" and tensor.numel() <= _MOST_ELEMENTS


def _take(tensor: torch.Tensor, value: torch.Tensor) -> None:
    trace.part(_Constants)[id(tensor)] = _Known(tensor, value, _version(tensor), storage_of(tensor))


def _forget(storage: int) -> None:
    known = trace.part(_Constants)
    for key in [key for key, each in known.items() if each.storage == storage]:
        del known[key]


def _version(tensor: torch.Tensor) -> int:
    with DisableTorchFunction():
        return tensor._version  # noqa: SLF001  # it has no public name
