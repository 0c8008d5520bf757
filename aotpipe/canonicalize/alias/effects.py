"""Finds what a piece of Python changes in place, and takes it back: containers, attributes, closures.

A graph holds tensors. A region of Python that is put into one is run for what it computes, more than once and
on paths that eager would not take, so that nothing else may come of it (`unchanged`).

What a variable is after a branch is made anew of what it is on each path. Where eager would have given it a
container that has another name too, a change in place under one of the names is one under both; here it would
be lost. `note_results` remembers such containers, and `results_checked` refuses a change of one.
`held_storages` tells who holds a tensor meanwhile: variables of functions, containers, modules.
"""

from __future__ import annotations

import io
import itertools
import logging
import sys
import traceback as tracebacks
import zlib
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final
from weakref import ReferenceType, ref

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias.tensor_storage import storage_of
from aotpipe.canonicalize.values import dynamic_list, object_fields, trace
from aotpipe.canonicalize.values.abstract_values import UNDEFINED, Undefined
from aotpipe.canonicalize.values.optional_values import OptionalValue, Partial
from aotpipe.canonicalize.values.structures import is_leaf
from aotpipe.errors import ExportFailed, SourceLine
from aotpipe.model import object_graph, source

_NONE: Final = object()
# What is not looked into: a registered module is watched by `watching`, a tensor's writes are ops. What is
# logged is no part of a graph, and a logger remembers what it was asked, by torch too.
_CLOSED: Final = (nn.Module, torch.Tensor, ModuleType, type, logging.Filterer, logging.Manager)
# What holds data that no graph computes: a write to it is refused.
_DATA: Final = (np.ndarray, array, bytearray, io.StringIO, io.BytesIO, ContextVar, type)
Lines = tuple[tuple[CodeType, int], ...]
Mark = tuple[str, type, int]
"""A container among those that are looked at: its name, its type, and which of those of both it is."""


class InnerContainersDiffer(Exception):
    """A container holds other ones that are not the same on all paths; the message names it.

    Attributes:
        refused: The refusal, where what the other ones hold has no common form either.
    """

    def __init__(self, name: str, refused: ExportFailed) -> None:
        super().__init__(name)
        self.refused = refused


class Changed(Exception):
    """Containers were changed; the message names them."""

    def __init__(
        self, held: Sequence[tuple[str, Any]], changed: Sequence[tuple[str, Any]], names: Iterable[str]
    ) -> None:
        super().__init__(", ".join(names))
        self.containers = [(name.rstrip("."), container) for name, container in changed]
        self.attributes = {id(container) for name, container in changed if name.endswith(".")}
        self.known = [container for _, container in held]
        ids = {id(container) for _, container in changed}
        self.marks = tuple(
            mark for mark, (_, container) in zip(_marks(held), held, strict=True) if id(container) in ids
        )


def _position(iterator: Any) -> object:
    """Where an iterator stands, as far as Python tells; of data of one kind, what it holds."""
    if isinstance(iterator, _DATA):
        return _told(iterator)
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        return frame and (frame.f_lasti, *map(id, frame.f_locals.values()))
    try:
        _, given, *state = iterator.__reduce__()
    except TypeError:
        return repr(iterator)
    inner = (
        _position(each) if _is_iterator(each) else each if type(each) is int else id(each) for each in given
    )
    return (*inner, *map(str, state))


def _told(data: Any) -> object:
    """What tells whether an array, or a text that is written, is as it was."""
    if isinstance(data, type):
        return {name: id(value) for name, value in vars(data).items()}
    if isinstance(data, ContextVar):
        return id(data.get(_NONE))
    if isinstance(data, io.StringIO | io.BytesIO):
        return None if data.closed else (data.tell(), data.getvalue())
    if isinstance(data, np.ndarray):
        return (data.shape, str(data.dtype), zlib.crc32(data.tobytes()))
    return bytes(data)


def _data_of_modules() -> set[int]:
    found: list[tuple[str, Any]] = []
    for _ in _held((), found):
        pass
    return {id(each) for _, each in found if not isinstance(each, type)}


