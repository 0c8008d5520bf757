"""Checks what a call passes against a signature, before anything runs.

`Checker(signature).check(inputs)` gives C-contiguous arrays in the order of the signature and the size of
each symbol. It is on the path of every call: a Checker is made once per entry point.

An array must have the very dtype of the signature: nothing is converted behind the caller's back. Python
numbers and nested lists have no dtype; they are converted where that loses nothing (integers exactly,
floats to the nearest value of the dtype, without overflow). A batch that is nested, or lacks what is
optional, is packed first (`call_structure`).

Raises `UnknownInput`, `MissingInput`, `InputDtype`, `InputShape`, `InputValue`. Torch-free.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from aotpipe.core.dtypes import Array, name_of, numpy_dtype
from aotpipe.core.signature import Constant, Signature, TensorSpec
from aotpipe.errors import InputDtype, InputError, InputShape, InputValue, MissingInput, UnknownInput
from aotpipe.runtime.call_structure import Packer
from aotpipe.runtime.dim_binding import Binder

# numpy's kind of a Python value -> the kinds it may become; ml_dtypes' types are of kind V.
_BECOMES: Final[Mapping[str, str]] = {"b": "b", "i": "iufcV", "u": "iufcV", "f": "fcV", "c": "c"}


@dataclass(frozen=True, slots=True)
class _Range:
    """A check of the values of input number `index`."""

    index: int
    low: float
    high: float
    unsigned: np.dtype[Any] | None
    """The unsigned dtype of the same width: there, negative numbers exceed `high`, so one comparison does."""


class Checker:
    """Checks the calls of one entry point; may be used by several threads at once.

    Args:
        signature: Of the entry point.
        sizes: For `call_structure.Packer`.
    """

    def __init__(self, signature: Signature, sizes: Mapping[str, int] | None = None) -> None:
        specs = signature.tensor_inputs
        self._packer = Packer(signature, sizes)
        self.signature = signature
        self._leaves = tuple((spec.name, numpy_dtype(spec.dtype), spec) for spec in specs)
        self._names = frozenset(spec.name for spec in specs)
        self._binder = Binder(specs, signature.symbols)
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
        if self._packer.applies(inputs):
            inputs = self._packer.pack(inputs)
        arrays: list[Array] = []
        shapes = []
        for name, dtype, spec in self._leaves:
            try:
                value = inputs[name]
            except KeyError:
                raise self._names_error(inputs) from None
            if type(value) is not np.ndarray or value.dtype != dtype:
                value = _convert(spec, value, dtype)
            elif not value.flags.c_contiguous:
                value = np.asarray(value, order="C")
            arrays.append(value)
            shapes.append(value.shape)
        if len(inputs) != len(arrays):
            raise self._names_error(inputs)
        sizes = self._binder.bind(tuple(shapes))
        for bounds in self._ranges:
            self._check_range(bounds, arrays[bounds.index])
        return arrays, sizes

    def unpacked(self, inputs: Mapping[str, Any], outputs: dict[str, Array]) -> dict[str, Array]:
        """The outputs of a call in the form in which its inputs were: without flags and what is not there."""
        if not self.signature.optional_outputs or self._packer.is_packed(inputs):
            return outputs
        return self._packer.unpack(outputs)

    def _check_range(self, bounds: _Range, array: Array) -> None:
        if not array.size:
            return
        if bounds.unsigned is not None:
            inside = np.maximum.reduce(array.view(bounds.unsigned), axis=None).item() <= bounds.high
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
        close = difflib.get_close_matches(name, self._names, n=1, cutoff=0.4)
        return f"did you mean {close[0]}?" if close else "leave it out"


def _range(index: int, spec: TensorSpec) -> _Range:
    assert spec.value_range is not None
    low, high = spec.value_range
    dtype = numpy_dtype(spec.dtype)
    one_pass = dtype.kind == "i" and low == 0 and high <= np.iinfo(dtype).max
    return _Range(index, low, high, np.dtype(f"u{dtype.itemsize}") if one_pass else None)


def _convert(spec: TensorSpec, value: ArrayLike, dtype: np.dtype[Any]) -> Array:
    """An array of the dtype from what is none, or from another kind of array (memoryview, torch.Tensor)."""
    try:
        array = np.asarray(value, order="C")
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        kind = InputShape if "inhomogeneous" in str(error) else InputDtype
        raise kind(
            f"input {spec.name!r} is {type(value).__name__!r}, which is no array",
            reason=f"{error}\nwant {spec}",
            hint="pass a numpy array",
        ) from error
    if array.dtype == dtype:
        return array
    if not isinstance(value, bool | int | float | complex | list | tuple):
        raise _dtype_error(spec, array.dtype)
    if not array.size:
        return array.astype(dtype)
    if dtype.kind not in _BECOMES.get(array.dtype.kind, ""):
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
        outside = ~((array >= bounds.low) & (array <= bounds.high))
    index = tuple(int(i) for i in np.unravel_index(int(outside.argmax()), array.shape))
    return InputValue(
        f"input {spec.name!r} has the value {array[index]} at {list(index)}, "
        f"wants {bounds.low}..{bounds.high}",
        reason=f"{int(outside.sum())} of {array.size} values are outside",
    )
