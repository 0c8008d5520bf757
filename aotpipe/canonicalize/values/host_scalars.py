"""Tensors that stand for Python numbers: what `.item()` gives while a graph is traced.

Such a number has no dimensions. It promotes as a Python number does, is never written in place, and where
torch wants a plain int (a size, a slice's end) it becomes one of torch's symbols. A tensor is its own key, so
that a dict of Python's own would find no equal number: `unhashable()` refuses to be one.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from types import FrameType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import Any, Final

import sympy
import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree
from torch.utils._sympy.value_ranges import bound_sympy  # the bounds of what is computed of sizes

from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.tensor_subclasses import subclass_of
from aotpipe.canonicalize.values.trace import refusal
from aotpipe.errors import ExportFailed
from aotpipe.model import source


@dataclass(frozen=True, slots=True)
class Limit:
    """`number < value`, or `number > value` where it is a `floor`."""

    number: torch.Tensor
    value: int
    floor: bool


@dataclass(slots=True)
class _Scalars:
    """What a trace knows of host scalars, by identity; the tensors are kept alive, so that no other takes it.

    Attributes:
        origins: How a number was computed of others: so that torch knows sizes to differ by one, say.
        offsets: What an integer is apart from another one, with the versions of both: `i + 3` is 3 from `i`.
        items: The number that a tensor's `.item()` gave, with the version of the tensor's contents.
        limits: What a flag says of integers, if it is set.
        upper_bounds: The highest value that an integer may have, with the version of the tensor's contents.
        lower_bounds: The lowest one.
        choices: The few values that an integer may have, with the version of the tensor's contents.
        checked: What the program asserts of a number before all that comes after it.
        ranges: The start, the stop and the step of sizes that a number goes through in a loop.
        multiples: What torch's symbols of sizes are by the Dims that are multiples: `8 * n + 2`.
    """

    tensors: dict[int, torch.Tensor] = field(default_factory=dict)
    origins: dict[int, tuple[Callable[..., Any], tuple[Any, ...]]] = field(default_factory=dict)
    offsets: dict[int, tuple[torch.Tensor, int, torch.Tensor, int, int]] = field(default_factory=dict)
    items: dict[int, tuple[torch.Tensor, int, torch.Tensor]] = field(default_factory=dict)
    limits: dict[int, tuple[object, tuple[Limit, ...]]] = field(default_factory=dict)
    upper_bounds: dict[int, tuple[torch.Tensor, int, int]] = field(default_factory=dict)
    lower_bounds: dict[int, tuple[torch.Tensor, int, int]] = field(default_factory=dict)
    choices: dict[int, tuple[torch.Tensor, int, tuple[int, ...]]] = field(default_factory=dict)
    checked: dict[int, list[Limit]] = field(default_factory=dict)
    ranges: dict[int, tuple[torch.Tensor, int, tuple[Any, Any, int]]] = field(default_factory=dict)
    multiples: dict[sympy.Expr, sympy.Expr] = field(default_factory=dict)
    asked: int = 0


# Where torch compares what a model keeps, by its keys too, before and after the trace.
_ATTRIBUTES: Final = "torch._functorch._aot_autograd.frontend_utils"
_METHODS: Final = (MethodDescriptorType, WrapperDescriptorType, MethodWrapperType)
# What takes numbers as tensors of no dimensions; any other function takes them as Python's.
_POINTWISE: Final = frozenset(
    "less less_equal greater greater_equal not_equal equal logical_not bitwise_not neg negative abs absolute "
    "sign round floor ceil trunc sqrt rsqrt exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan "
    "sinh cosh tanh asinh acosh atanh sigmoid relu erf square reciprocal isnan isinf isfinite stack cat "
    "masked_fill fill_ copy_ lerp addcmul addcdiv max min __get__ __set__ __getitem__ __setitem__ "
    "_assert_async index_put index_put_ index_select gather scatter full_like clone reshape".split()
)
_ARITHMETIC: Final = frozenset(
    "add sub subtract mul multiply div divide true_divide floor_divide remainder fmod pow rsub eq ne lt le "
    "gt ge where clamp clamp_min clamp_max clip minimum maximum fmin fmax truediv floordiv mod radd rmul "
    "rtruediv rdiv rfloordiv rmod rpow and or xor rand ror rxor bitwise_and bitwise_or bitwise_xor "
    "logical_and logical_or logical_xor hypot atan2 copysign lshift rshift rlshift rrshift".split()
)
_RELATED: Final[Mapping[str, Callable[..., Any]]] = {
    "add": operator.add,
    "radd": lambda a, b: b + a,
    "sub": operator.sub,
    "rsub": lambda a, b: b - a,
    "mul": operator.mul,
    "rmul": lambda a, b: b * a,
    "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv,
    "neg": operator.neg,
    "mod": operator.mod,
    "remainder": operator.mod,
}


def is_host_scalar(value: object) -> bool:
    """Whether a tensor stands for a Python number."""
    return id(value) in trace.part(_Scalars).tensors


_SYMBOLS: Final[dict[type, type[bool | int | float]]] = {
    torch.SymInt: int,
    torch.SymFloat: float,
    torch.SymBool: bool,
}


def number_type(value: object) -> type[bool | int | float | complex] | None:
    """The type of the number that a host scalar or a size that varies stands for; None of another value."""
    if not is_host_scalar(value):
        return _SYMBOLS.get(type(value))
    assert isinstance(value, torch.Tensor)
    if value.dtype == torch.bool:
        return bool
    return float if value.dtype.is_floating_point else complex if value.dtype.is_complex else int


def python_type(value: object) -> type:
    """`type(value)` in eager, of what a trace has in the place of a number or a tensor."""
    if (number := number_type(value)) is not None:
        return number
    if not isinstance(value, FakeTensor):
        return type(value)
    if (subclass := subclass_of(value)) is not None:
        return subclass.kind
    return torch.nn.Parameter if isinstance(value, torch.nn.Parameter) else torch.Tensor


def default_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the tensor that torch makes of a Python number which a run holds in `dtype`."""
    if dtype.is_complex:
        return torch.get_default_dtype().to_complex()
    return torch.get_default_dtype() if dtype.is_floating_point else dtype


