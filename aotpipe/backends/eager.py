"""The reference: PyTorch itself, run on named numpy arrays.

`Eager(entries)` runs the entry points of a `Canonical` as the user wrote them, in the model's own dtypes or
in float64 (`precision="float64"`): parameters, buffers, inputs and every dtype that the code itself asks for
are widened, so that a cast to float32 inside the model does not make the reference less exact. The user's
model is never run nor changed: runs happen on copies that share its parameters, and `reset` takes a fresh
copy, so that buffers, Python counters and caches are the initial ones again.

Raises:
    EagerFailed: The model itself raised on these inputs; nothing else can be said about them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Literal

import torch
from torch.utils import _pytree as pytree

from aotpipe.backends.arrays import from_numpy, to_numpy
from aotpipe.backends.widen import Widen, widen_module
from aotpipe.goldens import Array
from aotpipe.stages import CanonicalEntry

Precision = Literal["model", "float64"]

MUTATED = "mutated."
"""Prefix of the output that holds an input's value after the call."""

NOISE_ULPS: Final = 16.0
"""How far `noise` moves a number, in units in its last place: some times the error of a program's sums."""

_UNCOPIED: Final = (TypeError, RuntimeError, AttributeError, NotImplementedError, copy.Error)


class EagerFailed(Exception):
    """The model raised on an input; its own exception is the cause."""


class Eager:
    """The entry points of one model, with their state; calls are deterministic.

    Args:
        entries: They share weights and state as their modules do.
        precision: `model` runs in the model's own dtypes.
        mutated: Entry point -> the inputs whose value after the call is an output too.
        noise: A seed: perturb every parameter and every fractional input by up to 16 units in the last
            place. What flips under it is not decided by the model's numbers.
    """

    def __init__(
        self,
        entries: Sequence[CanonicalEntry],
        *,
        precision: Precision = "model",
        mutated: Mapping[str, Sequence[str]] | None = None,
        noise: int | None = None,
    ) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._precision = precision
        self._mutated = mutated or {}
        self._noise = noise
        self._pristine = tuple(entry.module for entry in entries)
        self._initial: list[tuple[torch.Tensor, torch.Tensor]] = []
        if precision == "float64" or noise is not None:
            # These change the weights, so they need weights of their own.
            self._pristine = _copied(self._pristine, share_parameters=False)
            for module in self._pristine:
                if precision == "float64":
                    widen_module(module)
        if noise is not None:
            _perturb(self._pristine, noise)
        self.reset()

    def reset(self) -> None:
        """Back to the initial state."""
        for buffer, value in self._initial:
            buffer.copy_(value)
        if self._initial:
            return
        try:
            modules = _copied(self._pristine, share_parameters=True)
        except _UNCOPIED:
            # A module that holds a lock or an open file is run itself; its buffers are put back.
            modules = self._pristine
            self._initial = [(b, b.detach().clone()) for module in modules for b in module.buffers()]
        self._modules = dict(zip(self._entries, modules, strict=True))

    def infer(self, inputs: Mapping[str, Array], *, entry_point: str | None = None) -> dict[str, Array]:
        """Call an entry point.

        Args:
            inputs: Input name -> array in the signature's dtype; absent ones take the example's value.
            entry_point: Which; the only one where None.

        Returns:
            Output name -> array; numbers as 0-d arrays, leaves that are neither are absent.
        """
        name = next(iter(self._entries)) if entry_point is None else entry_point
        call = self.prepare(inputs, entry_point=name)
        with self.ready():
            result, leaves = call()
        named = dict(zip(self._entries[name].output_names, pytree.tree_leaves(result), strict=True))
        for mutated in self._mutated.get(name, ()):
            named[MUTATED + mutated] = leaves[mutated]
        return {key: array for key, leaf in named.items() if (array := to_numpy(leaf)) is not None}

    def prepare(self, inputs: Mapping[str, Array], *, entry_point: str) -> _Call:
        """A call with its arguments made, to be timed: calling it runs the module and nothing else."""
        entry = self._entries[entry_point]
        example, spec = pytree.tree_flatten((entry.entry.args, dict(entry.entry.kwargs)))
        leaves = {
            name: self._to_torch(inputs[name]) if name in inputs else _own(leaf)
            for name, leaf in zip(entry.input_names, example, strict=True)
        }
        args, kwargs = pytree.tree_unflatten(list(leaves.values()), spec)
        return _Call(self._modules[entry_point], args, kwargs, leaves)

    def _to_torch(self, array: Array) -> torch.Tensor:
        tensor = from_numpy(array)
        if self._noise is not None and tensor.is_floating_point():
            tensor = _noisy(tensor, torch.Generator().manual_seed(self._noise), spare_whole=True)
        return tensor

    @contextmanager
    def ready(self) -> Iterator[None]:
        """The mode in which a prepared call is to be run."""
        widen: AbstractContextManager[object] = Widen() if self._precision == "float64" else nullcontext()
        # torch.cond and its kin would start a compiler of their own; forced eager, they run their branches.
        with torch.no_grad(), torch.compiler.set_stance("force_eager"), widen:
            yield


