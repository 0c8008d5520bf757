"""The state that a model keeps in Python between calls: numbers and tensors in attributes, lists, objects.

`observe(module, calls, changed)` runs a model some times and gives a `State`. It has phases: the forms that
what is kept takes, such as `cache` None in the first call and a tensor later. In a phase every value is
either fixed or a slot, a tensor of one dtype and shape that calls hand on:

    a tensor that is assigned or written        a slot
    a number that changes in every call         a slot, an int64, a float64 or a bool of no dimensions
    a value that changes in the first calls     fixed, another in each phase
    None, a string, a dtype, a length, keys     fixed

Raises `StateRefused` where the form never settles.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import torch
from torch import nn
from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack

from aotpipe.canonicalize import example_call
from aotpipe.canonicalize.inputs import pytrees
from aotpipe.canonicalize.state import layouts
from aotpipe.canonicalize.state.layouts import Leaf, Node, Path, Slot, Snapshot, Tree, shown
from aotpipe.canonicalize.trace import dry_run, return_values
from aotpipe.canonicalize.values import dynamic_list, trace
from aotpipe.model import object_graph
from aotpipe.model.object_graph import Root

MOST_PHASES: Final = 8
_CALLS: Final = 3


class StateRefused(Exception):
    """What a model keeps cannot be state of a program.

    Attributes:
        name: The whole path, as a user writes it.
        reason, hint: Why, and one thing to do.
        of_sizes: Whether it is because of the sizes of a call.
    """

    def __init__(self, root: Root, path: Path, reason: str, hint: str, *, of_sizes: bool = False) -> None:
        super().__init__(f"`{shown(path)}` {reason}")
        self.of_sizes = of_sizes
        self.root = root
        self.name = shown(path)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True, slots=True)
class State:
    """What a model keeps in Python, and the forms that it takes.

    Attributes:
        roots: The names under which something changes.
        snapshots: What they hold before the first call, and after each call that was looked at.
        varying: The paths of the leaves that are slots.
        kinds: Dtypes that a number is seen to need besides those in the snapshots.
        growing: What the elements are of lists, dicts and sets of which a tensor decides the length, by path.
        chosen: The objects, as texts and members of an enum, of which a tensor decides which it is, by path.
        unread: The names that are always written before they are read: nothing is kept of them.
        ignored: Names that change and have no effect on the results.
        buffers: The tensors of the slots, which all entry points of a model share.
    """

    roots: tuple[Root, ...]
    snapshots: tuple[tuple[Snapshot, ...], ...]
    varying: frozenset[Path] = frozenset()
    kinds: frozenset[tuple[Path, torch.dtype]] = frozenset()
    growing: tuple[tuple[Path, dynamic_list.Kind], ...] = ()
    chosen: tuple[tuple[Path, tuple[Any, ...]], ...] = ()
    unread: tuple[Root, ...] = ()
    ignored: tuple[Root, ...] = ()
    buffers: dict[object, torch.Tensor] = field(default_factory=dict, compare=False)

    @property
    def first(self) -> tuple[Snapshot, ...]:
        """What is held before the first call."""
        return self.snapshots[0]

    def knows(self, root: Root) -> bool:
        """Whether a name is among those that change."""
        return any(root.identity == each.identity for each in (*self.roots, *self.unread, *self.ignored))

    def with_roots(self, late: Collection[Root]) -> State:
        """The same with more names, which hold now what they hold before a call."""
        held = tuple(map(layouts.snapshot_at, late))
        added = {root.identity for root in late}
        return replace(
            self,
            roots=(*self.roots, *late),
            snapshots=tuple((*snapshots, *held) for snapshots in self.snapshots),
            unread=tuple(each for each in self.unread if each.identity not in added),
        )

    def is_set_once(self, root: Root) -> bool:
        """Whether the first call leaves a name as the later ones do."""
        at = next(at for at, each in enumerate(self.roots) if each.identity == root.identity)
        held = [each[at] for each in self.snapshots[1:]]
        return bool(held) and all(each == held[0] for each in held)

    def without(self, roots: Iterable[Root]) -> State:
        """The same with names of which nothing is kept: each call begins with what they first held."""
        dropped = {root.identity: root for root in roots}
        kept = [at for at, each in enumerate(self.roots) if each.identity not in dropped]
        paths = {root.path for root in dropped.values()}
        return replace(
            self,
            roots=tuple(self.roots[at] for at in kept),
            snapshots=tuple(tuple(each[at] for at in kept) for each in self.snapshots),
            varying=frozenset(path for path in self.varying if path[0] not in paths),
            kinds=frozenset((path, dtype) for path, dtype in self.kinds if path[0] not in paths),
            growing=tuple((path, kind) for path, kind in self.growing if path[0] not in paths),
            chosen=tuple((path, options) for path, options in self.chosen if path[0] not in paths),
            ignored=(*self.ignored, *dropped.values()),
        )

    def with_leaves(self, leaves: Mapping[Path, Leaf]) -> State:
        """The same with more slots, which are to hold what was seen."""
        kinds = {(path, seen.value.dtype) for path, seen in leaves.items() if isinstance(seen.value, Slot)}
        return replace(self, varying=self.varying | leaves.keys(), kinds=self.kinds | kinds)

    def with_growing(self, path: Path, elements: dynamic_list.Kind) -> State:
        """The same with a container of which a tensor decides the length."""
        return replace(self, growing=(*(each for each in self.growing if each[0] != path), (path, elements)))

    def with_chosen(self, path: Path, options: tuple[Any, ...]) -> State:
        """The same with one of several objects, of which a tensor decides which it is."""
        return replace(self, chosen=(*(each for each in self.chosen if each[0] != path), (path, options)))

    def known_here(self) -> list[Root]:
        """The names of what only rewritten code knows: such objects, and containers that grow."""
        paths = {path[0] for path, _ in (*self.growing, *self.chosen)}
        return [root for root in self.roots if root.path in paths]

    def with_snapshots(self, snapshots: tuple[Snapshot, ...]) -> State:
        """The same after a call that left something else."""
        leaves = layouts.leaves_at(self.roots, snapshots)
        late = {path for path, leaf in leaves if isinstance(leaf.value, Slot)}
        return replace(self, snapshots=(*self.snapshots, snapshots), varying=self.varying | late)

    def phases(self) -> list[tuple[Node, ...]]:
        """The forms in the order in which they were met; the last one met again is left out."""
        found: list[tuple[Node, ...]] = []
        for layout in self._layouts():
            if layout not in found:
                found.append(layout)
        return _named_apart(found)

    def is_settled(self, last: int = 1) -> bool:
        """Whether the last calls left forms that were there before."""
        forms = self._layouts()
        return all(layout in forms[:-last] for layout in forms[-last:])

    def without_fixpoint(self) -> StateRefused:
        """Says what takes another form after every call."""
        forms = self._layouts()
        at = next(at for at, (old, new) in enumerate(zip(forms[-1], forms[-2], strict=True)) if old != new)
        # The first call may leave another kind of thing than those after it.
        seen = [layout[at] for layout in forms[1:]]
        old, new = next((old, new) for old, new in pairwise(seen) if old != new)
        return _difference(self.roots[at], (self.roots[at].path,), old, new)

    def _layouts(self) -> list[tuple[Node, ...]]:
        dtypes, names = self._number_dtypes(), self._names()
        growing, chosen = dict(self.growing), dict(self.chosen)

        def form(leaf: Leaf, path: Path) -> Leaf | Slot:
            value = leaf.value
            if path in chosen:
                cpu = torch.device("cpu")
                return Slot(torch.int64, (), cpu, number=True, name=shown(path), options=chosen[path])
            is_known = not (isinstance(value, (torch.Tensor, Slot)) or layouts.is_number(value))
            if path not in self.varying or is_known:
                return Leaf(value)
            if isinstance(value, torch.Tensor) or (isinstance(value, Slot) and not value.number):
                name = shown(names.get(path, path))
                return Slot(value.dtype, tuple(value.shape), value.device, number=False, name=name)
            return Slot(dtypes[path], (), torch.device("cpu"), number=True, name=shown(path))

        paths = [(root.path,) for root in self.roots]
        return [
            tuple(layouts.map_leaves(form, *each, growing) for each in zip(snapshots, paths, strict=True))
            for snapshots in self.snapshots
        ]

    def _names(self) -> dict[Path, Path]:
        """The first name of each tensor that has always had several."""
        tensors: dict[Path, list[int]] = {}
        for snapshots in self.snapshots:
            for path, leaf in layouts.leaves_at(self.roots, snapshots):
                if isinstance(leaf.value, torch.Tensor):
                    tensors.setdefault(path, []).append(id(leaf.value))
        first: dict[tuple[int, ...], Path] = {}
        return {path: first.setdefault(tuple(found), path) for path, found in tensors.items()}

    def _number_dtypes(self) -> dict[Path, torch.dtype]:
        """The dtype that holds all numbers of a path."""
        needed = list(self.kinds)
        for snapshots in self.snapshots:
            for path, leaf in layouts.leaves_at(self.roots, snapshots):
                if layouts.is_number(leaf.value):
                    needed.append((path, layouts.dtype_of(leaf.value)))
                elif isinstance(leaf.value, Slot) and leaf.value.number:
                    needed.append((path, leaf.value.dtype))
        found: dict[Path, torch.dtype] = {}
        for path, dtype in needed:
            found[path] = max(found.get(path, torch.bool), dtype, key=layouts.KINDS.index)
        return found


def _difference(root: Root, path: Path, old: Node, new: Node) -> StateRefused:
    if isinstance(old, Tree) and isinstance(new, Tree) and old.kind is new.kind:
        if len(old.children) != len(new.children):
            what = f"grows in every call: it holds {len(old.children)} values, then {len(new.children)}"
            return StateRefused(
                root, path, what, f"give `{shown(path)}` a length: a deque(maxlen=N), filled at first"
            )
        # A set has keys alone.
        for name, one, other in zip(old.names, old.children, new.children, strict=False):
            if one != other:
                return _difference(root, (*path, name), one, other)
    if isinstance(old, Slot) and isinstance(new, Slot) and old.shape != new.shape:
        what = f"grows in every call: its shape is {old.shape}, then {new.shape}"
        hint = (
            f"keep a buffer of the largest size and a count of what is in it, and write "
            f"`{shown(path)}[:, n] = new`"
        )
        return StateRefused(root, path, what, hint)
    what = f"is another {_kind(new)} after every call, which no program can keep"
    values = [each.value for each in (old, new) if isinstance(each, Leaf)]
    of_sizes = any(isinstance(value, torch.Size | torch.SymInt) for value in values)
    hint = "keep a tensor or a number, or take it out of the model"
    return StateRefused(root, path, what, hint, of_sizes=of_sizes)


def _kind(node: Node) -> str:
    if isinstance(node, Tree):
        return node.kind.__name__
    return type(node.value).__name__ if isinstance(node, Leaf) else "tensor"


def _named_apart(phases: list[tuple[Node, ...]]) -> list[tuple[Node, ...]]:
    """Slots of one path that differ in dtype or shape get names of their own."""
    taken: dict[str, Slot] = {}

    def named(leaf: Leaf | Slot, _: Path) -> Leaf | Slot:
        if isinstance(leaf, Leaf):
            return leaf
        name, count = leaf.name, 0
        while taken.setdefault(name, replace(leaf, name=name)) != replace(leaf, name=name):
            count += 1
            name = f"{leaf.name}.{count}"
        return taken[name]

    return [tuple(layouts.map_leaves(named, node) for node in phase) for phase in phases]


def observe(
    module: torch.nn.Module,
    calls: Sequence[Callable[[], object]],
    changed: Iterable[Root],
    ignored: Sequence[Root] = (),
) -> State:
    """Call a model until the form of what it keeps settles.

    Each of `calls` calls an entry point on its example inputs; the model is left as it was. `changed` and
    `ignored` are the names under which one call changed something, and under which that does not matter.

    Raises:
        StateRefused: The form is another after every call.
    """
    roots = {root.identity: root for root in changed}
    idle_always = {root.identity for root in ignored}
    unread: dict[tuple[int, str], Root] = {}
    while True:
        kept = [root for key, root in roots.items() if key not in unread]
        with example_call.unchanged(module), followed_reads(roots.values()) as seen:
            watch = object_graph.Watch(module)
            found, problem = _called(tuple(kept), calls, seen.begin)
            for root, value in watch.changed_without_form():
                if root.identity not in idle_always:
                    problem = without_form(root, value)
            new = [root for root in watch.changed() if root.identity not in roots.keys() | idle_always]
        idle = {root.identity: root for root in kept if not seen.has(root)}
        if idle and not _are_unused(module, calls, idle.values()):
            idle = {key: root for key, root in idle.items() if _are_unused(module, calls, [root])}
        if new or idle:
            roots |= {root.identity: root for root in new}
            unread |= idle
        elif problem is not None:
            raise problem
        else:
            return replace(found, unread=tuple(unread.values()), ignored=tuple(ignored))


def _are_unused(
    module: torch.nn.Module, calls: Sequence[Callable[[], object]], roots: Collection[Root]
) -> bool:
    """Whether calls give the same with nothing of use under some names, which `vars(module)` reads unseen."""
    for call in calls:
        results = []
        for replaced in ((), roots):
            with example_call.unchanged(module):
                for root in replaced:
                    root.held[root.key] = object()
                try:
                    results.append(pytrees.clone_tensors(call()))
                except Exception:  # noqa: BLE001  # whatever the model raises where it finds another thing
                    return False
        if not example_call.is_same(*results):
            return False
    return True


def without_form(root: Root, value: Any) -> StateRefused:
    """Says that what calls changed, below a name, has no form."""
    base = tuple if isinstance(value, tuple) else object_graph.base_of(value)
    what = f"keeps what calls change in `{type(value).__name__}`"
    hint = "keep a tensor or a number, or take it out of the model"
    if base is not None:
        what += f", a subclass of {base.__name__}"
        hint = f"keep it in a plain {base.__name__}, or in attributes of a class that is no {base.__name__}"
    return StateRefused(root, (root.path,), what, hint)


def _called(
    roots: tuple[Root, ...], calls: Sequence[Callable[[], object]], begin: Callable[[], None]
) -> tuple[State, StateRefused | None]:
    snapshots = [tuple(map(layouts.snapshot_at, roots))]
    state = State(roots, tuple(snapshots))
    for count in range(1, MOST_PHASES + 2):
        is_over = False
        for call in calls:
            begin()
            try:
                call()
            except Exception:
                # With what the calls before it left, a model may refuse the example; the first takes it.
                if len(snapshots) == 1:
                    raise
                is_over = True
                break
            snapshots.append(tuple(map(layouts.snapshot_at, roots)))
        varying = frozenset(_varying(roots, snapshots, len(calls)))
        _refuse_registered(roots, snapshots[0], varying)
        state = State(roots, tuple(snapshots), varying)
        if is_over or (count >= _CALLS and state.is_settled(len(calls))):
            return state, None
    return state, state.without_fixpoint()


def _refuse_registered(roots: Sequence[Root], first: tuple[Snapshot, ...], varying: Collection[Path]) -> None:
    """Refuse a second name of a registered tensor: torch.export exchanges that under its own name only."""
    registered = {id(tensor) for root in roots for tensor in object_graph.registered(root.owner)}
    for root, snapshot in zip(roots, first, strict=True):
        for path, leaf in layouts.leaves_at([root], [snapshot]):
            if not root.is_buffer and path in varying and id(leaf.value) in registered:
                raise StateRefused(
                    root,
                    path,
                    "is a second name of a parameter or a buffer, under which calls write to it",
                    "write to it under its own name",
                )


def _varying(roots: Sequence[Root], snapshots: Sequence[tuple[Snapshot, ...]], last: int) -> Iterator[Path]:
    """Yield the leaves that are slots: tensors that change or appear late, numbers that keep changing."""
    for at, root in enumerate(roots):
        seen = [dict(layouts.leaves_at([root], [each[at]])) for each in snapshots]
        for path in dict.fromkeys(path for each in seen for path in each):
            values = [each.get(path) for each in seen]
            tensors = [value for value in values if value and isinstance(value.value, torch.Tensor)]
            if tensors and any(value != tensors[0] for value in values):
                yield path
            late = [value.value for value in values[-1 - last :] if value]
            if all(map(layouts.is_number, late)) and any(
                not object_graph.is_same(value, late[0]) for value in late
            ):
                yield path


class Reads:
    """The names that were read while nothing had been assigned to them."""

    def __init__(self, known_here: Collection[tuple[int, str]] = ()) -> None:
        self._known_here = known_here
        self._written: set[tuple[int, str]] = set()
        self._read: set[tuple[int, str]] = set()
        self._depth = _depth()

    def begin(self) -> None:
        """A call begins: nothing is written yet."""
        self._written.clear()
        self._depth = _depth()

    def has(self, root: Root) -> bool:
        """Whether a name was read before it was written."""
        # What a module registers is read by torch, past its class.
        return root.is_buffer or root.identity in self._read

    def read(self, identity: tuple[int, str]) -> None:
        """Note a read.

        Raises:
            Unwritten: Code that is not rewritten reads what only rewritten code knows.
        """
        if identity in self._known_here:
            return_values.check_reader()
        if identity not in self._written:
            self._read.add(identity)

    def wrote(self, identity: tuple[int, str]) -> None:
        """Note an assignment, unless a branch makes it, which another path does not take."""
        if _depth() == self._depth:
            self._written.add(identity)


def _depth() -> tuple[int, int]:
    # A branch that torch traces has modes of its own, which it tells nowhere else; one of ours may have as
    # many as what is around it.
    modes = _len_torch_dispatch_stack() + _len_torch_function_stack()
    return modes - trace.current().modes, dry_run.depth()


@contextmanager
def followed_reads(roots: Iterable[Root], known_here: Collection[Root] = ()) -> Iterator[Reads]:
    """Note the accesses to attributes; only rewritten code may read what is `known_here`."""
    reads = Reads({root.identity for root in known_here})
    by_owner: dict[int, list[Root]] = {}
    for root in (*roots, *known_here):
        if hasattr(getattr(type(root.owner), root.key, None), "__set__"):
            # A property goes before what the module holds under its name, and may read that.
            reads.read(root.identity)
        elif not root.is_buffer:
            by_owner.setdefault(id(root.owner), []).append(root)
    changed: list[tuple[nn.Module, type]] = []
    try:
        for owned in by_owner.values():
            owner, kind = owned[0].owner, type(owned[0].owner)
            # Descriptors of the class see the accesses of `object.__getattribute__`, too.
            followed = {root.key: _Followed(root, reads, kind) for root in owned}
            names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
            changed.append((owner, kind))
            owner.__class__ = type(kind.__name__, (kind,), {**followed, **names})
        yield reads
    finally:
        for owner, kind in changed:
            owner.__class__ = kind


class _Followed:
    """An attribute that notes its accesses; the value lies in the module's own dict."""

    def __init__(self, root: Root, reads: Reads, kind: type) -> None:
        self._root = root
        self._reads = reads
        self._kind = kind

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return getattr(self._kind, self._root.key)
        self._reads.read(self._root.identity)
        if self._root.key in vars(owner):
            return vars(owner)[self._root.key]
        default = inspect.getattr_static(self._kind, self._root.key, layouts.ABSENT)
        if default is layouts.ABSENT:
            # nn.Module looks among parameters, buffers and submodules then.
            raise AttributeError(self._root.key)
        # What the class has may compute what is held (`functools.cached_property`).
        bind = getattr(type(default), "__get__", None)
        return default if bind is None else bind(default, owner, self._kind)

    def __set__(self, owner: Any, value: Any) -> None:
        self._reads.wrote(self._root.identity)
        vars(owner)[self._root.key] = value

    def __delete__(self, owner: Any) -> None:
        self._reads.wrote(self._root.identity)
        if self._root.key not in vars(owner):
            raise AttributeError(self._root.key)
        del vars(owner)[self._root.key]
