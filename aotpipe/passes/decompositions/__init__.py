"""Decompositions that every backend needs.

`table()` holds torch's own entries for its core ops with ours in front, grouped by file as ATen's
documentation groups the ops. An entry replaces torch's where no compiler has a lowering for what torch's
gives, or computes it wrong or slowly. A backend puts its own entries in front of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any, Final

import torch
from torch._export.utils import _collect_all_valid_cia_ops, _special_op_to_preserve_cia
from torch._functorch import aot_autograd
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram, _unlift
from torch.export.exported_program import _decompose_exported_program

from aotpipe.canonicalize import correlation, recurrent_layers
from aotpipe.canonicalize.values.trace import assigned
from aotpipe.export import tracing
from aotpipe.passes.decompositions import (
    bessel,
    blas,
    grid_sample,
    histograms,
    indexing,
    jacobi,
    linalg,
    norm,
    ordering,
    pointwise,
    polynomials,
    resample,
    segments,
    special,
)
from aotpipe.passes.decompositions.entries import Decomposition, Table, joined

__all__ = ["Decomposition", "Table", "decompose", "of_libraries", "table"]

_GROUPS: Final = (
    *(bessel, blas, grid_sample, histograms, indexing, jacobi, linalg),
    *(norm, ordering, pointwise, polynomials, resample, segments, special),
)


@cache
def table() -> Mapping[Any, Callable[..., Any]]:
    """The decompositions for every backend: op -> function of the op's own arguments."""
    core = dict(torch.export.default_decompositions().items())
    # torch's own entries for recurrent layers write out every time step; ours scan over time.
    return core | joined(
        [
            *(correlation.KERNELS, recurrent_layers.KERNELS, tracing.DECOMPOSITIONS),
            *(group.DECOMPOSITIONS for group in _GROUPS),
        ]
    )


def of_libraries(entries: Mapping[str, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The entries for those ops, given by name, that a library has registered by now."""
    found: dict[Any, Callable[..., Any]] = {}
    for name, decomposition in entries.items():
        namespace, _, op = name.partition("::")
        op, _, overload = op.partition(".")
        if (packet := getattr(getattr(torch.ops, namespace), op, None)) is not None:
            found[getattr(packet, overload or "default")] = decomposition
    return found


def decompose(program: ExportedProgram, table: Mapping[Any, Callable[..., Any]]) -> ExportedProgram:
    """Give what `program.run_decompositions(table)` gives, 0.1 s sooner.

    torch looks for all of its composite ops in each call, and replaces the kernels of all 500 while it runs.
    Those that the table leaves to their own kernel need no replacement: torch calls it anyway.
    """
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    entries = dict(table)
    composite = {
        op: entry
        for op in _composite_ops(frozenset(registered), frozenset(torch.ops._dir))
        if not _is_own_kernel(op, entry := entries.pop(op, _special_op_to_preserve_cia))
    }
    # torch never asks for the composite form of ops that have a kernel too, such as `upsample_nearest2d`.
    entries |= {op: entry for op, entry in composite.items() if op in table and op.name() not in registered}
    # What is assumed of the sizes is in the signature. torch would call Python code that checks it with the
    # symbols, where `min(16, n)` becomes an assumption of its own: that `n` is on the example's side of 16.
    unchecked = assigned(_unlift, _ok_to_generate_guards_fn=lambda: False)
    with linalg.checks_as_asserts(), tracing.metas_are_eagers(), unchecked, _views_may_be_results():
        return _decompose_exported_program(
            program,
            cia_to_decomp=composite,
            python_decomp_table=entries,
            joint_loss_index=None,
            decompose_custom_triton_ops=False,
        )


def _views_may_be_results() -> AbstractContextManager[None]:
    """Let a program return a part that it picks of a tensor which it has written to (`best[i : i + 1]`).

    When torch has run the program to see what it returns, it takes such a part anew, with a size of its own,
    and asks for that size at the first input of the trace.
    """
    before: Callable[..., Any] = vars(aot_autograd)["run_functionalized_fw_and_collect_metadata"]

    def collecting(*args: Any, **options: Any) -> Callable[..., Any]:
        collect = before(*args, **options)

        def collected(*inputs: Any) -> Any:
            found = collect(*inputs)
            mode = detect_fake_mode(inputs)
            if mode is not None and mode.shape_env is not None:
                mode.shape_env.pending_fresh_unbacked_symbols.clear()
            return found

        return collected

    return assigned(aot_autograd, run_functionalized_fw_and_collect_metadata=collecting)


@cache
def _composite_ops(registered: frozenset[str], namespaces: frozenset[str]) -> frozenset[Any]:
    """The composite ops that write nothing; libraries add and remove some of them at any time."""
    return frozenset(_collect_all_valid_cia_ops())


def _is_own_kernel(op: Any, entry: Callable[..., Any]) -> bool:
    """Whether an entry, as `torch.export.default_decompositions` gives it, calls the op's own kernel."""
    return isinstance(entry, partial) and entry.keywords == {"kernel": op}
