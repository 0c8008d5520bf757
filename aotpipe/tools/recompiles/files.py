"""Calls in a file: `.json`, `.npz`, or a Python file.

    calls.json   a list of calls, each {"inputs": {NAME: VALUE}}; "entry_point", "case" and "reset" too.
                 A VALUE is a number, a nested list, or {"shape": [2, 3]}, which is drawn
    calls.npz    arrays named CALL/NAME, such as `0/x`, `1/x`
    calls.py     `CALLS`, or a function `calls()`: tuples of args, dicts of kwargs, or single values

In the first two a name that is left out has the example's value, and an array gets the example's dtype.
Gives `ModelCall`s; raises `SpecInvalid` for a file that does not say calls.
"""

from __future__ import annotations

import inspect
import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.dtypes import Array
from aotpipe.core.signature import TensorSpec
from aotpipe.core.stages import Canonical, CanonicalEntry
from aotpipe.errors import ModelNotFound, SpecInvalid
from aotpipe.model import reference
from aotpipe.model.torch_arrays import from_numpy, to_numpy
from aotpipe.tools.recompiles.calls import ModelCall, filled, given
from aotpipe.validate.inputs import draw

_SHAPE: Final = "shape"
_KEYS: Final = frozenset({"inputs", "entry_point", "case", "reset"})


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
    return given(canonical, [_call(canonical, call, n, seed) for n, call in enumerate(calls, 1)])


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


def _call(canonical: Canonical, call: Mapping[str, Any], number: int, seed: int) -> ModelCall:
    name = call.get("entry_point", canonical.entries[0].name)
    entry = next((each for each in canonical.entries if each.name == name), canonical.entries[0])
    examples = dict(
        zip(
            entry.input_names,
            (leaf for _, leaf in pytrees.leaves((entry.entry.args, dict(entry.entry.kwargs)))),
            strict=True,
        )
    )
    values = {
        key: _value(entry, key, value, examples.get(key), np.random.default_rng([seed, number]))
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