def as_host_scalar(tensor: torch.Tensor) -> torch.Tensor:
    """Take a tensor for a Python number from now on; it must have no other name."""
    trace.part(_Scalars).tensors[id(tensor)] = tensor
    return tensor


def as_plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Take a tensor for no Python number, since `torch.tensor(number)` promotes dtypes otherwise."""
    trace.part(_Scalars).tensors.pop(id(tensor), None)
    return tensor


def item(tensor: torch.Tensor) -> torch.Tensor:
    """The number in a tensor of one element: an int64, a bool or a float of the default type.

    Raises:
        RuntimeError: It has another number of elements, as torch says it.
    """
    if is_host_scalar(tensor):
        return tensor
    known = trace.part(_Scalars).items.get(id(tensor))
    if known is not None and known[1] == tensor._version:  # noqa: SLF001  # the only mark of a write
        return known[2]
    if tensor.numel() != 1:
        raise RuntimeError(f"a Tensor with {tensor.numel()} elements cannot be converted to Scalar")
    wanted = tensor.dtype
    if wanted.is_floating_point:
        wanted = torch.get_default_dtype() if wanted != torch.float64 else wanted
    elif wanted != torch.bool and not wanted.is_complex:
        wanted = torch.int64
    found = as_host_scalar(tensor.reshape(()).to(wanted, copy=True))
    if (highest := upper_bound(tensor)) is not None:
        note_upper_bound(found, highest)
    note_choices(found, choices(tensor))
    trace.part(_Scalars).items[id(tensor)] = (tensor, tensor._version, found)  # noqa: SLF001
    return found


def as_int64(number: int | torch.Tensor) -> torch.Tensor:
    """A whole number as a tensor; a tensor itself."""
    return number if isinstance(number, torch.Tensor) else torch.full((), number, dtype=torch.int64)


def asked() -> int:
    """How often a number became a symbol until now."""
    return trace.part(_Scalars).asked


def as_symbol(number: torch.Tensor) -> Any:
    """A number as torch's symbol, for where only a Python number does."""
    scalars = trace.part(_Scalars)
    scalars.asked += 1
    if (origin := scalars.origins.get(id(number))) is not None:
        function, parts = origin
        return function(*(as_symbol(part) if is_host_scalar(part) else part for part in parts))
    with torch._C.DisableTorchFunction():  # noqa: SLF001  # `item` itself, not what stands for it
        symbol: Any = torch.Tensor.item(number)
    for limit in scalars.checked.get(id(number), ()):
        torch._check(symbol > limit.value if limit.floor else symbol < limit.value)  # type: ignore[no-untyped-call]  # noqa: SLF001  # torch wants to be told
    return symbol


