"""A model as a chain of programs and Python islands, in the order in which they run.

Values have names; each step takes some and gives some. State goes in as a value and comes out as the next
one, so that a call that fails changes nothing.

A template is an argument or a result of a Python function as JSON, with its tensors and numbers taken out:
`pack(value, kind_of)` gives it and the leaves, `unpack(template, leaf)` gives the value back. It holds lists,
tuples, dicts with text keys, texts, bools and None; tensors, integers and floats are leaves of a kind;
anything else is an object, which a template names by its number and JSON cannot hold.

The function of an island is given, marked in this process, or imported; a host calls no function of a bundle
that has no mark. Raises `IslandNotFound` for the first that is missing. torch is imported only for an island
that is an op of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar, Final, Literal

from aotpipe.core.serialization import Serializable, renamed
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.errors import IslandNotFound, SourceLine

Template = dict[str, Any]
Kind = Literal["tensor", "int", "float"]
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
        arguments: How the inputs become the arguments: a template of `[args, kwargs]`.
        result: How the result becomes the outputs.
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
    """A model in parts: what its programs hold, and how the parts make up its entry points."""

    signatures: Mapping[str, Signature]
    asserts: Mapping[str, tuple[str, ...]]
    chains: Mapping[str, Chain]

    @property
    def islands(self) -> tuple[Island, ...]:
        """All calls of Python, in order."""
        return tuple(island for chain in self.chains.values() for island in chain.islands)


MARK: Final = "__aotpipe_island__"
"""The attribute of a marked function that holds its `Mark`."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked function."""

    function: Callable[..., Any]
    name: str
    arrays: Arrays
    reason: str


MARKS: Final[dict[str, Mark]] = {}
"""The marked functions of this process, by name."""


@dataclass(slots=True)
class Packed:
    """A value taken apart: `leaves` with the kind of each, and `objects` that are neither."""

    template: Template
    leaves: list[Any] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)


def pack(value: Any, kind_of: Callable[[Any], Kind | None]) -> Packed:
    """Take a value apart.

    `kind_of` says of what kind a leaf is; None where it is none.
    """
    packed = Packed({})

    def walk(node: Any) -> Template:
        kind = kind_of(node)
        if kind is not None:
            packed.leaves.append(node)
            packed.kinds.append(kind)
            return {kind: len(packed.leaves) - 1}
        if node is None or type(node) in (bool, str, int, float):
            return {"value": node}
        if type(node) in (list, tuple):
            return {type(node).__name__: [walk(each) for each in node]}
        if type(node) is dict and all(type(key) is str for key in node):
            return {"dict": {key: walk(each) for key, each in node.items()}}
        packed.objects.append(node)
        return {"object": len(packed.objects) - 1}

    packed.template = walk(value)
    return packed


def unpack(template: Template, leaf: Callable[[Kind, int], Any], objects: Sequence[Any] = ()) -> Any:
    """Put a value together again.

    `leaf` gives each leaf by its kind and number; `objects` are what the template names by number.

    Raises:
        ValueError: It is no template.
    """
    [(kind, content)] = template.items()
    match kind:
        case "tensor" | "int" | "float":
            return leaf(kind, content)
        case "object":
            return objects[content]
        case "value":
            return content
        case "list":
            return [unpack(each, leaf, objects) for each in content]
        case "tuple":
            return tuple(unpack(each, leaf, objects) for each in content)
        case "dict":
            return {key: unpack(each, leaf, objects) for key, each in content.items()}
        case _:
            raise ValueError(f"not a part of a template: {kind!r}")


def mark_of(function: object) -> Mark | None:
    """The mark of a function; None where it has none."""
    return getattr(function, MARK, None)


def functions(
    islands: Iterable[Island], given: Mapping[str, Callable[..., Any]] | None = None
) -> dict[str, Callable[..., Any]]:
    """What each island runs, by its name.

    Those that are `given` by name come first.

    Raises:
        IslandNotFound: A function that this host lacks.
    """
    return {island.name: _function(island, given or {}) for island in islands}


def _function(island: Island, given: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    if island.name in given:
        function = given[island.name]
        mark = mark_of(function)
        return function if mark is None else mark.function
    if island.kind == "op":
        return _op(island)
    if island.name in MARKS:
        return MARKS[island.name].function
    module, _, path = island.name.partition(":")
    try:
        root: object = importlib.import_module(module)
    except ImportError as error:
        raise _missing(island, f"{module} cannot be imported: {error}") from error
    mark = mark_of(_attribute(island, root, path))
    if mark is None:
        # A bundle names what is called: it must not be able to name any function of a host.
        raise _missing(island, f"{path} of {module} is not marked by aotpipe.eager_island")
    return mark.function


def _op(island: Island) -> Callable[..., Any]:
    import torch

    found = _attribute(island, torch.ops, island.name)
    if not isinstance(found, torch._ops.OpOverload):  # noqa: SLF001  # torch has no public name for an op's type
        raise _missing(island, f"{island.name} is no op of torch")
    return found


def _attribute(island: Island, root: object, path: str) -> object:
    try:
        return reduce(getattr, path.split("."), root)
    except AttributeError as error:
        raise _missing(island, str(error)) from error


def _missing(island: Island, reason: str) -> IslandNotFound:
    return IslandNotFound(
        f"the bundle needs the Python function {island.name}",
        reason=reason,
        hint=f"put its module on the path, or pass islands={{{island.name!r}: function}}",
        where=island.where,
    )
