"""Calls a model eagerly on other inputs, to learn how the sizes of what its islands give go with them.

`discover(canonical)` calls each entry point at both ends of each Dim and beside its example, and on other
values, which a size may depend on. The model is left as it was. To be run within `sites.recording()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import torch

from aotpipe.canonicalize import example_call
from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.dims import Dim
from aotpipe.core.stages import Canonical, CanonicalEntry
from aotpipe.export import resized_examples
from aotpipe.islands import sites

_FARTHEST: Final = 2
# The factor and the offset of floats. With the negative one, bools are negated and integers reversed.
_CHANGES: Final = ((-1, 0), (0.1, 0), (3, 1))


def discover(canonical: Canonical) -> None:
    """Note what islands give on other inputs; a model without islands is not called."""
    if not sites.SITES:
        return
    for entry in canonical.entries:
        for args, kwargs in _calls(entry):
            # Inputs that the model refuses tell nothing.
            with example_call.unchanged(entry.module), suppress(Exception):
                example_call.again(entry.module, args, kwargs)


def _calls(entry: CanonicalEntry) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    for values in _sizes(entry):
        yield resized_examples.resized(entry, values)
    for factor, offset in _CHANGES:
        yield _varied(entry, factor, offset)


def _sizes(entry: CanonicalEntry) -> Iterator[Mapping[str, int]]:
    known, roots = resized_examples.values(entry), resized_examples.roots(entry)
    for name, dim in roots.items():
        for value in _others(dim, known[name]):
            yield {name: value}
    if len(roots) > 1:
        # Two sizes that are equal in each call could not be told apart.
        yield {name: _others(dim, known[name])[place % 2] for place, (name, dim) in enumerate(roots.items())}


def _others(dim: Dim, value: int) -> list[int]:
    top = _FARTHEST * value + 1
    high = top if dim.max is None else min(dim.max, top)
    beside = value + 1 if dim.admits(value + 1) else value - 1
    return [beside if dim.admits(beside) else value, high, dim.min]


def _varied(entry: CanonicalEntry, factor: float, offset: float) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example with other values, within their ranges."""
    names = iter(entry.input_names)

    def changed(leaf: Any) -> Any:
        name = next(names)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        found = leaf
        if leaf.is_floating_point():
            found = leaf * factor + offset
        elif factor < 0:
            found = ~leaf if leaf.dtype is torch.bool else leaf.flip(0) if leaf.dim() else leaf
        bounds = entry.entry.value_ranges.get(name)
        return found if bounds is None else found.clamp(*bounds)

    args, kwargs = pytrees.map_leaves(changed, (entry.entry.args, dict(entry.entry.kwargs)))
    return args, kwargs
