"""Begins and ends a trace, in which rewritten code puts what depends on tensors into the graph.

`staging(module)` says so while a module is traced. Outside of it every operator is Python's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from types import MappingProxyType
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.operators import conditional, dynamic_list_methods, operators, unbacked_items
from aotpipe.canonicalize.trace import region_sites, runtime_asserts, torch_functions
from aotpipe.canonicalize.values import dynamic_list, host_scalars, trace
from aotpipe.canonicalize.values.abstract_values import is_leaf
from aotpipe.canonicalize.values.optional_values import OptionalValue
from aotpipe.canonicalize.values.trace import Operators, Trace
from aotpipe.errors import ExportFailed
from aotpipe.model import capacity, source

Hook = Callable[..., Any]
_OPERATORS: Final = Operators(
    call=operators.call,
    either=conditional.either,
    call_with_optional=conditional.called,
    call_with_list=dynamic_list_methods.called,
    items_of=unbacked_items.of,
)


@contextmanager
def staging(
    module: torch.nn.Module,
    *,
    lifts_state: bool = False,
    exact_aliases: bool = False,
    upper_bounds: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[Trace]:
    """Put what depends on traced tensors into the graph, while a module is traced; gives the trace.

    Args:
        module: What is traced.
        lifts_state: Whether what its attributes, lists and dicts hold at last is kept from call to call.
        exact_aliases: Whether the graph follows which names of tensors are names of one.
        upper_bounds: The highest values of integers among the leaves of a call, by place.
    """
    token = capacity.assert_in_trace.set(_assert_capacity)
    try:
        with (
            trace.started(Trace(_OPERATORS, exact_aliases=exact_aliases)) as found,
            hooks_joined(module),
            effects.watching(module, lifts_state=lifts_state),
            host_scalars.unhashable(),
            called_in_mode(module, upper_bounds),
        ):
            yield found
    finally:
        capacity.assert_in_trace.reset(token)


def _assert_capacity(fits: Any, said: str) -> bool:
    if not torch_functions.is_staged(fits):
        return False
    runtime_asserts.add_assert(torch_functions.predicate(fits), said)
    return True


@contextmanager
def called_in_mode(module: torch.nn.Module, upper_bounds: Mapping[int, int]) -> Iterator[None]:
    """Run a module's forward in our mode, inside of the one that torch.export itself runs it in.

    That one asks an index for its value.
    """
    own = vars(module).get("forward")
    forward = module.forward

    @region_sites.boundary
    @wraps(forward)
    def inside(*args: Any, **kwargs: Any) -> Any:
        for position, leaf in enumerate(pytree.tree_leaves((args, kwargs))):
            if position in upper_bounds and isinstance(leaf, torch.Tensor):
                host_scalars.note_upper_bound(leaf, upper_bounds[position])
        current = trace.current()
        counted = trace.assigned(current, modes=current.modes + 1)
        with torch_functions.Traced(), counted, effects.results_checked():
            result = forward(*args, **kwargs)
        if any(map(dynamic_list.is_dynamic_list, _lists(result))):
            raise ExportFailed(
                "what forward returns is a list whose length a tensor decides",
                hint="return torch.stack of it",
                code="list-grows",
                where=source.of_definition(forward),
            )
        if any(isinstance(leaf, OptionalValue) for leaf in pytree.tree_leaves(result, is_leaf)):
            raise ExportFailed(
                "what forward returns is None on one path and a tensor on another, where a tensor decides",
                hint="return a tensor on every path, and whether it counts beside it",
                code="paths-differ",
                where=source.of_definition(forward),
            )
        return result

    # That of the class has `self` too.
    inside.__signature__ = source.signature_of(forward)  # type: ignore[attr-defined]
    vars(module)["forward"] = inside
    try:
        yield
    finally:
        if own is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = own


def _lists(result: Any) -> Iterator[Any]:
    if isinstance(result, list):
        yield result
    if isinstance(result, list | tuple | dict):
        for each in result.values() if isinstance(result, dict) else result:
            yield from _lists(each)


@contextmanager
def hooks_joined(module: torch.nn.Module) -> Iterator[None]:
    """Let the hooks of a module, and of those in it, give what they were given in the place of None.

    A hook that returns None on one path is called by torch's own code, which is not rewritten.
    """
    before: list[tuple[dict[int, Hook], int, Hook]] = []
    try:
        for part in module.modules():
            for table, wrapped in ((part._forward_pre_hooks, _pre_hook), (part._forward_hooks, _hook)):  # noqa: SLF001
                for key, hook in table.items():
                    before.append((table, key, hook))
                    with_kwargs = key in part._forward_pre_hooks_with_kwargs  # noqa: SLF001
                    table[key] = wrapped(hook, with_kwargs)
        yield
    finally:
        for table, key, hook in before:
            table[key] = hook


# Closures: what a hook changes is found in the variables of functions.
def _hook(hook: Hook, _: bool) -> Hook:
    def joined(module: Any, *given: Any) -> Any:
        return _either(hook(module, *given), given[-1])

    return joined


def _pre_hook(hook: Hook, with_kwargs: bool) -> Hook:
    def joined(module: Any, *given: Any) -> Any:
        result = hook(module, *given)
        if isinstance(result, OptionalValue) and not with_kwargs and not isinstance(result.payload, tuple):
            result = OptionalValue(result.present, (result.payload,))
        return _either(result, given if with_kwargs else given[0])

    return joined


def _either(result: Any, otherwise: Any) -> Any:
    if not isinstance(result, OptionalValue):
        return result
    return conditional.either(result, lambda: result.payload, lambda: otherwise)
