"""What torch functions do on traced values that stand for Python's: numbers, and indices that are tensors.

`Traced` is the mode that calls them so; `predicate` gives what an `if` makes of a traced value.

For the value of `i` in `x[i]`, `x[:, i] = v` or `x[i : i + 3]` torch itself would ask. Here the rows are
gathered, and written as scattered ones. What is gathered is a copy where eager gives a view, and a write in
place is repeated on the other one.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

import torch
import torch._numpy
from torch._C import (
    DisableTorchFunction,  # to read a tensor that no trace made
    _len_torch_function_stack,  # no public way to it
)
from torch._subclasses.fake_tensor import FakeTensor  # what torch.export calls the model with
from torch.fx.experimental.symbolic_shapes import (  # which symbols a run of the graph alone knows
    free_unbacked_symbols,
    statically_known_true,
)
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch  # likewise

from aotpipe.canonicalize.alias import rebinding, tensor_storage
from aotpipe.canonicalize.trace import constants, decisions, random_draws, sized_functions
from aotpipe.canonicalize.values import dynamic_list, dynamic_table, host_scalars, trace
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.canonicalize.values.optional_values import OptionalValue
from aotpipe.canonicalize.values.trace import refusal
from aotpipe.model import source

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
_CONDITIONS: Final = {torch.where: 0, torch.Tensor.where: 1}
_ARRAYS: Final = (torch.Tensor.numpy, torch.Tensor.__array__)


def is_traced(value: object) -> bool:
    """Whether a value is known to a run of the graph only."""
    if isinstance(value, torch.Tensor):
        return isinstance(value, FakeTensor) and value.constant is None and constants.value_of(value) is None
    if isinstance(value, torch.SymBool):
        known = statically_known_true(value) or statically_known_true(value == False)  # noqa: E712
        return bool(free_unbacked_symbols(value)) and not known
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return bool(free_unbacked_symbols(value))
    if isinstance(value, list | deque):
        return dynamic_list.is_dynamic_list(value)
    return isinstance(value, OptionalValue | ChosenObject) or dynamic_table.is_dynamic_table(value)


def is_staged(value: object) -> bool:
    """Whether a value is known to a run of the graph that is traced now only."""
    return trace.is_on() and is_traced(value)


def as_tensor(value: Any) -> torch.Tensor:
    """A traced value as a tensor; torch's symbols become numbers."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, OptionalValue):
        return as_tensor(value.need_optional())
    if type(value) is ChosenObject:
        return as_tensor(value.number())
    kind = torch.int64 if isinstance(value, torch.SymInt) else torch.get_default_dtype()
    dtype = torch.bool if isinstance(value, torch.SymBool) else kind
    return host_scalars.as_host_scalar(torch.full((), value, dtype=dtype))


def predicate(value: Any) -> torch.Tensor:
    """A traced value as what an `if` makes of it: one bool."""
    if isinstance(value, OptionalValue):
        return value.flag_of_optional.logical_and(truth_of(value.payload_of_optional))
    if isinstance(value, list | deque | set | dict):
        return dynamic_list.is_filled(dynamic_table.as_list(value))
    if type(value) is ChosenObject:
        return truth_of(value.asked(bool))
    tensor = as_tensor(value)
    if tensor.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    truth: torch.Tensor = tensor if tensor.dtype == torch.bool else tensor != 0
    return truth.reshape(()) if truth.dim() else truth


def asked(value: Any) -> Any:
    """What an object of the model's own class says of its truth, by `__bool__` or `__len__`; else the value.

    Python's own `bool` takes no traced number from these.
    """
    kind = type(value)
    own = getattr(kind, "__bool__", None) or getattr(kind, "__len__", None)
    if isinstance(own, FunctionType) and trace.is_on() and source.is_model_code(own.__code__.co_filename):
        return own(value)
    return value


def truth_of(value: Any) -> torch.Tensor:
    """What an `if` makes of any value, as one bool."""
    value = asked(value)
    return predicate(value) if is_traced(value) else torch.full((), bool(value), dtype=torch.bool)


