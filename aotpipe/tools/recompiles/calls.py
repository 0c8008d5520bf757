"""The calls of a run: drawn to cover what a Spec lets vary, given by the user, or read from a file.

`planned` takes the calls that validation judges programs on: the ends of every Dim, points between them,
value ranges, sequences over state. `given` names what a user passes, `read` what a file holds:

    calls.json   a list of calls, each {"inputs": {NAME: VALUE}}; "entry_point", "case" and "reset" too.
                 A VALUE is a number, a nested list, or {"shape": [2, 3]}, which is drawn
    calls.npz    arrays named CALL/NAME, such as `0/x`, `1/x`
    calls.py     `CALLS`, or a function `calls()`: tuples of args, dicts of kwargs, or single values

In the first two a name that is left out has the example's value, and an array gets the example's dtype.
All give `ModelCall`s: arguments as eager takes them, in their order, of which `leaves` are the flattened ones
by name; they raise `SpecInvalid` for what is no call.
"""

from __future__ import annotations

import inspect
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.dims import Dim
from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.core.stages import Canonical, CanonicalEntry
from aotpipe.errors import ModelNotFound, SpecInvalid
from aotpipe.model import reference
from aotpipe.model.torch_arrays import from_numpy, to_numpy
from aotpipe.validate.inputs import Call, draw, plan
from aotpipe.validate.reference import example_inputs

_MOST_ROUNDS: Final = 50
_AGAIN: Final = 3
_SHAPE: Final = "shape"
_KEYS: Final = frozenset({"inputs", "entry_point", "case", "reset"})


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
    names = pytrees.unique(".".join(path) for path, _ in found)
    return dict(zip(names, (leaf for _, leaf in found), strict=True))


