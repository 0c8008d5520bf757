"""What a program takes and gives: names, dtypes, dims with ranges, value ranges, and what a call may lack.

Torch-free. Every value round-trips through its string (`TensorSpec.parse(str(spec)) == spec`, likewise
`Symbol`) and through JSON (`Signature.from_json(sig.to_json()) == sig`).
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal, Self

from aotpipe.core.serialization import OMIT_EMPTY, Serializable, Text, renamed

Dim = int | str
"""A dimension: a fixed size, or an expression over symbols such as `batch` or `2*frames + 1`."""

Absent = Literal["missing", "none"]

DTYPES: Final = frozenset(
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 "
    "complex128 float8_e4m3fn float8_e5m2".split()
)


def _power(base: Any, exponent: Any) -> Any:
    if type(exponent) is int and exponent > _MAX_EXPONENT:
        raise OverflowError(f"the exponent {exponent} is too large")
    return base**exponent


_OPERATORS: Final[Mapping[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# The last are the float arithmetic that a model does with its sizes, which guards tell of.
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "Min": min,
    "Max": max,
    **{each.__name__: each for each in (min, max, abs, float, round)},
    **{each.__name__: each for each in (math.floor, math.ceil, math.trunc, math.sqrt, math.log2)},
}
MAX_SIZE: Final = (1 << 63) - 1
BUNDLE_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")
"""What a model may be called: its bundle, its report and what is packaged of it are folders of that name."""
"""The largest size, and the largest number on the way to one."""
# Of an expression: what is longer, or nested deeper, was not printed for a model's sizes.
_MAX_LENGTH: Final = 2000
_MAX_DEPTH: Final = 100
_MAX_EXPONENT: Final = 63
_MAX_DIMS: Final = 64
# How far `nearest_sizes` goes from what is asked for.
_REACH: Final = 64
UNBOUNDED: Final = 256
"""The size that stands for one without an upper bound where a cost is estimated."""
PRODUCTS_OF_MOVED: Final = 16
"""As many multiply-adds of a matrix product take as long as the memory does for an element."""
_TENSOR = re.compile(
    r"(?P<name>\S+): (?P<dtype>\w+)\[(?P<dims>[^\]]*)\](?: in \[(?P<low>[^,]+), (?P<high>[^\]]+)\])?"
)


def evaluate_dim(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Compute a dim's size.

    Args:
        dim: A size, or an expression of `+ - * // % **`, `Min`, `Max`, integers and symbols.
        sizes: The size of each symbol.

    Raises:
        KeyError: A symbol has no size.
        ArithmeticError: It has no value at these sizes (`8 // 0`), or not one of 64 bits.
        ValueError: The expression holds something else.
    """
    if isinstance(dim, int):
        return dim
    found: int = _evaluate(dim, sizes)
    # While XLA's programs are traced, a size is an array of jax's.
    if type(found) in (bool, float):
        raise ValueError(f"not a dim expression: {dim!r}")
    return found


def guard_holds(guard: str, sizes: Mapping[str, int]) -> bool:
    """Whether a condition on sizes, such as `n % 2 == 0` or `floor(n/4) < 8`, holds.

    It does not where it divides by zero.

    Raises:
        KeyError: A symbol has no size.
        ArithmeticError: A number in it has no value at these sizes, or not one of 64 bits.
        ValueError: The text is no condition on sizes.
    """
    try:
        return bool(_evaluate(guard, sizes))
    except ZeroDivisionError:
        return False


