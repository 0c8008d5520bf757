"""Runs a chain: segments of a program and Python islands, one after another.

`ChainRunner` is a runner over another one (or a worker) that holds the segments. What an island gives is
checked against what it gave when the chain was built. State is kept here, and replaced once a whole call
succeeded. torch is imported only for islands that take torch's tensors.

Raises:
    InputError: An input does not fit; nothing was run.
    IslandFailed: An island raised, or gave something else than when the chain was built.
    Whatever the runner of the segments raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import numpy as np

from aotpipe.core.dtypes import Array, name_of
from aotpipe.core.serialization import Serializable, attributes
from aotpipe.core.signature import Signature, TensorSpec, dim_symbols, evaluate_dim
from aotpipe.errors import IslandFailed, SourceLine
from aotpipe.model import source
from aotpipe.runtime.input_checks import Checker
from aotpipe.runtime.islands.chain import (
    Allowed,
    Chain,
    Island,
    Kind,
    Parts,
    Segment,
    functions,
    pack,
    unpack,
)
from aotpipe.runtime.runner import BaseRunner, Entry

S = TypeVar("S")

_MAX_SAMPLES: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime(Serializable):
    """One step of a chain, and how long it took.

    Attributes:
        kind: A segment of the `program`, a marked `function`, or an `op` without a lowering.
        share: Of the time of the whole call.
    """

    entry_point: str
    kind: Literal["program", "function", "op"]
    name: str
    where: SourceLine | None
    reason: str
    calls: int
    median_us: float
    share: float


class ChainRunner(BaseRunner[Entry]):
    """The entry points of a model in parts.

    `segments` holds the programs' segments, and is closed with this runner.
    """

    def __init__(
        self,
        segments: Any,
        parts: Parts,
        *,
        signatures: Mapping[str, Signature],
        initial_state: Mapping[str, Array],
        functions: Mapping[str, Callable[..., Any]],
    ) -> None:
        self.parts = parts
        self._segments = segments
        self._functions = functions
        self._times: dict[tuple[str, int], list[float]] = {}
        # The segments have the asserts.
        entries = {name: Entry(name, Checker(signature), ()) for name, signature in signatures.items()}
        super().__init__(entries=entries, initial_state=initial_state, device="")

    def _call(self, entry: Entry, arrays: list[Array], sizes: Mapping[str, int]) -> dict[str, Array]:
        chain = self.parts.chains[entry.name]
        leaves = entry.checker.signature.tensor_inputs
        values = {chain.inputs[leaf.name]: array for leaf, array in zip(leaves, arrays, strict=True)}
        values |= {before: self._state[state] for state, (before, _) in chain.state.items()}
        self._run(entry.name, chain, values, dict(sizes))
        outputs = {output: _own(values[value]) for output, value in chain.outputs.items()}
        self._state |= {state: values[after] for state, (_, after) in chain.state.items()}
        return outputs

    def _placed(self, name: str, array: Array) -> Array:  # noqa: ARG002  # all stay with the host
        return array

    def _run(self, name: str, chain: Chain, values: dict[str, Array], sizes: dict[str, int]) -> None:
        for index, step in enumerate(chain.steps):
            start = time.perf_counter()
            taken = [values[each] for each in step.inputs]
            if isinstance(step, Segment):
                named = dict(zip(step.inputs, taken, strict=True))
                values |= self._segments.infer(named, entry_point=step.entry_point)
            else:
                values |= _called(step, self._functions[step.name], taken, sizes)
            samples = self._times.setdefault((name, index), [])
            samples.append((time.perf_counter() - start) * 1e6)
            del samples[:-_MAX_SAMPLES]

    def times(self) -> tuple[StepTime, ...]:
        """How long each step took, over the last calls."""
        medians_us = {key: float(np.median(samples)) for key, samples in sorted(self._times.items())}
        found = []
        for (name, index), median_us in medians_us.items():
            step = self.parts.chains[name].steps[index]
            if isinstance(step, Island):
                own = attributes(step, "kind name where reason")
            else:
                own = {"kind": "program", "name": step.entry_point, "where": None, "reason": ""}
            total_us = sum(each for (other, _), each in medians_us.items() if other == name)
            share = median_us / total_us if total_us else 0.0
            calls = len(self._times[name, index])
            found.append(StepTime(entry_point=name, **own, calls=calls, median_us=median_us, share=share))
        return tuple(found)

    def forget_times(self) -> None:
        """Drop the times of the calls so far."""
        self._times.clear()

    def close(self) -> None:
        """Free the segments and the state."""
        super().close()
        self._segments.close()


def load_parts(
    load: Callable[..., S],
    parts: Parts | None,
    *,
    signatures: Mapping[str, Signature],
    initial_state: Mapping[str, Array],
    asserts: Mapping[str, tuple[str, ...]],
    allowed: Allowed = (),
) -> S | ChainRunner:
    """Load a program, and where it holds the segments of a model in parts, make the chain over them.

    `load` takes `signatures`, `initial_state` and `asserts`, and gives what calls a program. `asserts` are of
    a model without islands; `allowed` is that of `chain.functions`.

    Raises:
        IslandNotFound: A function is not allowed, or this host lacks it; nothing was loaded.
    """
    if parts is None:
        return load(signatures=signatures, initial_state=initial_state, asserts=asserts)
    found = functions(parts.islands, allowed)
    segments = load(signatures=parts.signatures, initial_state={}, asserts=parts.asserts)
    return ChainRunner(segments, parts, signatures=signatures, initial_state=initial_state, functions=found)


def _own(array: Array) -> Array:
    """An array that nobody else has: a value may be an input or a state."""
    return np.array(array, copy=True, order="C")


def _called(
    island: Island, function: Callable[..., Any], taken: Sequence[Array], sizes: dict[str, int]
) -> dict[str, Array]:
    def argument(kind: Kind, number: int) -> Any:
        if kind != "tensor":
            return taken[number].item()
        # An island that writes must not change a value that others read.
        own = _own(taken[number])
        if island.arrays == "numpy":
            return own
        from aotpipe.model.torch_arrays import from_numpy

        return from_numpy(own)

    args, kwargs = unpack(island.arguments, argument)
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        raise IslandFailed(
            f"{island.name} raised {type(error).__name__}",
            reason=str(error).partition("\n")[0],
            where=source.from_exception(error) or island.where,
        ) from error
    packed = pack(_plain(result), _kind)
    if packed.template != island.result:
        raise IslandFailed(
            f"{island.name} gave another structure than when the chain was built", where=island.where
        )
    given = {spec.name: _array(leaf) for spec, leaf in zip(island.outputs, packed.leaves, strict=True)}
    for spec in island.outputs:
        _check(island, spec, given[spec.name], sizes)
    return given


def _plain(result: Any) -> Any:
    """A result whose numpy numbers are Python's, and whose torch results of several are tuples."""
    if isinstance(result, np.generic):
        return result.item()
    if isinstance(result, tuple):
        return tuple(map(_plain, result))
    if type(result) is list:
        return list(map(_plain, result))
    return {key: _plain(each) for key, each in result.items()} if type(result) is dict else result


