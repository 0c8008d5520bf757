"""A model as a chain of programs and Python islands, in the order in which they run.

Values have names; each step takes some and gives some. State goes in as a value and comes out as the next
one, so that a call that fails changes nothing. `Chain.from_json(chain.to_json()) == chain`. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.errors import SourceLine
from aotpipe.runtime.islands.templates import Template

IslandKind = Literal["function", "op"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """An entry point of the program: the values that it takes and gives, which are its names for them too."""

    entry_point: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """A call of Python.

    Attributes:
        name: `module:function`, or the op's own.
        kind: A `function` that is marked, or an `op` that no target has a lowering for.
        where: The model's line.
        reason: Why it is no part of a program.
        arrays: What the function takes and gives: tensors of `torch` or arrays of `numpy`.
        arguments: How the inputs become the arguments: a template of `[args, kwargs]`.
        result: How the result becomes the outputs.
        inputs: The values that it takes.
        outputs: The values that it gives; they are checked against this.
    """

    name: str
    kind: IslandKind
    where: SourceLine | None
    reason: str
    arrays: Literal["torch", "numpy"]
    arguments: Template
    result: Template
    inputs: tuple[str, ...]
    outputs: tuple[TensorSpec, ...]


Step = Segment | Island


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One entry point of a model.

    Attributes:
        inputs: Input name -> value.
        outputs: Output name -> value.
        state: State name -> (value, next value).
    """

    steps: tuple[Step, ...]
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def islands(self) -> tuple[Island, ...]:
        """The steps that are Python."""
        return tuple(step for step in self.steps if isinstance(step, Island))

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        return {
            "steps": [_step(step) for step in self.steps],
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
            "state": {name: list(values) for name, values in self.state.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Chain:
        """Read what `to_json` wrote; raises ValueError or KeyError on anything else."""
        return cls(
            steps=tuple(map(_read_step, data["steps"])),
            inputs=dict(data["inputs"]),
            outputs=dict(data["outputs"]),
            state={name: (before, after) for name, (before, after) in data["state"].items()},
        )


def _step(step: Step) -> dict[str, Any]:
    if isinstance(step, Segment):
        return {
            "entry_point": step.entry_point,
            "inputs": list(step.inputs),
            "outputs": list(step.outputs),
        }
    return {
        "island": step.name,
        "kind": step.kind,
        "where": [step.where.path, step.where.line] if step.where else None,
        "reason": step.reason,
        "arrays": step.arrays,
        "arguments": step.arguments,
        "result": step.result,
        "inputs": list(step.inputs),
        "outputs": list(map(str, step.outputs)),
    }


def _read_step(data: Mapping[str, Any]) -> Step:
    if "entry_point" in data:
        return Segment(
            entry_point=data["entry_point"], inputs=tuple(data["inputs"]), outputs=tuple(data["outputs"])
        )
    where = data["where"]
    return Island(
        name=data["island"],
        kind=data["kind"],
        where=SourceLine(where[0], where[1]) if where else None,
        reason=data["reason"],
        arrays=data["arrays"],
        arguments=data["arguments"],
        result=data["result"],
        inputs=tuple(data["inputs"]),
        outputs=tuple(map(TensorSpec.parse, data["outputs"])),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A model in parts: what its programs hold, and how the parts make up its entry points.

    Attributes:
        signatures: By segment.
        asserts: By segment: a message per assert result.
        chains: By entry point of the model.
    """

    signatures: Mapping[str, Signature]
    asserts: Mapping[str, tuple[str, ...]]
    chains: Mapping[str, Chain]

    @property
    def islands(self) -> tuple[Island, ...]:
        """All calls of Python, in order."""
        return tuple(island for chain in self.chains.values() for island in chain.islands)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        return {
            "signatures": {name: signature.to_json() for name, signature in self.signatures.items()},
            "asserts": {name: list(messages) for name, messages in self.asserts.items()},
            "chains": {name: chain.to_json() for name, chain in self.chains.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Parts:
        """Read what `to_json` wrote; raises ValueError, KeyError or TypeError on anything else."""
        return cls(
            signatures={name: Signature.from_json(each) for name, each in data["signatures"].items()},
            asserts={name: tuple(messages) for name, messages in data["asserts"].items()},
            chains={name: Chain.from_json(each) for name, each in data["chains"].items()},
        )
