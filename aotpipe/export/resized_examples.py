"""Example inputs of other sizes: the same tensors with an axis shortened or repeated.

torch.export may take an example's size for a constant when it equals a bound of its Dim, and a size of 0 or 1
always has rules of its own (broadcasting). So a program is exported with sizes inside the ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree  # torch.export's own flattening; see canonicalize.pytrees

from aotpipe.core.dims import Auto, Dim
from aotpipe.core.stages import CanonicalEntry, Finding

_TRIES: Final = 64


def values(entry: CanonicalEntry) -> dict[str, int]:
    """The value of each Dim in the example inputs, by name."""
    found: dict[str, int] = {}
    for dim, size in _sized(entry):
        value = dim.value(size) if isinstance(dim, Dim) else None
        if isinstance(dim, Dim) and value is not None:
            found[dim.name] = value
    return found


def roots(entry: CanonicalEntry) -> dict[str, Dim]:
    """Each Dim of the entry point by name, as it was before arithmetic."""
    return {dim.name: dim.root for dim, _ in _sized(entry) if isinstance(dim, Dim)}


def _leaves(entry: CanonicalEntry) -> list[tuple[str, Any]]:
    flat = pytree.tree_leaves((entry.entry.args, dict(entry.entry.kwargs)))
    return list(zip(entry.input_names, flat, strict=True))


def _sized(entry: CanonicalEntry) -> list[tuple[Dim | Auto, int]]:
    return [
        (dim, leaf.shape[axis] if isinstance(leaf, torch.Tensor) else leaf)
        for name, leaf in _leaves(entry)
        for axis, dim in entry.dims.get(name, {}).items()
    ]


def inside(entry: CanonicalEntry) -> tuple[dict[str, int], tuple[Finding, ...]]:
    """Values for the Dims whose example equals a bound, or is 0 or 1, that lie inside their ranges.

    Returns:
        The values to change, and a finding for each.
    """
    taken = {size for _, leaf in _leaves(entry) if isinstance(leaf, torch.Tensor) for size in leaf.shape}
    changed: dict[str, int] = {}
    findings = []
    known = values(entry)
    for name, dim in roots(entry).items():
        value = known[name]
        if value >= 2 and value not in (dim.min, dim.max):
            continue
        other = _inner_value(dim, value, taken)
        if other is None:
            continue
        taken.add(other)
        changed[name] = other
        findings.append(
            Finding(
                severity="note",
                code="example-at-bound",
                message=f"the example's {name} is {value}, "
                + (f"a bound of its range {_range(dim)}" if value in (dim.min, dim.max) else "a special size")
                + f"; it was exported with {other} instead",
                hint=f"give an example with another {name}",
                entry_point=entry.name,
            )
        )
    return changed, tuple(findings)


def _range(dim: Dim) -> str:
    return f"{dim.min}..{'' if dim.max is None else dim.max}"


def _inner_value(dim: Dim, value: int, taken: set[int]) -> int | None:
    """A value from 2 up, strictly inside, unlike other sizes if it can; a bound only in place of 0 or 1."""
    low = max(2, dim.min)
    allowed = [other for other in range(low, low + _TRIES) if dim.admits(other) and other != value]
    inner = [other for other in allowed if other not in (dim.min, dim.max)]
    free = [other for other in inner if dim.size(other) not in taken]
    return next(iter(free or inner or (allowed if value < 2 else ())), None)


def resized(entry: CanonicalEntry, changed: Mapping[str, int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example's args and kwargs with other values of some Dims."""
    names = iter(entry.input_names)

    def resize(leaf: Any) -> Any:
        for axis, dim in entry.dims.get(next(names), {}).items():
            if isinstance(dim, Dim) and dim.name in changed:
                size = dim.size(changed[dim.name])
                leaf = _with_size(leaf, axis, size) if isinstance(leaf, torch.Tensor) else size
        return leaf

    args, kwargs = pytree.tree_map(resize, (entry.entry.args, dict(entry.entry.kwargs)))
    return args, kwargs


def _with_size(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    if not tensor.shape[axis]:
        return tensor.new_zeros((*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]))
    return tensor.index_select(axis, torch.arange(size, device=tensor.device) % tensor.shape[axis])