def _kind(data: object) -> str:
    return "a class" if isinstance(data, type) else type(data).__name__


def _is_iterator(value: object) -> bool:
    """Whether this is an iterator of Python's own, whose state no attribute holds."""
    return isinstance(value, Iterator) and not hasattr(value, "__dict__")


@dataclass(slots=True)
class _Watched:
    """The modules whose attributes are among what may change: these and their submodules."""

    roots: list[nn.Module] = field(default_factory=list)


def watching(module: nn.Module) -> AbstractContextManager[nn.Module]:
    """Count the attributes of a module and its submodules among what is changed."""
    return trace.pushed(trace.part(_Watched).roots, module)


def watched_roots() -> list[nn.Module]:
    """The modules whose attributes are among what may change."""
    return trace.part(_Watched).roots


def is_variable(container: Any) -> bool:
    """Whether what a container holds may be a variable: a class of the user's own may hold it otherwise."""
    return (
        isinstance(container, CellType)
        or type(container) in (*_CHANGED, Partial)
        or object_fields.is_slotted(container)
    )


@dataclass(slots=True)
class _Suspended:
    """The generators of context managers, whose variables no function that runs has."""

    generators: list[ReferenceType[Generator[Any]]] = field(default_factory=list)


def note_suspended(generator: Generator[Any]) -> Generator[Any]:
    """Count what a generator that waits at a `yield` holds among what is held, and among what may change."""
    trace.part(_Suspended).generators.append(ref(generator))
    return generator


def _suspended() -> Iterator[tuple[Generator[Any], dict[str, Any]]]:
    """The generators of context managers that have not ended, with their variables."""
    for each in trace.part(_Suspended).generators:
        generator = each()
        if isinstance(generator, GeneratorType) and not generator.gi_running:
            frame = generator.gi_frame
            if frame is not None and frame.f_lasti > 0:
                yield generator, dict(frame.f_locals)


class Snapshot:
    """What the containers among some named values hold, and those in watched modules, at one moment."""

    def __init__(self, values: Iterable[tuple[str, object]], but: Collection[int] = ()) -> None:
        iterators: list[tuple[str, Any]] = []
        self._held = [each for each in _held(values, iterators) if id(each[1]) not in but]
        self._before = [(name, container, copied(container)) for name, container in self._held]
        self._positions = [(name, each, _position(each)) for name, each in iterators]
        self._noted = len(trace.part(_Containers).noted)

    def restore(self) -> Changed | None:
        """Put back what the containers held; gives what had changed.

        Raises:
            ExportFailed: Something was taken from an iterator, or written to an array, which is not put back.
        """
        moved = [(name, each) for name, each, position in self._positions if _position(each) != position]
        data = [(name, each) for name, each in moved if isinstance(each, _DATA)]
        kept = _data_of_modules() if data else set()  # which is state that has no form
        if written := [f"`{name}` ({_kind(each)})" for name, each in data if id(each) not in kept]:
            raise ExportFailed(
                f"a branch, a loop or a `try` on a tensor writes to {', '.join(written)} in place",
                hint="keep it in a tensor or in a list, of the function or of the module",
                where=source.of_caller(),
                code="python-object-changed",
            )
        if taken := [name for name, each in moved if not isinstance(each, _DATA)]:
            raise ExportFailed(
                f"a branch, a loop or a `try` on a tensor takes from an iterator: {', '.join(taken)}",
                hint="make a list of it, and take its items by a number that counts",
                where=source.of_caller(),
                code="python-object-changed",
            )
        changed = [each for each in self._before if not is_same(*each[1:])]
        names = dict.fromkeys(_named(*each) for each in changed)
        for _, container, old in changed:
            _restore(container, old)
        return Changed(self._held, [each[:2] for each in changed], names) if names else None

    def forget(self) -> None:
        """Drop what was remembered since of the containers that regions gave."""
        del trace.part(_Containers).noted[self._noted :]


