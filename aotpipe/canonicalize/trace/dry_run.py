"""Runs Python code that is put into the graph: once to see what it touches, and once with operands in place.

`summarize` runs it with nothing put into the graph, and tells which tensors it takes from outside and writes.
`replaced` gives ops other tensors in the place of those, inside of torch's own control-flow ops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch._guards import detect_fake_mode  # the mode that torch.export traces under; no public way to it
from torch._ops import HigherOrderOperator
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,  # to run and record nothing
    get_proxy_mode,  # what is recorded into
)
from torch.nn.modules.module import _global_buffer_registration_hooks as _buffer_hooks
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from aotpipe.canonicalize.alias import effects, rebinding, tensor_storage, views
from aotpipe.canonicalize.alias.tensor_storage import AliasSet
from aotpipe.canonicalize.trace import constants, raised_state, region_sites, torch_functions
from aotpipe.canonicalize.trace.runtime_asserts import as_size, collected, count_region, sizes_collected
from aotpipe.canonicalize.values import chosen_object, host_scalars, object_fields, trace
from aotpipe.canonicalize.values.abstract_values import Variables, is_same, unwrap_present
from aotpipe.canonicalize.values.chosen_object import ChosenObject
from aotpipe.canonicalize.values.optional_values import OptionalValue
from aotpipe.canonicalize.values.structures import is_leaf
from aotpipe.canonicalize.values.tensor_subclasses import plain

Values = tuple[Any, ...]
Replacement = Callable[[torch.Tensor], torch.Tensor]
"""Gives what stands for a tensor from outside."""


@dataclass(slots=True)
class EffectSummary:
    """What a region does.

    Attributes:
        outer, written: The tensors from outside, and which of them it writes.
        alias_sets: What is known of the memory of its variables' tensors afterwards, by tensor.
        writes_own: Whether it writes in place what it carries.
        limits: What its test says of integers.
        size_conditions: What it demands of sizes from outside, as torch's conditions.
        own_conditions: What it demands of the sizes of what it carries.
        sizes: Torch's symbols from outside that it computes with, each as a SymInt.
    """

    after: Values = ()
    outer: list[torch.Tensor] = field(default_factory=list)
    written: list[torch.Tensor] = field(default_factory=list)
    asserts: list[str] = field(default_factory=list)
    alias_sets: dict[int, AliasSet | None] = field(default_factory=dict)
    writes_own: bool = False
    limits: tuple[host_scalars.Limit, ...] = ()
    size_conditions: list[Any] = field(default_factory=list)
    own_conditions: list[Any] = field(default_factory=list)
    sizes: list[torch.SymInt] = field(default_factory=list)

    def alias_set_of(self, tensor: torch.Tensor) -> AliasSet | None:
        """What is known of the memory of one of its variables' tensors."""
        return self.alias_sets.get(id(tensor))


def summarize(
    body: Callable[[], None],
    variables: Variables,
    start: Values,
    test: Callable[[], object] | None = None,
    own: Sequence[torch.Tensor] = (),
    summary: EffectSummary | None = None,
    *,
    owns: bool = False,
) -> EffectSummary:
    """Run a region with nothing put into the graph; tensors of its `own` are not from outside.

    `summary` is what is filled: where the region raises, it tells what came before that.
    """
    count_region()
    summary = EffectSummary() if summary is None else summary
    # What stands for what a loop carries may be a part of its own tensors, with a size that is its own too.
    stored = {tensor_storage.storage_of(tensor) for tensor in own}
    own = [*own, *(each for each in _tensors_in(start) if tensor_storage.storage_of(each) in stored)]
    sizes: Iterable[Any] = (size for tensor in own for size in tensor.shape)
    mine = {each for size in sizes if isinstance(size, torch.SymInt) for each in size.node.expr.free_symbols}
    watch = _Watch(summary, own, mine)
    with unrecorded(), trace.pushed(trace.part(_Regions).watches, watch), watch, rebinding.inner():
        if test is not None:
            summary.limits = host_scalars.limits(run_test(test, variables, start))
            if summary.written or summary.writes_own:
                raise TestChanges
        with sizes_collected() as size_conditions:
            summary.after = run_region(body, variables, start, owns=owns)
        summary.size_conditions = [each for each in size_conditions if not each.free_symbols & mine]
        summary.own_conditions = [each for each in size_conditions if each.free_symbols & mine]
        summary.alias_sets = rebinding.alias_sets(_tensors_in(summary.after))
    # What it leaves in a variable comes from outside too, though no op has read it: from outside of every
    # region around it that did not make it. So does what tells its memory.
    known = (each.known for each in summary.alias_sets.values() if each is not None)
    left = (tensor for tensor in known if isinstance(tensor, torch.Tensor))
    for tensor in (*_tensors_in((start, summary.after)), *left):
        note_read(tensor)
        watch.take(stood_for(tensor))
    return summary


