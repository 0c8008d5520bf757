"""The one form of all calls of an entry point: a flat dict of tensors in place of arguments.

Every field is always there, with a bool without dims for each part that a call may lack. `arguments` makes
the arguments of it again, as the model takes them. A Python number that is to vary is a tensor in it too.
`unite` finds what several example calls have in common, and what some of them lack. It raises `SpecInvalid`
where they do not agree, and for a name that is none of theirs.
"""

from __future__ import annotations

import difflib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal

import torch
from torch import nn

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.signature import Presence
from aotpipe.errors import SpecInvalid
from aotpipe.model import source
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


class MISSING:
    """What stands for a key that is not there."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor, a number that varies, or a constant; `value` is that of the first example that has it."""

    name: str
    path: Path
    kind: Kind
    value: Any


@dataclass(slots=True)
class Part:
    """What a call may lack; `absent` is what eager has there: `MISSING`, None, or a parameter's default.

    `unite` names the flags last, when all other names are taken.
    """

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


def nodes(node: Node) -> Iterator[Node]:
    """A node and all below it, each before those below it."""
    yield node
    if not isinstance(node, Leaf):
        for child in (node.child,) if isinstance(node, Part) else node.children:
            yield from nodes(child)


@dataclass(frozen=True, slots=True)
class Attribute:
    """A Python number that a module of the model holds, and that is an input here."""

    name: str
    owner: nn.Module = field(repr=False)
    key: str
    value: Any


