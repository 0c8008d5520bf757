"""Which outputs the calls of a program say nothing of. Torch-free.

An output is uninformative where it is empty in every call, and where the law of parity would pass a program
that gives one value, or one array, in every call. So look a branch that no call reached, and a threshold that
nothing passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.runtime.goldens import Golden

Where = tuple[str, str]
"""An entry point and one of its outputs."""
_MOST_NAMED: Final = 4
_SAME: Final = 1e-5
"""How far elements of one value may lie apart, of the largest: sums to 1 in float32 do."""


def uninformative(goldens: Iterable[Golden]) -> dict[Where, str]:
    """Why some calls say nothing of an output; those of which they say something are absent."""
    by_output: dict[Where, list[Golden]] = {}
    for golden in goldens:
        for name in golden.outputs:
            by_output.setdefault((golden.entry_point, name), []).append(golden)
    return {where: why for where, given in by_output.items() if (why := _reason(given, where[1]))}


def described(reasons: Mapping[Where, str]) -> str:
    """The outputs with their reasons, in one line."""
    said = [f"`{output}` of {entry_point} {why}" for (entry_point, output), why in reasons.items()]
    more = f"; and {len(said) - _MOST_NAMED} more" if len(said) > _MOST_NAMED else ""
    return "; ".join(said[:_MOST_NAMED]) + more or "it gives nothing that could be compared"


def _reason(goldens: Sequence[Golden], name: str) -> str:
    outputs = [(golden.outputs[name], golden.unsure.get(name)) for golden in goldens]
    if not any(array.size for array, _ in outputs):
        return "is empty in every call"
    compared = (array.reshape(-1) if unsure is None else array[~unsure] for array, unsure in outputs)
    value = next((each[:1] for each in compared if each.size), None)
    if value is None:
        return "is in every call what eager disagrees with itself about"
    # Each call on its own: zeros of another shape are zeros.
    if all(_passes(golden, name, np.full_like(golden.outputs[name], value)) for golden in goldens):
        # What ml_dtypes prints of a whole number differs between its versions.
        return f"is {value[0] if value.dtype.kind != 'V' else float(value[0])} in every call"
    is_one = all(_passes(golden, name, outputs[0][0]) for golden in goldens[1:])
    return "is the same in every call, whatever the inputs are" if is_one and _differ(goldens) else ""


def _passes(golden: Golden, name: str, array: Array) -> bool:
    """Whether an output may be this, and not only for the tolerance of few bits."""
    if not golden.judge(name, array).passed:
        return False
    kind = np.complex128 if array.dtype.kind == "c" else np.float64
    wanted, given = (each.astype(kind).reshape(-1) for each in (golden.outputs[name], array))
    scale = float(np.max(np.abs(wanted), initial=0.0, where=np.isfinite(wanted)))
    known = ~unsure.reshape(-1) if (unsure := golden.unsure.get(name)) is not None else slice(None)
    return np.allclose(given[known], wanted[known], rtol=0.0, atol=_SAME * scale, equal_nan=True)


def _differ(goldens: Sequence[Golden]) -> bool:
    inputs = goldens[0].inputs
    return any(
        array.tobytes() != inputs[name].tobytes()
        for golden in goldens[1:]
        for name, array in golden.inputs.items()
    )
