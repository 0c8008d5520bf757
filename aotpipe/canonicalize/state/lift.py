"""A model for torch.export that takes what it keeps in Python from buffers, and hands it on to them.

`LiftedModel(module, state)` has a `module` with the parameters of the model and one buffer for each slot of
its state. A call of that fills the model with what the buffers hold, calls it, and writes to the buffers what
is left; in the phases of a state it is called in a branch for each. The model itself is as before afterwards.

Raises `UnknownState`, with the state to try next, when a call leaves what the state does not know.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from aotpipe.canonicalize import modules
from aotpipe.canonicalize.alias import tensor_storage
from aotpipe.canonicalize.inputs.pytrees import unique
from aotpipe.canonicalize.operators import dynamic_table_methods
from aotpipe.canonicalize.state import layouts, object_identity, sharing
from aotpipe.canonicalize.state.layouts import Growing, Leaf, Node, Path, Slot, Snapshot, Tree
from aotpipe.canonicalize.state.slots import MOST_PHASES, State, StateRefused, followed_reads, without_form
from aotpipe.canonicalize.trace import dry_run, raised_state, regions
from aotpipe.canonicalize.values import (
    chosen_object,
    dynamic_list,
    dynamic_table,
    element_kinds,
    host_scalars,
    trace,
)
from aotpipe.canonicalize.values.abstract_values import Incompatible, Variables
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.model import object_graph

_STORE: Final = "aotpipe_state"
_PHASE: Final = "phase"
_ROOM: Final = 256
_ONE_FORM: Final = "keep a number for each, and look the object up in a tuple or a dict"
_SYMBOLS: Final = (torch.SymBool, torch.SymInt, torch.SymFloat)


class UnknownState(Exception):
    """A call left something that the state does not know; `state` knows it.

    Of buffers it does once the trace has ended: meanwhile they hold tensors of torch's own.
    """

    def __init__(self, state: State, buffers: Sequence[object_graph.Root] = ()) -> None:
        super().__init__("a call left something new")
        self._state = state
        self._buffers = buffers

    @property
    def state(self) -> State:
        """The state to try next."""
        paths = [(root.path,) for root in self._buffers]
        return self._state.with_roots(self._buffers).with_leaves(dict.fromkeys(paths, Leaf(None)))


@contextmanager
def watching(module: nn.Module, state: State | None) -> Iterator[None]:
    """Notice what a call that is traced leaves in a model, before torch puts it back.

    Raises:
        UnknownState: The model keeps what no state is known of.
        StateRefused: It writes a buffer in place that shares memory with another tensor that it keeps.
    """
    known = State((), ((),)) if state is None else state
    watches: list[object_graph.Watch] = []
    shares = sharing.Sharing(module, state)
    late: list[object_graph.Root] = []
    buffers: dict[str, object_graph.Root] = {}
    begun: dict[str, torch.Tensor] = {}
    call = ExitStack()

    def before(*_: object) -> None:
        # torch has put its own tensors in the place of the model's by now.
        watches[:] = [object_graph.Watch(module)]
        seen.begin()
        shares.begin()
        buffers.update(_buffers_beside(module, known))
        begun.update({name: root.held[root.key] for name, root in buffers.items()})
        call.enter_context(raised_state.watching(_asked(buffers, watches[0], known)))

    def after(*_: object) -> None:
        call.close()
        late[:] = [root for root in watches[0].unregistered() if not known.knows(root)]
        late.extend(root for root in known.unread if seen.has(root))
        # Of a buffer that is handed on as another, torch.export makes a copy that its verifier refuses.
        moved = {name for name, root in buffers.items() if _is_of_another(name, root, begun)}
        written = [buffers[name] for name in sorted(moved.union(raised_state.others()))]
        if late or written or raised_state.is_unknown():
            watches[0].restore()
            raise UnknownState(raised_state.unknown() or known.with_roots(late), written)
        shares.end(shares.held(), {}, {})
        shares.check()

    # What hooks close over is not the model's: `effects` looks into no partial of a function of aotpipe's.
    with (
        call,
        followed_reads(known.unread) as seen,
        module.register_forward_pre_hook(functools.partial(before)),
        module.register_forward_hook(functools.partial(after)),
    ):
        yield


def _buffers_beside(module: nn.Module, state: State) -> dict[str, object_graph.Root]:
    """The registered buffers that hold a tensor and are not in the state, by path."""
    roots = object_graph.roots_of(object_graph.modules_of(module))
    held = (root for root in roots if root.is_buffer and not state.knows(root))
    return {root.path: root for root in held if isinstance(root.held[root.key], torch.Tensor)}


def _is_of_another(name: str, root: object_graph.Root, begun: Mapping[str, torch.Tensor]) -> bool:
    """Whether a buffer is the tensor that one of another name was when the call began."""
    held = root.held.get(root.key)
    return held is not begun[name] and any(held is tensor for tensor in begun.values())


def _read(buffers: Mapping[str, object_graph.Root]) -> raised_state.Slots:
    return {name: _held(root.held.get(root.key)) for name, root in buffers.items()}


def _asked(
    buffers: Mapping[str, object_graph.Root], watch: object_graph.Watch, known: State
) -> raised_state.Watched:
    """What is watched where no state is known of: whether something is written before an assert."""

    def look() -> Callable[[], State] | None:
        late = [root for root in watch.unregistered() if not known.knows(root)]
        return functools.partial(known.with_roots, late) if late else None

    return raised_state.Watched(
        start={},
        read=dict,
        tensor=lambda *_: None,
        store=lambda *_: False,
        look=look,
        others=lambda: _read(buffers),
        only_asks=True,
    )


def _held(value: Any) -> raised_state.Held:
    if not isinstance(value, torch.Tensor):
        return raised_state.Held(value)
    # In a region an operand stands for a tensor from outside, and is what is written.
    return raised_state.Held(value, object_graph.writes(dry_run.stood_for(value)))


class LiftedModel:
    """A model and its state."""

    def __init__(self, module: nn.Module, state: State) -> None:
        self._module = module
        self._state = state
        self._sharing = sharing.Sharing(module, state)
        self._identity = object_identity.ObjectIdentity(module, state)
        self._kept: set[str] = set()
        self._phases = state.phases()
        self.slots = {
            slot.name: slot for phase in self._phases for node in phase for slot in layouts.slots_of(node)
        }
        self._registered = {
            root.path: root
            for root, node in zip(state.roots, self._phases[0], strict=True)
            if root.is_buffer and isinstance(node, Slot)
        }
        first = {
            slot.name: tensor
            for snapshot, node in zip(state.first, self._phases[0], strict=True)
            for slot, tensor in layouts.initial(snapshot, node)
        }
        self._store = nn.Module()
        self._keys = {}
        for index, (name, slot) in enumerate(self.slots.items()):
            if name not in self._registered:
                self._keys[name] = f"slot_{index}"
                zeros = torch.zeros(slot.shape, dtype=slot.dtype, device=slot.device)
                shared = state.buffers.setdefault(slot, first.get(name, zeros))
                self._store.register_buffer(f"slot_{index}", shared)
        if len(self._phases) > 1:
            self._store.register_buffer(_PHASE, state.buffers.setdefault(_PHASE, torch.tensor(0)))
        self.module = modules.beside(module, self._call, {_STORE: self._store})

    def name_state(self, program: ExportedProgram) -> frozenset[str]:
        """Give the buffers of a program the names of what they stand for.

        Returns:
            The names of those that a call which fails an assert may leave changed.

        Raises:
            StateRefused: A call writes one in place that shares memory with another.
            UnknownState: The program writes a tensor of the model's that the state does not know.
        """
        self._sharing.check()
        self._identity.check()
        require_known_writes(self._module, self._state, program)
        own = unique([*self._keys, _PHASE])
        prefix = f"{_STORE}."
        names = dict(zip([prefix + key for key in [*self._keys.values(), _PHASE]], own, strict=True))
        taken = {str(spec.target) for spec in program.graph_signature.input_specs if spec.target}
        names = {old: new for old, new in names.items() if _is_free(new, {*taken, *names.values()} - {new})}
        for spec in program.graph_signature.input_specs:
            if spec.kind is InputKind.BUFFER and spec.target in names:
                spec.target = names[spec.target]
        for out in program.graph_signature.output_specs:
            if out.kind is OutputKind.BUFFER_MUTATION and out.target in names:
                out.target = names[out.target]
        for table in (program.state_dict, program.constants):
            for old in [key for key in table if key in names]:
                table[names[old]] = table.pop(old)
        keys = {name: prefix + key for name, key in self._keys.items()} | {_PHASE: prefix + _PHASE}
        kept = (keys.get(name, name) for name in self._kept)
        return frozenset(names.get(each, each) for each in kept)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        given = {name: self._store.get_buffer(key) for name, key in self._keys.items()}
        given |= {name: root.held[root.key] for name, root in self._registered.items()}
        result, after, phase = self._from(0, given, args, kwargs)
        if trace.is_on():
            self._kept = raised_state.kept()
        # All are read before any is written: one may be handed on as another.
        fresh = {name: after[name].clone() for name in given if after[name] is not given[name]}
        for name, value in fresh.items():
            given[name].copy_(value)
        if len(self._phases) > 1:
            self._store.get_buffer(_PHASE).copy_(_as_tensor(phase, torch.int64))
        return result

    def _from(
        self, phase: int, given: Mapping[str, torch.Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, dict[str, torch.Tensor], Any]:
        """Call the model in this phase or a later one, as the buffer of the phase decides."""
        if phase == len(self._phases) - 1:
            return self._run(phase, given, args, kwargs)
        found: list[Any] = [None, None, None]

        def keep(values: tuple[Any, ...]) -> None:
            found[:] = values

        variables = Variables.of_list(found, "__aotpipe_result", "what is kept", "the phase")
        now = self._store.get_buffer(_PHASE)
        regions.branch(
            now == phase,
            lambda: keep(self._run(phase, given, args, kwargs)),
            lambda: keep(self._from(phase + 1, given, args, kwargs)),
            variables,
        )
        return found[0], found[1], found[2]

    def _run(
        self, phase: int, given: Mapping[str, torch.Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, dict[str, torch.Tensor], Any]:
        """The call in one phase: what it returns, what the slots are afterwards, and the phase after it."""
        state = self._state
        watch = object_graph.Watch(self._module)
        buffers = _buffers_beside(self._module, state)
        taken: dict[str, torch.Tensor] = {}
        try:
            # A tensor of several names is one object under all of them.
            for root, node in zip(state.roots, self._phases[phase], strict=True):
                root.held[root.key] = layouts.build(node, lambda slot: _taken(slot, given, taken))
                if root.held[root.key] is layouts.ABSENT:
                    del root.held[root.key]
            # torch.export would take an assigned buffer for written; it is, below.
            with dry_run.unhooked(), followed_reads(state.unread, state.known_here()) as seen:
                self._sharing.begin()
                self._identity.begin(self._phases[phase])
                watched = self._watched(given, phase, watch, buffers)
                with raised_state.watching(watched) as call:
                    result = self._module(*args, **kwargs)
                    kept = call.left(watched.read() or {})
            for root in state.roots:
                state = _with_decided(state, root)
            if state is not self._state:
                raise UnknownState(state)
            snapshots = tuple(_left_at(root, state) for root in state.roots)
            held = self._sharing.held()
            self._identity.leave()
            late = [root for root in state.unread if seen.has(root)]
            late += [root for root in watch.changed() if not state.knows(root)]
            for root, value in watch.changed_without_form():
                if all(root.identity != each.identity for each in state.ignored):
                    raise without_form(root, value)
        finally:
            watch.restore()
        if late:
            raise UnknownState(state.with_roots(late))
        before_raise = [buffers[name] for name in sorted(raised_state.others())]
        if (known := raised_state.unknown()) is not None or before_raise:
            raise UnknownState(known or state, before_raise)
        for number, layout in enumerate(self._phases):
            values: dict[str, torch.Tensor] = {}
            fits_leaf = functools.partial(_is_of, values)
            if all(_fits(*each, fits_leaf) for each in zip(layout, snapshots, strict=True)):
                numbers = {name for name, slot in self.slots.items() if slot.number}
                left = {name: each for name, each in values.items() if name not in numbers}
                written = {name: each for name, each in taken.items() if name not in numbers}
                self._sharing.end(held, written, left)
                self._identity.end(layout, snapshots, written)
                left_in = host_scalars.as_host_scalar(kept.pop(_PHASE)) if _PHASE in kept else number
                return result, {**given, **values, **kept}, left_in
        raise UnknownState(_grown(state, self._phases, snapshots))

    def _watched(
        self,
        given: Mapping[str, torch.Tensor],
        phase: int,
        watch: object_graph.Watch,
        buffers: Mapping[str, object_graph.Root],
    ) -> raised_state.Watched:
        """What is watched of the slots while the model is called in a phase."""
        base = {name: raised_state.Held(value) for name, value in given.items()}
        base[_PHASE] = raised_state.Held(phase)
        roots = self._state.roots

        def read() -> raised_state.Slots | None:
            # At each assert: what a trace follows of shapes and dtypes would take most of its time.
            with torch._C.DisableTorchFunction():  # noqa: SLF001  # it has no public name
                return settled()

        def settled() -> raised_state.Slots | None:
            snapshots = [layouts.snapshot_at(root) for root in roots]
            for number, layout in enumerate(self._phases):
                found: dict[str, raised_state.Held] = {}
                if all(_reads(found, *each) for each in zip(layout, snapshots, strict=True)):
                    return {**base, **found, _PHASE: raised_state.Held(number)}
            return None

        def tensor(name: str, held: raised_state.Held) -> torch.Tensor | None:
            if name == _PHASE:
                return torch.full((), held.value)
            if held.copy is not None:
                return held.copy
            if held.is_same(begun[name]):
                return given[name]
            values: dict[str, torch.Tensor] = {}
            fits = _is_of(values, self.slots[name], held.value) if name in self.slots else False
            return values[name] if fits else None

        def store(name: str, value: torch.Tensor) -> bool:
            slot = self.slots.get(name)
            if slot is None:
                return False
            stored: Any = host_scalars.as_host_scalar(value) if slot.number else value
            if slot.options:
                stored = ChosenObject(slot.options, value)
            now = read()
            layout = self._phases[now[_PHASE].value] if now is not None else ()
            places = [
                _store(root, path[1:], stored)
                for root, node in zip(roots, layout, strict=False)
                for path, leaf in layouts.leaves_of(node, (root.path,))
                if isinstance(leaf, Slot) and leaf.name == name
            ]
            return bool(places) and all(places)

        def look() -> Callable[[], State] | None:
            if late := [root for root in watch.changed() if not self._state.knows(root)]:
                return functools.partial(self._state.with_roots, late)
            if read() is not None:
                return None
            snapshots = tuple(map(layouts.snapshot_at, roots))
            if (form := _leaves_for(self._state, self._phases, snapshots)) is not None:
                return functools.partial(self._state.with_leaves, form[0]) if form[0] else None
            found = self._state
            for path, leaf in layouts.leaves_at(roots, snapshots):
                found = _with_option(found, path, leaf.value) or found
            return None if found is self._state else lambda: found

        begun = read() or base
        return raised_state.Watched(
            start=begun,
            read=read,
            tensor=tensor,
            store=store,
            look=look,
            others=lambda: _read(buffers),
            has_forms=len(self._phases) > 1,
        )


def _reads(found: dict[str, raised_state.Held], node: Node, left: Node) -> bool:
    """Whether something has a form; adds what each slot holds, of which no tensor is made."""
    if isinstance(node, Growing):
        # Its elements are no tensors of the slots' form: the count stands for all of them.
        elements = tuple(leaf.value for _, leaf in layouts.leaves_of(left))
        found[list(layouts.slots_of(node))[-1].name] = raised_state.Held(elements)
        return isinstance(left, Tree) and left.kind is node.kind
    if isinstance(node, Tree):
        return (
            isinstance(left, Tree)
            and left.kind is node.kind
            and left.keys == node.keys
            and all(_reads(found, *each) for each in zip(node.children, left.children, strict=False))
        )
    if not isinstance(left, Leaf):
        return False
    value = left.value
    if isinstance(node, Leaf):
        return object_graph.is_same(node.value, value)
    if node.options:
        items = chosen_object.parts(value)[0] if type(value) is ChosenObject else (value,)
        fits = all(node.position(each) < len(node.options) for each in items)
    elif node.number:
        fits = _is_number(value) and _number_dtype(value, node.dtype) == node.dtype
    else:
        is_tensor = isinstance(value, torch.Tensor) and not host_scalars.is_host_scalar(value)
        fits = is_tensor and value.dtype == node.dtype and is_of_shape(value, node.shape)
    return fits and found.setdefault(node.name, _held(value)).value is value


def _store(root: object_graph.Root, path: Path, value: Any) -> bool:
    """Let a name, or what it leads to along a path, hold a value; tells whether it can."""
    if not path:
        root.held[root.key] = value
        return True
    node: Any = layouts.snapshot_at(root)
    for name in path[:-1]:
        node = node.children[node.names.index(name)]
    if isinstance(node.live, tuple):
        return False
    items = object_graph.contents(node.live)
    at = node.names.index(path[-1])
    items[list(items)[at] if isinstance(items, dict) else at] = value
    object_graph.refill(node.live, items)
    return True


def require_known_writes(module: nn.Module, state: State | None, program: ExportedProgram) -> None:
    """Notice the tensors of a model, no buffers of it, that a program writes where the example does not.

    Raises:
        UnknownState: It writes one that no state is known of.
        StateRefused: It writes a parameter or a buffer, by no name that torch.export follows.
    """
    written = set(map(tensor_storage.storage_of, _written_constants(program))) - {0}
    if not written:
        return
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor_storage.storage_of(tensor) in written:
            raise StateRefused(
                object_graph.Root(name, module, vars(module), name.partition(".")[0]),
                tuple(name.split(".")),
                "is written under a second name, as one in a list, or through a weak reference",
                "write to it under its own name",
            )
    held = [
        (root, path)
        for root in object_graph.roots_of(object_graph.modules_of(module))
        if not root.is_buffer
        for path, leaf in layouts.leaves_at([root], [layouts.snapshot_at(root)])
        if isinstance(leaf.value, torch.Tensor) and tensor_storage.storage_of(leaf.value) in written
    ]
    known = State((), ((),)) if state is None else state
    if late := {root.identity: root for root, _ in held if not known.knows(root)}:
        known = known.with_roots(late.values())
    if fixed := [path for _, path in held if path not in known.varying]:
        raise UnknownState(known.with_leaves(dict.fromkeys(fixed, Leaf(None))))


def _written_constants(program: ExportedProgram) -> Iterator[torch.Tensor]:
    """The constants of a program that its ops write in place, also through views."""
    lifted = program.graph_signature.inputs_to_lifted_tensor_constants
    owners: dict[torch.fx.Node, str] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in lifted:
            owners[node] = lifted[node.name]
        if node.target is operator.getitem and node.args[0] in owners:
            owners[node] = owners[node.args[0]]
        if not isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001  # it has no public name
            continue
        schema = node.target._schema  # noqa: SLF001  # an op shows its schema nowhere else
        for argument, given in zip(schema.arguments, node.args, strict=False):
            if argument.alias_info is None or given not in owners:
                continue
            if argument.alias_info.is_write:
                yield program.constants[owners[given]]
            owners[node] = owners[given]


def _is_free(name: str, others: set[str]) -> bool:
    """Whether no other name is equal to this one, or a prefix of it, or has it as a prefix."""
    return not any(f"{name}.".startswith(f"{each}.") or each.startswith(f"{name}.") for each in others)


def _with_option(state: State, path: Path, value: Any) -> State | None:
    """The state in which a name is one of the objects that it was in some call, or this one.

    None where these are no such objects.
    """
    known = dict(state.chosen).get(path, ())
    seen = [
        leaf.value
        for held in state.snapshots
        for at, leaf in layouts.leaves_at(state.roots, held)
        if at == path and not isinstance(leaf.value, Slot)
    ]
    options = chosen_object.options([*known, *seen, value], object_graph.is_same)
    if options is None:
        return None
    return state if options == known or len(options) < 2 else state.with_chosen(path, options)


def _with_decided(state: State, root: object_graph.Root) -> State:
    """The state with what a call left under a name of which a tensor decides the length, or which it is.

    Raises:
        StateRefused: Its elements have no common form.
    """
    known, chosen = dict(state.growing), dict(state.chosen)

    def visit(node: Node, path: Path) -> None:
        nonlocal state
        if isinstance(node, Leaf) and (path in chosen or type(node.value) is ChosenObject):
            # What it was before a call, or in a call on the example, it may be again.
            decided = _with_option(state, path, node.value)
            if decided is None:
                raise StateRefused(root, path, "is one of several objects, where a tensor decides", _ONE_FORM)
            state = decided
        if not isinstance(node, Tree):
            return
        live = node.live
        is_dynamic = dynamic_list.is_dynamic_list(live) or dynamic_table.is_dynamic_table(live)
        if path in known or is_dynamic:
            elements = _elements_of(root, path, live, known.get(path))
            if elements != known.get(path):
                state = state.with_growing(path, elements)
            return
        for name, child in zip(node.names, node.children, strict=False):
            visit(child, (*path, name))

    visit(layouts.snapshot_at(root), (root.path,))
    return state


def _elements_of(
    root: object_graph.Root, path: Path, live: Any, known: dynamic_list.Kind | None
) -> dynamic_list.Kind:
    """What the elements of a container are, with room for those of all calls."""
    before, segments = [], layouts.segments_of(live)
    most = getattr(live, "maxlen", None)
    if known is not None:
        capacity = known.capacity
        with dry_run.unrecorded():
            made = [torch.empty((capacity, *leaf.shape), dtype=leaf.dtype) for leaf in known.computed]
            count = host_scalars.as_host_scalar(torch.zeros((), dtype=torch.int64))
            before = [dynamic_list.DynamicList(known, made, count)]
    elif most is None:
        capacity = _assumed_room(layouts.shown(path))
    else:
        capacity = most
    calls = dynamic_list.Assumed(_ROOM, "")
    try:
        return element_kinds.abstract_of_segments([[], before, segments], capacity, trips=calls)[1]
    except Incompatible as error:
        raise StateRefused(root, path, f"is kept from call to call, and {error}", error.hint) from None


def _assumed_room(name: str) -> dynamic_list.Assumed:
    said = f"`{name}` grows where a tensor decides: it has room for {_ROOM} elements"
    hint = "a call that needs more fails an assert; keep it in a deque(maxlen=N) to give it another"
    trace.note("warning", "list-room-assumed", f"{said}; {hint}")
    return dynamic_list.Assumed(_ROOM, said)


def _taken(slot: Slot, given: Mapping[str, torch.Tensor], taken: dict[str, torch.Tensor]) -> Any:
    """A copy of what a slot holds, which the model may write to; all names of a slot give the same one."""
    if slot.name not in taken:
        value = given[slot.name].clone()
        taken[slot.name] = host_scalars.as_host_scalar(value) if slot.number else value
    return ChosenObject(slot.options, taken[slot.name]) if slot.options else taken[slot.name]


def _fits(
    node: Node, snapshot: Node, fits_leaf: Callable[[Leaf | Slot, Any, Path], bool], path: Path = ()
) -> bool:
    """Whether a snapshot has a form; `fits_leaf` decides about each leaf."""
    if not isinstance(node, Tree):
        return isinstance(snapshot, Leaf) and fits_leaf(node, snapshot.value, path)
    return (
        isinstance(snapshot, Tree)
        and snapshot.kind is node.kind
        and snapshot.keys == node.keys
        and all(
            _fits(child, inner, fits_leaf, (*path, name))
            for name, child, inner in zip(node.names, node.children, snapshot.children, strict=False)
        )
    )


def _left_at(root: object_graph.Root, state: State) -> Snapshot:
    """What a call left under a name; of a container that grows, the values of its slots."""
    growing = dict(state.growing)

    def gathered(node: Any, path: Path) -> Any:
        if not isinstance(node, Tree):
            return node
        if path not in growing:
            items = zip(node.names, node.children, strict=False)
            children = (gathered(child, (*path, name)) for name, child in items)
            return replace(node, children=tuple(children))
        found = Growing.of(node, growing[path], layouts.shown(path))
        live = node.live
        if dynamic_table.is_dynamic_table(live):
            live = dynamic_table.of_segment(live, dynamic_table_methods.whole(live)[0])  # each key once
        return replace(node, keys=found.keys, children=tuple(map(Leaf, found.tensors(live))))

    found: Snapshot = gathered(layouts.snapshot_at(root), (root.path,))
    return found


def _is_of(values: dict[str, torch.Tensor], node: Leaf | Slot, value: Any, _: Path = ()) -> bool:
    """Whether a value is what a form has in its place; adds the value of a slot."""
    if isinstance(node, Leaf):
        return object_graph.is_same(node.value, value)
    if node.options:
        if type(value) is ChosenObject:
            position = value.number_in(node.position)
        else:
            position = torch.full((), node.position(value), dtype=torch.int64)
        values[node.name] = position
        return True
    if node.number:
        if not _is_number(value) or _number_dtype(value, node.dtype) != node.dtype:
            return False
        values[node.name] = _as_tensor(value, node.dtype)
        return True
    if not isinstance(value, torch.Tensor) or host_scalars.is_host_scalar(value):
        return False
    if value.dtype != node.dtype or not is_of_shape(value, node.shape):
        return False
    return values.setdefault(node.name, value) is value


def _is_number(value: Any) -> bool:
    return layouts.is_number(value) or isinstance(value, _SYMBOLS) or host_scalars.is_host_scalar(value)


def _number_dtype(value: Any, *others: torch.dtype) -> torch.dtype:
    """The dtype of a slot that holds a number and values of the other dtypes."""
    own = value.dtype if isinstance(value, torch.Tensor) else layouts.dtype_of(value)
    if own.is_floating_point:
        own = torch.float64
    return max((own, *others), key=layouts.KINDS.index)


def _abstract_number(value: Any) -> Slot:
    return Slot(_number_dtype(value), (), torch.device("cpu"), number=True)


def _as_tensor(value: Any, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    return torch.scalar_tensor(value, dtype=dtype)


def is_of_shape(value: torch.Tensor, shape: Sequence[int]) -> bool:
    """Whether a tensor has a shape for certain, whatever the sizes of the inputs."""
    return len(value.shape) == len(shape) and all(
        type(size) is int and size == wanted for size, wanted in zip(value.shape, shape, strict=True)
    )


def _grown(state: State, phases: Sequence[tuple[Node, ...]], snapshots: Sequence[Snapshot]) -> State:
    """The state with what a call left: as slots where the form is a known one, else as a new phase."""
    known = _leaves_for(state, phases, snapshots)
    if known is not None:
        leaves, layout = known
        if not leaves:
            raise _of_two(state, layout, snapshots)
        return state.with_leaves(leaves)
    paths = [(root.path,) for root in state.roots]
    grown = state.with_snapshots(
        tuple(
            layouts.map_leaves(functools.partial(_abstract, root), left, path)
            for root, left, path in zip(state.roots, snapshots, paths, strict=True)
        )
    )
    if len(grown.phases()) > MOST_PHASES:
        raise grown.without_fixpoint()
    return grown


def _leaves_for(
    state: State, phases: Sequence[tuple[Node, ...]], snapshots: Sequence[Snapshot]
) -> tuple[dict[Path, Leaf], tuple[Node, ...]] | None:
    """The leaves of a known form that have to be slots for it to be that of what was left, and that form.

    None where no form would be.
    """
    found = []
    for layout in phases:
        leaves: dict[Path, Leaf] = {}
        fits_leaf = functools.partial(_may_become_slot, leaves)
        columns = zip(state.roots, layout, snapshots, strict=True)
        if all(_fits(node, left, fits_leaf, (root.path,)) for root, node, left in columns):
            found.append((leaves, layout))
    return min(found, key=lambda each: len(each[0]), default=None)


def _of_two(state: State, layout: Sequence[Node], snapshots: Sequence[Snapshot]) -> StateRefused:
    """Says which name of a tensor is one of another after a call, where the form is a known one otherwise."""
    fits_leaf = functools.partial(_is_of, {})
    columns = zip(state.roots, layout, snapshots, strict=True)
    root = next(root for root, node, left in columns if not _fits(node, left, fits_leaf))
    what = "is a second name of a tensor, and a name of another one where a tensor decides"
    return StateRefused(root, (root.path,), what, "keep a copy from the start, or write with `copy_`")


def _may_become_slot(leaves: dict[Path, Leaf], node: Leaf | Slot, value: Any, path: Path) -> bool:
    """Whether a value is what a form has in its place, or differs so that a slot may hold both; adds that."""
    if _is_of({}, node, value):
        return True
    is_number = _is_number(value)
    if isinstance(node, Slot):
        fits = node.number and is_number
    elif isinstance(old := node.value, torch.Tensor) and isinstance(value, torch.Tensor):
        fits = old.dtype == value.dtype and is_of_shape(value, old.shape)
    else:
        fits = layouts.is_number(old) and is_number
    if fits:
        leaves[path] = Leaf(_abstract_number(value) if is_number else None)
    return fits


def _abstract(root: object_graph.Root, leaf: Leaf, path: Path) -> Leaf:
    """What was left, without the values of a trace: of these only the kind is kept."""
    value = leaf.value
    if isinstance(value, _SYMBOLS) or host_scalars.is_host_scalar(value):
        return Leaf(_abstract_number(value))
    if not isinstance(value, torch.Tensor) or type(value) in (torch.Tensor, nn.Parameter):
        return leaf
    shape = tuple(value.shape)
    if any(type(size) is not int for size in shape):
        raise StateRefused(
            root,
            path,
            f"has the shape ({', '.join(map(str, shape))}), which varies from call to call",
            "keep a buffer of the largest size, or give that Dim one size",
            of_sizes=True,
        )
    return Leaf(Slot(value.dtype, shape, value.device, number=False))
