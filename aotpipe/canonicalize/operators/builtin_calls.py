"""Python's own functions on traced values: `int`, `min`, `any`, `math.sqrt`, `isinstance`...

`of(function)` gives what is called in the place of a function while a graph is traced: it does the same on
plain values.
"""

from __future__ import annotations

import bisect
import builtins
import functools
import heapq
import inspect
import math
import operator
from collections import Counter, deque
from collections.abc import Callable, Iterable
from enum import EnumType
from types import FunctionType
from typing import Any, Final

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor  # what torch.export calls the model with
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.operators import (
    dynamic_list_methods,
    dynamic_table_methods,
    integer_functions,
    iteration_calls,
    list_functions,
    logic,
    numpy_calls,
    ordering,
    size_keys,
    unbacked_items,
)
from aotpipe.canonicalize.operators.iterators import Cursor
from aotpipe.canonicalize.operators.unbacked_items import TensorRange, UnbackedItems
from aotpipe.canonicalize.trace import number_errors, regions, runtime_asserts
from aotpipe.canonicalize.trace.torch_functions import as_tensor, is_traced, predicate
from aotpipe.canonicalize.values import (
    abstract_values,
    dynamic_list,
    dynamic_table,
    element_kinds,
    host_scalars,
    trace,
)
from aotpipe.canonicalize.values.abstract_values import Variables
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.canonicalize.values.optional_values import OptionalValue, Partial, presence
from aotpipe.canonicalize.values.trace import is_on, refusal, text

Function = Callable[..., Any]
_ATEN: Final = torch.ops.aten


def of(function: Any) -> Function | None:
    """What stands for a function while a graph is traced, if it takes traced values otherwise."""
    if isinstance(function, functools.partial):
        # torch.export puts its own forms of `min` and `max` into builtins.
        function = function.keywords.get("real_callable", function)
    if (found := _TABLE.get(id(function))) is not None:
        return found[1]
    owner = getattr(function, "__self__", None)
    if type(owner) in (list, tuple, dict) and getattr(function, "__name__", "") == "__getitem__":
        return lambda index: dynamic_table_methods.opened(owner)[index]
    if isinstance(function, EnumType):
        return functools.partial(_member, function)
    if isinstance(owner, torch.nn.Module) and getattr(function, "__func__", None) in _MOVES:
        return functools.partial(_module_to, owner, *_MOVES[function.__func__])
    return next(filter(None, (each.method(function) for each in _OWNERS)), None)


def _on_traced(function: Function, staged: Function) -> Function:
    is_taken = unbacked_items.is_varying if function in _OF_SIZES else is_traced
    plain = numpy_calls.method(function) or function

    @functools.wraps(staged)
    def either(*args: Any, **kwargs: Any) -> Any:
        if any(map(is_taken, args)) or any(map(is_taken, kwargs.values())):
            return staged(*args, **kwargs)
        return plain(*args, **kwargs)

    return either


def as_size(sizes: Iterable[Any] = ()) -> torch.Size:
    """`torch.Size(sizes)`, with torch's symbols for numbers that only a run knows."""

    def size(each: Any) -> Any:
        is_number = isinstance(each, torch.Tensor) and is_traced(each)
        return host_scalars.as_symbol(_int(each)) if is_number else each

    return torch.Size(map(size, sizes))


def _number(value: Any) -> torch.Tensor:
    return host_scalars.item(as_tensor(value))


