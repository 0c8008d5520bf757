"""Example inputs of other sizes: the same tensors with an axis shortened or repeated.

torch.export may take an example's size for a constant when it equals a bound of its Dim, and a size of 0 or 1
always has rules of its own (broadcasting). So a program is exported with sizes inside the ranges.

torch.export also takes sizes of 0 and 1 for impossible unless told otherwise, so a model's own branch on them
is lost without a word. `agree` runs a program there beside the model, on the example's values and on others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree  # torch.export's own flattening; see canonicalize.pytrees

from aotpipe.canonicalize import example_call
from aotpipe.canonicalize.inputs import pytrees
from aotpipe.canonicalize.state import layouts
from aotpipe.canonicalize.state.slots import State
from aotpipe.core.dims import Auto, Dim
from aotpipe.core.stages import CanonicalEntry, Finding
from aotpipe.export.tracing import quiet

_TRIES: Final = 64
_SEED: Final = 0
_MOST_NAMED: Final = 3


def values(entry: CanonicalEntry) -> dict[str, int]:
    """The value of each Dim in the example inputs, by name."""
    sized = ((dim, dim.value(size)) for dim, size in _sized(entry) if isinstance(dim, Dim))
    return {dim.name: value for dim, value in sized if value is not None}


def roots(entry: CanonicalEntry) -> dict[str, Dim]:
    """Each Dim of the entry point by name, as it was before arithmetic."""
    return {dim.name: dim.root for dim, _ in _sized(entry) if isinstance(dim, Dim)}


def fixed_beside(entry: CanonicalEntry) -> str:
    """What to ask for where inputs have the size of a Dim and do not vary with it; empty for none."""
    known = {value: name for name, value in reversed(values(entry).items()) if value > 1}
    found = [
        f"give {name} the Dim {known[size]!r} too, which is {size} in its dim {axis}"
        for name, leaf in pytrees.example_leaves(entry).items()
        if isinstance(leaf, torch.Tensor)
        for axis, size in enumerate(leaf.shape)
        if size in known and axis not in entry.dims.get(name, {})
    ]
    return ", and ".join(found[:_MOST_NAMED])


def _sized(entry: CanonicalEntry) -> list[tuple[Dim | Auto, int]]:
    return [
        (dim, leaf.shape[axis] if isinstance(leaf, torch.Tensor) else leaf)
        for name, leaf in pytrees.example_leaves(entry).items()
        for axis, dim in entry.dims.get(name, {}).items()
    ]


def inside(entry: CanonicalEntry) -> tuple[dict[str, int], tuple[Finding, ...]]:
    """Values for the Dims whose example equals a bound, or is 0 or 1, that lie inside their ranges.

    Returns:
        The values to change, and a finding for each; none where the model raises at them, nor of a guarded
        program, which is asked for at the example's sizes.
    """
    if entry.guarded:
        return {}, ()
    example = pytrees.example_leaves(entry)
    taken = {size for leaf in example.values() if isinstance(leaf, torch.Tensor) for size in leaf.shape}
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
        bounds = f"{dim.min}..{'' if dim.max is None else dim.max}"
        what = f"a bound of its range {bounds}" if value in (dim.min, dim.max) else "a special size"
        message = f"the example's {name} is {value}, {what}; it was exported with {other} instead"
        hint = f"give an example with another {name}"
        findings.append(entry.finding("example-at-bound", message, hint=hint))
    if changed and raised(entry, changed) is not None:
        return {}, ()  # such as a check of the model's that a size is a multiple of the example's
    return changed, tuple(findings)


def _inner_value(dim: Dim, value: int, taken: set[int]) -> int | None:
    """A value of at least 2 inside the range, unlike other sizes if it can; a bound replaces only 0 or 1."""
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


def reached(entry: CanonicalEntry) -> list[tuple[str, int]]:
    """Each Dim whose range admits 0 or 1, with that value."""
    return [(n, value) for n, dim in roots(entry).items() for value in (0, 1) if dim.admits(value)]


def agree(entry: CanonicalEntry, program: ExportedProgram) -> bool:
    """Whether program and model agree at every Dim's size 0 and 1 that its range admits.

    Of a guarded program they are outside of the range.
    """
    return entry.guarded or all(
        agrees_on(entry, program, inputs)
        for name, value in reached(entry)
        for given in [resized(entry, {name: value})]
        for inputs in (given, example_call.varied(given, torch.Generator().manual_seed(_SEED)))
    )


def recomputes(entry: CanonicalEntry, state: State) -> bool:
    """Whether calls answer and leave the same when, before each, what a state ignores is as at first.

    Compared over calls of two sizes in turn, on other values each, so that neither what an earlier call of
    the same size left nor what one of another size left goes unnoticed.
    """
    calls = _of_two_sizes(entry)
    first = [(root, root.held.get(root.key, layouts.ABSENT)) for root in state.ignored]
    found = []
    for forgets in (False, True):
        with example_call.unchanged(entry.module), quiet():
            results = []
            for args, kwargs in calls:
                for root, value in first if forgets else ():
                    root.held[root.key] = value
                    if value is layouts.ABSENT:
                        del root.held[root.key]
                try:
                    results.append(pytrees.clone_tensors(example_call.again(entry.module, args, kwargs)))
                except Exception:  # noqa: BLE001 what the model raises
                    return False
            kept = [root.held.get(root.key) for root in state.roots]
            found.append(pytrees.clone_tensors((results, kept)))
    return example_call.is_same(*found)


def beyond(entry: CanonicalEntry) -> dict[str, int]:
    """A value of each Dim outside of its range; none where a Dim has all sizes."""
    found = {
        name: dim.min - 1 if dim.max is None else dim.max + 1
        for name, dim in roots(entry).items()
        if dim.max is not None or dim.min > 1
    }
    return found if len(found) == len(roots(entry)) else {}


def raised(entry: CanonicalEntry, sizes: Mapping[str, int]) -> Exception | None:
    """What the model raises on the example's values in other sizes; None where it answers."""
    with example_call.unchanged(entry.module):
        return called(entry, sizes)