def note(func: Callable[..., Any], result: object, given: tuple[Any, Mapping[str, Any]]) -> None:
    """What is computed of numbers alone is a number."""
    if isinstance(result, torch.Tensor) and given[0] and not result.dtype.is_floating_point:
        _note_bound(base_name(func), result, given[0])
    if not isinstance(result, torch.Tensor) or result.dim():
        return
    name = base_name(func)
    _note_offset(name, result, given[0])
    _note_limit(name, result, given[0])
    if not trace.part(_Scalars).tensors:
        return
    tensors = [value for value in pytree.tree_leaves(given) if isinstance(value, torch.Tensor)]
    if not tensors or not all(map(is_host_scalar, tensors)):
        return
    as_host_scalar(result)
    args, kwargs = given
    whole = all(
        isinstance(part, int) or (is_host_scalar(part) and part.dtype == torch.int64)
        for part in args
        if not isinstance(part, bool)
    )
    if name in _RELATED and not kwargs and whole and not result.dtype.is_floating_point:
        trace.part(_Scalars).origins[id(result)] = (_RELATED[name], tuple(args))


_KEPT: Final = frozenset(
    "__getitem__ select to long int clone reshape view squeeze flatten amin amax".split()
)


def _note_bound(name: str, result: torch.Tensor, args: Sequence[Any]) -> None:
    """The highest value of integers that are counted, cut off, or taken out of such."""
    source, highest = args[0], None
    if not isinstance(source, torch.Tensor) or result.dtype == torch.uint8:  # where -1 is 255
        return
    if name == "count_nonzero" or (name == "sum" and source.dtype == torch.bool):
        highest = source.numel()
    elif name in ("argmax", "argmin"):
        highest = source.numel() - 1
        note_choices(result, range(source.numel()) if isinstance(source.numel(), int) else ())
    elif name in ("mod", "remainder") and len(args) == 2 and isinstance(args[1], int) and args[1] > 0:
        highest = args[1] - 1
        note_choices(result, range(args[1]))
    elif name in _KEPT:
        highest = upper_bound(source)
        note_choices(result, choices(source))
    if name in _RELATED and not any(isinstance(each, bool) for each in args):
        found = [choices(each) for each in args]
        if all(found) and math.prod(map(len, found)) <= _MOST_CHOICES:
            _note_computed(name, result, found)
    if isinstance(highest, int):
        note_upper_bound(result, highest)


def _note_offset(name: str, result: torch.Tensor, args: Sequence[Any]) -> None:
    if name not in ("add", "radd", "sub") or len(args) != 2 or result.dtype.is_floating_point:
        return
    left, right = args if name != "radd" else (args[1], args[0])
    if name != "sub" and isinstance(left, int):
        left, right = right, left
    if isinstance(left, torch.Tensor) and isinstance(right, int) and not isinstance(right, bool):
        offset = -right if name == "sub" else right
        trace.part(_Scalars).offsets[id(result)] = (result, result._version, left, left._version, offset)  # noqa: SLF001


def _note_limit(name: str, result: torch.Tensor, args: Sequence[Any]) -> None:
    if len(args) != 2 or result.dtype != torch.bool:  # of operands
        return
    left, right = args
    if name in _COMPARED and isinstance(left, torch.Tensor) and not _COMPARED[name][1]:
        right = upper_bound(right)
    if name in _COMPARED and isinstance(left, torch.Tensor) and isinstance(right, int):
        if not left.dim() and not left.dtype.is_floating_point:
            shift, floor = _COMPARED[name]
            trace.part(_Scalars).limits[id(result)] = (result, (Limit(left, right + shift, floor),))
    elif name in ("logical_and", "and", "bitwise_and"):
        found = (*limits(left), *limits(right))
        if found:
            trace.part(_Scalars).limits[id(result)] = (result, found)


_COMPARED: Final = {
    **dict.fromkeys(("lt", "less"), (0, False)),
    **dict.fromkeys(("le", "less_equal"), (1, False)),
    **dict.fromkeys(("gt", "greater"), (0, True)),
    **dict.fromkeys(("ge", "greater_equal"), (-1, True)),
}
"""What is added to the number for a strict comparison, and whether it is a floor."""


