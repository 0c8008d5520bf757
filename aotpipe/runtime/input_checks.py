"""Brings what a call passes into the one form that a program takes, and checks it before anything runs.

`Checker(signature).check(inputs)` gives C-contiguous arrays in the order of the signature and the size of
each symbol. Shapes are checked before anything is copied, of views that keep them; integers with a range
are copied before they are checked. It is on the path of every call: a Checker is made once per entry point.

An array must have the very dtype of the signature: nothing is converted behind the caller's back. Python
numbers and nested lists have no dtype; they are converted where that loses nothing (integers exactly,
floats to the nearest value of the dtype, without overflow).

A program takes every tensor of its signature in each call. A batch that is nested as the model takes it
(`{"batch": {"tokens": ...}}` for `batch.tokens`), or lacks what is optional, is packed first:
`Packer(signature).pack(batch)` gives every input by its flat name, zeros for what is left out at sizes that
agree with the rest, and the presence flags; `unpack(arrays)` is its inverse, of inputs and of outputs.

    packer.unpack(packer.pack(batch)) == batch    for every subset of the optional parts

A call that passes a presence flag itself is in that form already: nothing is filled in, and its outputs
keep their flags.

Raises `UnknownInput`, `MissingInput`, `InputDtype`, `InputShape`, `InputValue`. Torch-free.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from aotpipe.core.dtypes import Array, is_inexact, name_of, numpy_dtype
from aotpipe.core.signature import Constant, Presence, Signature, TensorSpec, evaluate_dim
from aotpipe.core.units import size
from aotpipe.errors import InputDtype, InputError, InputShape, InputValue, MissingInput, UnknownInput
from aotpipe.runtime import process
from aotpipe.runtime.dim_binding import Binder

# numpy's kind of a Python value -> the kinds it may become; ml_dtypes' types are of kind V.
_BECOMES: Final[Mapping[str, str]] = {"b": "b", "i": "iufcV", "u": "iufcV", "f": "fcV", "c": "c"}
_MOST_SHAPES: Final = 64
_memory_bytes = cache(process.default_memory_limit)
# Read-only, as what `broadcast_to` gives is.
_TRUE, _FALSE = (np.broadcast_to(flag, ()) for flag in (True, False))


@dataclass(frozen=True, slots=True)
class _Range:
    """A check of the values of input number `index`."""

    index: int
    low: float
    high: float
    unsigned: np.dtype[Any] | None
    """The unsigned dtype of the same width: there, negative numbers exceed `high`, so one comparison does."""
    is_trusted: bool
    """Whether a program may read a table by these values, unchecked: ranges of floats prove no index."""


class Checker:
    """Checks the calls of one entry point; may be used by several threads at once."""

    def __init__(self, signature: Signature, sizes: Mapping[str, int] | None = None) -> None:
        specs = signature.tensor_inputs
        self._packer = Packer(signature, sizes)
        self.signature = signature
        self._unpacks = bool(signature.optional_outputs)
        self._leaves = tuple((spec.name, numpy_dtype(spec.dtype), spec) for spec in specs)
        self._names = frozenset(spec.name for spec in specs)
        self._binder = Binder(specs, signature.symbols, signature.guards)
        self._bind = lru_cache(_MOST_SHAPES)(self._bound)
        self._ranges = tuple(
            _range(index, spec)
            for index, spec in enumerate(specs)
            if spec.value_range is not None and not spec.dtype.startswith("complex")  # which have no order
        )

    def check(self, inputs: Mapping[str, Any]) -> tuple[list[Array], Mapping[str, int]]:
        """The arrays in the order of the signature's tensor inputs, and the size of each symbol.

        Raises:
            InputError: An input is unknown, missing, or does not fit.
        """
        if type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise InputError(
                f"the inputs are {type(inputs).__name__!r}, not a mapping of names to arrays",
                hint=f"pass {{{', '.join(f'{name!r}: ...' for name, *_ in self._leaves)}}}",
            )
        # As many as there are, and each of them there: nothing is to be packed.
        is_flat = len(inputs) == len(self._leaves) and not self._packer.takes_less
        if not is_flat and self._packer.applies(inputs):
            inputs = self._packer.pack(inputs)
        arrays: list[Array] = []
        shapes = []
        copied = []
        for name, dtype, spec in self._leaves:
            try:
                value = inputs[name]
            except KeyError:
                if is_flat and self._packer.applies(inputs):
                    inputs = self._packer.pack(inputs)
                    if inputs.keys() == self._names:
                        return self.check(inputs)
                raise self._names_error(inputs) from None
            if type(value) is np.ndarray:
                # Another thread may give the caller's array another shape or dtype, between the check and
                # the program; a view keeps its own.
                value = value[...]
            if type(value) is not np.ndarray or value.dtype != dtype:
                value = converted(spec, value, dtype)
            if not value.flags.c_contiguous:
                copied.append(len(arrays))
            arrays.append(value)
            shapes.append(value.shape)
        if len(inputs) != len(arrays):
            raise self._names_error(inputs)
        sizes = self._bind(tuple(shapes))
        for index in copied:
            arrays[index] = arrays[index].copy()
        for bounds in self._ranges:
            index = bounds.index
            if bounds.is_trusted and index not in copied:
                # Another thread may write to what the caller passed, between the check and the program.
                arrays[index] = arrays[index].copy()
            self._check_range(bounds, arrays[index])
        return arrays, sizes

    def _bound(self, shapes: tuple[tuple[int, ...], ...]) -> Mapping[str, int]:
        """The size of each symbol, of shapes that can be copied."""
        sizes = self._binder.bind(shapes)
        for (name, dtype, _), shape in zip(self._leaves, shapes, strict=True):
            if (size_bytes := math.prod(shape) * dtype.itemsize) > _memory_bytes():
                raise InputShape(
                    f"input {name!r} of shape {list(shape)} is larger than this machine's memory",
                    reason=f"a call would copy {size(size_bytes)}, also of an array whose elements are one",
                )
        return sizes

    def unpacked(self, inputs: Mapping[str, Any], outputs: dict[str, Array]) -> dict[str, Array]:
        """The outputs of a call in the form in which its inputs were: without flags and what is not there."""
        if not self._unpacks or self._packer.is_packed(inputs):
            return outputs
        return self._packer.unpack(outputs)

    def _check_range(self, bounds: _Range, array: Array) -> None:
        if not array.size:
            return
        if bounds.unsigned is not None:
            values = array.view(bounds.unsigned)
            # A reduction takes five times as long for a few values, and as long for many.
            inside = values.item(values.argmax()) <= bounds.high
        else:
            if array.dtype.kind == "V":  # the reductions of ml_dtypes warn of NaN
                array = array.astype(np.float32)
            low = np.minimum.reduce(array, axis=None).item()
            high = np.maximum.reduce(array, axis=None).item()
            # Both are NaN where any element is, and then neither comparison holds.
            inside = bounds.low <= low and high <= bounds.high
        if not inside:
            raise _value_error(self._leaves[bounds.index][2], bounds, array)

    def _names_error(self, inputs: Mapping[str, ArrayLike]) -> InputError:
        names = ", ".join(name for name, *_ in self._leaves) or "none"
        for name in inputs:
            if name not in self._names:
                return UnknownInput(
                    f"no input is called {name!r}",
                    reason=f"the inputs are: {names}",
                    hint=self._nearest(name),
                )
        missing = [spec for name, _, spec in self._leaves if name not in inputs]
        return MissingInput(
            f"input {missing[0].name!r} is missing",
            reason=f"want {missing[0]}",
            hint=f"the inputs are: {names}",
        )

    def _nearest(self, name: str) -> str:
        for leaf in self.signature.inputs:
            if isinstance(leaf, Constant) and leaf.name == name:
                return f"it was fixed to {leaf.value!r} when the model was exported; leave it out"
        close = difflib.get_close_matches(str(name), self._names, n=1, cutoff=0.4)
        return f"did you mean {close[0]}?" if close else "leave it out"


def _rounded(end: float, dtype: np.dtype[Any]) -> float:
    """An end of a range as a dtype of floats has it: float32's 0.01 is below float64's."""
    with np.errstate(over="ignore"):
        rounded = float(dtype.type(end))
    return rounded if math.isfinite(rounded) else end


def _range(index: int, spec: TensorSpec) -> _Range:
    assert spec.value_range is not None
    low, high = spec.value_range
    dtype = numpy_dtype(spec.dtype)
    if is_inexact(dtype) and dtype.kind != "c":
        low, high = (_rounded(end, dtype) for end in (low, high))
    one_pass = dtype.kind == "i" and low == 0 and high <= np.iinfo(dtype).max
    unsigned = np.dtype(f"u{dtype.itemsize}") if one_pass else None
    return _Range(index, low, high, unsigned, is_trusted=dtype.kind in "iu")


def converted(spec: TensorSpec, value: ArrayLike, dtype: np.dtype[Any]) -> Array:
    """An array of the dtype from what is none, or from another kind of array (memoryview, torch.Tensor).

    Raises:
        InputShape: A list is nested unevenly.
        InputDtype: It is no array, or has numbers that the dtype cannot hold.
    """
    try:
        array = np.asarray(value)
        if dtype == np.uint64 and array.dtype.kind == "f" and isinstance(value, list | tuple):
            # numpy makes floats of integers of which one needs the sign's bit.
            numbers = np.asarray(value, object)
            if all(type(number) is int for number in numbers.reshape(-1)):
                array = numbers.astype(np.uint64)
    except Exception as error:  # an object of the caller's raises what it likes
        kind = InputShape if "inhomogeneous" in str(error) else InputDtype
        raise kind(
            f"input {spec.name!r} is {type(value).__name__!r}, which is no array",
            reason=f"{error}\nwant {spec}",
            hint="pass a numpy array",
        ) from error
    if array.dtype == dtype:
        return array
    becomes = not array.size or dtype.kind in _BECOMES.get(array.dtype.kind, "")
    if not becomes or not isinstance(value, bool | int | float | complex | list | tuple):
        raise _dtype_error(spec, array.dtype)
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
        exact = _is_exact(array, converted)
    if not exact:
        raise InputDtype(
            f"input {spec.name!r} has numbers that {spec.dtype} cannot hold",
            reason=f"want {spec}",
            hint="pass a numpy array of that dtype, rounded as you mean it",
        )
    return converted


def _is_exact(array: Array, converted: Array) -> bool:
    if array.dtype.kind in "iu":
        if converted.dtype.kind in "iu":
            return bool((converted == array).all())
        # numpy would compare int64 with float64 after rounding; Python compares the numbers.
        real = converted.real if converted.dtype.kind == "c" else converted.astype(np.float64)
        pairs = zip(real.reshape(-1).tolist(), array.reshape(-1).tolist(), strict=True)
        return all(left == right for left, right in pairs)
    return bool((np.isfinite(converted) == np.isfinite(array)).all())


def _dtype_error(spec: TensorSpec, got: np.dtype[Any]) -> InputDtype:
    name = name_of(got) or str(got)
    same_name = " in another byte order" if got.newbyteorder("=") != got else ""
    return InputDtype(
        f"input {spec.name!r} is {name}{same_name}, wants {spec.dtype}",
        reason=f"want {spec}",
        hint=f"nothing is converted unasked: pass {spec.name}.astype({spec.dtype!r})",
    )


def _value_error(spec: TensorSpec, bounds: _Range, array: Array) -> InputValue:
    with np.errstate(invalid="ignore"):
        # In float64: numpy would round the ends to the array's dtype, 1e40 to an infinity.
        array = array.astype(np.float64) if is_inexact(array.dtype) else array
        outside = ~((array >= bounds.low) & (array <= bounds.high))
    index = tuple(int(i) for i in np.unravel_index(int(outside.argmax()), array.shape))
    low, high = spec.value_range or (bounds.low, bounds.high)
    return InputValue(
        f"input {spec.name!r} has the value {array[index]} at {list(index)}, wants {low}..{high}",
        reason=f"{int(outside.sum())} of {array.size} values are outside",
    )


class Packer:
    """Packs and unpacks the calls of one entry point; may be used by several threads at once.

    `sizes` has the size of a symbol that only what is left out mentions; its smallest one by default.
    """

    def __init__(self, signature: Signature, sizes: Mapping[str, int] | None = None) -> None:
        self._inputs = signature.optional
        self._outputs = signature.optional_outputs
        self._specs = {spec.name: spec for spec in signature.tensor_inputs}
        self._constants = {leaf.name: leaf.value for leaf in signature.inputs if isinstance(leaf, Constant)}
        self._flags = frozenset(part.flag for part in (*self._inputs, *self._outputs))
        self._sizes = {symbol.name: symbol.min for symbol in signature.symbols} | dict(sizes or {})
        self._binder = cache(lambda names: Binder([self._specs[name] for name in names], signature.symbols))
        self._zeros = lru_cache(_MOST_SHAPES)(_zeros)

    @property
    def takes_less(self) -> bool:
        """Whether a call may lack something."""
        return bool(self._inputs)

    def applies(self, inputs: Mapping[str, object]) -> bool:
        """Whether a call is to be packed: it may lack something, or something of it is nested."""
        if self._inputs:
            return not self.is_packed(inputs)
        if inputs.keys() == self._specs.keys():
            return False
        return any(name not in self._specs and _parts(value) is not None for name, value in inputs.items())

    def is_packed(self, inputs: Mapping[str, object]) -> bool:
        """Whether a call passes a presence flag itself."""
        return any(part.flag in inputs for part in self._inputs)

    def pack(self, batch: Mapping[str, Any]) -> dict[str, ArrayLike]:
        """Every input by its name, of a batch that may be nested and may lack what is optional.

        Raises:
            MissingInput: An optional part lacks some of its tensors.
            InputShape: Sizes disagree.
            InputValue: A value was fixed at another one when the model was exported.
        """
        given = dict(self._flat(batch))
        if self.is_packed(given):
            return given
        lacking: set[str] = set()
        for part in self._inputs:
            if part.flag in lacking or not any(name in given for name in part.members):
                lacking.update((part.flag, *part.members))
        for part in self._inputs:
            given[part.flag] = _FALSE if part.flag in lacking else _TRUE
        for name in self._constants:
            given.pop(name, None)
        absent = [spec for name, spec in self._specs.items() if name in lacking and name not in self._flags]
        if absent:
            given |= self._filled(given, absent)
        return given

    def unpack(self, arrays: Mapping[str, Any], *, flags: bool = False) -> dict[str, Any]:
        """What a call has of inputs or outputs in the form of a program: without what is not there.

        `flags` says whether to leave the flags in.
        """
        gone: set[str] = set() if flags else set(self._flags)
        for part in (*self._inputs, *self._outputs):
            if part.flag in arrays and not bool(arrays[part.flag]):
                gone.update(part.members)
        return {name: array for name, array in arrays.items() if name not in gone}

    def _flat(self, batch: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
        """The leaves by their dotted names; None counts as absent, a constant must have its fixed value."""
        for key, value in batch.items():
            name = f"{prefix}{key}"
            if name in self._specs:
                if value is not None:
                    yield name, value
            elif name in self._constants:
                self._require_fixed(name, value)
                yield name, value
            elif (inner := _parts(value)) is not None and self._has_below(name):
                yield from self._flat(inner, f"{name}.")
            elif value is not None or not self._has_below(name):
                yield name, value

    def _has_below(self, name: str) -> bool:
        return any(known.startswith(f"{name}.") for known in (*self._specs, *self._constants))

    def _require_fixed(self, name: str, value: object) -> None:
        fixed = self._constants[name]
        if (type(value) is not type(fixed) or value != fixed) and repr(value) != fixed:
            raise InputValue(
                f"the input {name!r} is {value!r}, and it was fixed to {fixed!r} when the model was exported",
                hint=f"leave it out, or build with tensorize=({name!r},) to let it vary",
            )

    def _filled(self, given: Mapping[str, Any], absent: list[TensorSpec]) -> dict[str, Array]:
        """Zeros for what is left out, at sizes that the other inputs give it."""
        there = tuple(name for name in self._specs if name in given)
        missing = [name for name in self._specs if name not in given and self._specs[name] not in absent]
        if missing:
            raise MissingInput(
                f"input {missing[0]!r} is missing",
                reason=f"want {self._specs[missing[0]]}",
                hint="it is no optional part of the call, or its other tensors are there",
            )
        sizes = {**self._sizes, **self._binder(there).bind(tuple(np.shape(given[name]) for name in there))}
        return {
            spec.name: self._zeros(spec, tuple(evaluate_dim(dim, sizes) for dim in spec.dims))
            for spec in absent
        }


def presence_cases(parts: tuple[Presence, ...], most: int) -> list[dict[str, bool]]:
    """Which flags to try, all true first: every combination, or of more than `most` the telling ones.

    These are: all, none, each one alone, and each one left out. A part of an absent part is absent.
    """
    flags = [part.flag for part in parts]
    if 2 ** len(flags) <= most:
        chosen = [list(row) for row in itertools.product((False, True), repeat=len(flags))]
    else:
        alone = [[flag == other for other in flags] for flag in flags]
        chosen = [[False] * len(flags), *alone, *([not one for one in row] for row in alone)]
    cases: list[dict[str, bool]] = [dict.fromkeys(flags, True)]
    for row in chosen:
        case = dict(zip(flags, row, strict=True))
        for part in parts:  # outer ones come first
            if not case[part.flag]:
                case.update((name, False) for name in part.members if name in case)
        if case not in cases:
            cases.append(case)
    return cases


def _zeros(spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    low, high = spec.value_range or (0, 0)
    zeros = np.full(shape, 0 if low <= 0 <= high else low, numpy_dtype(spec.dtype))
    zeros.flags.writeable = False
    return zeros


def _parts(value: object) -> Mapping[str, Any] | None:
    """The members of a dict, dataclass, named tuple, tuple or list, by name; None for any other value."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if isinstance(value, tuple | list):
        return {str(index): each for index, each in enumerate(value)}
    return None
