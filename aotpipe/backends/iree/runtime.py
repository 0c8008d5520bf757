"""Runs IREE programs: a `Runner` holds a program, its weights and its state on a device.

Takes a program's bytes, the signature of each entry point, and weights and initial state as numpy arrays.
Inputs are checked before anything runs; outputs are copies, since the device's memory is gone with its
buffer. State is passed as the leading arguments and replaced by the trailing results once the call succeeded
and its asserts held, so that a failed call changes nothing. Calls of one runner are serialized by a lock.

Neither torch nor a compiler is imported.

Raises:
    InputError: An input does not fit; nothing was run.
    AssertionViolated: An assert of the model failed.
    ProgramCrashed: The program reported a failure.
    MissingWeight, BundleCorrupt, IncompatibleHost: The program cannot be loaded.
"""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import iree.runtime as iree
import numpy as np

from aotpipe.backends.iree import buffers, devices
from aotpipe.dtypes import Array, numpy_dtype, raw_bytes
from aotpipe.errors import (
    AotpipeError,
    AssertionViolated,
    BundleCorrupt,
    IncompatibleHost,
    InputError,
    MissingWeight,
    ProgramCrashed,
)
from aotpipe.inputs import Checker
from aotpipe.signature import Signature

PARAMETER_SCOPE: Final = "model"
DEFAULT_ENTRY_POINT: Final = "forward"

# glibc maps what is larger anew each time, and the page faults take several times the copy; what is smaller
# it hands out again.
_LARGE_BYTES: Final = 1 << 25