@contextmanager
def unchanged(values: Iterable[tuple[str, object]], own: Any = ()) -> Iterator[None]:
    """Take back what the body changes in the containers among these named values, and in watched modules.

    But for those in values that are its `own`.

    Raises:
        Changed: It changed one, if it did not raise anyway.
        ExportFailed: It took from an iterator, which cannot be taken back.
    """
    mine = list(_copied_containers(own))
    held = {id(_attributes_of(each)) for each in mine}
    snapshot = Snapshot(values, held)
    changed: Changed | None = None
    try:
        yield
    finally:
        changed = snapshot.restore()
    if changed is not None:
        raise changed


def _attributes_of(container: Any) -> Any:
    """What holds the attributes of an object; else the container itself."""
    is_open = object_fields.is_structure(container) and not object_fields.is_slotted(container)
    return vars(container) if is_open else container


def again(values: Iterable[tuple[str, object]], marks: Collection[Mark]) -> Changed | None:
    """What an earlier run changed, among these values and in modules; None where it is not there."""
    held = list(_held(values))
    found = [each for mark, each in zip(_marks(held), held, strict=True) if mark in marks]
    return Changed(held, found, (name for name, _ in found)) if len(found) == len(marks) else None


def _marks(held: Iterable[tuple[str, Any]]) -> Iterator[Mark]:
    counts: Counter[tuple[str, type]] = Counter()
    for name, container in held:
        kind = (name, type(container))
        yield *kind, counts[kind]
        counts[kind] += 1


def _held(
    values: Iterable[tuple[str, object]], iterators: list[tuple[str, Any]] | None = None
) -> Iterator[tuple[str, Any]]:
    """The containers among values and in watched modules; `iterators` is filled with what is one."""
    seen: set[int] = set()
    roots = trace.part(_Watched).roots
    registered = {id(module) for root in roots for module in root.modules()}

    def note_class(name: str, kind: type) -> None:
        if iterators is not None and id(kind) not in seen and object_fields.is_of_model(kind):
            seen.add(id(kind))
            iterators.append((name, kind))

    def walk(name: str, value: Any) -> Iterator[tuple[str, Any]]:
        # A module that is kept in a plain list, say, is a submodule to Python, though not to torch.
        if isinstance(value, nn.Module) and id(value) not in registered:
            registered.update(map(id, value.modules()))
            yield from of_module(f"{name}.", value)
            return
        if isinstance(value, type):
            note_class(name, value)
        if isinstance(value, _CLOSED) or is_of_torch(value) or id(value) in seen:
            return
        seen.add(id(value))
        if iterators is not None and (_is_iterator(value) or isinstance(value, _DATA)):
            iterators.append((name, value))
        if object_graph.base_of(value) is not None:
            yield name, value
            found = copied(value)
            for inner in found.values() if isinstance(found, dict) else found:
                yield from walk(name, inner)
        if isinstance(value, tuple):
            for inner in value:
                yield from walk(name, inner)
        elif isinstance(value, MethodType | BuiltinMethodType):
            yield from walk(name, value.__self__)
        elif isinstance(value, ReferenceType):
            yield from walk(name, value())
        elif isinstance(value, FunctionType):
            for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                yield variable, cell
                yield from walk(variable, _held_by(cell)[0])
            if attributes := vars(value):
                yield f"{name}.", attributes
                for attribute, inner in attributes.items():
                    yield from walk(f"{name}.{attribute}", inner)
        elif isinstance(value, partial) and not _is_own(value.func):
            for inner in (value.func, *value.args, *value.keywords.values()):
                yield from walk(name, inner)
        elif object_fields.is_slotted(value):
            note_class(type(value).__qualname__, type(value))
            yield f"{name}.", value
            for attribute, inner in copied(value).items():
                yield from walk(f"{name}.{attribute}", inner)
        elif isinstance(own := getattr(value, "__dict__", None), dict) and own is not value:
            note_class(type(value).__qualname__, type(value))
            yield f"{name}.", own
            for attribute, inner in own.items():
                yield from walk(f"{name}.{attribute}", inner)

    def of_module(before: str, root: nn.Module) -> Iterator[tuple[str, Any]]:
        for path, module in root.named_modules():
            own = vars(module)
            note_class(type(module).__qualname__, type(module))
            prefix = f"{before}{path}." if path else before or f"{type(module).__name__}."
            yield prefix, own
            for attribute, value in own.items():
                if attribute in object_graph.OWN:
                    yield prefix, value
                else:
                    yield from walk(prefix + attribute, value)

    for name, value in values:
        yield from walk(name, value)
    for generator, variables in _suspended():
        yield from walk("a context manager's generator", generator)
        for name, value in variables.items():
            yield from walk(name, value)
    for root in roots:
        yield from of_module("", root)


