"""What a model holds in Python: attributes, and the lists, dicts and plain objects below them.

`Watch(module)` remembers it all at one moment: `changed()` tells under which attributes something is another
since, `restore()` puts everything back. `parts_of(module)` gives the modules and plain objects that a model
reaches, registered or not. Tensors are compared by identity and by torch's count of their writes.
"""

from __future__ import annotations

import gc
import itertools
import operator
import pickle
import sys
import types
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, UserString, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from random import Random, SystemRandom
from types import SimpleNamespace
from typing import Any, Final, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from aotpipe.model import source

OWN: Final = ("_parameters", "_buffers", "_modules")
_MISSING: Final = object()
_DEEPEST: Final = 20
_CLOSED: Final = (torch.Tensor, np.ndarray, Random, nn.Module, type, types.ModuleType, Enum, BaseException)
# Classes of Python's library that keep all their data in attributes.
_OPEN: Final = frozenset({SimpleNamespace, UserDict, UserList, UserString, ChainMap})
_CONTAINERS: Final = frozenset({list, dict, set, deque, OrderedDict, defaultdict, Counter})
# What holds the contents of a container, which its own class may show otherwise.
_BASES: Final = (OrderedDict, dict, list, set, deque)
_LIBRARIES: Final = sys.stdlib_module_names | {"torch", "numpy", "sympy", "functorch"}
# What torch keeps on a module for itself.
_TORCHS: Final = frozenset(
    {*vars(nn.Module()), *(name for name in vars(nn.RNNBase("GRU", 1, 1)) if "_flat_" in name)}
) - {"training"}
_PLAIN: Final = frozenset({int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device})
_HEAP: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """A name under which a module holds something: an attribute, or an entry of its buffers.

    Attributes:
        path: As a user writes it, without `self`: `block.cache`.
        held: The dict of the module that has the name as a key.
    """

    path: str
    owner: nn.Module = field(repr=False)
    held: dict[str, Any] = field(repr=False)
    key: str

    @property
    def identity(self) -> tuple[int, str]:
        """Equal for the same name in the same dict."""
        return id(self.held), self.key

    @property
    def is_buffer(self) -> bool:
        """Whether it is an entry of the module's buffers."""
        return self.held is vars(self.owner).get("_buffers")


def is_container(value: object) -> bool:
    """Whether a value is a list, dict, set or deque, and of no class that may do otherwise."""
    return type(value) in _CONTAINERS


def base_of(value: object) -> Any:
    """Python's own class whose methods tell and change what a container holds; None of other values."""
    return next((base for base in _BASES if isinstance(value, base)), None)


def is_object(value: object) -> bool:
    """Whether a value is an object of a class written in Python that keeps its data in attributes."""
    kind = type(value)
    if isinstance(value, (*_CLOSED, list, dict, set, deque, tuple)):
        return False
    if kind in _OPEN:
        return True
    # Classes of C and of libraries hold more than can be seen.
    if not kind.__flags__ & _HEAP or kind.__module__.partition(".")[0] in _LIBRARIES:
        return False
    return own_dict(value) is not None or any(slot_names(kind))


def own_dict(value: object) -> dict[str, Any] | None:
    """The `__dict__` of an object, which its class may lack, or answer for with something else."""
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, dict) else None


def is_opaque(value: object) -> bool:
    """Whether a value is an array, an iterator or a random generator: calls may change what no form shows."""
    library = type(value).__module__ or ""
    if isinstance(value, Iterator):
        return library in ("builtins", "itertools", "_collections")
    if isinstance(value, (np.ndarray, Random)):
        return not isinstance(value, SystemRandom)
    return library.startswith("numpy.random.")


def slot_names(kind: type) -> Iterator[str]:
    """The attributes that a class keeps outside of `__dict__`."""
    for cls in kind.__mro__:
        if cls.__flags__ & _HEAP:
            yield from (name for name, each in vars(cls).items() if type(each) is types.MemberDescriptorType)


