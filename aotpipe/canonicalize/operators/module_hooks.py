"""Hooks of modules that return None on one path: torch's own code asks for it, and is not rewritten.

Inside of `joined(module)` a hook gives in any case what it stands for: where it is None, what it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from aotpipe.canonicalize.operators import conditional
from aotpipe.canonicalize.values.optional_values import OptionalValue

Hook = Callable[..., Any]


@contextmanager
def joined(module: torch.nn.Module) -> Iterator[None]:
    """Put such forms of the hooks of a module, and of those in it, in their places."""
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


__all__ = ["joined"]