def _is_own(function: object) -> bool:
    """Whether a function is aotpipe's: what its hooks close over is not the model's."""
    code = getattr(function, "__code__", None)
    return code is not None and source.is_own(code.co_filename)


def is_of_module(container: object) -> bool:
    """Whether a container is one that the model keeps, or is inside of one."""
    return any(each is container for _, each in _held(()))


def is_of_torch(value: object) -> bool:
    """Whether a value is of a class of torch's own: what such a one holds changes as torch traces."""
    return type(value).__module__.partition(".")[0] in ("torch", "sympy")


def _held_by(cell: CellType) -> list[Any]:
    value = object_graph.value_of(cell, _NONE)
    # A region leaves a mark in a variable that has no value.
    return [_NONE if isinstance(value, Undefined) else value]


def copied(container: Any) -> Any:
    """What a container holds, as a list, a set or a dict."""
    return _held_by(container) if isinstance(container, CellType) else object_graph.contents(container)


def is_same(container: Any, old: Any) -> bool:
    """Whether a container holds what it held when it was `copied`."""
    return object_graph.holds_same(copied(container), old)


def contents(container: Any, known: Iterable[Any]) -> Any:
    """What a container holds, as a list, a set or a dict; the `known` containers in it as constants.

    Of a variable of an enclosing function it is the value itself.
    """
    held = {id(each): Same(each) for each in known}
    found = copied(container)
    if isinstance(container, CellType):
        (value,) = found
        return UNDEFINED if value is _NONE else held.get(id(value), value)
    if isinstance(found, dict):
        return {key: held.get(id(value), value) for key, value in found.items()}
    if isinstance(found, set):
        return found
    return [held.get(id(value), value) for value in found]


def holds_same(values: Iterable[Any]) -> bool:
    """Whether contents have a container in them that is followed by itself."""
    return any(type(leaf) is Same for leaf in dynamic_list.leaves(list(values)))


def fill(container: Any, found: Any) -> None:
    """Put contents back."""
    if isinstance(container, CellType):
        _restore(container, [_NONE if isinstance(found, Undefined) else _opened(found)])
    elif isinstance(found, dict):
        _restore(container, {key: _opened(value) for key, value in found.items()})
    else:
        _restore(container, [_opened(value) for value in found])


@dataclass(frozen=True, eq=False, slots=True)
class Same:
    """A container inside of another one, whose own contents are followed by themselves."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _opened(value: Any) -> Any:
    return value.value if isinstance(value, Same) else value


def _restore(container: Any, old: Any) -> None:
    if not isinstance(container, CellType):
        object_graph.refill(container, old)
    elif old[0] is _NONE:
        del container.cell_contents
    else:
        container.cell_contents = old[0]


def _named(name: str, container: Any, old: Any) -> str:
    """The name of a changed container, or the names of the attributes of a module that changed."""
    if not name.endswith("."):
        return name
    now = copied(container)
    keys = [key for key in {**old, **now} if old.get(key, _NONE) is not now.get(key, _NONE)]
    return ", ".join(name + key for key in keys)


_DEPTH: Final = 4
_MOST: Final = 10_000
# The function that calls the model.
CALL: Final = "called_in_mode.<locals>.inside"


def have_second_names(names: Sequence[str], values: Any) -> bool:
    """Whether a container that one of these variables has may have another name, too."""
    found = list(_copied_containers(values))
    held = _held_by_callers(sys._getframe(1), set(names))[1]  # noqa: SLF001
    return len(set(map(id, found))) < len(found) or any(id(each) in held for each in found)


def copies(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values with copies of their containers."""
    object_fields.register(values)
    return tuple(pytree.tree_map(lambda leaf: leaf, values, is_leaf=is_leaf))