def _evaluate(text: str, sizes: Mapping[str, int]) -> Any:
    def walk(node: ast.expr) -> Any:
        value = computed(node)
        # Numbers stay small at every step, or `9**9**9` would take all time and memory.
        if (type(value) is int and abs(value) > MAX_SIZE) or type(value) is complex:
            raise OverflowError(f"a number in {text!r} is none of 64 bits")
        return value

    def computed(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() | float() as value):
                return value
            case ast.Name(id=name):
                return sizes[name]
            case (
                ast.BinOp(left=left, op=op, right=right)
                | ast.Compare(left=left, ops=[op], comparators=[right])
            ) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](walk(left), walk(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](walk(operand))
            case ast.BoolOp(op=op, values=values):
                return (all if isinstance(op, ast.And) else any)(map(walk, values))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
                values = list(map(walk, args))
                try:
                    return _FUNCTIONS[name](*values)
                except (TypeError, ValueError) as error:
                    raise ArithmeticError(f"{name} in {text!r} has no value: {error}") from error
            case _:
                raise ValueError(f"not a dim expression or a condition: {text!r}")

    return walk(_parsed(text))


@lru_cache(maxsize=256)
def _parsed(text: str) -> ast.expr:
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"an expression of sizes has more than {_MAX_LENGTH} characters: {text[:40]!r}...")
    try:
        body = ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not a dim expression or a condition: {text!r}") from error
    depth, level = 0, list[ast.AST]([body])
    while level := [child for node in level for child in ast.iter_child_nodes(node) if depth <= _MAX_DEPTH]:
        depth += 1
    if depth > _MAX_DEPTH:
        raise ValueError(f"an expression of sizes is nested more than {_MAX_DEPTH} deep: {text[:40]!r}...")
    return body


@lru_cache(maxsize=2048)
def dim_symbols(dim: Dim) -> frozenset[str]:
    """The symbols that a dim, or a guard, depends on."""
    if isinstance(dim, int):
        return frozenset()
    nodes = list(ast.walk(_parsed(dim)))
    functions = [node.func for node in nodes if isinstance(node, ast.Call)]
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name) and node not in functions)


@dataclass(frozen=True, slots=True)
class Symbol(Text):
    """A dynamic size: its name and range, both ends included; `max` is None where it is unbounded."""

    name: str
    min: int
    max: int | None

    def __str__(self) -> str:
        return f"{self.name}={self.min}..{'' if self.max is None else self.max}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote: `Symbol.parse(str(symbol)) == symbol`."""
        if not (found := re.fullmatch(r"(\w+)=(\d+)\.\.(\d*)", text)):
            raise ValueError(f"not a symbol such as `batch=1..64`: {text!r}")
        name, low, high = found.groups()
        return cls(name, int(low), int(high) if high else None)


@dataclass(frozen=True, slots=True)
class TensorSpec(Text):
    """A tensor's name, dtype (a numpy or ml_dtypes name), dims, and range of values (both ends included)."""

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    value_range: tuple[float, float] | None = None

    def __str__(self) -> str:
        dims = ", ".join(map(str, self.dims))
        bounds = f" in [{self.value_range[0]}, {self.value_range[1]}]" if self.value_range else ""
        return f"{self.name}: {self.dtype}[{dims}]{bounds}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote: `TensorSpec.parse(str(spec)) == spec`."""
        found = _TENSOR.fullmatch(text)
        if not found or found["dtype"] not in DTYPES:
            raise ValueError(f"not a tensor such as `ids: int64[batch, 8] in [0, 99]`: {text!r}")
        parts = _split(found["dims"])
        dims = tuple(int(part) if part.isdecimal() else part for part in parts)
        if len(dims) > _MAX_DIMS or any(type(dim) is int and dim > MAX_SIZE for dim in dims):
            raise ValueError(f"a tensor has at most {_MAX_DIMS} dims, each of 64 bits: {text[:40]!r}...")
        bounds = (_number(found["low"]), _number(found["high"])) if found["low"] else None
        return cls(found["name"], found["dtype"], dims, bounds)


@dataclass(frozen=True, slots=True)
class Constant(Serializable):
    """A leaf that is no tensor: fixed when the model was exported. `value` is a JSON scalar or its repr."""

    __pydantic_config__: ClassVar = renamed(value="constant")

    name: str
    value: bool | int | float | str | None

    def __str__(self) -> str:
        return f"{self.name} = {self.value!r} (fixed)"