class _Call:
    """One call, ready to run."""

    __slots__ = ("_args", "_kwargs", "_leaves", "_module")

    def __init__(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: dict[str, Any]
    ) -> None:
        self._module = module
        self._args = args
        self._kwargs = kwargs
        self._leaves = leaves

    def __call__(self) -> tuple[Any, dict[str, Any]]:
        """The result, and the input leaves as the call left them."""
        try:
            return self._module(*self._args, **self._kwargs), self._leaves
        # The user's code may raise anything on an input that it does not take.
        except Exception as error:
            raise EagerFailed(f"{type(error).__name__}: {error}") from error


def _own(leaf: object) -> object:
    # A model that changes its input in place must not change the example.
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _copied(modules: Sequence[torch.nn.Module], *, share_parameters: bool) -> tuple[torch.nn.Module, ...]:
    """Copies that share state with each other as the originals do."""
    memo: dict[int, Any] = {}
    for module in (part for root in modules for part in root.modules()):
        for tensor in [*module.parameters(recurse=False), *vars(module).values()]:
            if not isinstance(tensor, torch.Tensor):
                continue
            if isinstance(tensor, torch.nn.Parameter):
                memo[id(tensor)] = tensor if share_parameters else _parameter(tensor)
            elif not tensor.is_leaf:
                # deepcopy refuses a tensor with a history, such as the weight of the older weight_norm.
                memo[id(tensor)] = tensor.detach().clone()
    return tuple(copy.deepcopy(list(modules), memo))


def _parameter(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    return torch.nn.Parameter(parameter.detach().clone(), requires_grad=False)


def _perturb(modules: Sequence[torch.nn.Module], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = {id(p): p for module in modules for p in module.parameters()}
    for tensor in tensors.values():
        if tensor.is_floating_point():
            tensor.data = _noisy(tensor.data, generator, spare_whole=False)


def _noisy(tensor: torch.Tensor, generator: torch.Generator, *, spare_whole: bool) -> torch.Tensor:
    """Each element times `1 + 16 eps u`, u uniform in [-1, 1].

    Whole numbers may be spared: they are flags and counts, exact in any program.
    """
    if tensor.dtype.itemsize == 1:
        return tensor  # a float8 has no place for it
    # Half the dtype's own precision is enough for the noise, and a 7B model's worth of it must be made.
    work = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    unit = torch.rand(tensor.shape, generator=generator, dtype=work) * 2 - 1
    moved = (tensor.to(work) * (1 + NOISE_ULPS * torch.finfo(tensor.dtype).eps * unit)).to(tensor.dtype)
    return torch.where(tensor == tensor.round(), tensor, moved) if spare_whole else moved
