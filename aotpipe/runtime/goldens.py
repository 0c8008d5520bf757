"""Recorded calls with the answers a program must give, and the one comparison that judges an answer.

Torch-free: the build uses it for parity, and `aotpipe selftest` on a host that has only the runtime. A file
of goldens is one safetensors file whose metadata says which array is what: `loads(dumps(goldens))` gives
equal goldens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, TypeVar

import numpy as np

from aotpipe.core.dtypes import Array, numpy_dtype
from aotpipe.core.serialization import attributes
from aotpipe.core.stages import ParityCase

C = TypeVar("C")

_METADATA: Final = "aotpipe.goldens"
_SCHEMA: Final = 1
# What a file of another form makes `loads` raise, beside ValueErrors.
_MALFORMED: Final = (LookupError, TypeError, AttributeError, RecursionError)
# Dtypes that safetensors' numpy binding does not read back travel as bytes of the same shape.
_AS_BYTES: Final = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"})
# Elements that are widened to float64 at a time: outputs of 100 MB are compared in 100 MB more, not 1 GB.
_CHUNK: Final = 1 << 20
# Into how many parts an output is divided to show where it is off.
_PROFILE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One call of a sequence and what it must answer.

    Attributes:
        entry_point: Which function is called.
        case: Names the inputs, such as `seed 0` or `batch=64`; calls of one sequence share it up to the `/`.
        reset: Whether the state is the initial one before this call; otherwise it continues the call before.
        inputs: Input name -> array.
        outputs: Output name -> the reference, in the program's dtype.
        allowed: Output name -> (atol, rtol): an element may be off by `atol + rtol * |reference|`.
        unsure: Output name -> mask of the elements on which the reference itself cannot decide (an argmax of
            a near-tie); they are not compared. Outputs without such elements are absent.
        eager_error: Output name -> the largest error of eager in the model's own dtype against the reference.
        raises: What eager raises for an assert of the model, which the program has to refuse too; empty where
            it answers.
    """

    entry_point: str
    case: str
    reset: bool
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    allowed: Mapping[str, tuple[float, float]]
    unsure: Mapping[str, Array] = field(default_factory=dict)
    eager_error: Mapping[str, float] = field(default_factory=dict)
    raises: str = ""

    def judge(self, output: str, got: Array) -> ParityCase:
        """Compare the answer of an output with its reference."""
        unsure = self.unsure.get(output)
        skipped = 0 if unsure is None else int(np.count_nonzero(unsure))
        said = f"{skipped} elements on which eager disagrees with itself were not compared"
        return replace(
            compare(got, self.outputs[output], *self.allowed.get(output, (0.0, 0.0)), unsure),
            entry_point=self.entry_point,
            case=self.case,
            output=output,
            eager_abs_error=self.eager_error.get(output, 0.0),
            note=said if skipped else "",
        )


