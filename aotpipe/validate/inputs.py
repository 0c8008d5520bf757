"""Plans the calls that a program is judged on: which sizes, which values, in which sequence.

Torch-free and a pure function of the signatures, the example inputs and the seed. Per entry point: the
example itself, seeded values at its sizes, of every symbol's range both ends, their neighbours and a prime
inside, of every two symbols all corners, all primes at once, and both ends of every declared value range. A
model with state gets sequences of calls through all of its entry points, and again after a reset. What calls
may lack is left out in every combination, if there are few; it then holds values that nothing may read.

Values are drawn to look like the example's, so that a mask stays a mask and an image an image:
    a declared value range   uniform in it
    a mask with -inf         the example's rows, repeated; a random one would mask whole rows
    few distinct values      the example's own values
    other floats             the example's values, resampled and jittered, within its lowest and highest
    many equal floats        few whole numbers, so that an order of equal elements shows
    a constant example       around it (zeros: a standard normal), since equal numbers hide what is wrong
    integers and bools       between the example's lowest and highest

Each symbol is called at both its ends. All at their largest together is much dearer than each alone where a
model has several; beyond a bound on the arithmetic they are moved towards the example, with a note.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product, starmap
from typing import Any, Final

import ml_dtypes
import numpy as np

from aotpipe.core.dtypes import Array, is_inexact, numpy_dtype
from aotpipe.core.signature import (
    Signature,
    Symbol,
    TensorSpec,
    admits,
    dim_symbols,
    evaluate_dim,
    nearest_sizes,
)
from aotpipe.errors import InputShape
from aotpipe.runtime.dim_binding import Binder
from aotpipe.runtime.input_checks import presence_cases

SEEDS: Final = 2
# Where calls are cheap, up to so many; those beyond the first two together may take so many multiply-adds,
# and the inputs of each have at most so many elements.
_MOST_SEEDS: Final = 8
_SEED_WORK, _SEED_ELEMENTS = 1e8, 100_000
# So many calls are on floats of which many are equal; each holds so many different numbers at most.
_EQUAL, _MOST_LEVELS = 2, 5
# A symbol without a declared end is tried up to so many times the example's size.
_UNBOUNDED_FACTOR: Final = 2
# A declared end is honoured while all inputs of the call together have at most so many elements.
_MAX_ELEMENTS: Final = 1 << 24
# Sizes that grow together may take so many times the arithmetic of the dearest size that grows alone, and any
# call may take so many multiply-adds: some seconds of float64 on one core.
_JOINT_FACTOR: Final = 2
_CHEAP: Final = 1e10
_STEPS: Final = (1, 2, 4, 8, 16)
# torch.export writes "no end" as a number of this size or larger.
_ENDLESS: Final = 1 << 31
# Combinations of what may be there that are all tried; of more, the telling ones are.
_MOST_PRESENCES: Final = 16
# At most so many distinct values make an example a table of levels (a mask, a class) and not a signal.
_LEVELS: Final = 8
# Where planned calls say nothing, so many runs of calls are tried, of a model with state each of so many.
_MOST_RUNS, _RUN_LENGTH = 32, 4
# A float is scaled and moved; an integer goes so far beyond the example's; a bool is true so often.
_CHANGES: Final = (
    *((-1, 0), (1, 3), (1, -3), (10, 0), (0.01, 0), (100, 0), (1, 100), (1, -100), (1e4, 0), (1e-4, 0)),
)
_REACHES: Final = (1, 3, 10, 100)
# Of the elements of an input, so many are special.
_SPECIAL_SHARE: Final = 0.25
_CHANCES: Final = (1.0, 0.0, 0.5, 0.1)
# Additive masks mark "away" with -inf or with the lowest number of a dtype.
_MASKED: Final = -1e4


Sizes = Mapping[str, int]
"""The size of each symbol."""
Work = Callable[[Sizes], float]
"""The multiply-adds of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: which entry point, on what, and whether the state is reset before it."""

    entry_point: str
    case: str
    reset: bool
    inputs: Mapping[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The calls in order, and notes on what was left out and why."""

    calls: tuple[Call, ...]
    notes: tuple[str, ...] = ()


