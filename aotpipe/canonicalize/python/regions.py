"""Puts branches and loops on traced tensors into the graph that torch.export traces.

A region is Python code that assigns variables. It is run twice: once to see what it touches, with nothing put
into the graph (`_seen`), and once inside torch's own control-flow op, with the tensors that it took from
outside replaced by the op's operands. The ops themselves do not look into closures.

A tensor from outside that a region writes in place is copied inside, and the copy is written back after it.
A list, a dict or an object that a region changes is one more variable. A path that raises becomes an assert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch._guards import detect_fake_mode  # the mode that torch.export traces under; no public way to it
from torch._higher_order_ops.while_loop import while_loop_op  # the public one starts a compiler
from torch._ops import HigherOrderOperator
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing  # to run and record nothing
from torch.nn.modules.module import _global_buffer_registration_hooks as _buffer_hooks
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from aotpipe import source
from aotpipe.canonicalize.python import aliases, dispatch, effects, numbers, raising, refusing
from aotpipe.canonicalize.python.refusing import refusal
from aotpipe.canonicalize.python.values import (
    UNDEFINED,
    Form,
    Leaf,
    Maybe,
    Unlike,
    Variables,
    is_leaf,
    meet,
    settled,
    there,
)
from aotpipe.errors import ExportFailed

_cond: Final[Any] = torch.ops.higher_order.cond
_while_loop: Final[Any] = while_loop_op
Values = tuple[Any, ...]
_MOST_ROUNDS: Final = 8


# Branches.


def branch(test: Any, then: Callable[[], None], other: Callable[[], None], variables: Variables) -> None:
    """`if test: then() else: other()` as one op; sets the variables to what comes of it."""
    for _ in range(_MOST_ROUNDS):
        try:
            _branch(test, then, other, variables)
        except effects.Changed as changed:
            variables = _with_containers(variables, changed)
        else:
            return
    raise _endless_change(variables)


def _branch(test: Any, then: Callable[[], None], other: Callable[[], None], variables: Variables) -> None:
    start = variables.get()
    seen: list[_Seen] = []
    for body, rest, wanted in ((then, other, False), (other, then, True)):
        try:
            with raising.collected() as claims, there(test, holds=not wanted):
                seen.append(_seen(body, variables, start))
            seen[-1].claims += [said for _, said in claims]
        except Exception as error:
            if not raising.is_raised(error):
                raise
            # What goes on is the other path, or what is around this branch raises too.
            raising.require(test, error, holds=wanted)
            rest()
            return
    forms = _forms(variables.names, [each.after for each in seen])
    written = _union(each.written for each in seen)
    outer = _union(each.outer for each in seen)
    chosen = dispatch.predicate(test)
    claimed = [said for each in seen for said in each.claims]
    if all(form.is_constant for form in forms) and not written and not claimed:
        variables.set(_values(forms, iter(())))
        return

    def traced(path: int, body: Callable[[], None]) -> Callable[..., tuple[torch.Tensor, ...]]:
        def run(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            replaced = _replaced(outer, operands, written)
            with replaced as now, raising.collected() as claims, there(test, holds=path == 0):
                after = _ran(body, variables, start)
                results = [
                    tensor for form, value in zip(forms, after, strict=True) for tensor in form.tensors(value)
                ]
                held = [truth for truth, _ in claims]
                # What only the other path claims holds on this one.
                other = [torch.full((), True) for _ in seen[1 - path].claims]
                truths = [*held, *other] if path == 0 else [*other, *held]
                return _apart([*results, *(now(tensor) for tensor in written), *truths])

        return run

    if _is_silent():
        results = [*_stand_ins(forms, written), *(torch.full((), True) for _ in claimed)]
    else:
        results = list(_cond(chosen, traced(0, then), traced(1, other), tuple(outer)))
    for truth, said in zip(results[len(results) - len(claimed) :], claimed, strict=True):
        raising.claim(truth, said)
    results = results[: len(results) - len(claimed)]
    _write_back(written, results)
    variables.set(_values(forms, iter(results)))
    for path, flag in enumerate((chosen, chosen.logical_not())):
        _note_copies(forms, seen[path].after, outer, results, seen[path].pairs, flag)


# Loops.


class _Shared(ExportFailed):
    """The first trip of a loop writes in place what others hold, and the next ones what is assigned since."""


def loop(
    test: Callable[[], object], body: Callable[[], None], variables: Variables, *, peeled: bool = False
) -> None:
    """`while test(): body()` as one op; sets the variables to what comes of it."""
    for _ in range(_MOST_ROUNDS):
        try:
            _loop(test, body, variables)
        except _Shared:
            if peeled:
                raise
            _peeled(test, body, variables)
            return
        except effects.Changed as changed:
            variables = _with_containers(variables, changed)
        else:
            return
    raise _endless_change(variables)


def _peeled(test: Callable[[], object], body: Callable[[], None], variables: Variables) -> None:
    """`if test(): body(); while test(): body()`."""

    def trips() -> None:
        body()
        loop(test, body, variables, peeled=True)

    branch(test(), trips, lambda: None, variables)


def _loop(test: Callable[[], object], body: Callable[[], None], variables: Variables) -> None:
    start = variables.get()
    try:
        forms, seen = _settled(test, body, variables, start)
    except Exception as error:
        if not raising.is_raised(error):
            raise
        # Each trip raises: there is none.
        raising.require(test(), error, holds=False)
        return
    written = seen.written
    carried = [tensor for form, value in zip(forms, start, strict=True) for tensor in form.tensors(value)]
    state = [*carried, *written]
    outer = [tensor for tensor in seen.outer if all(tensor is not each for each in written)]

    def inside(operands: Sequence[torch.Tensor]) -> tuple[Values, Any]:
        """The variables and the replacement of tensors from outside, for a trip's operands."""
        # A body may not write what it is given.
        given = [each.clone() for each in operands] if seen.writes_own else operands
        values = _values(forms, iter(given))
        kept = operands[len(carried) : len(state)]
        return values, _replaced([*written, *outer], [*kept, *operands[len(state) :]], written)

    def going(*operands: torch.Tensor) -> torch.Tensor:
        values, replaced = inside(operands)
        with replaced, raising.in_place():
            return _apart([_tested(test, variables, values)])[0]

    def trip(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, replaced = inside(operands)
        with replaced as now, raising.in_place():
            after = _ran(body, variables, values)
            results = [
                tensor for form, value in zip(forms, after, strict=True) for tensor in form.tensors(value)
            ]
            return _apart([*results, *(now(tensor) for tensor in written)])

    if _is_silent():
        results = _stand_ins(forms, written)
    else:
        results = list(_while_loop(going, trip, _apart(state), tuple(outer)))
    _write_back(written, results)
    variables.set(_values(forms, iter(results)))
    _note_copies(forms, start, carried, results, (), None)


def _with_containers(variables: Variables, changed: effects.Changed) -> Variables:
    """The variables, and what the containers that a region changes hold."""
    containers = [each for _, each in changed.containers]
    if any(isinstance(each, set) for each in containers) or effects.lost(containers):
        raise refusal(
            f"a branch or a loop on a tensor changes {changed} in place",
            "assign a new value, or keep tensors in buffers of the module",
        )
    split = len(variables.names)

    def get() -> Values:
        return (*variables.get(), *(effects.contents(each, changed.known) for each in containers))

    def set_(values: Values) -> None:
        variables.set(values[:split])
        for container, value in zip(containers, values[split:], strict=True):
            effects.fill(container, value)

    names = (*variables.names, *(name for name, _ in changed.containers))
    return Variables(get, set_, names, variables.watched)


def _endless_change(variables: Variables) -> Exception:
    return refusal(
        f"a branch or a loop on a tensor changes too many things: {', '.join(variables.names)}",
        "assign new values in place of changing objects",
    )


def _note_copies(
    forms: Sequence[Form],
    values: Values,
    outer: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    inside: Iterable[aliases.Pair],
    flag: torch.Tensor | None,
) -> None:
    """Note the results that eager would, on a path, have made another name of a tensor from outside.

    Args:
        forms: Of the variables.
        values: The variables on that path.
        outer: The tensors from outside.
        results: Of the op.
        inside: The copies that the path itself made.
        flag: Whether the path was taken; None where nothing tells.
    """
    storages = {aliases.storage_of(tensor) for tensor in outer}
    copies = {aliases.storage_of(pair.copy): pair.original for pair in inside}
    found = iter(results)
    for form, whole in zip(forms, values, strict=True):
        value = whole
        if form.optional:
            next(found)
            value = value.held if isinstance(value, Maybe) else UNDEFINED if value is None else value
        for leaf, given in form.parts(value):
            if leaf.optional:
                next(found)
            result = next(found)
            original = given.held if isinstance(given, Maybe) else given
            if not isinstance(original, torch.Tensor) or leaf.number:
                continue
            storage = aliases.storage_of(original)
            if storage in storages and flag is not None and original.shape == result.shape:
                aliases.note_path(result, original, flag)
            elif storage in storages:
                aliases.note(aliases.Pair(result, original))
            elif storage in copies:
                aliases.note(aliases.Pair(result, copies[storage]))


def _settled(
    test: Callable[[], object], body: Callable[[], None], variables: Variables, start: Values
) -> tuple[list[Form], _Seen]:
    """The forms that the variables keep from trip to trip, and what a trip touches."""
    values = start
    stand_ins: list[torch.Tensor] = []
    names = variables.names
    forms = grown = _forms(names, [start])
    for _ in range(_MOST_ROUNDS):
        with raising.in_place():
            seen = _seen(body, variables, values, test=test, own=stand_ins)
        grown = _forms(names, [start, values, seen.after])
        _refuse_written(names, grown, start, seen)
        if all(map(_is_same, forms, grown)):
            return forms, seen
        forms = grown
        with _silent():
            stand_ins = _stand_ins(forms, [])
        values = _values(forms, iter(stand_ins))
    changing = [name for name, a, b in zip(names, forms, grown, strict=True) if not _is_same(a, b)]
    raise refusal(
        f"{', '.join(changing)} changes its form in every trip of a loop on a tensor",
        "keep the shape and the dtype of what the loop computes",
    )


def _refuse_written(names: Sequence[str], forms: Sequence[Form], start: Values, seen: _Seen) -> None:
    """A variable that trips give other tensors starts as a copy, so that nothing may write the first one."""
    written = {aliases.storage_of(tensor) for tensor in seen.written}
    for name, form, value in zip(names, forms, start, strict=True):
        for leaf, given in zip(form.leaves, pytree.tree_leaves(value, is_leaf), strict=False):
            if not isinstance(leaf, Leaf) or not isinstance(given, torch.Tensor):
                continue  # a value that may be None is a copy
            storage = aliases.storage_of(given)
            if storage in written and aliases.has_other_name(storage, but=name):
                raise _Shared(
                    f"`{name}` is both assigned and written in place in a loop on a tensor",
                    hint=f"assign a new value in every place: `{name} = {name} + ...`",
                    where=source.of_caller(),
                )


def _is_same(left: Form, right: Form) -> bool:
    if left.optional is not right.optional:
        return False
    return left.spec == right.spec and all(
        (
            a.dtype == b.dtype
            and tuple(map(str, a.shape)) == tuple(map(str, b.shape))
            and (a.number, a.optional) == (b.number, b.optional)
        )
        if isinstance(a, Leaf) and isinstance(b, Leaf)
        else a is b
        or (not isinstance(a, Leaf | torch.Tensor) and not isinstance(b, Leaf | torch.Tensor) and a == b)
        for a, b in zip(left.leaves, right.leaves, strict=True)
    )


@dataclass(frozen=True, slots=True)
class TensorRange:
    """`range` of traced tensors."""

    start: Any
    stop: Any
    step: Any

    @classmethod
    def of(cls, bounds: Sequence[Any]) -> TensorRange:
        """From the arguments of `range`."""
        start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if not isinstance(step, int):
            raise refusal("a range has a tensor as its step", "give a step that is a number")
        start, stop = (
            numbers.item(dispatch.as_tensor(each)) if dispatch.is_traced(each) else each
            for each in (start, stop)
        )
        return cls(start, stop, step)

    def __iter__(self) -> Any:
        """A range is not written out."""
        raise refusal(
            "a range whose length is known to a run of the graph only is used other than by a `for`",
            "loop over it with `for`, or over a range of known length with a test inside",
        )


def counted(
    items: TensorRange,
    body: Callable[[Any], None],
    stopped: Callable[[], object],
    variables: Variables,
) -> None:
    """`for item in range(...): body(item)`, until `stopped`, as one op."""
    index: list[Any] = [items.start]

    def test() -> object:
        at = index[0]
        left = at < items.stop if items.step > 0 else at > items.stop
        stop = stopped()
        if dispatch.is_traced(stop):
            return dispatch.predicate(left).logical_and(dispatch.predicate(stop).logical_not())
        return left

    def trip() -> None:
        at = index[0]
        body(at)
        index[0] = at + items.step

    def read() -> Values:
        return (index[0], *variables.get())

    def write(values: Values) -> None:
        index[0] = values[0]
        variables.set(values[1:])

    loop(test, trip, Variables(read, write, ("the index", *variables.names), variables.watched))


# Running regions.


@dataclass(slots=True)
class _Seen:
    """What a region does.

    Attributes:
        after: Its variables afterwards.
        outer, written: The tensors from outside, and which of them it writes.
        claims: What it asserts, in a branch.
        pairs: The copies that it makes, of what eager has another name for.
        writes_own: Whether it writes in place what it carries.
    """

    after: Values = ()
    outer: list[torch.Tensor] = field(default_factory=list)
    written: list[torch.Tensor] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)
    pairs: list[aliases.Pair] = field(default_factory=list)
    writes_own: bool = False


