"""The reference: PyTorch itself, run on named numpy arrays.

`Eager(entries)` runs the entry points of a `Canonical` as the user wrote them, in the model's own dtypes or
in float64 (`precision="float64"`): parameters, buffers, inputs and every dtype that the code itself asks for
are widened, so that a cast to float32 inside the model does not make the reference less exact. Each runner
has contents of its own for the model's buffers and attributes, which the model holds during a call only, so
that the user's are never changed; `reset` makes buffers, Python counters and caches initial again.

Raises:
    EagerFailed: The model itself raised on these inputs; nothing else can be said about them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Literal

import numpy as np
import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.core.dtypes import Array, is_inexact, numpy_dtype
from aotpipe.core.precision import Precision as Policy
from aotpipe.core.signature import Constant, Signature, TensorSpec
from aotpipe.core.stages import CanonicalEntry
from aotpipe.errors import SourceLine
from aotpipe.model import source
from aotpipe.model.torch_arrays import from_numpy, to_numpy
from aotpipe.passes.precision import lower_dtype
from aotpipe.validate.eager.modes import dtypes_unwidened, narrow, ties_decided, widen, widened
from aotpipe.validate.eager.swap import Contents
from aotpipe.validate.parity import NOISE_ULPS

Precision = Literal["model", "float64"]

MUTATED = "mutated."
"""Prefix of the output that holds an input's value after the call."""

_NOISE_PERIOD: Final = 2**15


class EagerFailed(Exception):
    """The model raised on an input, or gave a whole number that no program holds."""


class OtherResults(ValueError):
    """A call gave another number of results than the example; `leaves` are they, as arrays or None."""

    def __init__(self, wanted: int, leaves: Sequence[Array | None]) -> None:
        super().__init__(f"the model gives {len(leaves)} results on this input, and {wanted} on the example")
        self.leaves = leaves


class FixedResult(ValueError):
    """A call gave something else where the programs have a fixed value."""