def note_read(tensor: torch.Tensor) -> None:
    """Note that the regions that run now to be summarized read a tensor, though no op of theirs does."""
    for each in trace.part(_Regions).watches:
        each.take(stood_for(tensor))


def only_computes(compute: Callable[[], object]) -> bool:
    """Whether a computation gives a value of whatever it is computed of, and nothing else comes of it.

    It asserts nothing, of sizes neither; it writes nothing, and its ops fail and draw for no values.
    """
    ops = _Ops()  # type: ignore[no-untyped-call]
    try:
        with (
            unrecorded(),
            sizes_collected() as conditions,
            collected() as asserts,
            rebinding.inner(),
            host_scalars.fresh_items(),
            effects.unchanged([("the expression", compute)]),
            ops,
        ):
            compute()
    except Exception:  # noqa: BLE001  # whatever it is, a branch that is traced comes to it again
        return False
    return ops.are_total and not conditions and not asserts


class _Ops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees whether ops are made for every value of their operands."""

    are_total = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.are_total = self.are_total and _is_total(func, args, result)
        return result


def _is_total(func: Any, args: Sequence[Any], result: Any) -> bool:
    if isinstance(func, HigherOrderOperator) or any(True for _ in _targets(func, args, {})):
        return False
    space, name = func._schema.name.split("::")  # noqa: SLF001  # no public way to it
    if name in _PARTIAL:
        return isinstance(result, torch.Tensor) and result.dtype.is_floating_point
    return torch.Tag.pointwise in func.tags or func.is_view or name in _TOTAL or space == "prim"


# Of integers these fail for some divisors and exponents.
_PARTIAL: Final = frozenset("div floor_divide remainder fmod pow".split())
# What neither fails nor draws for any values, and takes little time, besides pointwise ops and views.
_TOTAL: Final = frozenset(
    "sum mean prod any all amax amin max min argmax argmin norm count_nonzero full zeros ones arange "
    "scalar_tensor full_like zeros_like ones_like lift_fresh_copy _to_copy to clone cat stack "
    "_local_scalar_dense reshape contiguous".split()
)


def _tensors_in(values: Any) -> Iterator[torch.Tensor]:
    for leaf in pytree.tree_leaves(values, is_leaf):
        if isinstance(leaf, OptionalValue):
            yield leaf.flag_of_optional
            yield from _tensors_in(leaf.payload_of_optional)
        elif type(leaf) is ChosenObject:
            yield chosen_object.parts(leaf)[1]
        elif isinstance(leaf, torch.Tensor):
            yield leaf
        elif type(leaf) is set:
            yield from _tensors_in(list(leaf))


@dataclass(slots=True)
class _Regions:
    """The regions that run now, the innermost last.

    Attributes:
        watches: Of those that are run to see what they touch.
        replacements: Of those that are run with operands in place.
        is_unrecorded: Whether ops are put into no graph now.
    """

    watches: list[_Watch] = field(default_factory=list)
    replacements: list[_Replace] = field(default_factory=list)
    is_unrecorded: bool = False


@region_sites.boundary
def run_region(
    body: Callable[[], None], variables: Variables, start: Values, *, owns: bool = False
) -> Values:
    """The variables after a region that starts from these; they are as before afterwards.

    Where it `owns` the containers in these it has copies of its own, which it may change.
    """
    if owns:
        start = effects.copies(start)
    before = variables.get()
    object_fields.register(start)
    held = [*zip(variables.names, start, strict=True), *variables.watched()]
    own = start if owns else ()
    with trace.in_model(), effects.unchanged(held, own), unhooked(), host_scalars.fresh_items():
        variables.set(start)
        try:
            with effects.results_checked(), raised_state.region():
                body()
            values = variables.live()
            if owns:
                effects.check_own(variables.names, values)
            object_fields.register(values)
            # Copies of lists and dicts: what is changed in place is taken back.
            after = tuple(map(unwrap_present, values))
            effects.note_copies(values, after)
            return after
        finally:
            variables.set(before)


@contextmanager
def unhooked() -> Iterator[None]:
    """Let a module's buffer be assigned without telling torch.export: what comes of a region counts."""
    before = dict(_buffer_hooks)
    _buffer_hooks.update(dict.fromkeys(before, lambda *_: None))
    try:
        yield
    finally:
        # What was registered meanwhile stays, and what was removed is gone.
        _buffer_hooks.update({key: hook for key, hook in before.items() if key in _buffer_hooks})


