"""The user's own calls, from a `.npz` or `.safetensors` file.

A file holds arrays by the names of inputs, `ENTRY/NAME` where the model has several entry points. An array
with one dim more than its input holds one sample after another along the first. Where there is state, they
are the calls of one session; otherwise each begins anew. Torch-free.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from zipfile import BadZipFile

import numpy as np

from aotpipe.core.dtypes import Array, numpy_dtype
from aotpipe.core.signature import Signature
from aotpipe.errors import SpecInvalid
from aotpipe.runtime import tensor_file
from aotpipe.validate.inputs import Call, bound

_HINT: Final = "save arrays by the names that `aotpipe export MODEL` lists: numpy.savez(FILE, x=...)"


def calls(path: Path, signatures: Mapping[str, Signature]) -> tuple[Call, ...]:
    """Every sample of a file.

    Raises:
        SpecInvalid: It cannot be read, or its arrays are not the inputs of an entry point.
    """
    arrays = _read(path)
    named = [name for name, signature in signatures.items() if not signature.specializes]
    several, first = len(named) > 1, named[0]
    by_entry: dict[str, dict[str, Array]] = {}
    for key, array in arrays.items():
        entry, _, name = key.rpartition("/") if several else (first, "", key)
        by_entry.setdefault(entry, {})[name] = array
    found: list[Call] = []
    for entry, given in by_entry.items():
        if entry not in named:
            raise SpecInvalid(
                f"{path.name}: no entry point is called {entry!r}",
                reason=f"the entry points are {', '.join(named)}",
                hint="name arrays ENTRY/NAME",
            )
        programs = {name: each for name, each in signatures.items() if entry in (name, each.specializes)}
        found += _of_entry(path, programs, given)
    if not found:
        raise SpecInvalid(f"{path.name} holds no sample", hint=_HINT)
    return tuple(found)


def _of_entry(path: Path, programs: Mapping[str, Signature], given: Mapping[str, Array]) -> Iterator[Call]:
    """The calls of one entry point, each of the first of its programs that takes its sizes."""
    signature = next(iter(programs.values()))
    specs = {spec.name: spec for spec in signature.tensor_inputs}
    if given.keys() != specs.keys():
        lacking, unknown = sorted(specs.keys() - given.keys()), sorted(given.keys() - specs.keys())
        said = [f"lacks {', '.join(lacking)}"] if lacking else []
        said += [f"has {', '.join(unknown)}, which is no input"] if unknown else []
        raise SpecInvalid(f"{path.name} {' and '.join(said)}", hint=_HINT)
    stacked = {name for name, array in given.items() if array.ndim == len(specs[name].dims) + 1}
    counts = {given[name].shape[0] for name in stacked}
    if len(counts) > 1 or (stacked and stacked != given.keys()):
        raise SpecInvalid(
            f"{path.name}: {', '.join(sorted(given))} do not hold the same number of samples",
            hint="stack every array along a first dim, or none",
        )
    for number in range(counts.pop() if counts else 1):
        inputs = {name: given[name][number] if stacked else given[name] for name in specs}
        for name, spec in specs.items():
            if inputs[name].dtype != numpy_dtype(spec.dtype):
                raise SpecInvalid(
                    f"{path.name}: {name} is {inputs[name].dtype}, not {spec.dtype}", hint=_HINT
                )
            _require_range(path, name, inputs[name], spec.value_range)
        entry = next((name for name, each in programs.items() if bound(each, inputs) is not None), None)
        if entry is None:
            shapes = ", ".join(f"{name} {array.shape}" for name, array in inputs.items())
            listed = ", ".join(map(str, signature.tensor_inputs))
            raise SpecInvalid(
                f"{path.name}: no program takes {shapes}", reason=f"it takes {listed}", hint=_HINT
            )
        word, reset = ("session/", number == 0) if signature.state else ("sample ", True)
        yield Call(entry_point=entry, case=f"{word}{number}", reset=reset, inputs=inputs)


def _require_range(path: Path, name: str, array: Array, bounds: tuple[float, float] | None) -> None:
    if bounds is not None and array.size and not (array.min() >= bounds[0] and array.max() <= bounds[1]):
        raise SpecInvalid(
            f"{path.name}: {name} has values from {array.min()} to {array.max()}",
            reason=f"the declared range is {bounds[0]}..{bounds[1]}",
            hint="declare a range that holds the samples",
        )


def _read(path: Path) -> dict[str, Array]:
    try:
        if path.suffix == ".safetensors":
            return {name: np.array(array) for name, array in tensor_file.read(path).items()}
        # numpy leaves a file open that it cannot read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    # A file of zip that was cut, or is empty, raises these.
    except (OSError, ValueError, TypeError, AttributeError, EOFError, BadZipFile, zlib.error) as error:
        raise SpecInvalid(f"{path}: no samples can be read", reason=str(error), hint=_HINT) from error