_LIKE_ANOTHER: Final = {
    torch.Tensor.view_as: torch.Tensor.view,
    torch.Tensor.reshape_as: torch.Tensor.reshape,
    torch.Tensor.expand_as: torch.Tensor.expand,
    torch.Tensor.type_as: torch.Tensor.to,
    torch.Tensor.to: torch.Tensor.to,
}


def _without_example(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Make `x.view(y.shape)` of `x.view_as(y)`: else a region takes an operand that none of its ops reads."""
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


# Torch's functions that give a bool of Python's.
_ANSWERS: Final[dict[Any, Callable[..., Any]]] = {
    **dict.fromkeys((torch.equal, torch.Tensor.equal), _equal),
    **dict.fromkeys((torch.allclose, torch.Tensor.allclose), _allclose),
    **dict.fromkeys(
        (torch.is_nonzero, torch.Tensor.is_nonzero),
        lambda tensor: host_scalars.as_host_scalar(predicate(tensor)),
    ),
}


def _with_bools(func: Any, args: Any) -> Any:
    """Let bytes be bools where they are a condition: eager takes them, torch.export does not."""
    place = _CONDITIONS.get(func, len(args))
    given = args[place] if len(args) > place else None
    if not isinstance(given, torch.Tensor) or given.dtype != torch.uint8:
        return args
    return (*args[:place], given.bool(), *args[place + 1 :])


def _known_in_python(func: Any, args: Any, kwargs: Any) -> Any:
    """What Python or numpy gets of a tensor whose values are known; else NotImplemented."""
    if func in _ARRAYS:
        return constants.array_of(func, args, kwargs)
    if func not in _VALUES:
        return NotImplemented
    # A tensor that the model keeps beside its buffers is a constant, as its numbers are.
    known = constants.value_of(args[0]) if isinstance(args[0], FakeTensor) else args[0]
    if known is None:
        return NotImplemented
    with DisableTorchFunction(), no_dispatch():
        return func(known, *args[1:], **kwargs)


def _deep_copy(tensor: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    """`copy.deepcopy` of a traced tensor; torch's own copies the memory, which other copies then share."""
    if host_scalars.is_host_scalar(tensor):
        return tensor
    memory = ("storage", tensor_storage.storage_of(tensor))
    if id(tensor) not in memo:
        if memory in memo:
            raise refusal("two tensors of one memory are copied together", "copy each: `.clone()`")
        memo[id(tensor)] = memo[memory] = tensor.clone()
    found: torch.Tensor = memo[id(tensor)]
    return found


class Traced(TorchFunctionMode):
    """Calls torch functions with numbers and indices in the form that they take.

    A write in place is repeated on the tensor's other names.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (draw := random_draws.draw_of(func, kwargs)) is not None:
            with self:  # it is made of what the model could have called
                result = draw(*args, **kwargs)
            if result is not NotImplemented:
                return result
        lists = args[:1] if func not in INDEXING else _parts(args[1])
        if any(map(dynamic_list.is_dynamic_list, lists)):
            with self:  # what it does with the buffers is called as the model's own
                return trace.operators().call_with_list(func, args, kwargs)
        target = rebinding.written(func, args, kwargs)
        if target is not None:
            rebinding.refuse_lost(target)
        if func is torch.Tensor.__deepcopy__ and isinstance(args[0], FakeTensor):
            with self:
                return _deep_copy(*args)
        with trace.in_torch() if _is_torchs_own(func, (args, kwargs)) else nullcontext():
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
        args, kwargs = constants.as_ints(func, args, kwargs)
        args = _with_bools(func, args)
        if func in INDEXING:
            args = (args[0], _tensors(args[1]), *args[2:])
        if (known := _known_in_python(func, args, kwargs)) is not NotImplemented:
            return known
        if func in _ANSWERS:
            decisions.expression("answer")
            with self:
                return _ANSWERS[func](*args, **kwargs)
        if func is torch.Tensor.__bool__ and trace.current().asking and is_traced(args[0]):
            with self:
                truth = trace.operators().truth(args[0])
            if truth is not None:
                return truth
        if func is torch.Tensor.item and is_traced(args[0]):
            decisions.expression("item")
            return host_scalars.item(args[0])
        if func in _UNBINDS and any(isinstance(size, torch.SymInt) for size in args[0].shape):
            return _unbound(func, *args, **kwargs)
        if func is torch.Tensor.tolist and is_traced(args[0]) and args[0].numel() <= _MOST_LISTED:
            return _listed(args[0])
        if func is torch.Tensor.__getitem__ and is_traced_index(args[1]):
            decisions.expression("index")
            return get_item(*args)
        if func is torch.Tensor.__setitem__ and is_traced_index(args[1]):
            decisions.expression("index")
            return _put(args[0], *_split(*args[:2]), args[2])
        if func is torch.Tensor.__setitem__ and _is_flag(args[1]):
            decisions.expression("index")
            return _put_where(*args)
        if (sized := sized_functions.of(func, args, kwargs)) is not None:
            with self:
                return sized()
        if func in _TEXTS and host_scalars.is_host_scalar(args[0]):
            return trace.text()
        func = host_scalars.out_of_place(func, args)
        current, depth = trace.current(), _len_torch_function_stack()
        # Where two of these modes lie one on the other, the upper one has asked: a second assert would be
        # another place where a tensor decides.
        if current.operators is not None and depth + 1 != current.called_at:
            current.operators.require_defined(func, args)
        args, kwargs = host_scalars.prepared(func, args, kwargs)
        before, current.called_at = current.called_at, depth
        try:
            result = func(*args, **kwargs)
        finally:
            current.called_at = before
        host_scalars.note(func, result, (args, kwargs))
        constants.note(func, result, args, kwargs)
        return result


# Of operands of just these types torch computes by itself; a class of the model's may have own methods.
_PLAIN: Final = frozenset(
    (
        *(torch.Tensor, torch.nn.Parameter, FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool),
        *(int, float, bool, complex, str, type(None), type(...)),
        *(torch.dtype, torch.device, torch.memory_format, torch.layout),
    )
)
_PLAIN_PARTS: Final = frozenset((tuple, list, torch.Size))


def _is_torchs_own(func: Any, operands: Any) -> bool:
    """Whether a call runs nothing of the model's: a function of torch's own, of plain operands."""
    # A method of tensors names no module, and an op names its library.
    names = (getattr(func, "__module__", None) or "torch").split(".")
    of_library = names[1:2] == ["_ops"] and names[2:3] != ["aten"]
    return names[0] == "torch" and not of_library and _are_plain(operands)


def _are_plain(operands: Any) -> bool:
    kind = type(operands)
    if kind in _PLAIN_PARTS:
        return all(map(_are_plain, operands))
    if kind is slice:
        return _are_plain((operands.start, operands.stop, operands.step))
    return kind in _PLAIN or (kind is dict and _are_plain(list(operands.values())))


_NUMPY: Final[Any] = torch._numpy  # noqa: SLF001  # it has no types, and no other name


def _tensors(index: Any) -> Any:
    """An index with tensors for the arrays that numpy made of sizes, and for lists of traced numbers."""
    if isinstance(index, list) and any(isinstance(each, list | tuple) for each in index):
        # torch takes a list of lists, which is no part of an index, for a tuple.
        index = tuple(index) if any(map(host_scalars.is_host_scalar, pytree.tree_leaves(index))) else index
    return tuple(map(_part, index)) if isinstance(index, tuple) else _part(index)


def _part(part: Any) -> Any:
    if isinstance(part, list) and any(map(host_scalars.is_host_scalar, pytree.tree_leaves(part))):
        return _stacked(part)
    if isinstance(part, slice):
        return slice(*map(_end, (part.start, part.stop, part.step)))
    return part.tensor if isinstance(part, _NUMPY.ndarray) else part


def _end(end: Any) -> Any:
    """An end of a slice; torch takes a tensor of one integer there, of whatever rank."""
    if not isinstance(end, FakeTensor) or not end.dim():
        return end
    is_one = all(statically_known_true(size == 1) for size in end.shape)
    return end.reshape(()) if is_one else end


def _stacked(numbers: Any) -> torch.Tensor:
    """A list of integers, some of them traced, as one tensor."""
    if isinstance(numbers, list):
        return torch.stack([_stacked(each) for each in numbers])
    return host_scalars.as_int64(numbers).long()


INDEXING: Final = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
_UNBINDS: Final = (torch.Tensor.unbind, torch.unbind)


def _unbound(func: Any, tensor: torch.Tensor, dim: int = 0) -> Any:
    return trace.operators().items_of(tensor.movedim(dim, 0)) or func(tensor, dim)


def _listed(tensor: torch.Tensor) -> Any:
    if not tensor.dim():
        return host_scalars.item(tensor)
    return [_listed(each) for each in tensor.unbind(0)]


@dataclass(frozen=True, slots=True)
class _Window:
    start: torch.Tensor
    length: int

    def require_whole(self, size: Any) -> None:
        """Refuse what a loop over a range of sizes may cut short in its last iteration, as slices are."""
        last = host_scalars.last_of_range(self.start)
        if last is not None and not statically_known_true(last + self.length <= size):
            raise refusal(
                f"a slice of {self.length} elements may be shorter in the last iteration of a loop",
                f"let the size be a multiple, such as `{self.length} * aotpipe.Dim('n', max=...)`",
            )

    def rows(self) -> torch.Tensor:
        # Beyond the end an index is out of range; below zero it would count from the end.
        torch._assert_async(self.start >= 0, "a slice starts below zero")  # noqa: SLF001  # what torch.export keeps
        return self.start.reshape(1) + torch.arange(self.length, device=self.start.device)


Chosen = Mapping[int, torch.Tensor | _Window]


def is_traced_index(index: Any) -> bool:
    """Whether an index has a part that is a traced integer, or a slice with one."""
    return any(_is_integer(part) or _is_traced_slice(part) for part in _parts(index))


def get_item(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """`tensor[index]`."""
    parts, chosen = _split(tensor, index)
    rest = [part for part in parts if not _is_integer(part)]
    again = functools.partial(_gathered, tensor, chosen, rest)
    result = again()
    if result is not tensor:
        to_copy, to_original = lambda: result.copy_(again()), lambda: _put(tensor, parts, chosen, result)
        rebinding.note(rebinding.Pair(result, tensor, to_copy, to_original))
    return result


def _put(tensor: torch.Tensor, parts: Sequence[Any], chosen: Chosen, value: Any) -> None:
    basic = [slice(None) if _is_integer(part) else part for part in parts]
    if chosen and any(isinstance(part, torch.Tensor | list) for part in basic):
        raise refusal(
            "items are assigned at a traced integer and at a list of indices together",
            "give tensors of indices for both",
        )
    if not chosen:
        tensor[tuple(basic)] = value
        return
    view = tensor if all(map(_is_whole, basic)) else tensor[tuple(basic)]
    landing: dict[int, int] = {}
    source = target = 0
    for part in basic:
        if isinstance(part, slice):
            landing[source] = target
        source += part is not None
        target += part is None or isinstance(part, slice)
    _scatter(view, {landing[dim]: each for dim, each in chosen.items()}, _of_dtype(value, view))


def _put_where(tensor: torch.Tensor, flag: torch.Tensor, value: Any) -> None:
    """`tensor[flag] = value` where one bool decides whether the whole tensor is written."""
    given = _of_dtype(value, tensor)
    # The mask makes a first dim of size 1, which a value may have too.
    given = given.reshape(given.shape[max(given.dim() - tensor.dim(), 0) :])
    tensor.copy_(torch.where(flag, given, tensor))


def _of_dtype(value: Any, tensor: torch.Tensor) -> torch.Tensor:
    """What is written to a tensor, in its dtype."""
    if isinstance(value, torch.Tensor):
        return value.to(tensor.dtype)
    return torch.full((), value, dtype=tensor.dtype, device=tensor.device)


def _is_flag(part: Any) -> bool:
    """Whether an index is one traced bool."""
    is_traced_scalar = isinstance(part, FakeTensor) and part.constant is None and not part.dim()
    return is_traced_scalar and part.dtype == torch.bool


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _is_integer(part: Any) -> bool:
    return (
        isinstance(part, FakeTensor)
        and part.constant is None
        and not part.dim()
        and part.dtype != torch.bool
        and not part.dtype.is_floating_point
        and not part.dtype.is_complex
    )


def _is_traced_slice(part: Any) -> bool:
    return isinstance(part, slice) and any(map(_is_integer, (part.start, part.stop, part.step)))


def _is_whole(part: Any) -> bool:
    return isinstance(part, slice) and part == slice(None)


def _split(tensor: torch.Tensor, index: Any) -> tuple[list[Any], Chosen]:
    """An index without Ellipsis, and its traced parts by the tensor's dims; a window's own part is whole."""
    parts: list[Any] = [_known(part) if _is_traced_slice(part) else part for part in _parts(index)]
    missing = [slice(None)] * (tensor.dim() - sum(map(_taken_dims, parts)))
    at = next((number for number, part in enumerate(parts) if part is Ellipsis), None)
    parts = [*parts, *missing] if at is None else [*parts[:at], *missing, *parts[at + 1 :]]
    chosen: dict[int, torch.Tensor | _Window] = {}
    dim = 0
    for part in parts:
        if isinstance(part, _Window) or _is_integer(part):
            chosen[dim] = part
        if isinstance(part, _Window):
            part.require_whole(tensor.shape[dim])
        if _is_integer(part):
            trace.operators().require_index(part, tensor.shape[dim])
        dim += _taken_dims(part)
    return [slice(None) if isinstance(part, _Window) else part for part in parts], chosen


def _taken_dims(part: Any) -> int:
    if isinstance(part, torch.Tensor) and part.dtype == torch.bool:
        return part.dim()
    return int(part is not None and part is not Ellipsis)


def _known(part: slice) -> _Window | slice:
    """A traced slice as a window of known length, or with torch's symbols for its ends."""
    length = host_scalars.distance(part.start, part.stop)
    if part.step in (None, 1) and length is not None and length > 0:
        return _Window(part.start, length)
    ends = (part.start, part.stop, part.step)
    known = (host_scalars.as_symbol(host_scalars.item(end)) if _is_integer(end) else end for end in ends)
    return slice(*known)


def _gathered(tensor: torch.Tensor, chosen: Chosen, rest: Sequence[Any]) -> torch.Tensor:
    for dim, each in chosen.items():
        if isinstance(each, _Window):
            tensor = _index(tensor, {dim: each.rows()})
    integers = {dim: each for dim, each in chosen.items() if isinstance(each, torch.Tensor)}
    found = _index(tensor, integers) if integers else tensor
    return found if all(map(_is_whole, rest)) else found[tuple(rest)]


def _index(tensor: torch.Tensor, rows: Mapping[int, torch.Tensor]) -> torch.Tensor:
    found: torch.Tensor = torch.ops.aten.index.Tensor(tensor, _indices(rows))
    return found


def _indices(rows: Mapping[int, torch.Tensor]) -> list[torch.Tensor | None]:
    return [rows[dim].long() if dim in rows else None for dim in range(max(rows) + 1)]


def _scatter(view: torch.Tensor, chosen: Chosen, value: torch.Tensor) -> None:
    """Write the chosen rows of a view: integers in one step, each window in one of its own."""
    integers = {dim: each for dim, each in chosen.items() if isinstance(each, torch.Tensor)}
    windows = {dim: each for dim, each in chosen.items() if isinstance(each, _Window)}
    rows = integers or {min(windows): windows.pop(min(windows)).rows()}
    if windows:
        part = _index(view, rows)
        # Integers take their dims away.
        left = {dim - sum(other < dim for other in integers): each for dim, each in windows.items()}
        _scatter(part, left, value)
        value = part
    rebinding.refuse_lost(view)
    # `x[i] = row` takes more dims than are written where the first ones are of size 1; the op takes none.
    rank = view.dim() - len(rows) + max(each.dim() for each in rows.values())
    while value.dim() > rank and statically_known_true(value.shape[0] == 1):
        value = value.squeeze(0)
    torch.ops.aten.index_put_.default(view, _indices(rows), value)