def note_upper_bound(integer: torch.Tensor, upper_bound: int) -> None:
    """Take an integer to be at most so large."""
    trace.part(_Scalars).upper_bounds[id(integer)] = (integer, integer._version, upper_bound)  # noqa: SLF001  # the only mark of a write


def upper_bound(integer: object) -> int | None:
    """The highest value that an integer may have, where that is known."""
    if not isinstance(integer, torch.Tensor):
        return integer if isinstance(integer, int) else None
    base, off = from_base(integer)
    upper_bounds = [
        known[2] + shift
        for tensor, shift in ((integer, 0), (base, off))
        if (known := trace.part(_Scalars).upper_bounds.get(id(tensor))) is not None
        and known[1] == tensor._version  # noqa: SLF001
    ]
    return min(upper_bounds, default=None)


def note_lower_bound(integer: torch.Tensor, lower_bound: int) -> None:
    """Take an integer to be at least so large."""
    trace.part(_Scalars).lower_bounds[id(integer)] = (integer, integer._version, lower_bound)  # noqa: SLF001  # the only mark of a write


def lower_bound(integer: object) -> int | None:
    """The lowest value that an integer may have, where that is known."""
    if not isinstance(integer, torch.Tensor):
        return integer if isinstance(integer, int) else None
    if found := choices(integer):
        return min(found)
    base, off = from_base(integer)
    known = trace.part(_Scalars).lower_bounds.get(id(base))
    return known[2] + off if known is not None and known[1] == base._version else None  # noqa: SLF001


def _note_computed(name: str, result: torch.Tensor, found: Sequence[Sequence[int]]) -> None:
    with suppress(ArithmeticError):  # which the program asserts not to be
        note_choices(result, sorted({_RELATED[name](*each) for each in product(*found)}))


_MOST_CHOICES: Final = 32


def note_choices(integer: torch.Tensor, values: Sequence[int]) -> None:
    """Take an integer to be one of these, if they are few; of none nothing is known."""
    if 0 < len(values) <= _MOST_CHOICES:
        trace.part(_Scalars).choices[id(integer)] = (integer, integer._version, tuple(values))  # noqa: SLF001


def choices(integer: object) -> tuple[int, ...]:
    """The few values that an integer may have; none where they are not known."""
    if type(integer) is int:
        return (integer,)
    known = trace.part(_Scalars).choices.get(id(integer))
    is_known = known is not None and known[1] == known[0]._version  # noqa: SLF001
    return known[2] if known is not None and is_known else ()


def most(size: Any) -> int | None:
    """The largest value that a size may have, an int or one of torch's symbols, where that is known."""
    if isinstance(size, int):
        return size
    if not isinstance(size, torch.SymInt) or not free_unbacked_symbols(size):
        return None
    # torch has no public way to ask for it.
    upper = bound_sympy(size.node.expr, size.node.shape_env.var_to_range).upper
    return int(upper) if upper.is_integer and upper < _UNBOUNDED else None


# From here on torch takes a bound of a size for none.
_UNBOUNDED: Final = 2**31 - 1


def limits(flag: object) -> tuple[Limit, ...]:
    """What holds of integers wherever a flag is set."""
    return trace.part(_Scalars).limits.get(id(flag), (flag, ()))[1]


def note_implied(flag: object, other: object) -> None:
    """Take what another flag says of integers to hold wherever a flag is set."""
    if found := limits(other):
        trace.part(_Scalars).limits[id(flag)] = (flag, found)


def note_checked(flag: object) -> None:
    """Take what a flag says of integers to hold from here on."""
    for limit in limits(flag):
        trace.part(_Scalars).checked.setdefault(id(limit.number), []).append(limit)
        if not limit.floor:
            note_upper_bound(limit.number, limit.value - 1)


def distance(start: Any, stop: Any) -> int | None:
    """How much a traced integer is above another one, where that is known."""
    if not isinstance(start, torch.Tensor) or not isinstance(stop, torch.Tensor):
        return None
    (base, low), (other, high) = from_base(start), from_base(stop)
    return high - low if base is other else None


