"""A model as a chain of programs and Python islands, in the order in which they run.

Values have names; each step takes some and gives some. State goes in as a value and comes out as the next
one, so that a call that fails changes nothing. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from aotpipe.core.serialization import Serializable, renamed
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.errors import SourceLine
from aotpipe.runtime.islands.templates import Template

Arrays = Literal["torch", "numpy"]
"""What a function takes and gives: torch's tensors or numpy's arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(Serializable):
    """An entry point of the program: the values that it takes and gives, which are its names for them too."""

    entry_point: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Island(Serializable):
    """A call of Python.

    Attributes:
        name: `module:function`, or the op's own.
        kind: A `function` that is marked, or an `op` that no target has a lowering for.
        where: The model's line.
        reason: Why it is no part of a program.
        arguments: How the inputs become the arguments: a template of `[args, kwargs]`.
        result: How the result becomes the outputs.
        inputs: The values that it takes.
        outputs: The values that it gives; they are checked against this.
    """

    __pydantic_config__: ClassVar = renamed(name="island")

    name: str
    kind: Literal["function", "op"]
    where: SourceLine | None
    reason: str
    arrays: Arrays
    arguments: Template
    result: Template
    inputs: tuple[str, ...]
    outputs: tuple[TensorSpec, ...]


Step = Segment | Island


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain(Serializable):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts(Serializable):
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