def _seen(
    body: Callable[[], None],
    variables: Variables,
    start: Values,
    test: Callable[[], object] | None = None,
    own: Sequence[torch.Tensor] = (),
) -> _Seen:
    """Run a region with nothing put into the graph; tensors of its `own` are not from outside."""
    seen = _Seen()
    with _silent(), _noted(_Watch(seen, own)) as watch, aliases.inner() as seen.pairs:
        if test is not None:
            _tested(test, variables, start)
        seen.after = _ran(body, variables, start)
    # What it leaves in a variable comes from outside too, though no op has read it: from outside of every
    # region around it that did not make it.
    for tensor in _tensors_in((start, seen.after)):
        for each in (*_watches, watch):
            each.take(_stood_for(tensor))
    return seen


def _tensors_in(values: Any) -> Iterator[torch.Tensor]:
    for leaf in pytree.tree_leaves(values, is_leaf):
        if isinstance(leaf, Maybe):
            yield leaf.present
            yield from _tensors_in(leaf.held)
        elif isinstance(leaf, torch.Tensor):
            yield leaf


@contextmanager
def _noted(watch: _Watch) -> Iterator[_Watch]:
    _watches.append(watch)
    try:
        with watch:
            yield watch
    finally:
        _watches.pop()


_watches: list[_Watch] = []