def plan(
    signatures: Mapping[str, Signature],
    examples: Mapping[str, Mapping[str, Array]],
    *,
    seed: int = 0,
    seeds: int | None = None,
    work: Mapping[str, Work] | None = None,
    buckets: Mapping[str, Sequence[int]] | None = None,
) -> Plan:
    """Plan the calls of a model.

    Args:
        signatures: Entry point -> signature, in the spec's order.
        examples: Entry point -> input name -> the example's array.
        seed: What the values are drawn from.
        seeds: How many seeded cases at the example's sizes; where None, two, and more where `work` says
            that these are cheap.
        work: Entry point -> what a call takes; nothing is too dear where None.
        buckets: Sizes of symbols that are to be tried too.
    """
    calls: list[Call] = []
    notes: list[str] = []
    drawers = [_Drawer(name, signature, examples[name], seed) for name, signature in signatures.items()]
    for drawer in drawers:
        name, signature = drawer.name, drawer.signature
        calls += starmap(
            drawer.call,
            _size_cases(signature, drawer.sizes, seed, notes, (work or {}).get(name, lambda _: 0.0)),
        )
        calls += starmap(drawer.call, _bucket_cases(signature, buckets or {}))
        count = _seeds(drawer, (work or {}).get(name)) if seeds is None else seeds
        calls.extend(drawer.call(f"seed {number}", end="both" if number else "") for number in range(count))
        if drawer.levels:
            equal = min(count, _EQUAL) if count > SEEDS else min(count, 1)
            calls.extend(drawer.call(f"equal values {number}", equal=True) for number in range(equal))
        if any(spec.value_range for spec in signature.tensor_inputs):
            calls.extend(drawer.call(f"{end} values", end=end) for end in ("lowest", "highest"))
        calls.extend(_presence_calls(drawer, signature))
    if any(signature.state for signature in signatures.values()):
        calls.extend(_sequences(drawers))
    return Plan(calls=tuple(calls), notes=tuple(notes))


