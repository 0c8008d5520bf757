"""Puts branches and loops on traced tensors into the graph that torch.export traces.

A region is Python code that assigns variables. It is run twice: once to see what it touches, with nothing put
into the graph (`_seen`), and once inside torch's own control-flow op, with the tensors that it took from
outside replaced by the op's operands. The ops themselves do not look into closures.

A tensor from outside that a region writes in place is copied inside, and the copy is written back after it.
Python objects that a region changes cannot be put into a graph: `ExportFailed` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch._guards import detect_fake_mode  # the mode that torch.export traces under; no public way to it
from torch._higher_order_ops.while_loop import while_loop_op  # the public one starts a compiler
from torch._subclasses.fake_tensor import FakeTensor  # what torch.export calls the model with
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing  # to run and record nothing
from torch.nn.modules.module import _global_buffer_registration_hooks as _buffer_hooks
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from aotpipe import source
from aotpipe.canonicalize.python import aliases, effects
from aotpipe.canonicalize.python.values import (
    UNDEFINED,
    Form,
    Leaf,
    Unlike,
    Variables,
    is_leaf,
    meet,
    note_number,
)
from aotpipe.errors import ExportFailed

_cond: Final[Any] = torch.ops.higher_order.cond
_while_loop: Final[Any] = while_loop_op
Values = tuple[Any, ...]
_MOST_ROUNDS: Final = 8


def is_traced(value: object) -> bool:
    """Whether a value is known to a run of the graph only."""
    return isinstance(value, FakeTensor) and value.constant is None


def predicate(value: Any) -> torch.Tensor:
    """A traced value as what an `if` makes of it: one bool."""
    if value.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    truth: torch.Tensor = value if value.dtype == torch.bool else value != 0
    return truth.reshape(()) if truth.dim() else truth


def conjunction(left: Any, right: Any) -> Any:
    """`left and right`, both computed."""
    if isinstance(right, bool | torch.Tensor) and _is_truth(left) and _is_truth(right):
        return predicate(left).logical_and(_tensor(right, left))
    return _selected(left, right, left)


def disjunction(left: Any, right: Any) -> Any:
    """`left or right`, both computed."""
    if isinstance(right, bool | torch.Tensor) and _is_truth(left) and _is_truth(right):
        return predicate(left).logical_or(_tensor(right, left))
    return _selected(left, left, right)


def _is_truth(value: Any) -> bool:
    return value.dtype == torch.bool and not value.dim() if isinstance(value, torch.Tensor) else True


def _tensor(value: Any, like: torch.Tensor) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    return torch.full((), value, dtype=torch.bool, device=like.device)


def _selected(test: torch.Tensor, then: Any, other: Any) -> Any:
    try:
        form = meet([then, other])
    except Unlike as error:
        raise _refusal(f"the value of `and` or `or` {error}", "compare the values with zero first") from None
    chosen = iter(
        torch.where(predicate(test), a, b)
        for a, b in zip(form.tensors(then), form.tensors(other), strict=True)
    )
    return form.value(lambda: next(chosen))


# Branches.


def branch(test: Any, then: Callable[[], None], other: Callable[[], None], variables: Variables) -> None:
    """`if test: then() else: other()` as one op; sets the variables to what comes of it."""
    start = variables.get()
    seen = [_seen(body, variables, start) for body in (then, other)]
    forms = _forms(variables.names, [each.after for each in seen])
    written = _union(each.written for each in seen)
    outer = _union(each.outer for each in seen)
    chosen = predicate(test)
    if not any(isinstance(leaf, Leaf) for form in forms for leaf in form.leaves) and not written:
        variables.set(_values(forms, iter(())))
        return

    def traced(body: Callable[[], None]) -> Callable[..., tuple[torch.Tensor, ...]]:
        def run(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with _replaced(outer, operands, written) as now:
                after = _ran(body, variables, start)
                results = [
                    tensor for form, value in zip(forms, after, strict=True) for tensor in form.tensors(value)
                ]
                return _apart([*results, *(now(tensor) for tensor in written)])

        return run

    if _is_silent():
        results = _stand_ins(forms, written)
    else:
        results = list(_cond(chosen, traced(then), traced(other), tuple(outer)))
    _write_back(written, results)
    variables.set(_values(forms, iter(results)))
    _note_copies(forms, [each.after for each in seen], outer, results)


# Loops.


def loop(test: Callable[[], object], body: Callable[[], None], variables: Variables) -> None:
    """`while test(): body()` as one op; sets the variables to what comes of it."""
    start = variables.get()
    forms, seen = _settled(test, body, variables, start)
    written = seen.written
    carried = [tensor for form, value in zip(forms, start, strict=True) for tensor in form.tensors(value)]
    state = [*carried, *written]
    outer = [tensor for tensor in seen.outer if all(tensor is not each for each in written)]

    def inside(operands: Sequence[torch.Tensor]) -> tuple[Values, Any]:
        """The variables and the replacement of tensors from outside, for a trip's operands."""
        values = _values(forms, iter(operands))
        kept = operands[len(carried) : len(state)]
        return values, _replaced([*written, *outer], [*kept, *operands[len(state) :]], written)

    def going(*operands: torch.Tensor) -> torch.Tensor:
        values, replaced = inside(operands)
        with replaced:
            return _apart([_tested(test, variables, values)])[0]

    def trip(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, replaced = inside(operands)
        with replaced as now:
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
    _note_copies(forms, [start], carried, results)


def _note_copies(
    forms: Sequence[Form],
    paths: Sequence[Values],
    outer: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
) -> None:
    """Note the results that eager would, on some path, have made another name of a tensor from outside."""
    storages = {aliases.storage_of(tensor) for tensor in outer}
    for values in paths:
        found = iter(results)
        for form, value in zip(forms, values, strict=True):
            leaves = (
                [UNDEFINED] * len(form.leaves) if value is UNDEFINED else pytree.tree_leaves(value, is_leaf)
            )
            for leaf, given in zip(form.leaves, leaves, strict=True):
                if not isinstance(leaf, Leaf):
                    continue
                result = next(found)
                if (
                    isinstance(given, torch.Tensor)
                    and aliases.storage_of(given) in storages
                    and not leaf.number
                ):
                    aliases.note(result, given, effects.watched_modules())


def _settled(
    test: Callable[[], object], body: Callable[[], None], variables: Variables, start: Values
) -> tuple[list[Form], _Seen]:
    """The forms that the variables keep from trip to trip, and what a trip touches."""
    values = start
    stand_ins: list[torch.Tensor] = []
    names = variables.names
    forms = grown = _forms(names, [start])
    for _ in range(_MOST_ROUNDS):
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
    raise _refusal(
        f"{', '.join(changing)} changes its form in every trip of a loop on a tensor",
        "keep the shape and the dtype of what the loop computes",
    )


def _refuse_written(names: Sequence[str], forms: Sequence[Form], start: Values, seen: _Seen) -> None:
    """A variable that trips give other tensors starts as a copy, so that nothing may write the first one."""
    written = {tensor.untyped_storage()._cdata for tensor in seen.written}  # noqa: SLF001
    for name, form, value in zip(names, forms, start, strict=True):
        for leaf, given in zip(form.leaves, pytree.tree_leaves(value, is_leaf), strict=False):
            if not isinstance(leaf, Leaf) or not isinstance(given, torch.Tensor):
                continue
            if given.untyped_storage()._cdata in written:  # noqa: SLF001
                raise _refusal(
                    f"`{name}` is both assigned and written in place in a loop on a tensor",
                    f"assign a new value in every place: `{name} = {name} + ...`",
                )


def _is_same(left: Form, right: Form) -> bool:
    return left.spec == right.spec and all(
        (a.dtype == b.dtype and tuple(map(str, a.shape)) == tuple(map(str, b.shape)))
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
            raise _refusal("a range has a tensor as its step", "give a step that is a number")
        return cls(start, stop, step)


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
        if isinstance(stop, torch.Tensor):
            return predicate(left).logical_and(predicate(stop).logical_not())
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
    """What a region does: its variables afterwards, the tensors from outside, and which of them it writes."""

    after: Values = ()
    outer: list[torch.Tensor] = field(default_factory=list)
    written: list[torch.Tensor] = field(default_factory=list)


def _seen(
    body: Callable[[], None],
    variables: Variables,
    start: Values,
    test: Callable[[], object] | None = None,
    own: Sequence[torch.Tensor] = (),
) -> _Seen:
    """Run a region with nothing put into the graph; tensors of its `own` are not from outside."""
    seen = _Seen()
    with _silent(), _noted(_Watch(seen, own)) as watch:
        if test is not None:
            _tested(test, variables, start)
        seen.after = _ran(body, variables, start)
    # What it leaves in a variable comes from outside too, though no op has read it: from outside of every
    # region around it that did not make it.
    for leaf in pytree.tree_leaves((start, seen.after)):
        if isinstance(leaf, torch.Tensor):
            for each in (*_watches, watch):
                each.take(_stood_for(leaf))
    return seen


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
    try:
        with effects.unchanged(held), _unhooked():
            variables.set(start)
            try:
                body()
                return variables.get()
            finally:
                variables.set(before)
    except effects.Changed as error:
        raise _refusal(
            f"a branch or a loop on a tensor changes {error} in place",
            "assign a new value, or keep tensors in buffers of the module",
        ) from None


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
    if isinstance(found[0], torch.Tensor):
        return predicate(found[0])
    return torch.full((), bool(found[0]), dtype=torch.bool)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the tensors that ops take from outside, and which of those they write."""

    def __init__(self, seen: _Seen, own: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen
        self._made = {id(tensor): tensor for tensor in own}
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
            refuse_lost(tensor)
            self._write(tensor)
        result = func(*args, **kwargs)
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and id(leaf) not in self._taken:
                self._made[id(leaf)] = leaf
        return result

    def _write(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()._cdata  # noqa: SLF001  # the identity of a storage has no public name
        sharing = [each for each in self._seen.outer if each.untyped_storage()._cdata == storage]  # noqa: SLF001
        if not sharing:
            return
        if len(sharing) > 1:
            raise _refusal(
                "a tensor from outside, of which there is a view too, is written in place in a branch or a "
                "loop on a tensor",
                "write to a clone of it, and assign the clone",
            )
        # A view of it that was made inside will be one of its copy.
        if all(each is not sharing[0] for each in self._seen.written):
            self._seen.written.append(sharing[0])


def refuse_lost(tensor: torch.Tensor) -> None:
    """Refuse to write in place what another name would lose."""
    if aliases.is_copy(tensor):
        raise _refusal(
            "a tensor is written in place that may have a second name, by a branch or a loop on a tensor",
            "assign a new value (`y = y + 1` for `y += 1`), or clone it before",
        )


def _targets(func: Any, args: Sequence[Any], kwargs: Any) -> Iterator[torch.Tensor]:
    """The tensors that an op writes, by its schema."""
    for position, argument in enumerate(func._schema.arguments):  # noqa: SLF001  # no public way to it
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


class _Replace(TorchFunctionMode):
    """Gives ops other tensors in the place of some."""

    def __init__(self, others: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self.others = others

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (args, kwargs or {})
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda tensor: self.others.get(id(tensor), tensor), given
        )
        result = func(*args, **kwargs)
        note_number(result, pytree.tree_leaves(given))
        return result


@contextmanager
def _replaced(
    outer: Sequence[torch.Tensor], operands: Sequence[torch.Tensor], written: Sequence[torch.Tensor]
) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """Inside, ops take operands for the tensors from outside; gives the tensor that stands for one."""
    others = {id(tensor): operand for tensor, operand in zip(outer, operands, strict=True)}
    for tensor in written:
        others[id(tensor)] = others[id(tensor)].clone()
    # torch switches the replacements of an outer region off inside of an op, and their originals are what
    # the user's variables still hold.
    for replacement in _replacements:
        for original, stood in replacement.others.items():
            if id(stood) in others:
                others[original] = others[id(stood)]
    with _Replace(others) as replace:
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
            forms.append(meet(values))
        except Unlike as error:
            raise _refusal(
                f"{_shown(name)} {error}, where a tensor decides which", "give it one form on every path"
            ) from None
    return forms


def _shown(name: str) -> str:
    """A variable's name; those of the rewriting are no user's."""
    return "what is returned" if name.startswith("__aotpipe") else f"`{name}`"


def _values(forms: Sequence[Form], tensors: Iterator[torch.Tensor]) -> Values:
    return tuple(
        UNDEFINED if form.leaves == (UNDEFINED,) else form.value(lambda: next(tensors)) for form in forms
    )


def _stand_ins(forms: Sequence[Form], written: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of the results' kinds."""
    leaves = [leaf for form in forms for leaf in form.leaves if isinstance(leaf, Leaf)]
    made = [torch.empty(leaf.shape, dtype=leaf.dtype, device=leaf.device) for leaf in leaves]
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
    _depth += 1
    try:
        with disable_proxy_modes_tracing(), env.ignore_fresh_unbacked_symbols() if env else nullcontext():
            yield
    finally:
        _depth -= 1


def _refusal(message: str, hint: str) -> ExportFailed:
    return ExportFailed(message, hint=hint, where=source.of_caller())


__all__ = [
    "TensorRange",
    "branch",
    "conjunction",
    "counted",
    "disjunction",
    "is_traced",
    "loop",
    "predicate",
]
