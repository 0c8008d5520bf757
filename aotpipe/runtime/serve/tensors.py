"""Tensors of the Open Inference Protocol v2 <-> numpy arrays.

Nothing is allocated for a tensor before its shape, multiplied out in Python's own integers, agrees with the
data that came. What a tensor's sizes have to be is for the program's own checks to say, in the worker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson

from aotpipe.core.dtypes import Array, numpy_dtype
from aotpipe.core.signature import Signature, TensorSpec, dim_symbols
from aotpipe.errors import InputDtype, InputShape, InputValue, NotInJson
from aotpipe.runtime.input_checks import converted

DATATYPES: Final[Mapping[str, str]] = {
    "bool": "BOOL",
    **{f"{kind}int{bits}": f"{kind}int{bits}".upper() for kind in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
}
"""The protocol's name of each dtype that it has one for."""

_MOST_DIMS: Final = 64
_MOST_ELEMENTS: Final = 1 << 58
"""Of a shape whose zeros count as 1: numpy has no larger array, also where it is empty."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor whose bytes are as many as its shape says; `data` is any buffer that holds them."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Any

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return memoryview(self.data).nbytes

    def array(self) -> Array:
        """A view of it."""
        return np.frombuffer(self.data, numpy_dtype(self.dtype)).reshape(self.shape)


def shape_of(name: str, shape: object) -> tuple[int, ...]:
    """A shape as a request gives it.

    Raises:
        InputShape: It is none.
    """
    if not isinstance(shape, list) or len(shape) > _MOST_DIMS:
        raise InputShape(f"the shape of input {name!r} is no list of at most {_MOST_DIMS} sizes")
    if any(type(size) is not int or size < 0 for size in shape):
        raise InputShape(f"the shape of input {name!r} holds what is no size: {_short(shape)}")
    # Of others the data that came is compared with the shape.
    if 0 in shape and math.prod(max(size, 1) for size in shape) > _MOST_ELEMENTS:
        raise InputShape(f"the shape of input {name!r} is larger than any array: {_short(shape)}")
    return tuple(shape)


def from_bytes(spec: TensorSpec, shape: tuple[int, ...], data: memoryview) -> Tensor:
    """A tensor of the binary extension: its elements in row-major order, little-endian.

    Raises:
        InputShape: The bytes are not as many as the shape says.
        InputValue: A bool is neither 0 nor 1.
    """
    wanted = math.prod(shape) * numpy_dtype(spec.dtype).itemsize
    if len(data) != wanted:
        raise InputShape(
            f"input {spec.name!r} has {len(data)} bytes; {DATATYPES[spec.dtype]}{list(shape)} has {wanted}"
        )
    if spec.dtype == "bool" and wanted and np.frombuffer(data, np.uint8).max() > 1:
        raise InputValue(f"input {spec.name!r} has a BOOL that is neither 0 nor 1")
    return Tensor(spec.name, spec.dtype, shape, data)


def from_json(spec: TensorSpec, shape: tuple[int, ...], data: object) -> Tensor:
    """A tensor of numbers in JSON, flat or nested as its shape.

    Raises:
        InputShape: There are more or fewer numbers than the shape says, or they are nested otherwise.
        InputDtype: A number is none that the dtype has, such as 1.5 for an integer.
    """
    if not isinstance(data, list):
        raise InputShape(f"input {spec.name!r} lacks its data", hint='give "data": a list of numbers')
    dtype = numpy_dtype(spec.dtype)
    if not (array := converted(spec, data, dtype)).size:
        array = array.astype(dtype)
    if array.size != math.prod(shape) or (array.ndim != 1 and array.shape != shape):
        raise InputShape(
            f"input {spec.name!r} has numbers in the shape {list(array.shape)}, not {list(shape)}",
            hint="give them flat, in row-major order, or nested as the shape is",
        )
    return Tensor(spec.name, spec.dtype, shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def to_json(tensor: Tensor) -> orjson.Fragment:
    """The flat list of a tensor's elements.

    Raises:
        NotInJson: One is NaN or infinite.
    """
    array = tensor.array().reshape(-1)
    if tensor.dtype in ("float16", "bfloat16"):
        array = array.astype(np.float32)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise NotInJson(
            f"output {tensor.name!r} has NaN or an infinity, which JSON has no number for",
            hint='ask for it in the binary form: "parameters": {"binary_data": true}',
        )
    return orjson.Fragment(orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY))


def require_datatype(spec: TensorSpec, datatype: object) -> None:
    """Check a request's datatype.

    Raises:
        InputDtype: It is not the input's.
    """
    if datatype != DATATYPES[spec.dtype]:
        raise InputDtype(
            f"input {spec.name!r} is {_short(datatype)}, wants {DATATYPES[spec.dtype]}", reason=f"want {spec}"
        )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def batch_symbol(signature: Signature) -> str:
    """The symbol that is the first dim of each input and output, and no other dim; or an empty text."""
    specs = (*signature.tensor_inputs, *signature.tensor_outputs)
    firsts = {spec.dims[0] if spec.dims else "" for spec in specs}
    symbol = next(iter(firsts)) if len(firsts) == 1 else ""
    plain = (
        isinstance(symbol, str) and symbol.isidentifier() and not signature.state and not signature.optional
    )
    rest = [dim for spec in specs for dim in spec.dims[1:]]
    return str(symbol) if plain and not any(symbol in dim_symbols(dim) for dim in rest) else ""