class TestChanges(Exception):
    """The test of a loop assigns a variable, or changes something in place, which its own run takes back."""


def run_test(test: Callable[[], object], variables: Variables, start: Values) -> torch.Tensor:
    """What a loop's test gives for these variables, as one bool.

    Raises:
        TestChanges: It leaves other values in them.
    """
    found: list[torch.Tensor] = []
    before: Values = ()

    def asked() -> None:
        nonlocal before
        # Two variables may be one: then they hold another value than each of them was given.
        before = tuple(map(unwrap_present, variables.live()))
        # Inside, as the region takes back what a list holds: its truth is another one afterwards.
        found.append(torch_functions.truth_of(test()))

    after = run_region(asked, variables, start)
    if not all(map(_is_left, before, after)):
        raise TestChanges
    return found[0]


def _is_left(before: Any, after: Any) -> bool:
    """Whether a test leaves a variable as it was; it may have asked whether a value is there."""
    (one, structure), (other, left) = (pytree.tree_flatten(_payloads(each)) for each in (before, after))
    return structure == left and all(map(is_same, one, other))


def _payloads(value: Any) -> Any:
    """A value with what may be None in the place of the flag that goes with it."""
    return pytree.tree_map(
        lambda leaf: _payloads(leaf.payload_of_optional) if isinstance(leaf, OptionalValue) else leaf,
        value,
        is_leaf=is_leaf,
    )


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the tensors that ops take from outside, and which of those they write."""

    supports_higher_order_operators = True  # a recurrent layer is a `scan`

    def __init__(self, summary: EffectSummary, own: Sequence[torch.Tensor], mine: Collection[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._summary = summary
        self._made = {id(tensor): tensor for tensor in own}
        self._own = {tensor_storage.storage_of(tensor) for tensor in own}
        self._taken: dict[int, torch.Tensor] = {}
        mode = detect_fake_mode()
        self._symbols = set(mode.shape_env.var_to_range if mode and mode.shape_env else ()).difference(mine)

    def take(self, tensor: torch.Tensor) -> None:
        if id(tensor) not in self._made and id(tensor) not in self._taken:
            self._taken[id(tensor)] = tensor
            self._summary.outer.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor):
                self.take(leaf)
            elif isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
                self._compute(leaf)
        for tensor in _targets(func, args, kwargs):
            rebinding.refuse_lost(tensor)
            self._write(tensor)
        result = func(*args, **kwargs)
        if args and _gives_views(func):
            leaves = pytree.tree_leaves(result)
            tensor_storage.note_views(args[0], [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and id(leaf) not in self._taken:
                self._made[id(leaf)] = leaf
        return result

    def _compute(self, number: torch.SymInt | torch.SymFloat | torch.SymBool) -> None:
        """Note the symbols of a number that were there before."""
        env = number.node.shape_env
        for symbol in sorted(number.node.expr.free_symbols & self._symbols, key=str):
            self._symbols.remove(symbol)
            self._summary.sizes.append(as_size(env, symbol))

    def _write(self, tensor: torch.Tensor) -> None:
        storage = tensor_storage.storage_of(tensor)
        self._summary.writes_own |= storage in self._own
        sharing = [each for each in self._summary.outer if tensor_storage.storage_of(each) == storage]
        if not sharing:
            return
        # A view of it that was made inside will be one of its copy, and so are other views from outside.
        if all(each is not sharing[0] for each in self._summary.written):
            self._summary.written.append(sharing[0])


def _gives_views(func: Any) -> bool:
    """Whether the results of an op are views of its first operand, by its schema."""
    if isinstance(func, HigherOrderOperator):
        return False
    returned = [each.alias_info for each in func._schema.returns]  # noqa: SLF001  # no public way to it
    return any(each is not None and not each.is_write for each in returned)


def _targets(func: Any, args: Sequence[Any], kwargs: Any) -> Iterator[torch.Tensor]:
    """The tensors that an op writes, by its schema."""
    if isinstance(func, HigherOrderOperator):
        return
    for position, argument in enumerate(func._schema.arguments):  # noqa: SLF001  # no public way to it
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


class _Replace(torch_functions.Traced):
    def __init__(self, others: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self.others = others

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        originals: dict[int, torch.Tensor] = {}

        def replaced(tensor: torch.Tensor) -> torch.Tensor:
            other = self.others.get(id(tensor), tensor)
            originals[id(other)] = tensor
            return other

        args, kwargs = pytree.tree_map_only(torch.Tensor, replaced, (args, kwargs))
        result = super()._called(func, args, kwargs)
        # What gives its own argument, as `+=` does, gives the one that the variable held: a region that finds
        # another tensor there takes it for a new one, unlike the run that saw what the region touches.
        return originals.get(id(result), result)


@contextmanager
def replaced(
    outer: Sequence[torch.Tensor], operands: Sequence[torch.Tensor], shared: views.Shared
) -> Iterator[Replacement]:
    """Inside, ops take operands for the tensors from outside; gives the tensor that stands for one."""
    others = {id(tensor): operand for tensor, operand in zip(outer, operands, strict=True)}
    for tensor in shared.written:
        others[id(tensor)] = others[id(tensor)].clone()
    for tensor, base, replay in shared.views:
        others[id(tensor)] = replay(others[id(base)])
    for tensor in outer:
        if host_scalars.is_host_scalar(tensor):
            host_scalars.as_host_scalar(others[id(tensor)])
    # torch switches the replacements of an outer region off inside of an op, and their originals are what
    # the user's variables still hold.
    replacements = trace.part(_Regions).replacements
    for replacement in replacements:
        for original, stood in replacement.others.items():
            if id(stood) in others:
                others[original] = others[id(stood)]
    with _Replace(others) as replace, rebinding.inner():
        for tensor in outer:
            tensor_storage.stands_for(others[id(tensor)], tensor)
            if all(tensor is not each for each in shared.written):
                constants.stands_for(others[id(tensor)], tensor)
        # What torch runs inside of an op is called by the model.
        with trace.pushed(replacements, replace), trace.assigned(trace.current(), called_at=0):
            yield lambda tensor: others.get(id(tensor), tensor)


def stood_for(tensor: torch.Tensor) -> torch.Tensor:
    """The operand that stands for a tensor of a variable inside of a region; else the tensor itself."""
    # What decides in a `try` has copies of what that writes; all else has what the region around gave it.
    replacements = reversed(trace.part(_Regions).replacements)
    return next((each.others[id(tensor)] for each in replacements if id(tensor) in each.others), tensor)


def sizes_of(summary: Iterable[EffectSummary], operands: Iterable[torch.Tensor]) -> list[torch.SymInt]:
    """The symbols that regions compute with, but for sizes of their operands: they are operands too."""
    mode = get_proxy_mode()
    # What `.item()` gave in a run that put nothing into the graph is asked for anew inside.
    traced = mode.tracer.sympy_expr_tracker if mode else {}
    shapes: Iterable[Any] = (size for each in operands for size in each.shape)
    known = {size.node.expr for size in shapes if isinstance(size, torch.SymInt)}
    sizes = {size.node.expr: size for each in summary for size in each.sizes}
    return [size for symbol, size in sizes.items() if symbol not in known and symbol in traced]


def note_sizes(summary: EffectSummary, join: Callable[[], object]) -> None:
    """Note the symbols that a region's results are joined with: the room of a list, a size as a number."""
    watch = _Watch(EffectSummary(sizes=summary.sizes), (), ())
    with unrecorded(), watch, collected(), rebinding.inner():
        join()


def unaliased(tensors: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Tensors that share no memory with the operands or each other, in the same layout on every path."""
    return tuple(plain(tensor).clone(memory_format=torch.contiguous_format) for tensor in tensors)


def depth() -> int:
    """How many branches and loops are run, one inside of the other."""
    regions = trace.part(_Regions)
    return len(regions.watches) + len(regions.replacements)


def is_unrecorded() -> bool:
    """Whether ops are put into no graph now."""
    return trace.part(_Regions).is_unrecorded


@contextmanager
def unrecorded() -> Iterator[None]:
    """Run ops without putting them into the graph."""
    regions = trace.part(_Regions)
    mode = detect_fake_mode()
    env = mode.shape_env if mode else None
    asked = host_scalars.asked()
    fresh = env.ignore_fresh_unbacked_symbols() if env else nullcontext()
    try:
        with trace.assigned(regions, is_unrecorded=True), disable_proxy_modes_tracing(), fresh:
            yield
    finally:
        if mode and host_scalars.asked() != asked:
            # A tensor remembers its symbol, which belongs to no op of the graph.
            mode.epoch += 1