@dataclass(frozen=True)
class Structure:
    """The one form of all calls."""

    call: Callable[..., Any] = field(repr=False)
    root: Group
    attributes: tuple[Attribute, ...] = ()

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """All of them, in order."""
        return tuple(each for each in nodes(self.root) if isinstance(each, Leaf))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """What a call may lack, in order, outer ones first."""
        return tuple(each for each in nodes(self.root) if isinstance(each, Part))

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
        found: dict[str, torch.Tensor] = {
            leaf.name: leaf.value if leaf.kind == "tensor" else number_tensor(leaf.value)
            for leaf in self.leaves
            if leaf.kind != "constant"
        }
        found |= {attribute.name: number_tensor(attribute.value) for attribute in self.attributes}
        return found | {part.flag: torch.tensor(True) for part in self.parts}

    def presences(self) -> tuple[Presence, ...]:
        """What a call may lack."""
        return tuple(
            Presence(
                part.name,
                part.flag,
                tuple(
                    each.name if isinstance(each, Leaf) else each.flag
                    for each in nodes(part.child)
                    if not isinstance(each, Group)
                ),
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

        `inputs` are as `example` has them. `number` makes a Python number of its tensor, `mapping` a dict of
        a type, and `part` decides on a part: what it is where it is there comes of the function. `constants`
        are other values of constants, by name.
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


SELF: Final = "self."
"""How the name of an attribute of the model begins."""
_EMPTY: Final[Mapping[Any, Any]] = {inspect.Parameter.VAR_KEYWORD: {}, inspect.Parameter.VAR_POSITIONAL: ()}


def unite(
    call: Callable[..., Any],
    model: nn.Module,
    examples: Sequence[Call],
    optional: Sequence[str] = (),
    tensorize: Sequence[str] = (),
) -> Structure:
    """The one structure of several example calls.

    The first example is the one that is traced. `model` holds the attributes that are to vary.
    """
    return _Uniter(call, model, optional, tensorize).united(examples)


class _Uniter:
    def __init__(
        self, call: Callable[..., Any], model: nn.Module, optional: Sequence[str], tensorize: Sequence[str]
    ) -> None:
        self._call = call
        self._model = model
        self._optional = dict.fromkeys(optional, False)
        self._tensorize = dict.fromkeys(tensorize, False)
        self._names: list[str] = []

    def united(self, examples: Sequence[Call]) -> Structure:
        signature = signature_of(self._call)
        bound = [signature.bind(*args, **kwargs).arguments for args, kwargs in examples]
        root: dict[str, Node] = {}
        for name, parameter in signature.parameters.items():
            if not any(name in arguments for arguments in bound):
                continue
            empty = _EMPTY.get(parameter.kind, MISSING)
            values = [arguments.get(name, empty) for arguments in bound]
            given = [value for value in values if value is not MISSING]
            plain = (type(parameter.default), parameter.default)
            are_plain = all(isinstance(each, pytrees.PLAIN) and (type(each), each) == plain for each in given)
            if are_plain and name not in self._tensorize:
                values = given  # the default, said or not
            # The keys of `**kwargs` are arguments themselves.
            path = () if parameter.kind is parameter.VAR_KEYWORD else (name,)
            default = None if parameter.default is parameter.empty else parameter.default
            root[name] = self._node(path, values, absent=default)
        found = Structure(self._call, Group(tuple(root), tuple(root.values()), dict))
        flags = pytrees.unique([*self._names, *(f"{part.name}.present" for part in found.parts)])
        for part, flag in zip(found.parts, flags[len(self._names) :], strict=True):
            part.flag = flag
        attributes = tuple(self._attribute(name) for name in self._tensorize if name.startswith(SELF))
        self._require_used(found)
        return replace(found, attributes=attributes)

    def _fresh(self, path: Path) -> str:
        self._names = list(pytrees.unique([*self._names, ".".join(path)]))
        return self._names[-1]

    def _node(self, path: Path, values: Sequence[Any], absent: Any = MISSING) -> Node:
        name = ".".join(path)
        given = [value for value in values if value is not MISSING and value is not None]
        lacking = [
            absent if value is MISSING else value for value in values if value is MISSING or value is None
        ]
        if not given and len(others := [value for value in lacking if value is not None]) not in (
            0,
            len(lacking),
        ):
            given, lacking = [None], others
        asked = name in self._optional
        if not given:
            return self._leaf(path, "constant", None)
        if asked:
            self._optional[name] = True
        if not lacking and not asked:
            return self._present(path, given)
        if any(value is not lacking[0] for value in lacking):
            raise self._invalid(
                f"{name!r} is left out in one example and None in another",
                hint="let the examples leave it out in one way",
            )
        if not lacking:
            # A key of a dict can be missing; an argument, a field and an item can be None.
            lacking = [absent]
        return Part(name, "", self._present(path, given), lacking[0])

    def _present(self, path: Path, values: Sequence[Any]) -> Node:
        first = values[0]
        if isinstance(first, torch.Tensor):
            return self._tensor(path, values)
        if type(first) in (dict, OrderedDict):
            self._require_alike(path, values, lambda value: type(value).__name__)
            keys = tuple(dict.fromkeys(key for value in values for key in value))
            children = [self._node((*path, str(key)), [v.get(key, MISSING) for v in values]) for key in keys]
            return Group(keys, tuple(children), type(first))
        found = [pytrees.parts(value) for value in values]
        if found[0] is None:
            return self._plain(path, values)
        self._require_alike(path, values, lambda value: type(value).__name__)
        parts = [each for each in found if each is not None]
        self._require_alike(
            path, parts, lambda each: f"a {type(first).__name__} of {', '.join(map(str, each.keys))}"
        )
        columns = zip(*(each.children for each in parts), strict=True)
        return Group(
            parts[0].keys,
            tuple(
                self._node((*path, str(key)), column, absent=None)
                for key, column in zip(parts[0].keys, columns, strict=True)
            ),
            type(first),
            parts[0].make,
        )

    def _tensor(self, path: Path, values: Sequence[Any]) -> Leaf:
        def kind(value: Any) -> str:
            if not isinstance(value, torch.Tensor):
                return f"a {type(value).__name__}"
            return f"a tensor of {str(value.dtype).removeprefix('torch.')} with {value.dim()} dims"

        self._require_alike(path, values, kind)
        return self._leaf(path, "tensor", values[0])

    def _plain(self, path: Path, values: Sequence[Any]) -> Leaf:
        name = ".".join(path)
        if name in self._tensorize:
            if type(values[0]) not in DTYPES:
                raise self._invalid(
                    f"tensorize names {name!r}, which is {values[0]!r}",
                    hint="only a bool, an int or a float varies",
                )
            self._tensorize[name] = True
            self._require_alike(path, values, lambda value: f"a {type(value).__name__}")
            return self._leaf(path, "number", values[0])
        hint = (
            f"tensorize=({name!r},) lets it vary"
            if type(values[0]) in DTYPES
            else "let it be the same in all"
        )
        self._require_alike(path, values, repr, hint)
        return self._leaf(path, "constant", values[0])

    def _leaf(self, path: Path, kind: Kind, value: Any) -> Leaf:
        return Leaf(self._fresh(path), path, kind, value)

    def _require_alike(
        self,
        path: Path,
        values: Sequence[Any],
        kind: Callable[[Any], str],
        hint: str = "let the examples agree",
    ) -> None:
        kinds = list(dict.fromkeys(map(kind, values)))
        if len(kinds) > 1:
            name = ".".join(path)
            raise self._invalid(f"{name!r} is {kinds[0]} in one example and {kinds[1]} in another", hint=hint)

    def _attribute(self, name: str) -> Attribute:
        owner: Any = self._model
        *modules, key = name.removeprefix(SELF).split(".")
        for each in modules:
            owner = getattr(owner, each, None)
        value = vars(owner).get(key, MISSING) if isinstance(owner, nn.Module) else MISSING
        if type(value) not in DTYPES:
            raise self._invalid(
                f"tensorize names {name!r}, which is no number that the model holds",
                hint="name an attribute that is a bool, an int or a float: self.scale, self.layers.0.scale",
            )
        self._tensorize[name] = True
        return Attribute(self._fresh((name,)), owner, key, value)

    def _require_used(self, found: Structure) -> None:
        names = [*(leaf.name for leaf in found.leaves), *(part.name for part in found.parts)]
        known = list(dict.fromkeys(names))
        for what, asked in (("optional", self._optional), ("tensorize", self._tensorize)):
            for name in (name for name, used in asked.items() if not used):
                close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                raise self._invalid(
                    f"{what} names {name!r}, which no example has",
                    hint=f"did you mean {close[0]!r}?" if close else f"they have: {', '.join(known)}",
                )

    def _invalid(self, message: str, hint: str) -> SpecInvalid:
        return SpecInvalid(message, hint=hint, where=source.of_definition(self._call))