def _ran(body: Callable[[], None], variables: Variables, start: Values) -> Values:
    """The variables after a region that starts from these; they are as before afterwards."""
    before = variables.get()
    held = [*zip(variables.names, start, strict=True), *variables.watched()]
    with effects.unchanged(held), _unhooked(), numbers.apart():
        variables.set(start)
        try:
            body()
            return tuple(settled(value) for value in variables.get())
        finally:
            variables.set(before)


@contextmanager
def _unhooked() -> Iterator[None]:
    """Let a module's buffer be assigned without telling torch.export: what comes of a region counts."""
    hooks = dict(_buffer_hooks)
    _buffer_hooks.clear()
    try:
        yield
    finally:
        _buffer_hooks.update(hooks)


def _tested(test: Callable[[], object], variables: Variables, start: Values) -> torch.Tensor:
    found: list[Any] = []
    _ran(lambda: found.append(test()), variables, start)
    if dispatch.is_traced(found[0]):
        return dispatch.predicate(found[0])
    return torch.full((), bool(found[0]), dtype=torch.bool)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the tensors that ops take from outside, and which of those they write."""

    supports_higher_order_operators = True  # a recurrent layer is a `scan`

    def __init__(self, seen: _Seen, own: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen
        self._made = {id(tensor): tensor for tensor in own}
        self._own = {aliases.storage_of(tensor) for tensor in own}
        self._taken: dict[int, torch.Tensor] = {}

    def take(self, tensor: torch.Tensor) -> None:
        """Note a tensor, if it is from outside."""
        if id(tensor) not in self._made and id(tensor) not in self._taken:
            self._taken[id(tensor)] = tensor
            self._seen.outer.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor):
                self.take(leaf)
        for tensor in _targets(func, args, kwargs):
            aliases.refuse_lost(tensor)
            self._write(tensor)
        result = func(*args, **kwargs)
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and id(leaf) not in self._taken:
                self._made[id(leaf)] = leaf
        return result

    def _write(self, tensor: torch.Tensor) -> None:
        storage = aliases.storage_of(tensor)
        self._seen.writes_own |= storage in self._own
        sharing = [each for each in self._seen.outer if aliases.storage_of(each) == storage]
        if not sharing:
            return
        if len(sharing) > 1:
            raise refusal(
                "a tensor from outside, of which there is a view too, is written in place in a branch or a "
                "loop on a tensor",
                "write to a clone of it, and assign the clone",
            )
        # A view of it that was made inside will be one of its copy.
        if all(each is not sharing[0] for each in self._seen.written):
            self._seen.written.append(sharing[0])


def _targets(func: Any, args: Sequence[Any], kwargs: Any) -> Iterator[torch.Tensor]:
    """The tensors that an op writes, by its schema."""
    if isinstance(func, HigherOrderOperator):
        return
    for position, argument in enumerate(func._schema.arguments):  # noqa: SLF001  # no public way to it
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


class _Replace(dispatch.Traced):
    """Gives ops other tensors in the place of some."""

    def __init__(self, others: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self.others = others

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda tensor: self.others.get(id(tensor), tensor), (args, kwargs)
        )
        return super()._called(func, args, kwargs)


@contextmanager
def _replaced(
    outer: Sequence[torch.Tensor], operands: Sequence[torch.Tensor], written: Sequence[torch.Tensor]
) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """Inside, ops take operands for the tensors from outside; gives the tensor that stands for one."""
    others = {id(tensor): operand for tensor, operand in zip(outer, operands, strict=True)}
    for tensor in written:
        others[id(tensor)] = others[id(tensor)].clone()
    for tensor in outer:
        if numbers.is_number(tensor):
            numbers.as_number(others[id(tensor)])
    # torch switches the replacements of an outer region off inside of an op, and their originals are what
    # the user's variables still hold.
    for replacement in _replacements:
        for original, stood in replacement.others.items():
            if id(stood) in others:
                others[original] = others[id(stood)]
    with _Replace(others) as replace, aliases.inner():
        _replacements.append(replace)
        try:
            yield lambda tensor: others.get(id(tensor), tensor)
        finally:
            _replacements.pop()


_replacements: list[_Replace] = []


def _stood_for(tensor: torch.Tensor) -> torch.Tensor:
    """What ops take for a tensor that a variable holds: it must not be an operand beside that."""
    return _replacements[-1].others.get(id(tensor), tensor) if _replacements else tensor


def _apart(tensors: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Tensors that share no memory with the operands or each other, in the same layout on every path."""
    return tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors)