def filled(entry: CanonicalEntry, inputs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the example, with what is given by name in its place.

    Raises:
        SpecInvalid: A name that the example does not have.
    """
    example = pytrees.example_leaves(entry)
    if unknown := sorted(inputs.keys() - example.keys()):
        raise SpecInvalid(
            f"a call gives {unknown[0]!r}, which is no input of {entry.name!r}",
            hint=f"the inputs are {', '.join(entry.input_names)}",
        )
    structure = pytree.tree_structure((entry.entry.args, dict(entry.entry.kwargs)))
    args, kwargs = pytree.tree_unflatten({**example, **inputs}.values(), structure)
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
            _of_call(entries[call.entry_point], call, number)
            for call in drawn
            if not number or call.case.startswith(("seed", "inside", "sequence"))
        ]
        if count is not None and len(found) >= count:
            break
    if not any(signature.state for signature in signatures.values()):
        # What the model keeps in Python no signature tells where the export failed.
        found[1:1] = [
            ModelCall(
                entry_point=entry.name,
                case=f"example again/{number}",
                args=entry.entry.args,
                kwargs=entry.entry.kwargs,
            )
            for entry in canonical.entries
            if entry.state
            for number in range(1, _AGAIN + 1)
        ]
    return tuple(found if count is None else found[:count])


def _of_call(entry: CanonicalEntry, call: Call, number: int) -> ModelCall:
    args, kwargs = filled(entry, {name: from_numpy(array) for name, array in call.inputs.items()})
    case = f"{call.case}, draw {number + 1}" if number else call.case
    return ModelCall(entry_point=entry.name, case=case, args=args, kwargs=kwargs, reset=call.reset)


def given(canonical: Canonical, calls: Iterable[Any]) -> tuple[ModelCall, ...]:
    """The calls that a user passes: tuples of args, dicts of kwargs, single values, or ModelCalls.

    Raises:
        SpecInvalid: There is none.
    """
    entries = {entry.name: entry for entry in canonical.entries}
    found: list[ModelCall] = []
    for number, value in enumerate(calls, 1):
        if isinstance(value, ModelCall):
            call = value
        else:
            args, kwargs = reference.arguments(value)
            first = canonical.entries[0].name
            call = ModelCall(entry_point=first, case=f"call {number}", args=args, kwargs=kwargs)
        if call.entry_point not in entries:
            raise SpecInvalid(
                f"a call names the entry point {call.entry_point!r}",
                hint=f"the entry points are {', '.join(entries)}",
            )
        entry = entries[call.entry_point]
        adapter = entry.adapter
        forward = adapter.structure.call if adapter else entry.module.forward
        pytrees.check_call(forward, call.args, call.kwargs, call.entry_point)
        if adapter is not None:
            # As the module of an entry point takes them, where calls differ in what they have.
            call = replace(call, args=(adapter.packed(call.args, call.kwargs),), kwargs={})
        found.append(call)
    if not found:
        raise SpecInvalid("no call is given", hint="give at least one, or leave them out to have them drawn")
    return tuple(found)


def signatures_of(canonical: Canonical) -> dict[str, Signature]:
    """What a model may be called with as its Spec says, where no export could find out."""
    return {entry.name: _signature(entry) for entry in canonical.entries}


def _signature(entry: CanonicalEntry) -> Signature:
    specs: list[TensorSpec] = []
    symbols: dict[str, Symbol] = {}
    for name, leaf in pytrees.example_leaves(entry).items():
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


def read(path: Path, canonical: Canonical, seed: int = 0) -> tuple[ModelCall, ...]:
    """Read the calls of a file.

    Raises:
        ModelNotFound: There is no such file.
        SpecInvalid: It does not say calls.
    """
    if not path.is_file():
        raise ModelNotFound(f"there is no file {path}", hint="name a .json, .npz or .py file with calls")
    match path.suffix:
        case ".py":
            return given(canonical, _python(path))
        case ".npz":
            calls = _npz(path)
        case ".json":
            calls = _json(path)
        case _:
            raise SpecInvalid(f"{path} is no file of calls", hint="name a .json, .npz or .py file")
    return given(canonical, [_of_file(canonical, call, n, seed) for n, call in enumerate(calls, 1)])


def _python(path: Path) -> Iterable[Any]:
    module = reference.module(str(path))
    for name in ("CALLS", "calls"):
        if hasattr(module, name):
            value = getattr(module, name)
            return list(value() if inspect.isfunction(value) else value)
    raise SpecInvalid(f"{path} has no calls", hint="add `CALLS = [(torch.ones(2, 8),), (torch.ones(3, 8),)]`")


def _npz(path: Path) -> list[Mapping[str, Any]]:
    calls: dict[int, dict[str, Any]] = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for key in file.files:
                number, _, name = key.partition("/")
                calls.setdefault(int(number), {})[name] = file[key]
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise SpecInvalid(
            f"{path} is no file of calls", reason=str(error), hint="name its arrays CALL/NAME, such as 0/x"
        ) from error
    return [{"inputs": calls[number]} for number in sorted(calls)]


def _json(path: Path) -> list[Mapping[str, Any]]:
    try:
        calls = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise SpecInvalid(f"{path} is no JSON", reason=str(error)) from error
    if not isinstance(calls, list) or not all(
        isinstance(call, dict) and isinstance(call.get("inputs"), dict) and call.keys() <= _KEYS
        for call in calls
    ):
        raise SpecInvalid(f"{path} is no list of calls", hint='write [{"inputs": {"x": [[1, 2]]}}, ...]')
    return calls


def _of_file(canonical: Canonical, call: Mapping[str, Any], number: int, seed: int) -> ModelCall:
    name = call.get("entry_point", canonical.entries[0].name)
    entry = next((each for each in canonical.entries if each.name == name), canonical.entries[0])
    example = pytrees.example_leaves(entry)
    values = {
        key: _value(entry, key, value, example.get(key), np.random.default_rng([seed, number]))
        for key, value in call["inputs"].items()
    }
    args, kwargs = filled(entry, values)
    return ModelCall(
        entry_point=name,
        case=str(call.get("case", f"call {number}")),
        args=args,
        kwargs=kwargs,
        reset=bool(call.get("reset", False)),
    )


def _value(entry: CanonicalEntry, name: str, value: Any, example: Any, random: np.random.Generator) -> Any:
    if not isinstance(example, torch.Tensor):
        return value
    like = to_numpy(example)
    assert like is not None
    if isinstance(value, dict):
        if value.keys() != {_SHAPE}:
            raise SpecInvalid(f"{name!r} is given as {value}", hint=f'write {{"{_SHAPE}": [2, 3]}}')
        shape = tuple(map(int, value[_SHAPE]))
        spec = TensorSpec(name, like.dtype.name, shape, entry.entry.value_ranges.get(name))
        return from_numpy(draw(spec, shape, like, random))
    try:
        array: Array = np.asarray(value).astype(like.dtype)
    except (TypeError, ValueError) as error:
        raise SpecInvalid(f"{name!r} is given a value that is no array", reason=str(error)) from error
    return from_numpy(array)
