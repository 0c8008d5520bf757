"""Runs torch's control-flow ops as the Python that they are made of.

Outside of torch.compile and torch.export, `torch.cond`, `while_loop`, `map`, `scan` and `associative_scan`
start a compiler on their bodies: that takes seconds, and refuses bodies that torch.export takes. Inside
`uncompiled()` they call the bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

# The module, whose name in its package is that of the function. It looks this up at each call of `scan`.
_SCANS: Final = import_module("torch._higher_order_ops.scan")
_COMPILE_AND_RUN: Final = "_maybe_compile_and_run_fn"


@contextmanager
def uncompiled() -> Iterator[None]:
    """Call the bodies of control-flow ops, and start no compiler."""
    original: Callable[..., Any] = getattr(_SCANS, _COMPILE_AND_RUN)
    setattr(_SCANS, _COMPILE_AND_RUN, _run_scan)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        setattr(_SCANS, _COMPILE_AND_RUN, original)


def _run_scan(
    run: Callable[..., list[torch.Tensor]],
    step: partial[Any],
    carry: list[torch.Tensor],
    xs: list[torch.Tensor],
) -> tuple[Any, Any]:
    """Run a scan whose body was flattened.

    torch 2.13 leaves it to the compiler to give the flat results their structure back, so that without one
    a scan of anything but one carry and one output raises.
    """
    structure: list[pytree.TreeSpec] = []

    def noted(*args: Any) -> Any:
        after, out = step(*args)
        structure[:] = [pytree.tree_structure(out)]
        return after, out

    flat = list(run(noted, carry, xs))
    count = len(carry)
    [of_out] = structure
    return (
        pytree.tree_unflatten(flat[:count], step.keywords["spec_init"]),
        pytree.tree_unflatten(flat[count:], of_out),
    )