def _seeds(drawer: _Drawer, work: Work | None) -> int:
    """How many seeded calls an entry point gets: more where they are cheap."""
    if work is None or drawer.sizes is None or drawer.elements > _SEED_ELEMENTS:
        return SEEDS
    return SEEDS + int(min(_MOST_SEEDS - SEEDS, _SEED_WORK // max(work(drawer.sizes), 1.0)))


def runs_unlike(
    name: str, signature: Signature, example: Mapping[str, Array], seed: int
) -> Iterator[list[Call]]:
    """Runs of calls on values unlike the example's, within declared ranges; first all inputs change alike."""
    drawer = _Drawer(name, signature, example, seed)
    steps = _RUN_LENGTH if signature.state else 1
    for number in range(_MOST_RUNS):
        yield [
            drawer.call(
                f"search {number}" + (f"/{step}" if steps > 1 else ""), reset=step == 0, change=number
            )
            for step in range(steps)
        ]


def special_calls(name: str, signature: Signature, example: Mapping[str, Array], seed: int) -> Iterator[Call]:
    """Calls on values at the ends of what dtypes hold, one input at a time; declared ranges hold."""
    drawer = _Drawer(name, signature, example, seed)
    usual = drawer.call("special values").inputs
    for spec in signature.tensor_inputs:
        dtype = numpy_dtype(spec.dtype)
        for word, number in _special(dtype, spec.value_range):
            case = f"{spec.name} with {word}"
            array = np.array(usual[spec.name])
            if array.size and spec.name not in drawer.flags:
                chosen = _generator(seed, name, case).random(array.shape) < _SPECIAL_SHARE
                # At least one, and not all, where there are several.
                chosen.reshape(-1)[0] = True
                array[chosen] = number
                yield Call(entry_point=name, case=case, reset=True, inputs={**usual, spec.name: array})
    if signature.symbols and all(symbol.min == 0 for symbol in signature.symbols):
        yield drawer.call("empty", {symbol.name: 0 for symbol in signature.symbols})


def _special(dtype: np.dtype[Any], value_range: tuple[float, float] | None) -> Iterator[tuple[str, Any]]:
    low, high = _ends(dtype, value_range)
    if dtype.kind in "iu":
        yield "its lowest", dtype.type(low)
        yield "its highest", dtype.type(high)
    elif is_inexact(dtype):
        floats = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        numbers = {
            "-0": -0.0,
            "denormals": float(floats.smallest_subnormal),
            "its largest": float(floats.max),
            "infinity": math.inf,
            "-infinity": -math.inf,
        }
        for word, number in numbers.items():
            # Not every float of 8 bits has infinities.
            if low <= number <= high and (math.isfinite(number) or np.isinf(dtype.type(number))):
                yield word, number
        if value_range is None:
            yield "NaN", math.nan


def _presence_calls(drawer: _Drawer, signature: Signature) -> Iterator[Call]:
    """Each combination of what may be there, at the example's sizes and, where they vary, at the smallest."""
    combinations = presence_cases(signature.optional, _MOST_PRESENCES)[1:]
    ends = {symbol.name: symbol.min for symbol in signature.symbols}
    smallest = nearest_sizes(signature, ends) or ends
    for sizes in (None, smallest) if smallest and _fits(signature, smallest) else (None,):
        at = "" if sizes is None else _named(",", smallest)
        for flags in combinations:
            lacking = ", ".join(part.name for part in signature.optional if not flags[part.flag])
            yield drawer.call(f"without {lacking}{at}", sizes, flags=flags)


def _sequences(drawers: Sequence[_Drawer]) -> Iterator[Call]:
    """Two sequences of the same steps on other values; each begins with a reset."""
    # The last entry point runs most: it is `decode` where there are `prefill` and `decode`.
    steps = [*drawers, drawers[-1], drawers[-1]]
    for run in ("first", "again"):
        for number, drawer in enumerate(steps):
            combinations = presence_cases(drawer.signature.optional, _MOST_PRESENCES)
            flags = combinations[number % len(combinations)]
            yield drawer.call(f"sequence {run}/{number}", reset=number == 0, flags=flags)


def _size_cases(
    signature: Signature, example: Sizes | None, seed: int, notes: list[str], work: Work
) -> Iterator[tuple[str, Sizes]]:
    """The example's sizes, each symbol at its ends and inside, and corners that hold each pair of ends."""
    start = example if example is not None else {symbol.name: symbol.min for symbol in signature.symbols}
    yield "example", start
    if not signature.symbols:
        return
    points = {symbol.name: _points(symbol, start[symbol.name], seed) for symbol in signature.symbols}
    cases: dict[str, Sizes] = {
        f"{name}={size}": {**start, name: size} for name, sizes in points.items() for size in sizes
    }
    if len(points) > 1:
        alone = [sizes for sizes in (start, *cases.values()) if _fits(signature, sizes)]
        cases["all smallest"] = {name: sizes[0] for name, sizes in points.items()}
        joint = _corners(points)
        cases |= _bounded(joint, start, alone, work, notes)
    seen = [start]
    for case, wanted in cases.items():
        sizes = nearest_sizes(signature, wanted) or wanted
        elements = _elements(signature, sizes)
        if elements is None or sizes in seen:
            continue
        if elements > _MAX_ELEMENTS:
            notes.append(f"{case} was not tried: its inputs have {elements} elements")
            continue
        seen.append(dict(sizes))
        yield case if sizes == wanted else _named(f"{case}, nearest", sizes), sizes


def _points(symbol: Symbol, size: int, seed: int) -> list[int]:
    """Both ends of a symbol's range, the sizes next to them, and a prime between those."""
    low, high = symbol.min, _top(symbol, size)
    inside = range(low + 2, high - 1)
    tried = _from(inside, _generator(seed, "sizes", symbol.name))
    primes = islice(filter(_is_prime, tried), 1)
    return list(
        dict.fromkeys(each for each in (low, low + 1, *primes, high - 1, high) if low <= each <= high)
    )


def _from(sizes: range, random: np.random.Generator) -> Iterator[int]:
    """All sizes of a range, from one of its lower half on."""
    first = int(random.integers(len(sizes) // 2 + 1)) if sizes else 0
    yield from sizes[first:]
    yield from sizes[:first]


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % each for each in range(2, math.isqrt(number) + 1))


def _corners(points: Mapping[str, Sequence[int]]) -> dict[str, Sizes]:
    """Corners that hold each pair of ends of each two symbols, beside the one where all are smallest.

    One case more has every symbol inside of its range.
    """
    names = list(points)
    found: dict[str, Sizes] = {
        "all largest": {name: sizes[-1] for name, sizes in points.items()},
        "all inside": {name: sizes[len(sizes) // 2] for name, sizes in points.items()},
    }
    # Symbols whose numbers differ in a bit are at unlike ends in one of the two corners of that bit.
    for bit in range((len(names) - 1).bit_length()):
        for flipped in (0, 1):
            sizes = {
                name: points[name][-((number >> bit & 1) ^ flipped)] for number, name in enumerate(names)
            }
            found[_named("corner", sizes)] = sizes
    return found


def size_goals(signature: Signature, example: Mapping[str, Array], seed: int) -> Iterator[tuple[str, Sizes]]:
    """What calls should try of the sizes that a program takes: words, and sizes of some symbols."""
    start = bound(signature, example)
    if start is None:
        return
    # A size that only a run finds is no call's to choose.
    chosen = {name for spec in signature.tensor_inputs for dim in spec.dims for name in dim_symbols(dim)}
    points = {
        symbol.name: _points(symbol, start[symbol.name], seed)
        for symbol in signature.symbols
        if symbol.name in chosen
    }
    wanted = [{name: size} for name, sizes in points.items() for size in sizes]
    for one, other in combinations(points, 2):
        ends = ({points[name][0]: None, points[name][-1]: None} for name in (one, other))
        wanted += [{one: first, other: second} for first, second in product(*ends)]
    for sizes in wanted:
        if admits(signature, {**start, **sizes}):
            yield ", ".join(f"{name}={size}" for name, size in sizes.items()), sizes


def _bucket_cases(signature: Signature, buckets: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, Sizes]]:
    """Each size of each symbol with the smallest of the others; the largest of all, and the next smaller."""
    listed = {
        symbol.name: sorted(buckets.get(symbol.name, [symbol.min] if symbol.min == symbol.max else []))
        for symbol in signature.symbols
    }
    if not listed or not all(listed.values()):
        return
    smallest = {name: sizes[0] for name, sizes in listed.items()}
    cases = [
        *({**smallest, name: size} for name, sizes in listed.items() for size in sizes),
        {name: sizes[-1] for name, sizes in listed.items()},
        {name: sizes[max(len(sizes) - 2, 0)] for name, sizes in listed.items()},
    ]
    for number, sizes in enumerate(cases):
        if sizes not in cases[:number] and _fits(signature, sizes):
            yield _named("bucket", sizes), sizes


def _bounded(
    joint: Mapping[str, Sizes], start: Sizes, alone: Sequence[Sizes], work: Work, notes: list[str]
) -> Iterator[tuple[str, Sizes]]:
    """The cases in which several sizes change, moved towards the example's until they are cheap enough."""
    dearest = max(map(work, alone), default=0.0)
    for case, sizes in joint.items():
        # Rounded towards the example, so that a size that may not vary much stays within its range.
        moved = (
            {name: old + int((sizes[name] - old) / step) for name, old in start.items()} for step in _STEPS
        )
        limit = max(_CHEAP, _JOINT_FACTOR * dearest)
        nearer = next((each for each in moved if work(each) <= limit), start)
        if nearer == sizes:
            yield case, sizes
            continue
        where = " ".join(f"{name}={size}" for name, size in sizes.items())
        instead = _named("between", nearer)
        times = f"{work(sizes) / max(dearest, 1.0):.2g} times the arithmetic of the dearest size alone"
        notes.append(f"{case} ({where}) was not tried, as it takes {times}; tried instead: {instead}")
        yield instead, nearer


def _named(word: str, sizes: Sizes) -> str:
    return " ".join([word, *(f"{name}={size}" for name, size in sizes.items())])


def _fits(signature: Signature, sizes: Sizes) -> bool:
    elements = _elements(signature, sizes)
    return elements is not None and elements <= _MAX_ELEMENTS


def _top(symbol: Symbol, size: int) -> int:
    if symbol.max is not None and symbol.max < _ENDLESS:
        return symbol.max
    return max(symbol.min, _UNBOUNDED_FACTOR * size + 1)


def _elements(signature: Signature, sizes: Sizes) -> int | None:
    """The number of elements of all inputs, None where there is no program for these sizes."""
    if not admits(signature, sizes):
        return None
    shapes = [_shape(spec, sizes) for spec in signature.tensor_inputs]
    return None if None in shapes else sum(math.prod(shape) for shape in shapes if shape is not None)


def _shape(spec: TensorSpec, sizes: Sizes) -> tuple[int, ...] | None:
    try:
        shape = tuple(evaluate_dim(dim, sizes) for dim in spec.dims)
    except (KeyError, ZeroDivisionError):
        return None
    return shape if all(size >= 0 for size in shape) else None


class _Drawer:
    def __init__(self, name: str, signature: Signature, example: Mapping[str, Array], seed: int) -> None:
        self.name = name
        self.signature = signature
        self.flags = {part.flag: True for part in signature.optional}
        self._example = example
        self._seed = seed
        self.sizes = bound(signature, example)
        self.elements = sum(array.size for array in example.values())
        self.levels = {
            spec.name: levels
            for spec in signature.tensor_inputs
            if spec.name not in self.flags and (levels := _levels(spec, example[spec.name]))
        }

    def call(
        self,
        case: str,
        sizes: Sizes | None = None,
        *,
        end: str = "",
        reset: bool = True,
        flags: Mapping[str, bool] | None = None,
        change: int | None = None,
        equal: bool = False,
    ) -> Call:
        """One call.

        `end` sets inputs with a value range to that end of it; where it is "both", integers without one hold
        the example's lowest and highest. `flags` says what is there, `change` is the number of the way in
        which values are unlike the example's. With `equal`, many floats are equal.
        """
        there = self.flags | dict(flags or {})
        inputs = {
            spec.name: np.array(there[spec.name])
            if spec.name in there
            else self._input(spec, case, sizes, end, change, equal)
            for spec in self.signature.tensor_inputs
        }
        return Call(entry_point=self.name, case=case, reset=reset, inputs=inputs)

    def _input(
        self,
        spec: TensorSpec,
        case: str,
        sizes: Sizes | None,
        end: str,
        change: int | None,
        equal: bool = False,
    ) -> Array:
        example = self._example[spec.name]
        if case == "example" and self.sizes is not None:
            return example
        shape = example.shape if sizes is None else _shape(spec, sizes)
        assert shape is not None, "sizes without a shape are left out before"
        if end in ("lowest", "highest") and spec.value_range:
            dtype = numpy_dtype(spec.dtype)
            return np.full(shape, _ends(dtype, spec.value_range)[end == "highest"]).astype(dtype)
        random = _generator(self._seed, self.name, spec.name, case)
        if change is not None:
            return _unlike(spec, shape, example, random, change)
        drawn = draw(spec, shape, example, random)
        if equal and spec.name in self.levels:
            return fitted(random.choice(self.levels[spec.name], shape), spec)
        is_free = spec.value_range is None and drawn.dtype.kind in "iu"
        if end == "both" and is_free and drawn.size > 1 and example.size:
            places = random.choice(drawn.size, 2, replace=False)
            drawn.reshape(-1)[places] = example.min(), example.max()
        return drawn


def bound(signature: Signature, example: Mapping[str, Array]) -> Sizes | None:
    """The example's sizes, None where the signature does not admit it."""
    specs, symbols = signature.tensor_inputs, signature.symbols
    try:
        sizes = Binder(specs, symbols, signature.guards).bind(
            tuple(example[spec.name].shape for spec in specs)
        )
    except InputShape:
        return None
    # A symbol that no input mentions (a size found in the data) has no size to choose.
    return {symbol.name: sizes.get(symbol.name, symbol.min) for symbol in symbols}


def _generator(seed: int, *names: str) -> np.random.Generator:
    """A generator of its own per name, so that one more input does not change the others' values."""
    return np.random.default_rng([seed, *(zlib.crc32(name.encode()) for name in names)])


def draw(spec: TensorSpec, shape: tuple[int, ...], example: Array, random: np.random.Generator) -> Array:
    """Draw an input of a shape whose values look like the example's."""
    dtype = numpy_dtype(spec.dtype)
    if spec.value_range is not None:
        return _uniform(shape, spec.value_range, dtype, random)
    if dtype.kind == "c":
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype)
    if example.size == 0:
        return np.zeros(shape, dtype) if dtype.kind in "biu" else random.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return _bools(shape, example, random)
    if dtype.kind in "iu":
        low, high = int(example.min()), int(example.max())
        return _integers(low, high, shape, random).astype(dtype)
    return _floats(shape, example.astype(np.float64), random).astype(dtype)


def _unlike(
    spec: TensorSpec, shape: tuple[int, ...], example: Array, random: np.random.Generator, change: int
) -> Array:
    """Draw values unlike the example's; beyond the last of `_CHANGES` each input has a change of its own."""
    dtype = numpy_dtype(spec.dtype)
    number = change if change < len(_CHANGES) else int(random.integers(len(_CHANGES)))
    if dtype.kind == "b":
        return np.asarray(random.random(shape) < _CHANCES[number % len(_CHANCES)])
    low, high = spec.value_range or (-math.inf, math.inf)
    if math.isfinite(high - low):
        # A part of the range, or two values of it.
        first, last = (low + (high - low) * part for part in sorted(random.random(2)))
        values = random.choice([first, last], shape) if number % 2 else random.uniform(first, last, shape)
    elif dtype.kind in "iu":
        reach = _REACHES[number % len(_REACHES)]
        first, last = (int(example.min()), int(example.max())) if example.size else (0, 0)
        values = _integers(first - reach, last + reach, shape, random)
    elif example.size and not _is_signal(example):
        return draw(spec, shape, example, random)
    else:
        scale, shift = _CHANGES[number]
        is_normal = change >= len(_CHANGES) and random.random() < 0.5
        base = random.standard_normal(shape) if is_normal else draw(spec, shape, example, random)
        values = base.astype(np.complex128 if dtype.kind == "c" else np.float64) * scale + shift
    return fitted(values, spec)


def fitted(values: Array, spec: TensorSpec) -> Array:
    """Values as an input takes them: in its dtype and its range."""
    dtype = numpy_dtype(spec.dtype)
    low, high = _ends(dtype, spec.value_range)
    if dtype.kind in "iu":
        # The ends of 64 bits are no float64.
        low, high = max(low, -(2**62)), min(high, 2**62)
        values = np.rint(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values if dtype.kind == "c" else np.clip(values, low, high)).astype(dtype)


def _ends(dtype: np.dtype[Any], value_range: tuple[float, float] | None) -> tuple[float, float]:
    """The lowest and the highest value of an input, of integers whole numbers of their dtype."""
    low, high = value_range or (-math.inf, math.inf)
    if dtype.kind not in "biu":
        return low, high
    first, last = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return math.ceil(max(low, first)), math.floor(min(high, last))


def _uniform(
    shape: tuple[int, ...], bounds: tuple[float, float], dtype: np.dtype[Any], random: np.random.Generator
) -> Array:
    low, high = bounds
    # An end may be infinite: a range that is open on that side.
    low = low if math.isfinite(low) else min(-1.0, high - 2.0)
    high = high if math.isfinite(high) else max(1.0, low + 2.0)
    if dtype.kind in "biu":
        low, high = _ends(dtype, (low, high))
        return _integers(int(low), int(high), shape, random).astype(dtype)
    return random.uniform(low, high, shape).astype(dtype)


def _integers(low: int, high: int, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Whole numbers of 64 bits from `low` to `high`, unsigned where `high` is beyond int64."""
    dtype = np.int64 if high <= np.iinfo(np.int64).max else np.uint64
    first, last = max(low, np.iinfo(dtype).min), min(high, np.iinfo(dtype).max)
    return random.integers(first, last, shape, dtype=dtype, endpoint=True)


def _levels(spec: TensorSpec, example: Array) -> list[float]:
    """Few whole numbers that an input of floats may hold, like its example; none where there are not two.

    Noise spares whole numbers, so that it does not decide which of equal elements comes first.
    """
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind == "c" or not is_inexact(dtype) or example.size < 2:
        return []
    given = example.astype(np.float64)
    if not _is_signal(given):
        return []
    low, high = float(given.min()), float(given.max())
    if spec.value_range is not None:
        low, high = max(low, spec.value_range[0]), min(high, spec.value_range[1])
    elif low == high:
        low, high = low - 2, high + 2
    first, last = math.ceil(low), math.floor(high)
    levels = np.unique(np.rint(np.linspace(first, last, _MOST_LEVELS))) if last > first else np.empty(0)
    return [float(each) for each in levels]


def _bools(shape: tuple[int, ...], example: Array, random: np.random.Generator) -> Array:
    """Mostly the example's commoner value, and always so at the start of each row.

    A padding or attention mask keeps something to attend to in every row.
    """
    common = bool(example.mean() >= 0.5)
    drawn = np.where(random.random(shape) < 0.75, common, not common)
    if drawn.ndim and drawn.shape[-1]:
        drawn[..., 0] = common
    return np.asarray(drawn, np.bool_)


def _is_signal(example: Array) -> bool:
    """Whether floats are no additive mask, and none is infinite or NaN."""
    return bool(np.isfinite(example).all() and (example.dtype.kind == "c" or example.min() >= _MASKED))


def _floats(shape: tuple[int, ...], example: Array, random: np.random.Generator) -> Array:
    if not _is_signal(example):
        return _tiled(shape, example)
    low, high = float(example.min()), float(example.max())
    if low == high:
        around = random.standard_normal(shape)
        return around if low == 0 else low * (1 + np.clip(around / 8, -0.5, 0.5))
    if len(np.unique(example)) <= _LEVELS < example.size:
        return random.choice(example.reshape(-1), shape)
    jitter = 0.1 * example.std() * random.standard_normal(shape)
    drawn: Array = np.clip(random.choice(example.reshape(-1), shape) + jitter, low, high)
    return drawn


def _tiled(shape: tuple[int, ...], example: Array) -> Array:
    if example.ndim != len(shape) or 0 in example.shape:
        return np.zeros(shape)
    indices = (np.arange(size) % old for size, old in zip(shape, example.shape, strict=True))
    tiled: Array = example[np.ix_(*indices)]
    return tiled