def _copied_containers(value: Any) -> Iterator[Any]:
    """The containers in a value of which `copies` makes new ones, and objects with attributes."""
    return (each for each in _containers(value) if type(each) is not set)


def check_own(names: Sequence[str], values: Any) -> None:
    """Refuse that two variables of an iteration have one container: the next one begins with a copy of each.

    Raises:
        ExportFailed: They have.
    """
    found: set[int] = set()
    for name, value in zip(names, values, strict=True):
        for each in _copied_containers(value):
            if id(each) in found:
                raise ExportFailed(
                    f"`{name}` is changed in place and assigned in a loop on a tensor, and has a second name",
                    hint="copy it where it gets its second name (`list(items)`, `copy.copy(state)`)",
                    where=source.of_caller(),
                    code="python-object-changed",
                )
            found.add(id(each))


def held_by_unread(read: Collection[str]) -> Callable[[object], bool]:
    """Tells whether a container is held by variables alone that the running function reads no more.

    `read` are those that it does read. What a watched module holds is read by the next call.
    """

    def is_unread(container: object) -> bool:
        frame = sys._getframe(1)  # noqa: SLF001
        # Found as a change of it is: what an object or a closure holds is as much as what a list does.
        variables = ((name, value) for name, value, _ in _variables_of_callers(frame, read=read))
        return all(container is not each for _, each in _held(variables))

    return is_unread


def _sharing(container: Any) -> bool:
    """Whether something else that is held may have elements of a list or a dict that grows."""
    own = {key for found in dynamic_list.dynamic_lists(container) for key in found.shared_buffers}
    holders: dict[int, Any] = {}
    _held_by_callers(sys._getframe(1), holders=holders)  # noqa: SLF001
    holders.pop(id(container), None)
    found = (each for holder in holders.values() for each in dynamic_list.dynamic_lists(holder))
    return any(each.kind.holds_containers and not own.isdisjoint(each.shared_buffers) for each in found)


def is_held(value: object) -> bool:
    """Whether a variable, or something that one holds, has a value."""
    return id(value) in _held_by_callers(sys._getframe(1))[1]  # noqa: SLF001


def held_storages() -> set[int]:
    """The memories of all tensors that somebody holds."""
    return _held_by_callers(sys._getframe(1))[0]  # noqa: SLF001  # the only way to the variables of those who call


def _variables_of_callers(
    frame: FrameType | None, but: Collection[str] = (), read: Collection[str] | None = None
) -> Iterator[tuple[str, Any, bool]]:
    """The variables of the functions that run, with whether it is one that calls the model from outside.

    All `but` those of these names of the function that runs, or, of its variables, those that it will `read`.
    """
    own = set(but)
    running: str | None = None
    called = False
    while frame is not None:
        code = frame.f_code
        # Within the call of the model, what torch's own functions hold is on its way only.
        called = called or code.co_qualname == CALL
        if not source.is_own(code.co_filename) and (called or source.is_model_code(code.co_filename)):
            # A statement of the function may be running as a function inside of it.
            function = code.co_qualname.partition(f".<locals>.{trace.GENERATED}")[0]
            running = running or function
            is_running = function == running and read is not None
            for name, value in frame.f_locals.items():
                is_shared = name in (*code.co_freevars, *code.co_cellvars)
                if not (name in own and is_shared) and not (is_running and name not in (read or ())):
                    yield name, value, called
            read = None if code.co_qualname == running else read
            own.difference_update(code.co_cellvars)  # which are other variables in the functions that call
        frame = frame.f_back


