"""What several example calls have in common, and what some of them lack, as one `structure.Structure`.

Raises `SpecInvalid` where the examples do not agree, and for a name that is none of theirs.
"""

from __future__ import annotations

import difflib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.canonicalize.inputs.pytree_names import unique
from aotpipe.canonicalize.inputs.structure import (
    DTYPES,
    MISSING,
    Attribute,
    Call,
    Group,
    Kind,
    Leaf,
    Missing,
    Node,
    Part,
    Path,
    Structure,
)
from aotpipe.errors import SpecInvalid
from aotpipe.model import source
from aotpipe.model.source import signature_of

SELF: Final = "self."
"""How the name of an attribute of the model begins."""
_EMPTY: Final[Mapping[Any, Any]] = {
    inspect.Parameter.VAR_KEYWORD: {},
    inspect.Parameter.VAR_POSITIONAL: (),
}


def unite(
    call: Callable[..., Any],
    model: nn.Module,
    examples: Sequence[Call],
    optional: Sequence[str] = (),
    tensorize: Sequence[str] = (),
) -> Structure:
    """The one structure of several example calls.

    Args:
        call: The model's method.
        model: Holds the attributes that are to vary.
        examples: Args and kwargs; the first one is the example.
        optional: Names of further parts that a call may lack.
        tensorize: Names of Python numbers that are to vary.
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
        self._leaves: list[Leaf] = []
        self._parts: list[str] = []

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
            if all(_is_plainly(value, parameter.default) for value in given) and name not in self._tensorize:
                values = given  # the default, said or not
            # The keys of `**kwargs` are arguments themselves.
            path = () if parameter.kind is parameter.VAR_KEYWORD else (name,)
            root[name] = self._node(path, values, absent=_default(parameter))
        parts = self._with_flags()
        attributes = [self._attribute(name) for name in self._tensorize if name.startswith(SELF)]
        self._require_used()
        group = Group(tuple(root), tuple(map(parts.settled, root.values())), dict)
        return Structure(
            call=self._call,
            root=group,
            leaves=tuple(self._leaves),
            parts=tuple(_parts_of(group)),
            attributes=tuple(attributes),
        )

    def _with_flags(self) -> _Flags:
        taken = list(self._names)
        flags = unique([*taken, *(f"{name}.present" for name in self._parts)])[len(taken) :]
        return _Flags(dict(zip(self._parts, flags, strict=True)))

    def _fresh(self, path: Path) -> str:
        """A name that nothing has yet."""
        self._names = list(unique([*self._names, ".".join(path)]))
        return self._names[-1]

    def _node(self, path: Path, values: Sequence[Any], absent: Any = MISSING) -> Node:
        """What is at a path, of the value that each example has there."""
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
        self._parts.append(name)
        return Part(name, "", self._present(path, given), lacking[0])

    def _present(self, path: Path, values: Sequence[Any]) -> Node:
        """What is at a path where it is there."""
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
        leaf = Leaf(self._fresh(path), path, kind, value)
        self._leaves.append(leaf)
        return leaf

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
        assert not isinstance(value, Missing)
        return Attribute(self._fresh((name,)), owner, key, value)

    def _require_used(self) -> None:
        known = dict.fromkeys([*(leaf.name for leaf in self._leaves), *self._parts])
        for what, names in (("optional", self._optional), ("tensorize", self._tensorize)):
            for name, used in names.items():
                if not used:
                    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
                    raise self._invalid(
                        f"{what} names {name!r}, which no example has",
                        hint=f"did you mean {close[0]!r}?" if close else f"they have: {', '.join(known)}",
                    )

    def _invalid(self, message: str, hint: str) -> SpecInvalid:
        return SpecInvalid(message, hint=hint, where=source.of_definition(self._call))


@dataclass(frozen=True, slots=True)
class _Flags:
    """The flag of each part by its name."""

    names: Mapping[str, str]

    def settled(self, node: Node) -> Node:
        """The same node, with the flags of all parts."""
        match node:
            case Part(name=name, child=child, absent=absent):
                return Part(name, self.names[name], self.settled(child), absent)
            case Group(keys=keys, children=children, kind=kind, make=make):
                return Group(keys, tuple(map(self.settled, children)), kind, make)
        return node


def _parts_of(node: Node) -> Iterator[Part]:
    match node:
        case Part(child=child):
            yield node
            yield from _parts_of(child)
        case Group(children=children):
            for each in children:
                yield from _parts_of(each)


def _is_plainly(value: object, default: object) -> bool:
    return isinstance(value, pytrees.PLAIN) and type(value) is type(default) and value == default


def _default(parameter: inspect.Parameter) -> Any:
    """What a parameter is where a call leaves it out."""
    return None if parameter.default is parameter.empty else parameter.default
