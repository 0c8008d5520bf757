"""Whether a graph is being traced, in which rewritten code puts what depends on tensors.

`staging(module)` says so while a module is traced. Outside of it every operator is Python's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from types import MappingProxyType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.alias import container_mutation, rebinding
from aotpipe.canonicalize.inputs import pytree_names
from aotpipe.canonicalize.operators import dynamic_list, module_hooks
from aotpipe.canonicalize.trace import (
    constants,
    effects,
    host_scalars,
    optional_values,
    refusals,
    region_sites,
    runtime_asserts,
    torch_functions,
)
from aotpipe.canonicalize.trace.abstract_values import is_leaf
from aotpipe.canonicalize.trace.optional_values import Maybe
from aotpipe.core.stages import Finding
from aotpipe.errors import ExportFailed
from aotpipe.model import capacity, source

_staging = False
# How many of its modes a model is run in.
_modes = 0


@contextmanager
def staging(
    module: torch.nn.Module,
    *,
    kept: bool = False,
    exactly: bool = False,
    tops: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[Collection[Finding]]:
    """Put what depends on traced tensors into the graph, while a module is traced; gives notes about it.

    Args:
        module: What is traced.
        kept: Whether what its attributes, lists and dicts hold at last is kept from call to call.
        exactly: Whether the graph follows which names of tensors are names of one.
        tops: The highest values of integers among the leaves of a call, by place.
    """
    global _staging
    before, _staging = _staging, True
    token = capacity.assert_in_trace.set(_assert_capacity)
    try:
        watched = effects.watching(module, kept=kept)
        with (
            module_hooks.joined(module),
            watched,
            refusals.noted() as notes,
            rebinding.followed(exactly=exactly),
            constants.followed(),
            host_scalars.followed(),
            region_sites.followed(),
            runtime_asserts.followed(),
            optional_values.followed(),
            called_in_mode(module, tops),
        ):
            yield notes
    finally:
        _staging = before
        capacity.assert_in_trace.reset(token)


def _assert_capacity(fits: Any, said: str) -> bool:
    if not is_staged(fits):
        return False
    runtime_asserts.claim(torch_functions.predicate(fits), said)
    return True


@contextmanager
def called_in_mode(module: torch.nn.Module, tops: Mapping[int, int]) -> Iterator[None]:
    """Run a module's forward in our mode, inside of the one that torch.export itself runs it in.

    That one asks an index for its value.
    """
    own = vars(module).get("forward")
    forward = module.forward

    @region_sites.border
    @wraps(forward)
    def inside(*args: Any, **kwargs: Any) -> Any:
        for place, leaf in enumerate(pytree.tree_leaves((args, kwargs))):
            if place in tops and isinstance(leaf, torch.Tensor):
                host_scalars.note_top(leaf, tops[place])
        with torch_functions.Traced(), _counted(), container_mutation.followed():
            result = forward(*args, **kwargs)
        if any(map(dynamic_list.is_growing, _lists(result))):
            raise ExportFailed(
                "what forward returns is a list whose length a tensor decides",
                hint="return torch.stack of it",
                where=source.of_definition(forward),
            )
        if any(isinstance(leaf, Maybe) for leaf in pytree.tree_leaves(result, is_leaf)):
            raise ExportFailed(
                "what forward returns is None on one path and a tensor on another, where a tensor decides",
                hint="return a tensor on every path, and whether it counts beside it",
                where=source.of_definition(forward),
            )
        return result

    # That of the class has `self` too.
    inside.__signature__ = pytree_names.signature_of(forward)  # type: ignore[attr-defined]
    vars(module)["forward"] = inside
    try:
        yield
    finally:
        if own is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = own


@contextmanager
def _counted() -> Iterator[None]:
    global _modes
    _modes += 1
    try:
        yield
    finally:
        _modes -= 1


def modes() -> int:
    """How many modes of torch the trace itself put around a model, outside of branches and loops."""
    return _modes


def _lists(result: Any) -> Iterator[Any]:
    if isinstance(result, list):
        yield result
    if isinstance(result, list | tuple | dict):
        for each in result.values() if isinstance(result, dict) else result:
            yield from _lists(each)


def is_on() -> bool:
    """Whether a graph is being traced."""
    return _staging


def is_staged(value: object) -> bool:
    """Whether a value is known to a run of the graph only."""
    return _staging and torch_functions.is_traced(value)