def _held_by_callers(
    frame: FrameType | None, but: Collection[str] = (), holders: dict[int, Any] | None = None
) -> tuple[set[int], dict[int, int]]:
    """The memories of the tensors that are held, and how deep each other object was looked into.

    What is held `but` by the variables of these names of the function that runs. `holders` is filled with
    the containers that are held and have elements of which a run knows the number, by identity.
    """
    storages: set[int] = set()
    depths: dict[int, int] = {}

    def add(value: object, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            storages.add(storage_of(value))
        elif depth > depths.get(id(value), 0):
            depths[id(value)] = depth
            if holders is not None and any(True for _ in dynamic_list.dynamic_lists(value)):
                holders[id(value)] = value
            for each in _inside(value):
                add(each, depth - 1)

    for _, value, called in _variables_of_callers(frame, but):
        # Who calls from outside holds what was passed; all that hangs on a caller may be a whole program.
        add(value, 1 if called else _DEPTH)
    for _, variables in _suspended():
        for value in variables.values():
            add(value, _DEPTH)
    for root in trace.part(_Watched).roots:
        for part in root.modules():
            add(vars(part), _DEPTH)
    return storages, depths


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, list | tuple | set | frozenset | deque):
        return value if len(value) < _MOST else ()
    if not isinstance(value, dict):
        if isinstance(value, type | ModuleType | FunctionType) or is_of_torch(value):
            return ()
        value = getattr(value, "__dict__", None)
    return dict.values(value) if isinstance(value, dict) else ()


# What torch's trees copy.
_COPIED: Final = (list, dict, deque, OrderedDict, defaultdict, Counter)
_CHANGED: Final = (*_COPIED, set)


@dataclass(slots=True)
class _Containers:
    """The containers that regions of a trace gave.

    Attributes:
        noted: Those that have several names in eager: name, container, what it held, and the region's lines.
        originals: Of a copy that a region left, what it is a copy of; by identity.
        may_be: Of what a region gave, the containers that it may be in eager; by identity.
        chosen: Copies of elements that a tensor chose, and what regions gave for these; by identity.
        elements: Those of them whose elements are in their list or dict still, and what was put into a dict.
        shared: The types of what was put into dicts, or into lists that grow, more than once.
        depth: How many regions run, one inside of the other.
        copied_in: What regions put into dicts and lists that hold copies, by how deep the region is.
    """

    noted: list[tuple[str, Any, Any, Lines]] = field(default_factory=list)
    originals: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    may_be: dict[int, tuple[Any, list[Any]]] = field(default_factory=dict)
    chosen: dict[int, Any] = field(default_factory=dict)
    elements: dict[int, Any] = field(default_factory=dict)
    shared: set[type] = field(default_factory=set)
    depth: int = 0
    copied_in: dict[int, list[Any]] = field(default_factory=dict)


def note_copies(values: Any, copies: Any) -> None:
    """Remember which containers a region left, of which these are copies."""
    for old, new in _pairs(values, copies):
        if new is not None:
            trace.part(_Containers).originals[id(new)] = (new, old)


def original(value: Any) -> Any:
    """The container that a region left, in place of its copy; any other value is itself."""
    return trace.part(_Containers).originals.get(id(value), (value, value))[1]


def originals(value: Any) -> Iterator[Any]:
    """The container that a region left, and those that it may be where a region inside gave it."""
    left = [original(value)]
    seen: set[int] = set()
    while left:
        if id(each := left.pop()) not in seen:
            seen.add(id(each))
            yield each
            left += trace.part(_Containers).may_be.get(id(each), (each, []))[1]


def may_be_one(left: Any, right: Any) -> bool:
    """Whether two containers are copies, which a branch or a loop gave, of what may be one in eager."""
    found = {id(each) for each in originals(left)}
    return any(id(each) in found for each in originals(right))


@contextmanager
def results_checked() -> Iterator[None]:
    """Inside, what regions give is watched.

    Raises:
        ExportFailed: A container was changed that eager would have under two names.
    """
    containers = trace.part(_Containers)
    noted = containers.noted
    mark = len(noted)
    inside = containers.depth + 1
    try:
        with trace.assigned(containers, depth=inside):
            yield
        for name, container, before, lines in noted[mark:]:
            if not is_same(container, before):
                raise _second_name(name, lines)
    finally:
        placed = [each for _, each, _, _ in noted[mark:] if id(each) in containers.elements]
        containers.copied_in.setdefault(inside, []).extend(placed)
        del noted[mark:]


_ELEMENT: Final = "an element"
_OF_NAME: Final = "copy it where it gets its second name (`list(items)`, `dict(table)`)"
_OF_ELEMENT: Final = (
    "change it where it is, by no other name: `table[key].append(value)`, `items[i].n += 1`; or change a "
    "copy (`row = list(table[key])`), and put that in its place"
)


