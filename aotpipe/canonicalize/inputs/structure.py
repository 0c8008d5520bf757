"""The one form of all calls of an entry point: a flat dict of tensors in place of arguments.

Every field is always there, with a bool without dims for each part that a call may lack. `arguments` makes
the arguments of it again, as the model takes them. A Python number that is to vary is a tensor in it too.
`uniting` makes one of example calls.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch
from torch import nn

from aotpipe.core.signature import Presence
from aotpipe.model.source import signature_of

Kind = Literal["tensor", "number", "constant"]
Path = tuple[str, ...]
Call = tuple[tuple[Any, ...], Mapping[str, Any]]
DTYPES: Final[Mapping[type, Callable[[], torch.dtype]]] = {
    bool: lambda: torch.bool,
    int: lambda: torch.int64,
    float: torch.get_default_dtype,
}
"""What a number of Python is as a tensor."""


class Missing:
    """What stands for a key that is not there."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "nothing"


MISSING: Final = Missing()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor, a number that varies, or a constant; `value` is that of the first example that has it."""

    name: str
    path: Path
    kind: Kind
    value: Any


@dataclass(frozen=True, slots=True)
class Part:
    """What a call may lack; `absent` is what eager has there: `MISSING`, None, or a parameter's default."""

    name: str
    flag: str
    child: Node
    absent: Any


@dataclass(frozen=True, slots=True)
class Group:
    """A container; without `make` it is a dict of type `kind`, whose keys may be missing."""

    keys: tuple[Any, ...]
    children: tuple[Node, ...]
    kind: type
    make: Callable[[Sequence[Any]], Any] | None = None


Node = Leaf | Part | Group


@dataclass(frozen=True, slots=True)
class Attribute:
    """A Python number that a module of the model holds, and that is an input here."""

    name: str
    owner: nn.Module = field(repr=False)
    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Structure:
    """The one form of all calls.

    Attributes:
        call: What takes the arguments.
        root: A dict of them, by parameter.
        leaves: In order.
        parts: In order, outer ones first.
        attributes: The numbers that are no arguments.
    """

    call: Callable[..., Any] = field(repr=False)
    root: Group
    leaves: tuple[Leaf, ...]
    parts: tuple[Part, ...]
    attributes: tuple[Attribute, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether every call has everything, and no number varies."""
        return not self.parts and not self.attributes and all(leaf.kind != "number" for leaf in self.leaves)

    @property
    def constants(self) -> dict[str, Any]:
        """What is fixed, by name."""
        return {leaf.name: leaf.value for leaf in self.leaves if leaf.kind == "constant"}

    def example(self) -> dict[str, torch.Tensor]:
        """All inputs by name, with everything there: tensors, numbers, flags."""
        found: dict[str, torch.Tensor] = {}
        for leaf in self.leaves:
            if leaf.kind == "tensor":
                found[leaf.name] = leaf.value
            elif leaf.kind == "number":
                found[leaf.name] = number_tensor(leaf.value)
        for attribute in self.attributes:
            found[attribute.name] = number_tensor(attribute.value)
        return found | {part.flag: torch.tensor(True) for part in self.parts}

    def presences(self) -> tuple[Presence, ...]:
        """What a call may lack."""
        return tuple(
            Presence(
                part.name,
                part.flag,
                tuple(_members(part.child)),
                "missing" if part.absent is MISSING else "none",
            )
            for part in self.parts
        )

    def arguments(
        self,
        inputs: Mapping[str, torch.Tensor],
        *,
        number: Callable[[torch.Tensor], Any],
        part: Callable[[Part, Callable[[], Any]], Any],
        mapping: Callable[[type, dict[Any, Any]], Any],
        constants: Mapping[str, Any] | None = None,
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The args and kwargs of a call.

        Args:
            inputs: As `example` has them.
            number: Makes a Python number of its tensor.
            part: Decides on a part: what it is where it is there comes of the function.
            mapping: Makes a dict of a type.
            constants: Other values of constants, by name.
        """

        def built(node: Node) -> Any:
            match node:
                case Leaf(kind="tensor", name=name):
                    return inputs[name]
                case Leaf(kind="number", name=name):
                    return number(inputs[name])
                case Leaf(name=name, value=value):
                    return constants.get(name, value) if constants else value
                case Part(child=child):
                    return part(node, lambda: built(child))
            children = [built(child) for child in node.children]
            if node.make is not None:
                return node.make(children)
            items = dict(zip(node.keys, children, strict=True))
            return mapping(node.kind, {key: item for key, item in items.items() if item is not MISSING})

        given = dict(zip(self.root.keys, map(built, self.root.children), strict=True))
        bound = inspect.BoundArguments(
            signature_of(self.call), OrderedDict((key, v) for key, v in given.items() if v is not MISSING)
        )
        return bound.args, bound.kwargs


def number_tensor(value: bool | float) -> torch.Tensor:
    """A Python number as the tensor that stands for it."""
    return torch.tensor(value, dtype=DTYPES[type(value)]())


def _members(node: Node) -> Iterator[str]:
    match node:
        case Leaf(name=name):
            yield name
        case Part(flag=flag, child=child):
            yield flag
            yield from _members(child)
        case Group(children=children):
            for each in children:
                yield from _members(each)
