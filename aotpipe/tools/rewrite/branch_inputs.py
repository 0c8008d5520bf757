"""Inputs that make a model go other ways than its example does: for branches and loops not taken yet.

Torch-free. All tensors at once in each of these ways, then each by itself, then drawn anew with other seeds:

    floats          negated, a tenth, three times plus one, a hundred times, zeros, turned around
    whole numbers   turned around, numbered; those of no dimensions also 0, 1, 2 and twice as large
    bools           all False, all True, negated

A declared value range is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.validate.inputs import draw

_SEEDS: Final = 24
Change = Callable[[Array], Array]

_FLOATS: Final[Mapping[str, Change]] = {
    "negated": np.negative,
    "a tenth": lambda array: array * 0.1,
    "three times plus one": lambda array: array * 3 + 1,
    "a hundred times": lambda array: array * 100,
    "zeros": np.zeros_like,
    "turned around": lambda array: np.flip(array),
}
_SCALARS: Final[Mapping[str, Change]] = {
    "0": np.zeros_like,
    "1": np.ones_like,
    "2": lambda array: np.full_like(array, 2),
    "twice": lambda array: array * 2,
}
_WHOLE: Final[Mapping[str, Change]] = {
    "turned around": lambda array: np.flip(array),
    "numbered": lambda array: np.arange(array.size) % (int(array.max(initial=0)) + 2),
}
_BOOLS: Final[Mapping[str, Change]] = {
    "all False": np.zeros_like,
    "all True": np.ones_like,
    "negated": np.logical_not,
}


def variants(
    signature: Signature, example: Mapping[str, Array], seed: int
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Calls of one entry point, each with what was done to the example."""
    specs = {spec.name: spec for spec in signature.tensor_inputs}
    ways = {name: _ways(array) for name, array in example.items()}
    for name, mine in ways.items():
        for how, change in mine.items():
            yield f"{name} {how}", {**example, name: _kept(specs[name], example[name], change)}
    for how in dict.fromkeys(how for mine in ways.values() for how in mine):
        changed = {
            name: _kept(specs[name], array, ways[name][how]) if how in ways[name] else array
            for name, array in example.items()
        }
        yield f"all {how}", changed
    for number in range(_SEEDS):
        random = np.random.default_rng([seed, 7, number])
        drawn = {name: draw(specs[name], array.shape, array, random) for name, array in example.items()}
        yield f"drawn {number}", drawn
        scale = 10.0 ** float(random.uniform(-2, 2))
        larger = {
            name: _kept(specs[name], array, partial(np.multiply, scale)) if array.dtype.kind == "f" else array
            for name, array in drawn.items()
        }
        yield f"drawn {number} times {scale:.3g}", larger


def _ways(array: Array) -> Mapping[str, Change]:
    match array.dtype.kind:
        case "f":
            return _FLOATS
        case "b":
            return _BOOLS
        case "i" | "u" if not array.ndim:
            return _SCALARS
        case "i" | "u":
            return _WHOLE
        case _:
            return {}


def _kept(spec: TensorSpec, array: Array, change: Change) -> Array:
    """A changed array of the old dtype, within its value range."""
    changed = np.asarray(change(array))
    if spec.value_range is not None:
        changed = np.clip(changed, *spec.value_range)
    return np.ascontiguousarray(changed).astype(array.dtype).reshape(array.shape)