def _second_name(name: str, lines: Lines) -> ExportFailed:
    """The refusal of a change of what may have two names; the trace may be made anew for it."""
    refused = ExportFailed(
        f"`{name}` is changed in place, and a branch or a loop on a tensor decides whether "
        "another variable is the same one",
        hint=_OF_ELEMENT if name == _ELEMENT else _OF_NAME,
        where=next((SourceLine(code.co_filename, line) for code, line in lines), None),
    )
    trace.current().unjoined.append((refused, lines))
    trace.current().needs.add("splits_containers")
    return refused


def get_second_names(names: Sequence[str], paths: Sequence[Sequence[Any]]) -> bool:
    """Whether variables that a region leaves are containers that something else holds on one of its paths."""
    held: dict[int, int] | None = None
    for column in zip(*paths, strict=True):
        first, *rest = map(original, column)
        if all(each is first for each in rest):
            continue
        for left in (left for value in column for each in _containers(value) for left in originals(each)):
            held = _held_by_callers(sys._getframe(), names)[1] if held is None else held  # noqa: SLF001
            if id(left) in held:
                return True
    return False


def lines_of_model() -> Iterator[tuple[CodeType, int]]:
    """The code and the line of each call of the model's that is running, the innermost first."""
    for frame, line in tracebacks.walk_stack(None):
        if frame.f_code.co_qualname == CALL:
            return
        if source.is_model_code(frame.f_code.co_filename):
            yield frame.f_code, line


def note_results(
    names: Sequence[str],
    paths: Sequence[Sequence[Any]],
    results: Sequence[Any],
    is_unread: Callable[[object], bool] | None = None,
) -> None:
    """Remember containers that variables have after a region, and that eager may have by other names too.

    `is_unread` tells of a container that nobody who holds it reads it.
    """
    found: dict[int, tuple[str, Any]] = {}
    held: dict[int, int] | None = None
    containers = trace.part(_Containers)
    chosen, elements = containers.chosen, containers.elements
    placed = {id(each): each for each in containers.copied_in.pop(containers.depth + 1, [])}
    for values in paths:
        became: dict[int, list[tuple[str, Any, Any]]] = {}
        inside: Counter[int] = Counter(placed.keys())
        for name, old, new in zip(names, values, results, strict=True):
            for each, other in _pairs(old, new):
                for left in originals(each):
                    if left is not other:
                        became.setdefault(id(left), []).append((name, left, other))
                    if other is None:
                        inside[id(left)] += 1
        for key, each in placed.items():
            became.setdefault(key, []).append((_ELEMENT, each, None))
        if not became:
            continue
        held = _held_by_callers(sys._getframe())[1] if held is None else held  # noqa: SLF001
        for key, pairs in became.items():
            name, old, _ = pairs[0]
            made = {id(new): (name, new) for name, _, new in pairs if new is not None}
            if key in held and not (inside[key] and not made and is_unread is not None and is_unread(old)):
                made[key] = (name, old)
            # What an earlier region gave may be the same one, too.
            others = (each for each, was in containers.may_be.values() if any(one is old for one in was))
            made |= {id(each): (name, each) for each in others if id(each) in held}
            if key in chosen:  # the element that it is a copy of has a name in eager
                copies_of = [chosen, *([elements] if key in elements else [])]
                for table in copies_of:
                    table.update((at, new) for at, (_, new) in made.items())
                made[key] = (name, old)
            if inside[key]:
                if inside[key] > 1 or (key in elements and key not in placed):
                    containers.shared.add(type(old))
                elements.update((at, each) for at, (_, each) in made.items())
            if len(made) + (inside[key] > 0) > 1:
                found |= made
                for _, _, new in pairs:
                    if new is not None:
                        containers.may_be.setdefault(id(new), (new, []))[1].append(old)
    lines = tuple(lines_of_model()) if found else ()
    copies = [(name, each, copied(each), lines) for name, each in found.values()]
    containers.noted.extend(copies)


