"""A model as a chain of programs and Python islands, in the order in which they run.

Values have names; each step takes some and gives some. State goes in as a value and comes out as the next
one, so that a call that fails changes nothing.

A template is an argument or a result of a Python function as JSON, with its tensors and numbers taken out:
`pack(value, kind_of)` gives it and the leaves, `unpack(template, leaf)` gives the value back. It holds lists,
tuples, dicts with text keys, texts, bools and None; tensors, integers and floats are leaves of a kind;
anything else is an object, which a template names by its number and JSON cannot hold.

A host calls no Python that it was not told to: a function is given, or allowed by its name, and then has a
mark in this process or in the module that is imported for it. Ops of torch are allowed where they only
compute. Raises `IslandNotFound` for what is missing. torch is imported only for an island that is an op.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from aotpipe.core.serialization import Serializable, renamed
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.errors import IslandNotFound, SourceLine

if TYPE_CHECKING:
    import torch

Template = dict[str, Any]
Allowed = Mapping[str, Callable[..., Any]] | Collection[str]
"""The islands that may run: their names, or by name the functions that run in their place."""
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


# Ops that check their arguments; what only other ops call (`aten._unsafe_index`) may read foreign memory.
_CHECKED_OP: Final = re.compile(r"(aten|prims)\.(?!_)\w+\.\w+|aten\._(linalg|fft)_\w+\.\w+")
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


def require_chains(parts: Parts, signatures: Mapping[str, Signature]) -> None:
    """Check that each entry point has a chain whose steps take what is there and give what is wanted.

    Raises:
        ValueError: One does not.
    """
    if parts.chains.keys() != signatures.keys():
        raise ValueError(f"the chains are of {list(parts.chains)}, not of {list(signatures)}")
    for name, chain in parts.chains.items():
        signature = signatures[name]
        known = {chain.inputs.get(leaf.name) for leaf in signature.tensor_inputs}
        known |= {before for before, _ in chain.state.values()}
        for step in chain.steps:
            if isinstance(step, Segment):
                own = parts.signatures.get(step.entry_point)
                named = own and ({s.name for s in own.tensor_inputs}, {s.name for s in own.tensor_outputs})
                if named != (set(step.inputs), set(step.outputs)):
                    raise ValueError(f"no program has the segment {step.entry_point!r} of {name!r}")
            if lacking := set(step.inputs) - known:
                raise ValueError(f"a step of {name!r} takes {min(lacking)!r}, which no step before it gives")
            if isinstance(step, Island):
                _require_arguments(step)
            known |= {each if isinstance(each, str) else each.name for each in step.outputs}
        wanted = {*chain.outputs.values(), *(after for _, after in chain.state.values())}
        named = ({s.name for s in signature.tensor_outputs}, {s.name for s in signature.state})
        if named != (set(chain.outputs), set(chain.state)):
            raise ValueError(f"the chain of {name!r} gives other outputs or states than its signature has")
        if None in known or not wanted <= known:
            raise ValueError(f"the chain of {name!r} lacks an input, an output or a state")


def _require_arguments(island: Island) -> None:
    """Raise ValueError, or TypeError, where a template is not of arguments of the island's inputs."""

    def leaf(kind: Kind, number: Any) -> None:
        if type(number) is not int or not 0 <= number < len(island.inputs):
            raise ValueError(f"{island.name} has no {kind} number {number!r}")

    args, kwargs = unpack(island.arguments, leaf)
    if not isinstance(args, list | tuple) or not isinstance(kwargs, dict):
        raise ValueError(f"{island.name} has no arguments")  # noqa: TRY004  # as all that is wrong in a manifest


def mark_of(function: object) -> Mark | None:
    """The mark of a function; None where it has none."""
    return getattr(function, MARK, None)


def functions(islands: Iterable[Island], allowed: Allowed = ()) -> dict[str, Callable[..., Any]]:
    """What each island runs, by its name.

    A name that is allowed is `package.module:function`, or with a dot in place of the colon, or an op's
    (`mylib.sort.default`). No module is imported from the working folder, which may be a bundle.

    Raises:
        IslandNotFound: A function that is not allowed, or that this host lacks.
    """
    every = list({island.name: island for island in islands}.values())
    names = {name.replace(":", ".") for name in ([allowed] if isinstance(allowed, str) else allowed)}
    unnamed = [island for island in every if island.name.replace(":", ".") not in names]
    if refused := [island for island in unnamed if island.kind != "op" or not _only_computes(island)]:
        listed = [island.name for island in refused]
        raise IslandNotFound(
            f"the bundle runs Python that is not allowed: {', '.join(listed)}",
            reason="an island can do whatever you can",
            hint=f"if you trust it, pass islands={listed}, or --island {' --island '.join(listed)}",
            where=refused[0].where,
        )
    given = allowed if isinstance(allowed, Mapping) else {}
    return {island.name: _function(island, given) for island in every}


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
        _require_elsewhere(island, module.partition(".")[0])
        root: object = importlib.import_module(module)
    except (ImportError, ValueError) as error:
        raise _missing(island, f"{module} cannot be imported: {error}") from error
    mark = mark_of(_attribute(island, root, path))
    if mark is None:
        raise _missing(island, f"{path} of {module} is not marked by aotpipe.eager_island")
    return mark.function


def _require_elsewhere(island: Island, package: str) -> None:
    """Check where a package would come from, before any of it runs; one that is imported already has run."""
    spec = None if package in sys.modules else importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or [spec.origin or ""]) if spec else ():
        if Path(place).resolve().parent == Path.cwd():
            raise _missing(island, f"{package} lies in the working folder, from which no island is imported")


def _op(island: Island) -> torch._ops.OpOverload:
    import torch

    found = _attribute(island, torch.ops, island.name)
    if not isinstance(found, torch._ops.OpOverload):  # noqa: SLF001  # torch has no public name for an op's type
        raise _missing(island, f"{island.name} is no op of torch")
    return found


def _only_computes(island: Island) -> bool:
    """Whether an op takes tensors and gives tensors, and no more: `aten.save` writes files."""
    if not _CHECKED_OP.fullmatch(island.name):
        return False
    schema = _op(island)._schema  # noqa: SLF001  # where torch has it
    tensors, numbers = ("Tensor", "List[Tensor]"), ("int", "float", "bool", "number")
    given = [str(each.type) for each in schema.returns]
    return (
        not schema.is_mutable
        and any(str(each.type) in tensors for each in schema.arguments)
        and bool(given)
        and all(each in (*tensors, *numbers) for each in given)
    )


def _attribute(island: Island, root: object, path: str) -> object:
    try:
        return reduce(getattr, path.split("."), root)
    except AttributeError as error:
        raise _missing(island, str(error)) from error


def _missing(island: Island, reason: str) -> IslandNotFound:
    return IslandNotFound(
        f"the bundle needs the Python function {island.name}",
        reason=reason,
        hint=f"install its module, import it yourself, or pass islands={{{island.name!r}: function}}",
        where=island.where,
    )