def from_base(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The integer that one was computed from by adding numbers of Python's, and their sum."""
    total = 0
    while (known := trace.part(_Scalars).offsets.get(id(tensor))) is not None:
        _, version, base, base_version, offset = known
        if tensor._version != version or base._version != base_version:  # noqa: SLF001
            break
        tensor, total = base, total + offset
    return tensor, total


def note_range(number: torch.Tensor, sizes: tuple[Any, Any, int]) -> None:
    """Take a number for each of those of a range of sizes, one after another."""
    trace.part(_Scalars).ranges[id(number)] = (number, number._version, sizes)  # noqa: SLF001


def last_of_range(number: torch.Tensor) -> Any:
    """What a number is at most that a loop takes from a range of sizes; None for any other number."""
    base, off = from_base(number)
    known = trace.part(_Scalars).ranges.get(id(base))
    if known is None or known[1] != base._version:  # noqa: SLF001
        return None
    start, stop, step = known[2]
    return stop - (step if _divides(step, stop - start) else 1) + off


def note_multiple(size: Any, multiple: tuple[int, int]) -> None:
    """Take a size for `a * n + b` of some `n`, as its Dim says."""
    if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
        factor, offset = multiple
        root = sympy.Symbol(f"{size.node.expr}_root", integer=True, nonnegative=True)
        trace.part(_Scalars).multiples[size.node.expr] = factor * root + offset


def _divides(divisor: int, size: Any) -> bool:
    """Whether a number divides a size in all calls."""
    if not isinstance(size, torch.SymInt):
        return int(size) % divisor == 0
    expr = size.node.expr.xreplace(trace.part(_Scalars).multiples)
    return bool(sympy.expand(expr / divisor).is_integer)


def fresh_items() -> AbstractContextManager[None]:
    """Inside, `.item()` is asked anew: what was computed outside of a part of the graph stays there."""
    return trace.assigned(trace.part(_Scalars), items={})


def prepared(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a torch function, with numbers in the form that it takes."""
    given = (tuple(args), dict(kwargs))
    if not trace.part(_Scalars).tensors:
        return given
    leaves = pytree.tree_leaves(given)
    if not any(map(is_host_scalar, leaves)):
        return given
    name = base_name(func)
    if name not in _ARITHMETIC:
        # Of its own methods a number is the tensor that it is; an op of torch's takes what it is given.
        own = 1 if type(func) in _METHODS else 0
        if name in _POINTWISE or isinstance(func, OpOverload | OpOverloadPacket | HigherOrderOperator):
            return given
        rest: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map_only(
            torch.Tensor,
            lambda value: as_symbol(value) if is_host_scalar(value) else value,
            (given[0][own:], given[1]),
        )
        return (*given[0][:own], *rest[0]), rest[1]
    among = given[0][1:] if name == "where" else given[0]
    others = [each for each in among if isinstance(each, torch.Tensor) and not is_host_scalar(each)]
    if others:
        dtype = reduce(promoted, (each.dtype for each in others))
        cast = tuple(each.to(_beside(dtype, each.dtype)) if is_host_scalar(each) else each for each in among)
    elif name == "where":
        return given
    else:
        cast = _among_numbers(name, among)
    return (*given[0][: len(given[0]) - len(cast)], *cast), given[1]


_DIVISIONS: Final = frozenset("div divide true_divide truediv rtruediv rdiv".split())


def _among_numbers(name: str, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Cast host scalars that meet only each other: integers become float64 where Python makes floats."""
    if any(is_host_scalar(each) and rank(each.dtype) > 1 for each in operands):
        return tuple(operands)
    if name in _DIVISIONS or any(isinstance(each, float) for each in operands):
        wanted = torch.float64
    elif name in _SUMS:
        wanted = torch.int64
    else:
        return tuple(operands)
    return tuple(as_host_scalar(each.to(wanted)) if is_host_scalar(each) else each for each in operands)


# In Python, True + True is 2, and True << True, too.
_SUMS: Final = frozenset("add radd sub subtract rsub mul multiply rmul lshift rshift rlshift rrshift".split())


def _beside(dtype: torch.dtype, own: torch.dtype) -> torch.dtype:
    """The type that a Python number of the type `own` takes beside tensors of another."""
    if rank(own) <= rank(dtype):
        return dtype
    if own.is_complex:
        return torch.complex64 if torch.get_default_dtype() == torch.float32 else torch.complex128
    return torch.get_default_dtype() if own.is_floating_point else own


_WRITING: Final = frozenset("add_ sub_ mul_ div_ floor_divide_ remainder_ pow_".split())
_WRITING_BITS: Final = frozenset("__iand__ __ior__ __ixor__ __ilshift__ __irshift__".split())


def out_of_place(func: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    """For a function that would write into a number (`n += 1`), the one that gives a new number."""
    name = getattr(func, "__name__", "")
    if not args or not is_host_scalar(args[0]) or name not in _WRITING | _WRITING_BITS:
        return func
    found: Callable[..., Any] = getattr(
        torch.Tensor, name[:-1] if name in _WRITING else name.replace("__i", "__", 1)
    )
    return found


def base_name(func: Callable[..., Any]) -> str:
    """The name of a function of torch, without the underscores of a method of Python's."""
    name: str = getattr(func, "__name__", "")
    if name in ("__get__", "__set__", "__getitem__", "__setitem__"):
        return name
    return name.strip("_") if name.startswith("__") else name


def rank(dtype: torch.dtype) -> int:
    """A dtype's kind: bool, integer, float, complex."""
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else int(dtype != torch.bool)


_DTYPES: Final = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
# Computed once: while torch.export traces, a call of torch.promote_types would become a part of the graph.
_PROMOTED: Final = {
    (left, right): torch.promote_types(left, right)
    for left, right in product((getattr(torch, name) for name in _DTYPES.split()), repeat=2)
}


def promoted(left: torch.dtype, right: torch.dtype) -> torch.dtype:
    """The common type of two.

    Raises:
        KeyError: They have none.
    """
    return left if left == right else _PROMOTED[left, right]


def are_host_scalars(values: Iterable[object]) -> bool:
    """Whether every tensor among these stands for a number."""
    return all(not isinstance(value, torch.Tensor) or is_host_scalar(value) for value in values)


def as_key() -> ExportFailed:
    """The refusal of a hash of what stands for a number."""
    return refusal(
        "a number that is known to a run of the graph only is hashed by other code",
        "keep it in a set or a dict of the model's own (`seen.add(n)`, `counts[n] = counts.get(n, 0) + 1`), "
        "or in a list (`if n not in seen: seen.append(n)`)",
        "number-from-tensor",
    )


@contextmanager
def unhashable() -> Iterator[None]:
    """Refuse the hash of what stands for a number to a model's code; libraries may keep tables."""
    before: Any = torch.Tensor.__hash__

    def hashed(tensor: torch.Tensor) -> int:
        # What asks for a hash in C, a dict or a set, has no frame of its own.
        frame = sys._getframe(1)  # noqa: SLF001
        if is_host_scalar(tensor) and (_is_model(frame) or _is_operator(_asking(frame))):
            raise as_key()
        found: int = before(tensor)
        return found

    def of_size(size: Any) -> int:
        if size.node.is_nested_int():
            return int(of_nested(size))
        frame = sys._getframe(1)  # noqa: SLF001
        if _is_model(frame):
            raise refusal("a size that varies is a key of a new dict or in a set", "write `table[n] = x`")
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(f"{__name__.partition('.')[0]}."):
            return 0  # two that are different now may be found to be equal
        if module == _ATTRIBUTES:
            return hash(size.node.expr)
        # torch gives none. A library that keeps one (`functools.lru_cache` of shapes in einops) would hand it
        # to the next trace, whose program lacks what that assumes of a size of this one.
        return int(of_nested(size))

    of_nested: Any = torch.SymInt.__hash__
    with trace.assigned(torch.Tensor, __hash__=hashed), trace.assigned(torch.SymInt, __hash__=of_size):
        yield


def _is_operator(frame: FrameType) -> bool:
    # The operators call in place of the model.
    return str(frame.f_globals.get("__name__")).startswith(trace.OPERATORS_MODULE.rpartition(".")[0])


def _asking(frame: FrameType) -> FrameType:
    # `Counter(numbers)` asks in a function of Python's own library.
    while (name := frame.f_globals.get("__name__", "")).partition(".")[0] in sys.stdlib_module_names:
        if name == "__main__" or frame.f_back is None:
            break
        frame = frame.f_back
    return frame


def _is_model(frame: FrameType) -> bool:
    frame = _asking(frame)
    is_user = source.is_user_file(frame.f_code.co_filename)
    return is_user or frame.f_globals.get("__name__") == trace.OPERATORS_MODULE