def _kind(leaf: Any) -> Kind | None:
    if isinstance(leaf, np.ndarray) or hasattr(leaf, "detach"):
        return "tensor"
    if type(leaf) is int:
        return "int"
    return "float" if type(leaf) is float else None


def _array(leaf: Any) -> Array:
    if isinstance(leaf, np.ndarray):
        return np.asarray(leaf, order="C")
    if hasattr(leaf, "detach"):
        from aotpipe.model.torch_arrays import view_numpy

        return view_numpy(leaf)
    return np.asarray(leaf, np.int64 if type(leaf) is int else np.float64)


def _check(island: Island, spec: TensorSpec, array: Array, sizes: dict[str, int]) -> None:
    """Check what an island gives; a size that no other value has is learned from it."""
    fits = name_of(array.dtype) == spec.dtype and array.ndim == len(spec.dims)
    for dim, size in zip(spec.dims, array.shape, strict=False):
        if isinstance(dim, str) and dim not in sizes and dim_symbols(dim) == {dim}:
            sizes[dim] = size
        elif dim_symbols(dim) <= sizes.keys():
            fits = fits and evaluate_dim(dim, sizes) == size
    if not fits:
        raise IslandFailed(
            f"{island.name} gave {name_of(array.dtype) or array.dtype}{list(array.shape)}, not {spec}",
            reason=f"with {', '.join(f'{name}={size}' for name, size in sizes.items())}" if sizes else "",
            hint="the sizes of its result must go with those of its arguments as in the calls of the build",
            where=island.where,
        )