def holds_containers(value: Any) -> bool:
    """Whether a value is a container that can be changed in place, or has one in its tuples."""
    return any(True for _ in _containers(value))


def is_copied_and_changed(changed: Sequence[Any], values: Iterable[Any], carried: Iterable[Any]) -> bool:
    """Whether a loop changes in place what its lists and dicts have copies of in the next iteration.

    `values` are what variables hold before and after an iteration, and `carried` what the next one has as its
    own and may change.
    """
    containers = trace.part(_Containers)
    placed = containers.copied_in.get(containers.depth + 1, [])
    ids = {id(each) for each in changed}
    held = [*placed, *(original(each) for value in values for each in _containers(value))]
    own = {id(original(each)) for value in carried for each in _containers(value)}
    if any(id(each) in own for each in placed):
        return True
    return any(id(each) in ids or id(_attributes_of(each)) in ids for each in held)


def note_chosen(element: Any, among: Iterable[Any] = ()) -> None:
    """Remember the containers of an element that a tensor chose: it is a copy of one of these."""
    if holds_containers(element):
        trace.part(_Containers).chosen.update((id(each), each) for each in _containers(element))
        found = {id(each): each for value in (element, *among) for each in _containers(value)}
        lines = tuple(lines_of_model())
        copies = [(_ELEMENT, each, copied(each), lines) for each in found.values()]
        trace.part(_Containers).noted.extend(copies)


def note_element(element: Any, among: Iterable[Any] = ()) -> None:
    """Remember the containers of an element that a tensor chose, and that stays in its list or dict."""
    note_chosen(element, among)
    trace.part(_Containers).elements.update((id(each), each) for each in _containers(element))


def check_copies(element: Any, container: Any) -> None:
    """Refuse a change of an element where it is, if a variable has a copy of what may be the same element.

    So may another container, which has elements of the one that holds it.

    Raises:
        ExportFailed: In eager that variable has the element itself, and sees the change.
    """
    containers = trace.part(_Containers)
    kinds = set(map(type, _containers(element)))
    is_shared = not kinds.isdisjoint(containers.shared)
    copies = (each for each in [*containers.elements.values()] if type(each) in kinds)
    if is_shared or any(map(is_held, copies)) or _sharing(container):
        raise _second_name(_ELEMENT, tuple(lines_of_model()))


def note_placed(value: Any) -> None:
    """Remember the containers that are put into a dict or a list which holds copies of them."""
    containers, lines = trace.part(_Containers), tuple(lines_of_model())
    for each in _containers(value):
        if id(each) in containers.elements:
            containers.shared.add(type(each))
        containers.elements[id(each)] = each
        containers.noted.append((_ELEMENT, each, copied(each), lines))


def _containers(value: Any) -> Iterator[Any]:
    value = value.payload_of_optional if isinstance(value, OptionalValue) else value
    if object_fields.is_structure(value):
        if not object_fields.is_frozen(value):
            yield value
        value = tuple(object_fields.parts(value))
    if type(value) in _CHANGED:
        yield value
    elif not isinstance(value, tuple):
        return
    for each in dict.values(value) if isinstance(value, dict) else value:
        yield from _containers(each)


def _pairs(old: Any, new: Any) -> Iterator[tuple[Any, Any]]:
    """The containers of a value, each with what took its place; with None where buffers hold its elements."""
    old, new = (each.payload_of_optional if isinstance(each, OptionalValue) else each for each in (old, new))
    if old is new:
        return
    if type(old) is not type(new):
        yield from ((each, None) for each in _containers(old))
        return
    if type(old) in _CHANGED:
        yield old, new
    if object_fields.is_structure(old):
        if not object_fields.is_frozen(old):
            yield old, new
        old, new = tuple(object_fields.parts(old)), tuple(object_fields.parts(new))
    if type(old) not in _COPIED and not isinstance(old, tuple):
        return
    if isinstance(old, dict):
        inner: Iterable[Any] = ((value, new.get(key)) for key, value in old.items())
    else:
        inner = zip(old, itertools.chain(new, itertools.repeat(None)), strict=False)
    for each, other in inner:
        yield from _pairs(each, other)