# What nanobind makes of the codes of an IREE status.
_IREE_ERRORS: Final = (RuntimeError, ValueError, IndexError, MemoryError)
_NO_PARAMETER: Final = re.compile(r"no parameter found in index with key '([^']*)'")
_SMALL_PARAMETER: Final = re.compile(r"parameter `([^`]*)` range out of bounds")
_DEVICE: Final = re.compile(r'#hal\.executable\.target<"([^"]+)", "([^"]+)"')
# What CUDA and HIP say of code for another GPU, or newer than the driver.
_OTHER_GPU: Final = re.compile(
    r"NO_BINARY_FOR_GPU|UNSUPPORTED_PTX_VERSION|INVALID_PTX|hipErrorNoBinaryForGpu|no kernel image"
)
_VERSION: Final = re.compile(r"version|required (module|import)|not registered", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry point, prepared for calls."""

    name: str
    function: Any
    checker: Checker
    state: tuple[str, ...]
    elements: tuple[int, ...]
    outputs: tuple[tuple[str, np.dtype[Any]], ...]
    asserts: tuple[str, ...]


class Runner:
    """A loaded program with its own state; made by `load`.

    Attributes:
        signatures: By entry point.
        device: The IREE driver it runs on.
    """

    def __init__(
        self,
        *,
        context: Any,
        device: Any,
        driver: str,
        entries: Mapping[str, _Entry],
        initial_state: Mapping[str, Array],
        kept: object,
    ) -> None:
        self.signatures = {name: entry.checker.signature for name, entry in entries.items()}
        self.device = driver
        self._context = context
        self._entries = entries
        self._initial_state = initial_state
        self._kept = kept  # the programs' parameters point into these arrays
        self._lock = threading.Lock()
        self._forks = devices.forks()
        self._memory = buffers.Memory(device, is_shared=devices.shares_memory(driver))
        self._upload = self._memory.upload
        self._state: dict[str, Any] = {}
        self._spare: dict[str, Any] = {}
        self.reset()

    @property
    def signature(self) -> Signature:
        """Of the entry point that `infer` calls unless told otherwise.

        Raises:
            InputError: There are several and none is called `forward`.
        """
        return self._entry(None).checker.signature

    def infer(self, inputs: Mapping[str, Any], *, entry_point: str | None = None) -> dict[str, Array]:
        """Call an entry point.

        Args:
            inputs: Every tensor input of its signature, by name, or a batch as the model takes it, that may
                lack what is optional (`aotpipe.structure`).
            entry_point: The only one, or `forward`, where None.

        Returns:
            Every tensor output of its signature, by name, but for those that are not there; the arrays are
            the caller's own.
        """
        entry = self._entry(entry_point)
        arrays, _ = entry.checker.check(inputs)
        with self._lock:
            results = self._invoke(entry, arrays)
            self._check_asserts(entry, results)
            outputs = {
                name: self._memory.download(name, results.get_as_object(index, iree.HalBufferView), dtype)
                for index, (name, dtype) in enumerate(entry.outputs)
            }
            state = {
                name: results.get_as_object(index, iree.HalBufferView)
                for index, name in enumerate(entry.state, len(outputs))
            }
            self._keep(state, spares=bool(entry.asserts))
        return entry.checker.unpacked(inputs, outputs)

    def reset(self) -> None:
        """Go back to the initial state."""
        with self._lock:
            self._require_usable()
            self._spare = {}
            self._state = {
                name: self._upload(array, buffers.element(array.dtype))
                for name, array in self._initial_state.items()
            }

    def close(self) -> None:
        """Free the program and its state; calls after it are refused."""
        with self._lock:
            self._state, self._spare = {}, {}
            self._context = None
            self._kept = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _invoke(self, entry: _Entry, arrays: list[Array]) -> Any:
        self._require_usable()
        arguments = iree.VmVariantList(len(entry.state) + len(arrays))
        for name in entry.state:
            # A program may write the next state into this one's buffer before its asserts are known.
            arguments.push_ref(self._copied(name) if entry.asserts else self._state[name])
        results = iree.VmVariantList(len(entry.outputs) + len(entry.state) + len(entry.asserts))
        try:
            for array, element in zip(arrays, entry.elements, strict=True):
                arguments.push_ref(self._upload(array, element))
            self._context.invoke(entry.function, arguments, results)
        except _IREE_ERRORS as error:
            raise ProgramCrashed(
                f"the program failed in {entry.name!r}",
                reason=_first_line(error),
                hint="its state may be changed in part: reset it" if entry.state else "",
            ) from error
        wanted = len(entry.outputs) + len(entry.state) + len(entry.asserts)
        if len(results) != wanted:
            raise ProgramCrashed(
                f"the program gave {len(results)} results in {entry.name!r}, its signature has {wanted}"
            )
        return results

    def _copied(self, name: str) -> Any:
        """A state in a buffer that nothing else reads."""
        state = self._state[name]
        spare = self._spare.get(name)
        if spare is None:
            return self._memory.copied(state, self._initial_state[name].dtype)
        self._memory.copy(state, spare)
        return spare

    def _keep(self, state: Mapping[str, Any], *, spares: bool) -> None:
        """Take the next state; the large buffers of this one are kept to copy into."""
        old = {name: self._state[name] for name in state}
        self._state.update(state)
        if not spares:
            return
        for name, view in old.items():
            self._spare.pop(name, None)
            if view.byte_length >= _LARGE_BYTES and not self._is_held(view):
                self._spare[name] = view

    def _is_held(self, view: Any) -> bool:
        # A program may give one buffer as two states.
        if (address := self._memory.address(view)) is None:
            return True
        held = (each for each in (*self._state.values(), *self._spare.values()) if each.byte_length)
        return address in map(self._memory.address, held)

    def _check_asserts(self, entry: _Entry, results: Any) -> None:
        for index, message in enumerate(entry.asserts, len(entry.outputs) + len(entry.state)):
            if not self._memory.truth(results.get_as_object(index, iree.HalBufferView)):
                raise AssertionViolated(
                    message or "an assert of the model failed",
                    reason=f"in {entry.name!r}; the outputs are withheld and the state is unchanged",
                )

    def _entry(self, name: str | None) -> _Entry:
        if name is None:
            name = next(iter(self._entries)) if len(self._entries) == 1 else DEFAULT_ENTRY_POINT
        entry = self._entries.get(name)
        if entry is None:
            known = ", ".join(self._entries)
            close = difflib.get_close_matches(name, self._entries, n=1)
            raise InputError(
                f"no entry point is called {name!r}",
                reason=f"the entry points are: {known}",
                hint=f"pass entry_point={(close or list(self._entries))[0]!r}",
            )
        return entry

    def _require_usable(self) -> None:
        if self._context is None:
            raise RuntimeError("this runner is closed")
        if self._forks != devices.forks():
            # The threads of the device are not there in a forked child: a call would wait for ever.
            raise ProgramCrashed(
                "this runner was made before the process forked",
                hint="load the program in the child, or start workers with the method `spawn`",
            )


def load(
    payload: bytes,
    *,
    signatures: Mapping[str, Signature],
    weights: Mapping[str, Array],
    initial_state: Mapping[str, Array],
    driver: str = "auto",
    asserts: Mapping[str, tuple[str, ...]] | None = None,
    threads: int | None = None,
) -> Runner:
    """Load a program.

    Args:
        payload: The program's bytes.
        signatures: By entry point.
        weights: By key; contiguous, and not to be written while the runner lives: those that start at a
            multiple of 64 bytes are used where they are.
        initial_state: By name, for every state of the signatures.
        driver: `local-sync` (in the calling thread), `local-task` (several threads), or `auto`.
        asserts: By entry point: a message per assert result.
        threads: Of `local-task`; one per core where None.

    Raises:
        MissingWeight: The program or a signature needs an array that is not there.
        BundleCorrupt: The bytes are no program, or not the one that the signatures describe.
        IncompatibleHost: This host or this runtime cannot run it.
    """
    _require_state(signatures, initial_state)
    name = driver
    if driver == "auto":
        name = devices.choose(signatures.values(), weights, initial_state, threads)
    device = devices.device(name, threads)
    instance = devices.instance()
    index = iree.ParameterIndex()
    kept = {key: np.asarray(array, order="C") for key, array in weights.items()}
    for key, array in kept.items():
        index.add_buffer(key, raw_bytes(array))
    try:
        module = iree.VmModule.copy_buffer(instance, payload)
        context = iree.VmContext(
            instance,
            [
                iree.create_hal_module(instance, device),
                iree.create_io_parameters_module(instance, index.create_provider(PARAMETER_SCOPE)),
                module,
            ],
        )
    except _IREE_ERRORS as error:
        raise _load_error(error) from error
    checks = asserts or {}
    entries = {
        entry: _prepare(module, entry, signature, checks.get(entry, ()))
        for entry, signature in signatures.items()
    }
    return Runner(
        context=context,
        device=device,
        driver=name,
        entries=entries,
        initial_state=initial_state,
        kept=kept,
    )


def _prepare(module: Any, name: str, signature: Signature, asserts: tuple[str, ...]) -> _Entry:
    function = module.lookup_function(name)
    if function is None:
        exported = [each for each in module.function_names if not each.startswith("__") and "$" not in each]
        raise BundleCorrupt(
            f"the program has no entry point {name!r}", reason=f"it has: {', '.join(exported)}"
        )
    return _Entry(
        name=name,
        function=function,
        checker=Checker(signature),
        state=tuple(spec.name for spec in signature.state),
        elements=tuple(buffers.element(numpy_dtype(spec.dtype)) for spec in signature.tensor_inputs),
        outputs=tuple((spec.name, numpy_dtype(spec.dtype)) for spec in signature.tensor_outputs),
        asserts=asserts,
    )


def _require_state(signatures: Mapping[str, Signature], initial_state: Mapping[str, Array]) -> None:
    for entry, signature in signatures.items():
        for spec in signature.state:
            array = initial_state.get(spec.name)
            if array is None:
                raise MissingWeight(
                    f"the initial value of the state {spec.name!r} is missing",
                    reason=f"{entry!r} needs {spec}",
                )
            if array.dtype != numpy_dtype(spec.dtype) or array.shape != spec.dims:
                raise BundleCorrupt(
                    f"the initial value of the state {spec.name!r} is {array.dtype}{list(array.shape)}",
                    reason=f"{entry!r} wants {spec}",
                )


def _load_error(error: Exception) -> AotpipeError:
    text = str(error)
    if found := _NO_PARAMETER.search(text):
        return MissingWeight(f"the program needs the weight {found[1]!r}, which is not there")
    if found := _SMALL_PARAMETER.search(text):
        return BundleCorrupt(f"the weight {found[1]!r} is smaller than the program needs")
    reason = _first_line(error)
    if "INCOMPATIBLE" in text or _OTHER_GPU.search(text):
        made_for = _DEVICE.search(text)
        return IncompatibleHost(
            "the program was compiled for another kind of device"
            + (f": {made_for[1]} {made_for[2]}" if made_for else ""),
            reason=reason[:300],
            hint="load another target of the bundle, or build for this host",
        )
    if "verification failed" in text or "FlatBuffer" in text:
        return BundleCorrupt("the bytes are no IREE program", reason=reason)
    if _VERSION.search(text):
        return IncompatibleHost("this version of iree-base-runtime cannot load the program", reason=reason)
    return ProgramCrashed("the program failed while it was loaded", reason=reason)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
