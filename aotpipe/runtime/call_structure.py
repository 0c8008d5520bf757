"""One form for every call: what it leaves out is filled in with a flag that says so, and taken out again.

A program takes every tensor of its signature in each call, at a fixed dtype and rank. `Packer(signature)`
makes that of what a user has: `pack(batch)` gives every input by its flat name, zeros for what is left out
at sizes that agree with the rest, and the presence flags; `unpack(arrays)` is its inverse, of inputs and of
outputs. A batch may be nested as the model takes it: `{"batch": {"tokens": ...}}` for `batch.tokens`.

    packer.unpack(packer.pack(batch)) == batch    for every subset of the optional parts

A call that passes a presence flag itself is in that form already: nothing is filled in, and its outputs
keep their flags. Raises `MissingInput`, `InputShape`, `InputValue`. Torch-free.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from aotpipe.core.dtypes import Array, numpy_dtype
from aotpipe.core.signature import Constant, Presence, Signature, TensorSpec, evaluate_dim
from aotpipe.errors import InputValue, MissingInput
from aotpipe.runtime.dim_binding import Binder

_MOST_SHAPES: Final = 64
_TRUE: Final = np.array(True)
_FALSE: Final = np.array(False)
for _flag in (_TRUE, _FALSE):
    _flag.flags.writeable = False


class Packer:
    """Packs and unpacks the calls of one entry point; may be used by several threads at once.

    Args:
        signature: Of the entry point.
        sizes: The size of a symbol that only what is left out mentions; its smallest one by default.
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

    def applies(self, inputs: Mapping[str, object]) -> bool:
        """Whether a call is to be packed: it may lack something, or something of it is nested."""
        if self._inputs:
            return not self.is_packed(inputs)
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

        Args:
            arrays: By name.
            flags: Whether to leave the flags in.
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
