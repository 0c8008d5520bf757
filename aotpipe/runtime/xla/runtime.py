"""Runs XLA programs: a `Runner` holds executables, the model's weights and its state on a device.

Takes a program's bytes, the signature of each entry point, and weights and initial state as numpy arrays.
Inputs are checked before anything runs; outputs are copies. State is passed after the weights and replaced
by the trailing results once the call succeeded and its asserts held, so that a failed call changes nothing.
A call of sizes that lie between those of programs is padded, and its outputs are cut to what they truly are.
Calls of one runner are serialized by a lock. Needs jaxlib and nothing of jax or torch; nothing is traced or
compiled.

Raises:
    InputError: An input does not fit, or no program was built for its sizes; nothing was run.
    AssertionViolated: An assert of the model failed.
    ProgramCrashed: The program reported a failure.
    MissingWeight, BundleCorrupt, IncompatibleHost: The program cannot be loaded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Signature, dim_symbols, evaluate_dim
from aotpipe.errors import (
    AssertionViolated,
    BundleCorrupt,
    IncompatibleHost,
    MissingWeight,
    OutsideBuckets,
    ProgramCrashed,
)
from aotpipe.runtime import process, toolchain
from aotpipe.runtime.input_checks import Checker
from aotpipe.runtime.runner import BaseRunner, Entry, first_line, require_state
from aotpipe.runtime.xla import buffers, clients, container
from aotpipe.runtime.xla.buckets import takes
from aotpipe.runtime.xla.mesh import Sharding

# Drivers of IREE that say how many threads run, which a caller may name for any program.
_ONE_THREAD: Final = "local-sync"
_DRIVERS: Final = ("auto", _ONE_THREAD, "local-task")
GARBAGE: Final = "AOTPIPE_GARBAGE_PADDING"
"""The variable that has the padding filled with what a program must keep away from its results."""
_XLA_ERRORS: Final = (RuntimeError, ValueError, TypeError)


@dataclass(frozen=True, slots=True)
class _Program:
    """An entry point's executable for one choice of sizes, and the weights that it takes."""

    executable: Any
    weights: tuple[Any, ...]
    sizes: Mapping[str, int]
    padded: Mapping[str, int]
    """The Dims that a call may have smaller, and the smallest size of each."""
    cut: bool
    """Whether outputs are larger than what counts of them, and their true dims follow the results."""
    shapes: tuple[tuple[int, ...], ...]
    """The shapes of the inputs, as the program takes them."""
    argument_shardings: tuple[Sharding | None, ...]
    """Where the parts of its arguments are; None on one device."""
    results: Any
    """What the memory asks of its results; on several devices where their parts are, and the whole shapes."""