def compare(
    got: Array, want: Array, atol: float = 0.0, rtol: float = 0.0, unsure: Array | None = None
) -> ParityCase:
    """Measure an answer against its reference.

    Shape and dtype must be equal. NaN answers NaN, an infinity the same infinity. Integers and bools must be
    equal whatever the tolerance; the parts of a complex number are compared on their own.

    Args:
        got: The answer.
        want: The reference.
        atol: Allowed absolute error.
        rtol: Allowed error per unit of `|want|`.
        unsure: Elements that are not compared.
    """
    if got.dtype != want.dtype:
        return ParityCase(ratio=np.inf, message=f"dtype is {got.dtype}, not {want.dtype}")
    if got.shape != want.shape:
        # Where it is unsure how many elements there are (a threshold in `nonzero`), none can be compared.
        if unsure is not None and unsure.all():
            return ParityCase()
        return ParityCase(ratio=np.inf, message=f"shape is {got.shape}, not {want.shape}")
    if not want.size:
        return ParityCase()
    parts = 2 if want.dtype.kind == "c" else 1
    exact = want.dtype.kind in "biu"
    allowed = (0.0, 0.0) if exact else (atol, rtol)
    left, right = real_parts(got), real_parts(want)
    skipped = None if unsure is None else np.repeat(unsure.reshape(-1), parts)
    error, ratio, at = 0.0, 0.0, 0
    for start in range(0, right.size, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        skip = None if skipped is None else skipped[chunk]
        errors, ratios = _errors(left[chunk], right[chunk], allowed, skip)
        error = max(error, float(errors.max()))
        if (largest := float(ratios.max())) > ratio:
            ratio, at = largest, start + int(ratios.argmax())
    one, other = float(left[at]), float(right[at])
    message = ""
    if ratio > 1.0 and exact:
        message = f"is {one:.20g}, not {other:.20g}"
    elif ratio > 1.0 and not np.isfinite([one, other]).all():
        message = f"is {one}, where the reference is {other}"
    failing, profile = _failing(left, right, allowed, skipped) if ratio > 1.0 else (0, ())
    return ParityCase(
        max_abs_error=error,
        ratio=ratio,
        worst_index=tuple(int(i) for i in np.unravel_index(at // parts, want.shape)),
        got=one,
        want=other,
        message=message,
        failing=failing,
        elements=right.size if failing else 0,
        profile=profile,
    )


def _failing(
    got: Array, want: Array, allowed: tuple[float, float], skipped: Array | None
) -> tuple[int, tuple[float, ...]]:
    """How many elements are off by more than is allowed, and the largest ratio in each part of the output."""
    failing, profile = 0, []
    step = max(1, -(-want.size // _PROFILE))
    for start in range(0, want.size, step):
        part = slice(start, start + step)
        _, ratios = _errors(got[part], want[part], allowed, None if skipped is None else skipped[part])
        failing += int(np.count_nonzero(ratios > 1.0))
        profile.append(float(ratios.max()))
    return failing, tuple(profile)


def real_parts(array: Array) -> Array:
    """A flat view, of a complex number its two parts."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def _errors(got: Array, want: Array, allowed: tuple[float, float], skip: Array | None) -> tuple[Array, Array]:
    """Per flat element, the absolute error and its share of what is allowed."""
    # Unequal int64 may be equal as float64, so equality is decided before the widening.
    same = (got == want) | ((got != got) & (want != want))
    if skip is not None:
        same |= skip
    if same.all():
        return np.zeros(1), np.zeros(1)
    left, right = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        error = np.where(same, 0.0, np.abs(left - right))
        error[~same & ~(np.isfinite(left) & np.isfinite(right))] = np.inf
        bound = allowed[0] + allowed[1] * np.where(np.isfinite(right), np.abs(right), 0.0)
        ratio = np.where(same, 0.0, error / bound)
    # Equal as float64 although the integers differ: they are 1 or more apart. No bound allows an infinity.
    ratio[~same & ((error == 0.0) | np.isinf(error))] = np.inf
    return error, ratio


def sequences(calls: Iterable[C], reset: Callable[[C], bool] = attrgetter("reset")) -> list[list[C]]:
    """Calls, split before each that begins with a reset."""
    found: list[list[C]] = []
    for call in calls:
        if reset(call) or not found:
            found.append([])
        found[-1].append(call)
    return found


def examples(goldens: Iterable[Golden]) -> list[Golden]:
    """The first call of each entry point that begins with a reset, which is its example."""
    first: dict[str, Golden] = {}
    for golden in goldens:
        if golden.reset:
            first.setdefault(golden.entry_point, golden)
    return list(first.values())


def dumps(goldens: Sequence[Golden]) -> bytes:
    """Write goldens as one safetensors file; equal goldens give equal bytes."""
    from safetensors.numpy import save

    arrays: dict[str, Array] = {}
    calls = []
    for number, golden in enumerate(goldens):
        groups = {"inputs": golden.inputs, "outputs": golden.outputs, "unsure": golden.unsure}
        for group, named in groups.items():
            arrays.update({f"{number}.{group}.{name}": _encode(array) for name, array in named.items()})
        calls.append(
            {
                **attributes(golden, "entry_point case reset allowed eager_error"),
                **({"raises": golden.raises} if golden.raises else {}),
                **{
                    group: [(name, str(array.dtype), array.shape) for name, array in named.items()]
                    for group, named in groups.items()
                },
            }
        )
    header = json.dumps({"schema": _SCHEMA, "calls": calls}, sort_keys=True)
    return bytes(save(arrays, metadata={_METADATA: header}))


def loads(data: bytes) -> tuple[Golden, ...]:
    """Read what `dumps` gave.

    Raises:
        ValueError: It is no file of goldens, or one of another schema.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_METADATA])
        arrays = load(data)
        if header["schema"] != _SCHEMA:
            raise ValueError(f"goldens of schema {header['schema']}; this aotpipe reads {_SCHEMA}")
        return tuple(_golden(number, call, arrays) for number, call in enumerate(header["calls"]))
    except (*_MALFORMED, json.JSONDecodeError, UnicodeDecodeError, SafetensorError) as error:
        raise ValueError(f"not a file of goldens: {error!r}") from error


def _golden(number: int, call: Mapping[str, Any], arrays: Mapping[str, Array]) -> Golden:
    groups = {
        group: {
            name: _decode(arrays[f"{number}.{group}.{name}"], dtype, shape)
            for name, dtype, shape in call[group]
        }
        for group in ("inputs", "outputs", "unsure")
    }
    allowed = {name: (atol, rtol) for name, (atol, rtol) in call["allowed"].items()}
    return Golden(**{**call, **groups, "allowed": allowed})


def _encode(array: Array) -> Array:
    flat = np.ascontiguousarray(array)
    return flat.reshape(-1).view(np.uint8) if str(array.dtype) in _AS_BYTES else flat.reshape(array.shape)


def _decode(array: Array, dtype: str, shape: Iterable[int]) -> Array:
    typed: Array = array if array.dtype == numpy_dtype(dtype) else array.view(numpy_dtype(dtype))
    return typed.reshape(tuple(shape))