class Eager:
    """The entry points of one model, with their state; calls are deterministic.

    Args:
        entries: They share weights and state as their modules do.
        signatures: By entry point: the state, of which parameters are copied before they are written, and the
            inputs whose value after the call is an output too.
        precision: `model` runs in the model's own dtypes.
        frugal: With float64: widen a parameter wherever it is used, and hold no wide copy of all. It takes
            time for each use, and code that compares the dtypes of a parameter and an input sees two.
        unwidened: With float64: the code sees the dtypes that tensors have in the model.
        noise: A seed: perturb every parameter and every fractional input by up to 16 units in the last
            place, and let `topk` take the first or the last of equal ones. What flips under it is not
            decided by the model's numbers.
        policy: Compute in fewer bits, in precision `model`; noise is then one unit of these.
    """

    def __init__(
        self,
        entries: Sequence[CanonicalEntry],
        signatures: Mapping[str, Signature] | None = None,
        *,
        precision: Precision = "model",
        frugal: bool = False,
        unwidened: bool = False,
        noise: int | None = None,
        policy: Policy | None = None,
    ) -> None:
        signatures = signatures or {}
        self._entries = {entry.name: entry for entry in entries}
        for name, each in signatures.items():
            if each.specializes in self._entries:
                self._entries.setdefault(name, self._entries[each.specializes])
        self._is_wide = precision == "float64"
        self._is_unwidened = unwidened
        self._outputs = {
            name: {leaf.name: leaf for leaf in signature.tensor_outputs}
            for name, signature in signatures.items()
        }
        # Computed in other numbers, one of Python's may be another, too.
        is_plain = precision == "model" and noise is None and policy is None
        self._fixed = {
            name: {leaf.name: leaf.value for leaf in signature.outputs if isinstance(leaf, Constant)}
            for name, signature in signatures.items()
            if is_plain
        }
        self._noise = noise
        self._policy = policy
        self._lower = None if policy is None else lower_dtype(policy)
        state = {leaf.name for signature in signatures.values() for leaf in signature.state}
        self._contents = Contents(
            [entry.module for entry in entries],
            parameters=self._parameter_change(),
            # What is written must be wide before it is.
            only_written=frugal,
            others=self._widened,
            written=[
                parameter
                for entry in entries
                for name, parameter in entry.module.named_parameters(remove_duplicate=False)
                if name in state
            ],
        )

    def reset(self) -> None:
        """Go back to the initial state."""
        self._contents.reset()

    def infer(self, inputs: Mapping[str, Array], *, entry_point: str | None = None) -> dict[str, Array]:
        """Call an entry point; absent inputs take the example's value.

        Returns:
            Output name -> array; numbers as 0-d arrays, leaves that are neither are absent.

        Raises:
            FixedResult: A leaf that is fixed in the signature is another one.
        """
        name = next(iter(self._entries)) if entry_point is None else entry_point
        call = self._prepared(inputs, name)
        with self._ready():
            result, leaves = call()
            # Read while the contents are in: an output may be a view of a buffer.
            found, names = pytree.tree_leaves(result), self._entries[name].output_names
            if len(found) != len(names):
                raise OtherResults(len(names), [*map(to_numpy, found)])
            named = dict(zip(names, found, strict=True))
            _require_fixed(named, self._fixed.get(name, {}))
            # What a call writes into an input is an output, where the signature has it.
            outputs = self._outputs.get(name, {})
            named |= {MUTATED + key: leaf for key, leaf in leaves.items() if MUTATED + key in outputs}
            arrays = {key: _array(leaf, outputs.get(key)) for key, leaf in named.items()}
            return {key: array for key, array in arrays.items() if array is not None}

    def definition(self, entry_point: str) -> SourceLine | None:
        """Where the code of an entry point begins."""
        return source.of_definition(self._entries[entry_point].module.forward)

    def time(
        self, inputs: Mapping[str, Array], *, entry_point: str, samples: int, reset: bool = False
    ) -> list[float]:
        """Microseconds of each of some calls; `reset` goes before each, untimed, as does making arguments."""
        durations = []
        with self._ready():
            for _ in range(samples):
                if reset:
                    self.reset()
                # Anew for each: a model may change its inputs in place.
                call = self._prepared(inputs, entry_point)
                start = time.perf_counter_ns()
                call()
                durations.append((time.perf_counter_ns() - start) / 1000)
        return durations

    def _prepared(
        self, inputs: Mapping[str, Array], entry_point: str
    ) -> Callable[[], tuple[Any, dict[str, Any]]]:
        """A call with its arguments made; it gives the result, and the input leaves as the call left them."""
        entry = self._entries[entry_point]
        leaves, spec = self._leaves(inputs, entry)
        args, kwargs = pytree.tree_unflatten(list(leaves.values()), spec)

        def call() -> tuple[Any, dict[str, Any]]:
            try:
                with dtypes_unwidened() if self._is_unwidened else nullcontext():
                    return entry.module(*args, **kwargs), leaves
            # The user's code may raise anything on an input that it does not take.
            except Exception as error:
                raise EagerFailed(f"{type(error).__name__}: {error}") from error

        return call

    def _arguments(self, inputs: Mapping[str, Array], entry_point: str) -> tuple[Any, Any]:
        """The arguments of a call, by place and by name."""
        leaves, spec = self._leaves(inputs, self._entries[entry_point])
        args, kwargs = pytree.tree_unflatten(list(leaves.values()), spec)
        return args, kwargs

    def _leaves(
        self, inputs: Mapping[str, Array], entry: CanonicalEntry
    ) -> tuple[dict[str, Any], pytree.TreeSpec]:
        """The leaves of a call's arguments by name, and the structure that they have."""
        example, spec = pytree.tree_flatten((entry.entry.args, dict(entry.entry.kwargs)))
        leaves = {
            # A model that changes its input in place must not change the example.
            name: self._to_torch(inputs[name])
            if name in inputs
            else leaf.detach().clone()
            if isinstance(leaf, torch.Tensor)
            else leaf
            for name, leaf in zip(entry.input_names, example, strict=True)
        }
        return leaves, spec

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """The mode in which a prepared call is to be run; the model holds this runner's contents in it."""
        mode: AbstractContextManager[object] = nullcontext()
        if self._is_wide:
            mode = widen()
        elif self._policy is not None:
            mode = narrow(self._policy)
        ties = nullcontext() if self._noise is None else ties_decided(first=self._noise % 2 == 1)
        with torch.no_grad(), self._contents, uncompiled(), ties, mode:
            yield

    def _to_torch(self, array: Array) -> torch.Tensor:
        tensor = self._widened(from_numpy(array))
        if self._noise is not None:
            generator = torch.Generator().manual_seed(self._noise)
            tensor = _noisy(tensor, generator, self._lower, spare_whole=True)
        return tensor

    def _widened(self, tensor: torch.Tensor) -> torch.Tensor:
        return widened(tensor) if self._is_wide else tensor

    def _parameter_change(self) -> Callable[[torch.Tensor], torch.Tensor] | None:
        if self._noise is not None:
            generator = torch.Generator().manual_seed(self._noise)
            return lambda tensor: _noisy(self._widened(tensor), generator, self._lower, spare_whole=False)
        return widened if self._is_wide else None


