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

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import iree.runtime as iree
import numpy as np

from aotpipe.core.dtypes import Array, numpy_dtype, raw_bytes
from aotpipe.core.signature import Signature
from aotpipe.errors import (
    AotpipeError,
    AssertionViolated,
    BundleCorrupt,
    IncompatibleHost,
    MissingWeight,
    ProgramCrashed,
)
from aotpipe.runtime.input_checks import Checker
from aotpipe.runtime.iree import devices, huge_pages
from aotpipe.runtime.runner import BaseRunner, Entry, first_line, require_state

PARAMETER_SCOPE: Final = "model"

# glibc maps what is larger anew each time, and the page faults take several times the copy; what is smaller
# it hands out again.
_LARGE_BYTES: Final = 1 << 25

# What the compiler calls the function that tells the size of an entry point's workspace. There is none for
# one that only gives back inputs and constants, which takes a workspace all the same.
_NEEDS: Final = "$async_transients_size"
# A function shows itself as `<VmFunction forward(0rr_r), ...>`, a letter for each parameter and result, or a
# `v` where there are none.
_PARAMETERS: Final = re.compile(r"\(\dv?([a-zA-Z]*)_")

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
class _Entry(Entry):
    """One entry point.

    Attributes:
        has_workspace: Whether a call is given the memory that it works in, besides inputs and results.
        needs: The function that tells how many bytes it takes; None where it takes none.
        elements: IREE's codes of the inputs' element types.
    """

    function: Any
    has_workspace: bool
    needs: Any
    elements: tuple[int, ...]


