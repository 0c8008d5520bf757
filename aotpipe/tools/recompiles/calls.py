"""The calls of a run: drawn to cover what a Spec lets vary, or given by the user.

`planned` takes the calls that validation judges programs on: the ends of every Dim, points between them,
value ranges, sequences over state. `given` names what a user passes. Both give `ModelCall`s: arguments as
eager takes them, in their order, of which `leaves` are the flattened ones by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.dims import Dim
from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.core.stages import Canonical, CanonicalEntry
from aotpipe.errors import SpecInvalid
from aotpipe.model.torch_arrays import from_numpy
from aotpipe.validate.inputs import Call, plan
from aotpipe.validate.reference import example_inputs

_MOST_ROUNDS: Final = 50
_AGAIN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One call; `reset` says whether the model's state is the initial one before it."""

    entry_point: str
    case: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    reset: bool = False


def leaves(entry: CanonicalEntry, call: ModelCall) -> dict[str, Any]:
    """The flattened arguments of a call, by the names that a program has for them."""
    if entry.adapter is not None:
        return dict(call.args[0])
    found = pytrees.input_leaves(entry.module.forward, call.args, call.kwargs)
    return dict(
        zip(pytrees.unique(".".join(path) for path, _ in found), (leaf for _, leaf in found), strict=True)
    )


def filled(entry: CanonicalEntry, inputs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the example, with what is given by name in its place.

    Raises:
        SpecInvalid: A name that the example does not have.
    """
    example, structure = pytree.tree_flatten((entry.entry.args, dict(entry.entry.kwargs)))
    unknown = sorted(inputs.keys() - set(entry.input_names))
    if unknown:
        raise SpecInvalid(
            f"a call gives {unknown[0]!r}, which is no input of {entry.name!r}",
            hint=f"the inputs are {', '.join(entry.input_names)}",
        )
    values = [inputs.get(name, leaf) for name, leaf in zip(entry.input_names, example, strict=True)]
    args, kwargs = pytree.tree_unflatten(values, structure)
    return args, kwargs


def planned(
    canonical: Canonical, signatures: Mapping[str, Signature], *, count: int | None = None, seed: int = 0
) -> tuple[ModelCall, ...]:
    """Calls that cover what may vary; so many of them, drawn on with other seeds where more are asked for."""
    examples = {entry.name: example_inputs(entry) for entry in canonical.entries}
    entries = {entry.name: entry for entry in canonical.entries}
    found: list[ModelCall] = []
    for number in range(_MOST_ROUNDS if count is not None else 1):
        drawn = plan(signatures, examples, seed=seed + number, seeds=1).calls
        # The example and the ends are the same in each round; what is drawn is not.
        found += [
            _of_call(entries[call.entry_point], call, number) for call in _sequences(drawn, again=number > 0)
        ]
        if count is not None and len(found) >= count:
            break
    if not any(signature.state for signature in signatures.values()):
        # What the model keeps in Python no signature tells where the export failed.
        found[1:1] = [_again(entry, n) for entry in canonical.entries if entry.state for n in range(_AGAIN)]
    return tuple(found if count is None else found[:count])


def _again(entry: CanonicalEntry, number: int) -> ModelCall:
    return ModelCall(
        entry_point=entry.name,
        case=f"example again/{number + 1}",
        args=entry.entry.args,
        kwargs=entry.entry.kwargs,
    )


def _sequences(calls: Sequence[Call], *, again: bool) -> Iterator[Call]:
    return (call for call in calls if not again or call.case.startswith(("seed", "inside", "sequence")))


def _of_call(entry: CanonicalEntry, call: Call, number: int) -> ModelCall:
    args, kwargs = filled(entry, {name: from_numpy(array) for name, array in call.inputs.items()})
    case = f"{call.case}, draw {number + 1}" if number else call.case
    return ModelCall(entry_point=entry.name, case=case, args=args, kwargs=kwargs, reset=call.reset)


def given(canonical: Canonical, calls: Iterable[Any]) -> tuple[ModelCall, ...]:
    """The calls that a user passes: tuples of args, dicts of kwargs, single values, or ModelCalls.

    Raises:
        SpecInvalid: There is none.
    """
    first = canonical.entries[0].name
    found = [
        call if isinstance(call, ModelCall) else _of_value(first, number, call)
        for number, call in enumerate(calls, 1)
    ]
    if not found:
        raise SpecInvalid("no call is given", hint="give at least one, or leave them out to have them drawn")
    known = {entry.name: entry for entry in canonical.entries}
    for call in found:
        if call.entry_point not in known:
            raise SpecInvalid(
                f"a call names the entry point {call.entry_point!r}",
                hint=f"the entry points are {', '.join(known)}",
            )
        entry = known[call.entry_point]
        forward = entry.adapter.structure.call if entry.adapter else entry.module.forward
        pytrees.check_call(forward, call.args, call.kwargs, call.entry_point)
    return tuple(_in_one_form(known[call.entry_point], call) for call in found)


def _in_one_form(entry: CanonicalEntry, call: ModelCall) -> ModelCall:
    """A call as the entry point's module takes it, where calls differ in what they have."""
    if entry.adapter is None:
        return call
    return replace(call, args=(entry.adapter.packed(call.args, call.kwargs),), kwargs={})


def _of_value(entry_point: str, number: int, value: Any) -> ModelCall:
    case = f"call {number}"
    if isinstance(value, Mapping):
        return ModelCall(entry_point=entry_point, case=case, kwargs=dict(value))
    args = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return ModelCall(entry_point=entry_point, case=case, args=args)


def signatures_of(canonical: Canonical) -> dict[str, Signature]:
    """What a model may be called with as its Spec says, where no export could find out."""
    return {entry.name: _signature(entry) for entry in canonical.entries}


def _signature(entry: CanonicalEntry) -> Signature:
    leaves = pytree.tree_leaves((entry.entry.args, dict(entry.entry.kwargs)))
    specs: list[TensorSpec] = []
    symbols: dict[str, Symbol] = {}
    for name, leaf in zip(entry.input_names, leaves, strict=True):
        if not isinstance(leaf, torch.Tensor):
            continue
        dims: list[int | str] = list(leaf.shape)
        for axis, dim in entry.dims.get(name, {}).items():
            if isinstance(dim, Dim):
                dims[axis] = str(dim)
                symbols[dim.name] = Symbol(dim.name, dim.min, dim.max)
        dtype = str(leaf.dtype).removeprefix("torch.")
        specs.append(TensorSpec(name, dtype, tuple(dims), entry.entry.value_ranges.get(name)))
    return Signature(inputs=tuple(specs), outputs=(), symbols=tuple(symbols.values()))