@dataclass(frozen=True, slots=True)
class Presence:
    """A part of the inputs or of the outputs that a call may lack.

    Attributes:
        name: The part: an argument, a key, a field; dotted where it is nested.
        flag: The bool without dims, an input or an output itself, that says whether it is there.
        members: The inputs or outputs that belong to it: tensors, constants, and flags of parts of it.
        absent: What eager has in its place: nothing (`missing`) or None (`none`).
    """

    name: str
    flag: str
    members: tuple[str, ...]
    absent: Absent = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature(Serializable):
    """What one entry point takes, gives and keeps.

    Attributes:
        inputs: In the order of the flattened call; constants are named, and not passed.
        outputs: In the order of the flattened result.
        state: What is kept between calls (mutated buffers), threaded through the program.
        symbols: The dynamic sizes that dims refer to.
        optional: What a call may leave out, outer parts first; `input_checks.Packer` fills it in.
        optional_outputs: What the model does not always give.
        guards: Conditions on the symbols without which the program is not the model's (`guard_holds`).
        specializes: The entry point of which this is the program for other sizes; empty where it is none.
        kept_on_raise: The states whose next values are taken where an assert fails, too: what eager wrote
            before it raised. The other states are as they were before the call.
        products: About how many multiply-adds a call with the largest sizes takes. The memory's time for an
            element counts as `PRODUCTS_OF_MOVED`. 0 where nothing says it. It tells no signatures apart.
    """

    inputs: tuple[TensorSpec | Constant, ...]
    outputs: tuple[TensorSpec | Constant, ...]
    state: tuple[TensorSpec, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    optional: tuple[Presence, ...] = field(default=(), metadata=OMIT_EMPTY)
    optional_outputs: tuple[Presence, ...] = field(default=(), metadata=OMIT_EMPTY)
    guards: tuple[str, ...] = field(default=(), metadata=OMIT_EMPTY)
    specializes: str = field(default="", metadata=OMIT_EMPTY)
    kept_on_raise: tuple[str, ...] = field(default=(), metadata=OMIT_EMPTY)
    products: int = field(default=0, compare=False, metadata=OMIT_EMPTY)

    @property
    def tensor_inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs that a call passes."""
        return tuple(leaf for leaf in self.inputs if isinstance(leaf, TensorSpec))

    @property
    def tensor_outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs that the program computes."""
        return tuple(leaf for leaf in self.outputs if isinstance(leaf, TensorSpec))


def largest_sizes(signature: Signature) -> dict[str, int]:
    """The largest size of each symbol; one without an upper bound counts as `UNBOUNDED`."""
    return {
        symbol.name: max(symbol.min, UNBOUNDED) if symbol.max is None else symbol.max
        for symbol in signature.symbols
    }


def admits(signature: Signature, sizes: Mapping[str, int]) -> bool:
    """Whether all symbols are within their ranges and all guards hold."""
    return all(
        symbol.min <= sizes[symbol.name] and (symbol.max is None or sizes[symbol.name] <= symbol.max)
        for symbol in signature.symbols
        if symbol.name in sizes
    ) and all(guard_holds(guard, sizes) for guard in signature.guards)


def nearest_sizes(signature: Signature, sizes: Mapping[str, int]) -> Mapping[str, int] | None:
    """The sizes nearest to some that a signature admits, larger ones first; None where none are near."""
    if admits(signature, sizes):
        return sizes
    for each in signature.symbols:
        if (size := sizes.get(each.name)) is not None:
            size = max(size, each.min) if each.max is None else min(max(size, each.min), each.max)
            sizes = {**sizes, each.name: size}
    names = [symbol.name for symbol in signature.symbols if symbol.name in sizes]
    reach = int(_REACH ** (1 / max(len(names), 1)))
    steps = sorted(range(-reach, reach + 1), key=lambda step: (abs(step), -step))
    order = lambda each: (min(each, default=0) < 0, sum(map(abs, each)))  # noqa: E731
    moved = sorted(itertools.product(steps, repeat=len(names)), key=order)
    tried = ({**sizes, **{n: sizes[n] + step for n, step in zip(names, each, strict=True)}} for each in moved)
    return next((each for each in tried if admits(signature, each)), None)


def _split(text: str) -> list[str]:
    """What stands between the commas outside of parentheses."""
    found: list[list[str]] = [[]]
    depth = 0
    for part in text.split(","):
        found[-1].append(part)
        depth += part.count("(") - part.count(")")
        if depth <= 0:
            found.append([])
    return [whole for parts in found if (whole := ",".join(parts).strip())]


def _number(text: str) -> float:
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