def _int(value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        return value
    number = _number(value)
    number_errors.require_whole(number)
    found = host_scalars.as_host_scalar(number.to(torch.int64, copy=True))
    host_scalars.note_choices(found, (0, 1) if number.dtype == torch.bool else ())
    return found


def _int_of(value: Any = 0, *args: Any, **kwargs: Any) -> Any:
    """`int(value)`; a number computed from sizes stays symbolic, where Python's own `int` would fix it."""
    if isinstance(value, torch.SymInt):
        return value
    if isinstance(value, torch.SymFloat) and not is_traced(value):
        return torch.sym_int(value)  # type: ignore[no-untyped-call]
    return _int(value) if is_traced(value) else int(value, *args, **kwargs)


def _float_of(value: Any = 0.0) -> Any:
    """`float(value)`; a size that varies stays symbolic."""
    if isinstance(value, torch.SymInt | torch.SymFloat) and not is_traced(value):
        return torch.sym_float(value)  # type: ignore[no-untyped-call]
    return _float(value) if is_traced(value) else float(value)


def _abs(value: Any) -> Any:
    return as_tensor(value).abs() if is_traced(value) else torch.sym_max(value, -value)  # type: ignore[no-untyped-call]


def _float(value: Any) -> Any:
    number = _number(value)
    if number.dtype.is_floating_point:
        return number
    return host_scalars.as_host_scalar(number.to(torch.get_default_dtype(), copy=True))


def _bool(value: Any) -> Any:
    return host_scalars.as_host_scalar(predicate(value).clone())


def _round(value: Any, ndigits: int | None = None) -> Any:
    value = value.need_optional() if isinstance(value, OptionalValue) else value
    if ndigits is None:
        rounded = value.round() if value.dtype.is_floating_point else value
        return _int(rounded) if host_scalars.is_host_scalar(value) else rounded
    return torch.round(value, decimals=ndigits) if value.dtype.is_floating_point else value


def _min(*values: Any, **kwargs: Any) -> Any:
    found = _extreme(builtins.min, operator.lt, values, kwargs)
    tops = [top for value in values if (top := host_scalars.upper_bound(value)) is not None]
    if tops and isinstance(found, torch.Tensor) and not found.dim():
        host_scalars.note_upper_bound(found, min(tops))
    return found


def _max(*values: Any, **kwargs: Any) -> Any:
    return _extreme(builtins.max, operator.gt, values, kwargs)


def _extreme_size(function: Function, left: Any, right: Any) -> Any:
    """The extreme of two sizes: one of them where it is known to be that in all calls."""
    if statically_known_true(left <= right):
        return left if function is builtins.min else right
    if statically_known_true(right <= left):
        return right if function is builtins.min else left
    extreme: Any = torch.sym_min if function is builtins.min else torch.sym_max
    return extreme(left, right)


def _extreme(function: Function, is_better: Function, values: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(values) == 1 and isinstance(values[0], UnbackedItems | TensorRange):
        values = (unbacked_items.listed(values[0]),)
    if len(values) == 1 and dynamic_list.is_dynamic_list(values[0]):
        return ordering.extreme(values[0], largest=function is builtins.max, **kwargs)
    among = values[0] if len(values) == 1 else values
    items = list(among.unbind(0) if isinstance(among, torch.Tensor) else among)
    key = kwargs.get("key")
    if not items or kwargs.keys() - {"key", "default"}:
        return function(items, **kwargs)
    # As it is called in rewritten code: the length of a list that grows is none of Python's.
    keys = [trace.operators().call(key, item) if key else item for item in items]
    keyed = [*zip(map(ordering.compared_fields, keys), items, strict=True)]
    if not any(is_traced(leaf) for by, _ in keyed for leaf in pytree.tree_leaves(by)):
        if key is None and any(isinstance(item, torch.SymInt) for item in items):
            # Python's own would ask which is less, and so fix a size that varies.
            return functools.reduce(functools.partial(_extreme_size, function), items)
        return function(keyed, key=operator.itemgetter(0))[1]

    if any(isinstance(each, tuple) for pair in keyed for each in pair) or not all(
        map(_is_number, (item for _, item in keyed))
    ):
        place = ordering.place_of_extreme([by for by, _ in keyed], largest=function is builtins.max)
        return dynamic_list_methods.element_chosen([item for _, item in keyed], place)

    if host_scalars.are_host_scalars(items) and abstract_values.has_ranks(items):
        found = functools.reduce(host_scalars.promoted, (as_tensor(each).dtype for each in items))
        element_kinds.note_promoted("what `min` or `max` gives", found)

    def better(best: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
        test = is_better(other[0], best[0])
        return _either(test, other[0], best[0]), _either(test, other[1], best[1])

    return functools.reduce(better, keyed)[1]


def _opened(items: Any) -> Any:
    """What `sorted` goes through, as a list."""
    if isinstance(items, torch.Tensor) and unbacked_items.of(items) is None:
        return list(items.unbind(0))
    return unbacked_items.listed(items)


def _compared_in_c(function: Function, instead: Function) -> Function:
    """What stands for a function whose own code compares elements of a list."""

    @functools.wraps(function)
    def either(*args: Any, **kwargs: Any) -> Any:
        # What a key gives of plain elements may be traced.
        is_known = "key" not in kwargs and not any(map(is_traced, pytree.tree_leaves([args, kwargs])))
        if is_known and not dynamic_list.holds_dynamic_list([args, kwargs]):
            return function(*args, **kwargs)
        return instead(*args, **kwargs)

    return either


def _either(test: Any, then: Any, other: Any) -> Any:
    if not is_traced(test):
        return then if test else other
    found = torch.where(predicate(test), _operand(then), _operand(other))
    both = (then, other)
    return host_scalars.as_host_scalar(found) if host_scalars.are_host_scalars(map(_operand, both)) else found


def _is_number(value: Any) -> bool:
    """Whether a value is a number or a tensor."""
    return isinstance(value, torch.Tensor | bool | int | float | torch.SymInt | torch.SymFloat)


def _operand(value: Any) -> Any:
    return as_tensor(value) if is_traced(value) else value


def is_instance(value: Any, kinds: Any) -> Any:
    """`isinstance`: a traced number counts as Python's, and an optional value is decided by its flag."""
    if isinstance(value, OptionalValue):
        wanted = is_instance(value.payload_of_optional, kinds)
        if value.is_optional_present or wanted is isinstance(None, kinds):
            return wanted
        return presence(value, wanted=bool(wanted))
    if isinstance(value, kinds) and not host_scalars.is_host_scalar(value):
        return True  # also of `torch.SymInt`, which a model may ask for
    number = host_scalars.number_type(value)
    return number is not None and isinstance(number(), kinds)


def is_dispatching(function: FunctionType) -> bool:
    """Whether `functools.singledispatch` made a function."""
    return function.__code__ is _DISPATCHING


def dispatch_of(function: Any) -> Callable[[type], Function] | None:
    """What a function or a method of `singledispatch` chooses with, by the class of its argument."""
    code = getattr(function, "__code__", None)
    if code is _DISPATCHING:
        found: Callable[[type], Function] = function.dispatch
        return found
    if code is not _DISPATCHING_METHOD:
        return None
    held = inspect.getclosurevars(function).nonlocals
    chosen = held["self"].dispatcher.dispatch
    return lambda kind: chosen(kind).__get__(held["obj"], held["cls"])


def class_of(value: Any) -> type:
    """`value.__class__` in eager, of what a trace has in the place of a number or a tensor."""
    if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
        return host_scalars.python_type(value)
    kind: type = value.__class__
    return kind


_dispatching: Any = functools.singledispatch(callable)
_DISPATCHING: Final = _dispatching.__code__
_dispatching = functools.singledispatchmethod(callable).__get__(0, int)
_DISPATCHING_METHOD: Final = _dispatching.__code__


class _MetaType(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not TracedType:
            return super().__call__(*args, **kwargs)
        return host_scalars.python_type(args[0]) if len(args) == 1 else type(*args, **kwargs)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, type) if cls is TracedType else super().__instancecheck__(value)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, type) if cls is TracedType else super().__subclasscheck__(kind)


class TracedType(type, metaclass=_MetaType):
    """`type` in the code of a model that is traced: of what stands for a value it gives the value's own."""


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """`dict(value)`; a dict whose keys may be missing gives another such dict."""
    if not args or not (isinstance(args[0], Partial) or dynamic_table.is_dynamic_table(args[0])):
        return dynamic_table_methods.made(dict, *args) if args and not kwargs else dict(*args, **kwargs)
    copied: dict[Any, Any] = args[0].copy() if isinstance(args[0], Partial) else dict(args[0])
    if kwargs:
        trace.operators().call(copied.update, kwargs)
    return copied


def _iter(items: Any, *sentinel: Any) -> Any:
    """`iter(items)`."""
    if sentinel or not is_on() or not isinstance(items, list | tuple | range | torch.Tensor | UnbackedItems):
        return iter(items, *sentinel)
    return Cursor(_opened(items), items)


def _next(items: Any, *default: Any) -> Any:
    """`next(items, *default)`."""
    if isinstance(items, logic.Elements):
        return items.first(*default)
    return items.first(*default) if isinstance(items, Cursor) else next(items, *default)


def _member(kind: Any, value: Any, *rest: Any, **options: Any) -> Any:
    """`kind(value)` of an enum: its member of a value."""
    if rest or options or not is_traced(value):
        return kind(value, *rest, **options)
    members = list(kind)
    if not all(isinstance(each.value, int | float) for each in members):
        raise refusal(f"a tensor decides which member of {kind.__name__} a value is", "take it out of a list")
    found = torch.tensor([each.value for each in members]) == _number(value)
    runtime_asserts.require(found.any(), ValueError(f"... is not a valid {kind.__name__}"), holds=True)
    return ChosenObject(members, found.to(torch.int64).argmax())


def _len(value: Any) -> Any:
    """`len(value)`; for a tensor this is its first size, which may be traced."""
    if dynamic_list.is_dynamic_list(value):
        return dynamic_list_methods.length(value)
    if isinstance(value, UnbackedItems):
        return value.count
    if dynamic_table.is_dynamic_table(value):
        return dynamic_table_methods.length(value)
    if isinstance(value, torch.Tensor | numpy_calls.torch_numpy.ndarray) and value.shape:
        return value.shape[0]
    own = getattr(type(value), "__len__", None)  # Python's `len` takes no traced number from it
    return own(value) if isinstance(own, FunctionType) else len(value)


def _of_math(function: Callable[[torch.Tensor], torch.Tensor]) -> Function:
    def staged(value: Any) -> Any:
        number = _float(value)
        number_errors.require_domain(function.__name__, number)
        return function(number)

    return staged


def _to_int(function: Callable[[torch.Tensor], torch.Tensor]) -> Function:
    def staged(value: Any) -> Any:
        number = _number(value)
        return _int(function(number) if number.dtype.is_floating_point else number)

    return staged


def _whole_float(function: Function) -> Function:
    """A function of numpy's, which gives a whole number as a float."""

    def staged(value: Any) -> Any:
        if not is_traced(value):
            return torch.sym_float(function(value))  # type: ignore[no-untyped-call]
        return _float(_ON_TRACED[function](value))

    return staged


def _of_two(function: Function) -> Function:
    def staged(left: Any, right: Any) -> Any:
        made = [_float(each) if is_traced(each) else torch.tensor(float(each)) for each in (left, right)]
        # Those of `math` raise other errors than the operators of the same name.
        one, other = map(host_scalars.as_plain_tensor, made)
        number_errors.require_domain_of_two(function.__name__, one, other)
        return host_scalars.as_host_scalar(function(one, other))

    return staged


def _log(value: Any, base: Any = None) -> Any:
    found = _of_math(torch.log)(value)
    if base is None:
        return found
    return found / (math.log(base) if not is_traced(base) else _of_math(torch.log)(base))


def _isclose(a: Any, b: Any, *, rel_tol: float = 1e-09, abs_tol: float = 0.0) -> Any:
    is_near = abs(a - b) <= _max(rel_tol * _max(abs(a), abs(b)), abs_tol)
    # Infinity is close to itself alone, and within any share of itself.
    return (a == b) | (is_near & (abs(a) < math.inf) & (abs(b) < math.inf))


def _tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    del requires_grad  # a program has no gradients
    if not isinstance(data, list | tuple):
        found = as_tensor(data)
        is_number = host_scalars.is_host_scalar(found)
        own = host_scalars.default_dtype(found.dtype) if is_number else found.dtype
        wanted = own if dtype is None else dtype
        return host_scalars.as_plain_tensor(found.to(device=device, dtype=wanted, copy=True))
    if dynamic_list.is_dynamic_list(data):
        return list_functions.as_tensor(data, dtype).to(device=device)
    rows = [_tensor(each) if _has_tensor(each) else torch.tensor(each) for each in data]
    wanted = dtype or functools.reduce(host_scalars.promoted, (row.dtype for row in rows))
    return torch.stack([row.to(device=device, dtype=wanted) for row in rows])


def _given(data: Any) -> Any:
    """The data of a tensor, in which torch takes no None."""
    if isinstance(data, OptionalValue):
        data.require_optional(RuntimeError("Could not infer dtype of NoneType"))
        return _given(data.payload_of_optional)
    return type(data)(map(_given, data)) if type(data) in (list, tuple) else data


def _tensor_or(function: Function) -> Function:
    def either(data: Any, *args: Any, **kwargs: Any) -> Any:
        data = numpy_calls.as_torch_takes_it(_given(data))
        is_tensor = isinstance(data, torch.Tensor) and not host_scalars.is_host_scalar(data)
        if args or is_tensor or not _has_tensor(data):
            return function(data, *args, **kwargs)
        return _tensor(data, **kwargs)

    return either


def _of_kind(kind: Any) -> Function:
    """`torch.LongTensor(values)`, which takes a number of the graph, or a size, for the example's."""
    dtype = kind().dtype

    def made(*args: Any, **kwargs: Any) -> Any:
        is_list = len(args) == 1 and not kwargs and isinstance(args[0], list | tuple)
        if not is_list or isinstance(args[0], torch.Size):
            return kind(*args, **kwargs)
        if _has_tensor(args[0]):
            return _tensor(_given(args[0]), dtype=dtype)
        has_size = any(isinstance(leaf, torch.SymInt) for leaf in pytree.tree_leaves(args[0]))
        return torch.tensor(args[0], dtype=dtype) if has_size else kind(args[0])

    return made


def _from_numpy(data: Any) -> torch.Tensor:
    return data if isinstance(data, torch.Tensor) else torch.from_numpy(data)


def _has_tensor(data: Any) -> bool:
    leaves = pytree.tree_leaves(data)
    return any(unbacked_items.is_varying(leaf) or isinstance(leaf, FakeTensor) for leaf in leaves)


# What moves a module, with what `to` would be given.
_MOVES: Final[dict[Any, tuple[Any, ...]]] = {
    torch.nn.Module.to: (),
    torch.nn.Module.cpu: ("cpu",),
    torch.nn.Module.float: (torch.float32,),
    torch.nn.Module.double: (torch.float64,),
    torch.nn.Module.half: (torch.float16,),
    torch.nn.Module.bfloat16: (torch.bfloat16,),
}


def _module_to(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """`module.to(...)`, which changes nothing."""
    device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)  # noqa: SLF001  # as `Module.to` reads them
    for tensor in (*module.parameters(), *module.buffers()):
        is_cast = dtype not in (None, tensor.dtype) and tensor.is_floating_point()
        if is_cast or device not in (None, tensor.device):
            raise refusal("a call moves a module to another dtype or device", "move it where it is made")
    return module


def _while_loop(
    cond_fn: Function, body_fn: Function, carried_inputs: Iterable[Any], *more: Any, **options: Any
) -> Any:
    """`torch.while_loop`; what is carried may change its form in the first iteration, as variables may."""
    del more, options  # of torch's own making
    held = [tuple(carried_inputs)]

    def take(carried: Iterable[Any]) -> None:
        held[0] = tuple(carried)

    variables = Variables.of_list(held, "what is carried")
    regions.loop(lambda: cond_fn(*held[0]), lambda: take(body_fn(*held[0])), variables)
    return held[0]


def _check(cond: Any, message: Any = None, *, kind: type[Exception] = RuntimeError) -> None:
    with trace.message():
        said = str(message() if callable(message) else message or "torch._check failed")
    if runtime_asserts.require(cond, kind(said), holds=True):
        host_scalars.note_checked(cond)


def _gradients(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch.autograd.grad`; of the elements of a tensor (`x.unbind()`) it is that of their sum."""
    rows = outputs.rows if isinstance(outputs, UnbackedItems) else None
    if rows is not None and rows.dim() == 1 and not args and not kwargs:
        unused = RuntimeError("torch.autograd.grad of no outputs: the inputs were not used")
        runtime_asserts.require(outputs.count > 0, unused, holds=True)
        outputs = rows.sum()
    return torch.autograd.grad(outputs, inputs, *args, **kwargs)


_OF_ONE: Final[dict[Any, Function]] = {
    getattr(math, name): _of_math(getattr(torch, name))
    for name in (
        "sqrt exp expm1 log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf "
        "erfc lgamma exp2 isnan isinf isfinite"
    ).split()
}
_NUMPYS: Final[dict[Any, Function]] = {
    **{
        getattr(np, name): _of_math(getattr(torch, name))
        for name in "sqrt exp log log2 log10 sin cos".split()
    },
    **{getattr(np, name): _whole_float(getattr(math, name)) for name in ("floor", "ceil", "trunc")},
    np.power: operator.pow,
    np.maximum: _max,
    np.minimum: _min,
    **dict.fromkeys((np.float32, np.float64), _float),
    **dict.fromkeys((np.int32, np.int64), _int_of),
}
# What Python computes of numbers alone, and would fix a size that varies to the example's for.
_OF_SIZES: Final = frozenset([range, divmod, abs, *_NUMPYS, *_OF_ONE, math.log])
_ON_TRACED: Final[dict[Any, Function]] = {
    bool: _bool,
    abs: _abs,
    round: _round,
    divmod: lambda left, right: (left // right, left % right),
    **integer_functions.CALLS,
    # A text cannot follow a traced value.
    **dict.fromkeys((str, repr, format), lambda *_: text()),
    range: lambda *bounds: TensorRange.of(bounds),
    torch._check: _check,  # noqa: SLF001  # users write it
    torch._assert: functools.partial(_check, kind=AssertionError),  # noqa: SLF001
    torch._check_value: functools.partial(_check, kind=ValueError),  # noqa: SLF001
    torch._check_index: functools.partial(_check, kind=IndexError),  # noqa: SLF001
    # A hint to torch about a symbol, which a number is not.
    torch._check_is_size: lambda *_, **__: None,  # noqa: SLF001
    operator.truth: _bool,
    operator.index: _int,
    **_OF_ONE,
    **{getattr(math, name): _to_int(getattr(torch, name)) for name in ("floor", "ceil", "trunc")},
    **{
        getattr(math, name): _of_two(getattr(torch, name))
        for name in ("pow", "atan2", "hypot", "copysign", "fmod")
    },
    math.fabs: _of_math(torch.abs),
    math.degrees: _of_math(torch.rad2deg),
    math.radians: _of_math(torch.deg2rad),
    math.log: _log,
    **_NUMPYS,
    math.isclose: _isclose,
    # TorchScript's ops on one number.
    **{
        form: staged
        for op, staged in (
            *((_ATEN.Int, _int), (_ATEN.Float, _float), (_ATEN.Bool, _bool)),
            *((_ATEN.IntImplicit, _int), (_ATEN.FloatImplicit, _float), (_ATEN.ScalarImplicit, _number)),
        )
        for form in (
            op,
            *(getattr(op, name) for name in ("default", "Tensor", "Scalar") if hasattr(op, name)),
        )
    },
}
_IN_ANY_CASE: Final[dict[Any, Function]] = {
    int: _int_of,
    float: _float_of,
    min: _min,
    max: _max,
    any: functools.partial(logic.folded, decides=True),
    all: functools.partial(logic.folded, decides=False),
    next: _next,
    iter: _iter,
    **dict.fromkeys((isinstance, is_instance), is_instance),
    **dict.fromkeys((type, TracedType), TracedType),
    dict: _dict,
    len: _len,
    set: functools.partial(dynamic_table_methods.made, set),
    Counter: lambda *args, **kwargs: (
        Counter(*args, **kwargs) if kwargs else dynamic_table_methods.made(Counter, *args)
    ),
    list: unbacked_items.listed,
    deque: lambda values=(), maxlen=None: (
        dynamic_list_methods.deque_of(values, maxlen)
        if dynamic_list.is_dynamic_list(values)
        else deque(values, maxlen)
    ),
    sorted: lambda items, **options: ordering.sorted_(_opened(items), **options),
    **{function: _compared_in_c(function, staged) for function, staged in ordering.HEAPS.items()},
    **{
        function: lambda n, items, key=None, largest=largest: ordering.first_sorted(
            n, _opened(items), key, largest=largest
        )
        for function, largest in ((heapq.nsmallest, False), (heapq.nlargest, True))
    },
    **{
        function: _compared_in_c(function, functools.partial(ordering.bisected, right=is_right))
        for function, is_right in ((bisect.bisect_left, False), (bisect.bisect_right, True))
    },
    **{
        function: _compared_in_c(function, functools.partial(ordering.insort, right=is_right))
        for function, is_right in ((bisect.insort_left, False), (bisect.insort_right, True))
    },
    enumerate: unbacked_items.enumerated,
    zip: unbacked_items.zipped,
    reversed: unbacked_items.reversed_,
    sum: lambda values, start=0: (
        dynamic_list_methods.total if dynamic_list.is_dynamic_list(values) else sum
    )(values, start),
    torch.tensor: _tensor_or(torch.tensor),
    torch.as_tensor: _tensor_or(torch.as_tensor),
    torch.from_numpy: _tensor_or(_from_numpy),
    **{
        kind: _of_kind(kind)
        for kind in (torch.Tensor, torch.FloatTensor, torch.DoubleTensor, torch.LongTensor, torch.IntTensor)
    },
    torch.while_loop: _while_loop,
    torch.autograd.grad: _gradients,
    **iteration_calls.CALLS,
    operator.getitem: lambda items, index: dynamic_list_methods.opened(items)[index],
    torch.Size: as_size,
}
_OWNERS: Final[tuple[Any, ...]] = (
    *(dynamic_table_methods, ordering, dynamic_list_methods, unbacked_items, size_keys, numpy_calls),
    iteration_calls,
)
# By identity, since a class may compare as it likes; with the function, to keep it alive.
_TABLE: Final[dict[int, tuple[Any, Function]]] = {
    **{id(key): (key, _on_traced(key, staged)) for key, staged in _ON_TRACED.items()},
    **{id(key): (key, staged) for key, staged in _IN_ANY_CASE.items()},
}