def _require_fixed(leaves: Mapping[str, Any], fixed: Mapping[str, object]) -> None:
    for name, value in fixed.items():
        leaf = leaves.get(name)
        # What is no scalar is written as its repr, which tells no two objects from each other.
        if type(leaf) is type(value) and leaf != value:
            raise FixedResult(
                f"`{name}` is {leaf!r} in eager on some inputs, and {value!r} in every call of a program"
            )


def _array(leaf: Any, spec: TensorSpec | None) -> Array | None:
    """A result as an array; a number of Python in the dtype of the output, where that holds it.

    On one path a model may give a count, and on another a tensor of floats: a program then fills a tensor
    with the number, as the warning `number-became-tensor` says.
    """
    found = to_numpy(leaf)
    if found is None or spec is None or not isinstance(leaf, int | float):
        return found
    sizes = [size for size in spec.dims if isinstance(size, int)]
    if sizes and len(sizes) == len(spec.dims):
        found = np.full(sizes, found)
    wanted = numpy_dtype(spec.dtype)
    if isinstance(leaf, int) and wanted.kind in "iu" and not -(1 << 63) <= leaf < 1 << 63:
        raise EagerFailed(f"OverflowError: {wanted} does not hold the result {leaf}")
    with np.errstate(all="ignore"):
        number = found.astype(wanted)
    is_rounded = isinstance(leaf, float) and is_inexact(wanted)
    is_held = is_rounded or not number.size or number.flat[0].item() == leaf
    return number if is_held else found


def _noisy(
    tensor: torch.Tensor, generator: torch.Generator, lower: torch.dtype | None = None, *, spare_whole: bool
) -> torch.Tensor:
    """Each element times `1 + 16 eps u`, u uniform in [-1, 1] and repeated after `_NOISE_PERIOD` elements.

    Float32 that is computed in a lower dtype moves by one unit of that.

    Whole numbers may be spared: they are flags and counts, exact in any program. Both parts of a complex
    number move.
    """
    if tensor.is_complex():
        parts = _noisy(torch.view_as_real(tensor.resolve_conj()), generator, lower, spare_whole=spare_whole)
        return torch.view_as_complex(parts)
    if not tensor.is_floating_point() or tensor.dtype.itemsize == 1 or not tensor.numel():
        return tensor  # a float8 has no place for it
    work = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    size = NOISE_ULPS * torch.finfo(tensor.dtype).eps
    if lower is not None and tensor.dtype is torch.float32:
        size = torch.finfo(lower).eps
    # A model's weights are large and there are several noises: drawing numbers takes longer than multiplying.
    period = min(tensor.numel(), _NOISE_PERIOD)
    factor = torch.rand(period, generator=generator, dtype=work).mul_(2 * size).add_(1 - size)
    flat = tensor.to(work).reshape(-1)
    moved = torch.empty_like(flat)
    whole = flat.numel() - flat.numel() % period
    torch.mul(flat[:whole].view(-1, period), factor, out=moved[:whole].view(-1, period))
    torch.mul(flat[whole:], factor[: flat.numel() - whole], out=moved[whole:])
    moved = moved.to(tensor.dtype).view(tensor.shape)
    return torch.where(tensor == tensor.round(), tensor, moved) if spare_whole else moved