def called(entry: CanonicalEntry, sizes: Mapping[str, int]) -> Exception | None:
    """As `raised`, and leaves in the model what the call leaves."""
    args, kwargs = resized(entry, sizes)
    with quiet():
        try:
            example_call.again(entry.module, args, kwargs)
        except Exception as error:  # noqa: BLE001 what the model raises
            return error
    return None


def begins_alike(entry: CanonicalEntry) -> bool:
    """Whether a call answers the same before and after another, over two sizes and on other values."""
    example = (entry.entry.args, entry.entry.kwargs)
    found = []
    for before in ((), (example,)):
        results = []
        for call in _of_two_sizes(entry):
            with example_call.unchanged(entry.module), quiet():
                try:
                    answers = [example_call.again(entry.module, *each) for each in (*before, call)]
                except Exception:  # noqa: BLE001 what the model raises
                    return False
                results.append(pytrees.clone_tensors(answers[-1]))
        found.append(results)
    return example_call.is_same(*found)


def _of_two_sizes(entry: CanonicalEntry) -> list[tuple[Any, Any]]:
    """Calls on the example's sizes and on others in turn, each on other values."""
    generator, known = torch.Generator().manual_seed(_SEED), values(entry)
    taken = set(known.values())
    other = {name: _inner_value(dim, known[name], taken) for name, dim in roots(entry).items()}
    sizes = {name: value for name, value in other.items() if value is not None}
    given = [resized(entry, each) for each in ({}, {}, sizes, sizes, {}, sizes)]
    return [example_call.varied(each, generator) for each in given]


def agrees_on(entry: CanonicalEntry, program: ExportedProgram, inputs: Any) -> bool:
    """Whether program and model agree on args and kwargs; what the model refuses says nothing."""
    with example_call.unchanged(entry.module), torch.no_grad(), quiet():
        try:
            args, kwargs = pytrees.clone_tensors(inputs)
            expected = entry.module(*args, **kwargs)
        except Exception:  # noqa: BLE001 a size that the model itself refuses says nothing of the program
            return True
    module = program.module()
    # The program would keep its state from call to call, while the model begins anew.
    with example_call.unchanged(entry.module), example_call.unchanged(module), torch.no_grad(), quiet():
        try:
            args, kwargs = pytrees.clone_tensors(inputs)
            given = module(*args, **kwargs)
        except Exception:  # noqa: BLE001 a refusal of a size in range, whatever its type
            return False
    ours, theirs = pytree.tree_leaves(given), pytree.tree_leaves(expected)
    # Where eager gives None, a program may give anything, beside a flag that is compared.
    missing = entry.adapter is not None
    return len(ours) == len(theirs) and all(
        (missing and other is None) or _close(one, other) for one, other in zip(ours, theirs, strict=True)
    )


def _close(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-4, equal_nan=True)