class Runner(BaseRunner[_Entry]):
    """A loaded program with its own state; made by `load`."""

    def __init__(self, *, context: Any, device: Any, driver: str, weights: object, **base: Any) -> None:
        self._context = context
        self._weights = weights  # the programs' parameters point into these arrays
        self._device = device
        self._sizes: tuple[str, Mapping[str, int]] | None = None
        self._workspace: Any = None
        self._memory = devices.Memory(device, is_shared=devices.shares_memory(driver))
        self._upload = self._memory.upload
        self._spare: dict[str, Any] = {}
        super().__init__(device=driver, **base)

    def _call(self, entry: _Entry, arrays: list[Array], sizes: Mapping[str, int]) -> dict[str, Array]:
        devices.enter(self.device)
        if self._sizes != (entry.name, sizes):
            # Buffers of other sizes are of no use to this call.
            self._workspace = None
            devices.release(self._device)
            self._sizes = (entry.name, sizes)
        results = self._invoke(entry, arrays)
        views = [results.get_as_object(index, iree.HalBufferView) for index in range(len(results))]
        # Outputs, then the next state, then the asserts' flags.
        state_at = len(entry.outputs)
        if entry.asserts:
            try:
                entry.require(map(self._memory.truth, views[state_at + len(entry.state) :]))
            except AssertionViolated:
                left = zip(entry.state, views[state_at:], strict=False)
                self._replace_state({name: view for name, view in left if name in entry.kept}, spares=True)
                raise
        outputs = {
            name: self._memory.download(name, view, dtype)
            for (name, dtype), view in zip(entry.outputs, views, strict=False)
        }
        if entry.state:
            state = dict(zip(entry.state, views[state_at:], strict=False))
            self._replace_state(state, spares=bool(entry.asserts))
        return outputs

    def time(self, inputs: Mapping[str, Any], **options: Any) -> list[float]:
        """As each runner does, when the weights lie where they will stay."""
        huge_pages.wait()
        return super().time(inputs, **options)

    def _placed(self, name: str, array: Array) -> Any:  # noqa: ARG002  # one device has them all
        devices.enter(self.device)
        return self._upload(array, devices.element(array.dtype))

    def _forget(self) -> None:
        devices.enter(self.device)
        super()._forget()
        self._spare = {}

    def close(self) -> None:
        """Free the program and its state; calls after it are refused."""
        super().close()
        if not self._is_open:
            self._context = self._weights = self._workspace = None
            devices.release(self._device)

    def _invoke(self, entry: _Entry, arrays: list[Array]) -> Any:
        arguments = iree.VmVariantList(len(entry.state) + len(arrays) + 1)
        for name in entry.state:
            # A program may write the next state into this one's buffer before its asserts are known.
            arguments.push_ref(self._copied(name) if entry.asserts else self._state[name])
        results = iree.VmVariantList(len(entry.outputs) + len(entry.state) + len(entry.asserts))
        try:
            for array, element in zip(arrays, entry.elements, strict=True):
                arguments.push_ref(self._upload(array, element))
            if entry.has_workspace:
                if self._workspace is None:
                    self._workspace = self._memory.allocate(max(1, self._needs(entry, arguments)))
                arguments.push_ref(self._workspace)
            self._context.invoke(entry.function, arguments, results)
        except _IREE_ERRORS as error:
            raise ProgramCrashed(
                f"the program failed in {entry.name!r}",
                reason=first_line(error),
                hint="its state may be changed in part: reset it" if entry.state else "",
            ) from error
        entry.require_results(len(results))
        return results

    def _needs(self, entry: _Entry, arguments: Any) -> int:
        """How many bytes a call with these arguments works in."""
        if entry.needs is None:
            return 0
        given = iree.VmVariantList(len(arguments) + 3)
        for index in range(len(arguments)):
            given.push_ref(arguments.get_as_object(index, iree.HalBufferView))
        # It has the parameters of the asynchronous call, of which it reads the sizes of the inputs.
        for unread in (self._memory.allocate(1), iree.HalFence(0), iree.HalFence(0)):
            given.push_ref(unread)
        results = iree.VmVariantList(1)
        self._context.invoke(entry.needs, given, results)
        return int(results.get_variant(0))

    def _copied(self, name: str) -> Any:
        """A state in a buffer that nothing else reads."""
        state = self._state[name]
        spare = self._spare.get(name)
        if spare is None:
            return self._memory.copied(state, self._initial_state[name].dtype)
        self._memory.copy(state, spare)
        return spare

    def _replace_state(self, state: Mapping[str, Any], *, spares: bool) -> None:
        """Take the next state; the large buffers of this one are kept to copy into."""
        old = {name: self._state[name] for name in state}
        self._state.update(state)
        if not spares:
            return
        for name, view in old.items():
            self._spare.pop(name, None)
            if view.byte_length >= _LARGE_BYTES and not self._is_in_use(view):
                self._spare[name] = view

    def _is_in_use(self, view: Any) -> bool:
        # A program may give one buffer as two states.
        if (address := self._memory.address(view)) is None:
            return True
        in_use = (each for each in (*self._state.values(), *self._spare.values()) if each.byte_length)
        return address in map(self._memory.address, in_use)


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
    require_state(signatures, initial_state)
    instance = devices.instance()
    index = iree.ParameterIndex()
    host_weights = {key: np.asarray(array, order="C") for key, array in weights.items()}
    mapped = huge_pages.mapped()
    for key, array in host_weights.items():
        index.add_buffer(key, raw_bytes(array))
    try:
        module = iree.VmModule.copy_buffer(instance, payload)
    except _IREE_ERRORS as error:
        raise _load_error(error) from error
    name = driver
    if driver == "auto":
        # What branches or loops has no workspace.
        waits = not any(
            _has_workspace(module.lookup_function(name), each) for name, each in signatures.items()
        )
        name = devices.choose(signatures.values(), weights, initial_state, threads, waits=waits)
    device = devices.device(name, threads)
    devices.enter(name)
    try:
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
    runner = Runner(
        context=context,
        device=device,
        driver=name,
        entries={
            entry: _prepare(module, entry, signature, (asserts or {}).get(entry, ()))
            for entry, signature in signatures.items()
        },
        initial_state=initial_state,
        weights=host_weights,
    )
    huge_pages.collapse_since(mapped)
    return runner


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
        has_workspace=_has_workspace(function, signature),
        needs=module.lookup_function(f"{name}{_NEEDS}"),
        checker=Checker(signature),
        elements=tuple(devices.element(numpy_dtype(spec.dtype)) for spec in signature.tensor_inputs),
        asserts=asserts,
    )


def _has_workspace(function: Any, signature: Signature) -> bool:
    """Whether a program's function takes one argument more than its signature says."""
    found = _PARAMETERS.search(repr(function))
    return found is not None and len(found[1]) == len(signature.state) + len(signature.tensor_inputs) + 1


def _load_error(error: Exception) -> AotpipeError:
    text = str(error)
    if found := _NO_PARAMETER.search(text):
        return MissingWeight(f"the program needs the weight {found[1]!r}, which is not there")
    if found := _SMALL_PARAMETER.search(text):
        return BundleCorrupt(f"the weight {found[1]!r} is smaller than the program needs")
    reason = first_line(error)
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