@dataclass(frozen=True, slots=True)
class _Entry(Entry):
    """One entry point; its programs in the order in which they are tried."""

    programs: tuple[_Program, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """What calls of an entry point with the same sizes have in common."""

    entry: _Entry
    sizes: Mapping[str, int]
    program: _Program
    true_sizes: tuple[Any, ...]
    """The buffer with the sizes of the Dims that the program pads, which is its last argument; or none."""
    is_padded: bool
    """Whether the inputs are smaller than what the program takes."""
    asserts_at: int
    """The place of the first assert's flag among the results."""
    cut_at: int
    """The place after the last one's: that of the true dims, where there are any."""
    count: int
    """How many results there are."""
    cuts: bool
    """Whether outputs may be larger than what counts of them."""


class Runner(BaseRunner[_Entry]):
    """A loaded program with its own state, on one device or on those of a mesh; made by `load`."""

    def __init__(self, *, entries: Mapping[str, _Entry], memory: buffers.Memory, **base: Any) -> None:
        self._memory = memory
        self._choice: _Choice | None = None
        self._state_shardings = {
            name: sharding
            for entry in entries.values()
            for program in entry.programs
            for name, sharding in zip(
                entry.state, program.argument_shardings[len(program.weights) :], strict=False
            )
        }
        super().__init__(entries=entries, **base)

    def _call(self, entry: _Entry, arrays: list[Array], sizes: Mapping[str, int]) -> dict[str, Array]:
        choice = self._choice
        if choice is None or choice.entry is not entry or choice.sizes is not sizes:
            choice = self._choice = self._chosen(entry, sizes)
        program, memory = choice.program, self._memory
        if choice.is_padded:  # else they are of the program's sizes
            arrays = list(map(_padded, arrays, program.shapes))
        results = self._invoke(choice, arrays)
        if entry.asserts:
            try:
                entry.require(map(memory.truth, results[choice.asserts_at : choice.cut_at]))
            except AssertionViolated:
                self._take(entry, results[len(entry.outputs) : choice.asserts_at], entry.kept)
                raise
        outputs: dict[str, Array] = {}
        for (name, dtype), result in zip(entry.outputs, results, strict=False):
            outputs[name] = array = memory.download(result)
            if array.dtype is not dtype and array.dtype != dtype:
                raise ProgramCrashed(f"the program gave {name!r} as {array.dtype}, its signature has {dtype}")
        if choice.cuts:
            outputs = _cut(outputs, memory.download(results[-1]))
        if entry.state:
            self._take(entry, results[len(entry.outputs) : choice.asserts_at], entry.state)
        return outputs

    def _take(self, entry: _Entry, states: Sequence[Any], names: Collection[str]) -> None:
        """Take the next values of the states of these names."""
        self._state |= {
            name: self._memory.as_argument(result, self._state_shardings[name])
            for name, result in zip(entry.state, states, strict=True)
            if name in names
        }

    def _chosen(self, entry: _Entry, sizes: Mapping[str, int]) -> _Choice:
        program = _program_for(entry, sizes)
        true_sizes: tuple[Any, ...] = ()
        if program.padded:
            place = len(program.weights) + len(entry.state) + len(program.shapes)
            true = np.array([sizes[name] for name in program.padded], np.int32)
            true_sizes = (self._memory.upload(true, program.argument_shardings[place]),)
        is_padded = any(sizes[name] != program.sizes[name] for name in program.padded)
        asserts_at = len(entry.outputs) + len(entry.state)
        cut_at = asserts_at + len(entry.asserts)
        return _Choice(
            entry=entry,
            sizes=sizes,
            program=program,
            true_sizes=true_sizes,
            is_padded=is_padded,
            asserts_at=asserts_at,
            cut_at=cut_at,
            count=cut_at + program.cut,
            cuts=program.cut and (is_padded or not _are_known(entry.checker.signature, sizes)),
        )

    def _forget(self) -> None:
        super()._forget()
        self._choice = None

    def _placed(self, name: str, array: Array) -> Any:
        return self._memory.upload(array, self._state_shardings[name])

    def _invoke(self, choice: _Choice, arrays: Sequence[Array]) -> list[Any]:
        entry, program, memory = choice.entry, choice.program, self._memory
        # A program reads an input anew for an assert and for what the assert allows, and another thread may
        # write to the caller's array in between.
        copied = bool(entry.asserts)
        try:
            arguments = list(program.weights)
            if entry.state:
                arguments += map(self._state.__getitem__, entry.state)
            arguments += memory.upload_all(
                arrays, program.argument_shardings[len(arguments) :], copied=copied
            )
            arguments += choice.true_sizes
            results = memory.run(program.executable, arguments, program.results)
        except _XLA_ERRORS as error:
            raise ProgramCrashed(f"the program failed in {entry.name!r}", reason=first_line(error)) from error
        if len(results) != choice.count:
            entry.require_results(len(results), extra=program.cut)
        return results


def load(
    payload: bytes,
    *,
    signatures: Mapping[str, Signature],
    weights: Mapping[str, Array],
    initial_state: Mapping[str, Array],
    driver: str = "auto",
    asserts: Mapping[str, tuple[str, ...]] | None = None,  # noqa: ARG001  # what every runtime takes
    threads: int | None = None,
) -> Runner:
    """Load a program.

    The arguments are those of IREE's runtime, but that whoever can change `payload` can run code in this
    process, that the program knows its own asserts, and that the driver is `auto`, or `local-sync` for one
    thread.

    Raises:
        MissingWeight: The program or a signature needs an array that is not there.
        BundleCorrupt: The bytes are no program, or not the one that the signatures describe.
        IncompatibleHost: This host or this jaxlib cannot run it.
    """
    if driver not in _DRIVERS:
        raise IncompatibleHost(
            f"XLA has no driver {driver!r}", hint=f"the drivers of this runtime: {', '.join(_DRIVERS)}"
        )
    index, parts = container.read(payload)
    _require_host(index)
    require_state(signatures, initial_state)
    with process.forks_held():  # XLA and LLVM have locks of their own while a program is loaded
        return _loaded(
            index, parts, signatures, weights, initial_state, 1 if driver == _ONE_THREAD else threads
        )


def _loaded(
    index: Mapping[str, Any],
    parts: Mapping[str, bytes],
    signatures: Mapping[str, Signature],
    weights: Mapping[str, Array],
    initial_state: Mapping[str, Array],
    threads: int | None,
) -> Runner:
    count = int(index.get("devices", 1))
    devices = clients.devices(str(index["platform"]), count, threads)
    memory = buffers.memory(devices)
    device_weights: dict[str, Any] = {}
    executables: dict[str, Any] = {}
    for program in index["programs"]:
        shardings, _ = _shardings_of(program, len(program["weights"]))
        for key, sharding in zip(program["weights"], shardings, strict=False):
            if key not in weights:
                raise MissingWeight(f"the program needs the weight {key!r}, which is not there")
            if key not in device_weights:
                device_weights[key] = memory.upload(np.asarray(weights[key], order="C"), sharding)
        name = program["executable"]
        if name not in executables:
            executables[name] = _deserialized(devices, parts[name])
    entries = {
        name: _entry_of(name, signature, index["programs"], executables, device_weights, memory)
        for name, signature in signatures.items()
    }
    return Runner(
        entries=entries,
        memory=memory,
        initial_state={name: np.array(array, copy=True, order="C") for name, array in initial_state.items()},
        device=str(index["platform"]),
    )


def _require_host(index: Mapping[str, Any]) -> None:
    """Refuse what this host cannot run, before any of it is loaded."""
    for package, built in index["toolchain"].items():
        here = toolchain.version_of(package)
        if here != built:
            raise IncompatibleHost(
                f"the program was compiled by {package} {built}; this host has {here or 'none'}",
                hint=f"pip install {package}=={built}",
            )
    if missing := toolchain.missing_features(index["host_features"]):
        raise IncompatibleHost(
            f"this CPU lacks {', '.join(missing)}",
            hint="load another target of the bundle, or build for this host",
        )


def _deserialized(devices: Sequence[Any], executable: bytes) -> Any:
    xla = clients.bindings()
    options = clients.options([device.id for device in devices])
    try:
        return devices[0].client.deserialize_executable(executable, xla.DeviceList(tuple(devices)), options)
    except _XLA_ERRORS as error:
        raise BundleCorrupt(
            "the bytes are no XLA executable of this host", reason=first_line(error)
        ) from error


def _entry_of(
    name: str,
    signature: Signature,
    programs: Sequence[Mapping[str, Any]],
    executables: Mapping[str, Any],
    device_weights: Mapping[str, Any],
    memory: buffers.Memory,
) -> _Entry:
    own = [program for program in programs if program["entry_point"] == name]
    if not own:
        known = sorted({str(program["entry_point"]) for program in programs})
        raise BundleCorrupt(f"the program has no entry point {name!r}", reason=f"it has: {', '.join(known)}")
    # After the weights; last there may be the true sizes.
    more = len(signature.state) + len(signature.tensor_inputs) + 1
    # What is left out of a call has the smallest size that there is a program for.
    smallest = {size: min(p["sizes"][size] for p in own) for size in own[0]["sizes"]}
    return _Entry(
        name=name,
        checker=Checker(signature, smallest),
        programs=tuple(
            _Program(
                executables[program["executable"]],
                tuple(device_weights[key] for key in program["weights"]),
                program["sizes"],
                program["padded"],
                # Older programs know no other reason.
                bool(program.get("cut", program["padded"])),
                tuple(
                    tuple(evaluate_dim(dim, program["sizes"]) for dim in spec.dims)
                    for spec in signature.tensor_inputs
                ),
                shardings,
                memory.results_of(executables[program["executable"]], places),
            )
            # The smallest first: the first that takes a call is the one to take.
            for program in sorted(own, key=lambda each: math.prod(each["sizes"].values()))
            for shardings, places in [_shardings_of(program, len(program["weights"]) + more)]
        ),
        asserts=tuple(own[0]["asserts"]),
    )


def _shardings_of(program: Mapping[str, Any], count: int) -> tuple[Any, Any]:
    """Where the parts of a program's arguments and results are; on one device None for each of `count`."""
    if not program.get("results"):
        return (None,) * count, ()
    given = zip(program["results"], program["spread"]["results"], strict=True)
    return (
        tuple(map(Sharding.from_json, program["spread"]["arguments"])),
        tuple((Sharding.from_json(sharding), tuple(shape)) for sharding, shape in given),
    )


def _program_for(entry: _Entry, sizes: Mapping[str, int]) -> _Program:
    for program in entry.programs:
        if takes(program.sizes, program.padded, sizes):
            return program
    built = [program.sizes for program in entry.programs]
    nearest = min(built, key=lambda each: sum(abs(size - sizes[name]) for name, size in each.items()))
    raise OutsideBuckets(
        f"no program of {entry.name!r} was built for {_listed(sizes)}",
        reason=f"the buckets are: {'; '.join(map(_listed, built))}",
        hint=f"the nearest is {_listed(nearest)}",
    )


def _are_known(signature: Signature, sizes: Mapping[str, int]) -> bool:
    """Whether the sizes of a call decide those of all outputs."""
    return all(dim_symbols(dim) <= sizes.keys() for spec in signature.tensor_outputs for dim in spec.dims)


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sorted(sizes.items()))


def _padded(array: Array, shape: tuple[int, ...]) -> Array:
    """An input at the front of an array of the bucket's shape, with zeros behind it."""
    if array.shape == shape:
        return array
    padded = np.full(shape, _garbage(array.dtype) if os.environ.get(GARBAGE) else 0, array.dtype)
    padded[tuple(map(slice, array.shape))] = array
    return padded


def _garbage(dtype: np.dtype[Any]) -> Any:
    """A value that no output may depend on: NaN, an index out of bounds, True."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).max
    return True if dtype.kind == "b" else np.nan


def _cut(outputs: Mapping[str, Array], dims: Array) -> dict[str, Array]:
    """Outputs without the padding of their bucket; `dims` holds the true dims of all of them in order."""
    true, place = dims.tolist(), 0
    found = {}
    for name, array in outputs.items():
        shape = tuple(true[place : place + array.ndim])
        place += array.ndim
        found[name] = array if array.shape == shape else array[tuple(map(slice, shape))].copy()
    return found