def has_setter(value: object, name: str) -> bool:
    """Whether code of the model's runs where an attribute of a value is set: a property's, or its class's."""
    kind = type(value)
    held = next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), None)
    setter = held.fset if isinstance(held, property) else getattr(type(held), "__set__", None)
    codes = (getattr(each, "__code__", None) for each in (setter, kind.__setattr__))
    return any(code is not None and source.is_model_code(code.co_filename) for code in codes)


def contents(value: Any) -> Any:
    """A shallow copy of what a container, a tuple or an object holds, as a list, a set or a dict.

    Of a container it is what its base class holds: no method of a class of the user's own is called.
    """
    if isinstance(value, tuple):
        return list(tuple.__iter__(value))
    base = base_of(value)
    if base is not None:
        if issubclass(base, dict):
            return dict(base.items(value))
        return (set if base is set else list)(base.__iter__(value))
    return _contents_of_opaque(value) if is_opaque(value) else _attributes(value)


def _contents_of_opaque(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return list(value.flat) if value.dtype.hasobject else [value.tobytes()]
    if not isinstance(value, Iterator):
        return [pickle.dumps(value.getstate() if isinstance(value, Random) else value)]
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        return [frame.f_lasti, *frame.f_locals.values(), value.gi_yieldfrom] if frame else []
    if isinstance(value, (itertools.count, itertools.cycle)):
        # A cycle has a list of its own, which no one may put back.
        return [repr(value), *map(operator.length_hint, gc.get_referents(value))]
    return [operator.length_hint(value, -1), *gc.get_referents(value)]


def _attributes(value: Any) -> dict[str, Any]:
    slots = {name: getattr(value, name) for name in slot_names(type(value)) if hasattr(value, name)}
    return {**slots, **(own_dict(value) or {})}


def beside(value: Any) -> dict[str, Any]:
    """The attributes that a container or a tuple has beside its items."""
    is_based = isinstance(value, tuple) or base_of(value) is not None
    return _attributes(value) if is_based and type(value) not in (list, dict, set, tuple) else {}


def refill(value: Any, items: Any) -> None:
    """Let a container or an object hold these, as `contents` gives them.

    An iterator, a random generator and an array of objects stay as they are.
    """
    base = base_of(value)
    if base is not None:
        base.clear(value)
        if issubclass(base, dict):
            for key, item in items.items():
                base.__setitem__(value, key, item)
        else:
            (base.update if base is set else base.extend)(value, items)
    elif isinstance(value, np.ndarray) and value.flags.writeable and not value.dtype.hasobject:
        value[...] = np.frombuffer(items[0], value.dtype).reshape(value.shape)
    elif not is_opaque(value):
        _refill_attributes(value, items)


def _refill_attributes(value: Any, items: Mapping[str, Any]) -> None:
    own = own_dict(value)
    slots = set(slot_names(type(value)))
    if own is not None:
        own.clear()
        own.update({name: item for name, item in items.items() if name not in slots})
    for name in slots:
        if name in items:
            object.__setattr__(value, name, items[name])
        elif hasattr(value, name):
            object.__delattr__(value, name)


def items_of(value: Any) -> Iterator[tuple[str, Any]]:
    """What a container, a tuple or an object holds, by name."""
    held = contents(value)
    if isinstance(held, dict):
        yield from zip(names_of(held), held.values(), strict=True)
    elif isinstance(held, list):
        yield from zip(map(str, getattr(value, "_fields", range(len(held)))), held, strict=True)


def names_of(keys: Collection[object]) -> list[str]:
    """A name for each key, no two alike: the text of a plain one, the class and place of an object."""
    # The text of an object is code of its own, which may be long, or raise.
    named = [
        str(key) if type(key) in _PLAIN else f"{type(key).__name__}[{place}]"
        for place, key in enumerate(keys)
    ]
    if len(set(named)) < len(named):  # of 1 and "1" the text is one
        named = [repr(key) if type(key) in _PLAIN else name for key, name in zip(keys, named, strict=True)]
    return named


def value_of(cell: types.CellType, default: Any) -> Any:
    """The value of a variable of an enclosing function, or a default where it has none yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return default


def modules_of(module: nn.Module) -> dict[str, nn.Module]:
    """The modules that a model reaches, registered or held in its containers and objects, by path."""
    return reached(module)[0]


def reached(module: nn.Module) -> tuple[dict[str, nn.Module], list[object]]:
    """What `modules_of` gives, and the plain objects that these modules hold."""
    # Two modules may share one __dict__ (a method as a module of its own).
    found = {id(part.__dict__): (path, part) for path, part in module.named_modules()}
    objects: list[object] = []
    seen: set[int] = set()

    def walk(path: str, value: Any) -> None:
        if type(value) in _PLAIN or isinstance(value, torch.Tensor):
            return
        if isinstance(value, nn.Module):
            for inner, part in value.named_modules():
                if id(part.__dict__) not in found:
                    where = f"{path}.{inner}" if inner else path
                    found[id(part.__dict__)] = (where, part)
                    below(where, part)
        elif id(value) not in seen and (is_container(value) or isinstance(value, tuple) or is_object(value)):
            seen.add(id(value))
            if is_object(value):
                objects.append(value)
            for name, item in items_of(value):
                walk(f"{path}.{name}", item)

    def below(path: str, part: nn.Module) -> None:
        for name, value in vars(part).items():
            if name not in _TORCHS and type(value) not in _PLAIN:
                walk(f"{path}.{name}" if path else name, value)

    for path, part in list(found.values()):
        below(path, part)
    return dict(found.values()), objects


def roots_of(modules: Mapping[str, nn.Module]) -> Iterator[Root]:
    """Every name under which the modules of a model hold something."""
    for path, part in modules.items():
        prefix = f"{path}." if path else ""
        own = vars(part)
        for key in own:
            if key not in _TORCHS:
                yield Root(prefix + key, part, own, key)
        for key in own.get("_buffers", ()):
            yield Root(prefix + key, part, own["_buffers"], key)


def registered(module: nn.Module) -> Iterator[torch.Tensor]:
    """The parameters and buffers of a module itself."""
    for name in ("_parameters", "_buffers"):
        yield from (tensor for tensor in vars(module).get(name, {}).values() if tensor is not None)


P = TypeVar("P")


class Record(Generic[P]):
    """What values hold at one moment, each with the place that leads to it.

    Two are equal if the values held the same, all the way down: the same tensors with as many writes, and
    containers and objects that hold equal things, whether or not they are the same ones.

    Attributes:
        held: Every container, tuple and object, with what it holds, and its attributes beside that.
        tensors: Every tensor, with the count of its writes.
        numbers: The place in `held` of each id.
        again: What was reached a second time, with the place that led to it then.
    """

    def __init__(self, is_entered: Callable[[nn.Module], bool] = lambda _: False) -> None:
        """Begin with nothing; `is_entered` decides whether what a module holds is recorded too."""
        self.held: list[tuple[P, Any, Any, dict[str, Any]]] = []
        self.tensors: list[tuple[P, torch.Tensor, int]] = []
        self.numbers: dict[int, int] = {}
        self.again: list[tuple[P, Any]] = []
        self._is_entered = is_entered

    def add(self, place: P, value: Any) -> Record[P]:
        """Record a value and what it holds."""
        # No recursion: a linked list may be longer than Python's stack.
        todo = [value]
        while todo:
            value = todo.pop()
            if isinstance(value, torch.Tensor):
                self.tensors.append((place, value, writes(value)))
                continue
            if isinstance(value, nn.Module) and self._is_entered(value):
                # Its tensors and submodules are items of its attributes.
                value = vars(value)
            is_based = isinstance(value, tuple) or base_of(value) is not None
            if not (is_based or is_object(value) or is_opaque(value)):
                continue
            if id(value) in self.numbers:
                self.again.append((place, value))
                continue
            self.numbers[id(value)] = len(self.held)
            items, own = contents(value), beside(value)
            self.held.append((place, value, items, own))
            todo += own.values()
            inner = items.values() if isinstance(items, dict) else items
            todo += reversed([item for item in inner if type(item) not in _PLAIN])
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record) or len(self.held) != len(other.held):
            return False

        def is_alike(left: Any, right: Any) -> bool:
            return is_same(left, right) or self.numbers.get(id(left), -1) == other.numbers.get(id(right))

        # Which tensors these are is told by what holds them.
        counts = [[count for _, _, count in each.tensors] for each in (self, other)]
        return counts[0] == counts[1] and all(
            type(left) is type(right) and all(map(holds_same, old, new, itertools.repeat(is_alike)))
            for (_, left, *old), (_, right, *new) in zip(self.held, other.held, strict=True)
        )

    def changed(self, *, but_added: bool = False) -> list[tuple[P, Any]]:
        """The containers and objects that hold something else than before, each with its place.

        A table that only has more in it is among them unless `but_added`, and so is a copy with more in it
        that an object holds in its place.
        """
        found = []
        for place, value, items, own in self.held:
            now = contents(value)
            if but_added and isinstance(value, (dict, set)):
                now = now & items if isinstance(now, set) else {key: now[key] for key in now if key in items}
            alike = _is_grown if but_added and is_object(value) else is_same
            if not (holds_same(now, items, alike) and holds_same(beside(value), own)):
                found.append((place, value))
        return found

    def written(self) -> list[P]:
        """The places of the tensors that were written since."""
        return [place for place, tensor, count in self.tensors if writes(tensor) != count]

    def second_places(self) -> Iterator[P]:
        """The further places of what `changed` and `written` tell of, if there are any."""
        if not self.again:
            return
        ids = {id(value) for _, value in self.changed()}
        ids |= {id(tensor) for _, tensor, count in self.tensors if writes(tensor) != count}
        known: dict[int, bool] = {}
        for place, value in self.again if ids else ():
            if id(value) not in known:
                known[id(value)] = not ids.isdisjoint(self._below(value))
            if known[id(value)]:
                yield place

    def _below(self, value: Any) -> Iterator[int]:
        """The identities of a value and of what it led to when it was recorded."""
        seen: set[int] = set()
        todo = [value]
        while todo:
            if id(value := todo.pop()) in seen:
                continue
            seen.add(id(value))
            yield id(value)
            if id(value) in self.numbers:
                _, _, items, own = self.held[self.numbers[id(value)]]
                todo += [*own.values(), *(items.values() if isinstance(items, dict) else items)]

    def restore(self) -> None:
        """Let the containers and objects hold what they held; what was written into tensors stays."""
        for _, value, items, own in self.held:
            if not holds_same(contents(value), items):
                refill(value, items)
            if not holds_same(beside(value), own):
                _refill_attributes(value, own)


class Watch:
    """All that a model holds at one moment."""

    def __init__(self, module: nn.Module) -> None:
        self._dicts: list[tuple[str, nn.Module, dict[str, Any], dict[str, Any]]] = []
        self._record: Record[Root] = Record()
        modules = modules_of(module)
        for path, part in modules.items():
            own = vars(part)
            for held in (own, *(own[name] for name in OWN if name in own)):
                self._dicts.append((path, part, held, dict(held)))
        for root in roots_of(modules):
            value = root.held[root.key]
            # A registered buffer that is written in place is state already.
            if not root.is_buffer or not isinstance(value, torch.Tensor):
                self._record.add(root, value)
        self._record.tensors = [
            each for each in self._record.tensors if not isinstance(each[1], nn.Parameter)
        ]

    def changed(self) -> list[Root]:
        """The names under which something is another than before."""
        found: dict[tuple[int, str], Root] = {}
        for path, part, held, before in self._dicts:
            if len(held) == len(before) and all(map(operator.is_, held.values(), before.values())):
                continue
            is_own = held is vars(part)
            if not is_own and held is not vars(part)["_buffers"]:
                continue
            for key in {**before, **held}:
                torchs = is_own and key in _TORCHS
                if not torchs and not is_same(held.get(key, _MISSING), before.get(key, _MISSING)):
                    root = Root(f"{path}.{key}" if path else key, part, held, key)
                    found[root.identity] = root
        record = self._record
        places = (*(root for root, _ in record.changed()), *record.written(), *record.second_places())
        found.update((root.identity, root) for root in places)
        return list(found.values())

    def changed_without_form(self) -> Iterator[tuple[Root, Any]]:
        """What changed and has no form: neither a plain container nor an object."""
        for root, value in self._record.changed():
            if beside(value) or not (is_container(value) or is_object(value)):
                yield root, value

    def unregistered(self) -> list[Root]:
        """What `changed` gives, but for registered buffers that hold another tensor of their kind."""
        return [root for root in self.changed() if not self._is_assigned_buffer(root)]

    def _is_assigned_buffer(self, root: Root) -> bool:
        # torch.export loses what is assigned to a buffer of a submodule.
        if not root.is_buffer or root.path != root.key:
            return False
        before = next((old for _, _, held, old in self._dicts if held is root.held), {}).get(root.key)
        now = root.held.get(root.key)
        if not isinstance(before, torch.Tensor) or not isinstance(now, torch.Tensor):
            return False
        return before.dtype == now.dtype and before.dim() == now.dim()

    def tensors(self) -> Iterator[torch.Tensor]:
        """The tensors that are neither parameters nor registered buffers."""
        return (tensor for _, tensor, _ in self._record.tensors)

    def restore(self) -> None:
        """Put back what the names and containers held; what was written into tensors stays."""
        for _, _, held, before in self._dicts:
            held.clear()
            held.update(before)
        self._record.restore()


def writes(tensor: torch.Tensor) -> int:
    """How often a tensor was written in place, as torch counts."""
    return -1 if tensor.is_inference() else int(tensor._version)  # noqa: SLF001  # it has no public name


def is_same(left: object, right: object) -> bool:
    """Whether two values are one object, or plain values that are equal."""
    if left is right:
        return True
    if isinstance(left, torch.Size) and isinstance(right, torch.Size):
        # To compare a size that only a run knows would assume something of it.
        return all(type(size) is int for size in (*left, *right)) and left == right
    if type(left) is not type(right) or type(left) not in _PLAIN:
        return False
    # Numbers that are equal may differ in what is computed of them: 0.0 and -0.0. NaN is equal to nothing.
    return repr(left) == repr(right) if isinstance(left, float | complex) else bool(left == right)


def _is_grown(now: object, before: object, depth: int = 0) -> bool:
    """Whether a value is the one of before, or a copy of it whose tables have more in them at most."""
    if is_same(now, before):
        return True
    known = is_container(now) or isinstance(now, tuple) or is_object(now)
    if type(now) is not type(before) or not known or isinstance(now, nn.Module) or depth > _DEEPEST:
        return False
    holds, held = contents(now), contents(before)
    if isinstance(now, set):
        return bool(holds >= held)
    if isinstance(now, dict):
        holds = {key: holds[key] for key in held if key in holds}
    return holds_same(holds, held, partial(_is_grown, depth=depth + 1))


def holds_same(now: Any, before: Any, is_same: Callable[[Any, Any], bool] = is_same) -> bool:
    """Whether two of what `contents` gives are the same."""
    if len(now) != len(before):
        return False
    if isinstance(now, dict):
        return list(now) == list(before) and all(map(is_same, now.values(), before.values()))
    if isinstance(now, set):
        return bool(now == before)
    return all(map(is_same, now, before))