def _forms(names: Sequence[str], paths: Sequence[Values]) -> list[Form]:
    forms = []
    for name, values in zip(names, zip(*paths, strict=True), strict=True):
        try:
            form = meet(values)
        except Unlike as error:
            raise refusal(
                f"{_shown(name)} {error}, where a tensor decides which", "give it one form on every path"
            ) from None
        if any(isinstance(leaf, Leaf) and leaf.filled for leaf in form.leaves):
            refusing.note(
                "warning",
                "number-became-tensor",
                f"{_shown(name)} is a number on one path and a tensor on another: where eager has the "
                "number, the program has a tensor filled with it",
            )
        forms.append(form)
    return forms


def _shown(name: str) -> str:
    """A variable's name; those of the rewriting are no user's."""
    return "what is returned" if name.startswith("__aotpipe") else f"`{name}`"


def _values(forms: Sequence[Form], tensors: Iterator[torch.Tensor]) -> Values:
    return tuple(form.value(lambda: next(tensors)) for form in forms)


def _stand_ins(forms: Sequence[Form], written: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of the results' kinds."""
    made = [tensor for form in forms for tensor in form.stand_ins()]
    return [*made, *(torch.empty_like(tensor) for tensor in written)]


def _write_back(written: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
    if written:
        for tensor, result in zip(written, results[-len(written) :], strict=True):
            tensor.copy_(result)


def _union(lists: Iterable[list[torch.Tensor]]) -> list[torch.Tensor]:
    found = {id(tensor): tensor for tensors in lists for tensor in tensors}
    return list(found.values())


_depth = 0


def _is_silent() -> bool:
    return _depth > 0


@contextmanager
def _silent() -> Iterator[None]:
    """Run ops without putting them into the graph."""
    global _depth
    mode = detect_fake_mode()
    env = mode.shape_env if mode else None
    asked = numbers.asked()
    _depth += 1
    try:
        with disable_proxy_modes_tracing(), env.ignore_fresh_unbacked_symbols() if env else nullcontext():
            yield
    finally:
        _depth -= 1
        if mode and numbers.asked() != asked:
            # A tensor remembers its symbol, which belongs to no op of the graph.
            mode.epoch += 1


__all__ = ["TensorRange", "branch", "counted", "loop"]
