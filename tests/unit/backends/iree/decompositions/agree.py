"""Runs torch's own samples of an op through the table of decompositions, in eager, and compares."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch.export import ExportedProgram

from aotpipe.backends.iree import legalization
from aotpipe.passes import decompositions
from tests.opinfo.cases import Case, cases
from tests.opinfo.sweep import TOLERANCE


def decomposed(
    module: torch.nn.Module, tensors: tuple[torch.Tensor, ...], dynamic_shapes: Any = None
) -> ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, tensors, dynamic_shapes=dynamic_shapes)
        return decompositions.decompose(program, legalization.CPU.decompositions())


class Together(torch.nn.Module):
    """Several calls as one: an export costs more than the ops in it."""

    def __init__(self, calls: Sequence[Case]) -> None:
        super().__init__()
        self.calls = torch.nn.ModuleList(call.module for call in calls)
        self.counts = [len(call.tensors) for call in calls]

    def forward(self, *tensors: torch.Tensor) -> list[Any]:
        rest, results = list(tensors), []
        for call, count in zip(self.calls, self.counts, strict=True):
            results.append(call(*rest[:count]))
            del rest[:count]
        return results


GROUP = 8
# Most of a test is the trace of its samples; the quick run takes the odd ones and few others.
COUNT = 2 if os.environ.get("HYPOTHESIS_PROFILE", "quick") == "quick" else 4


def check_op(op: str, dtype: str, *, among: Sequence[str] = (), count: int = COUNT) -> None:
    """Every sample gives what eager gives.

    Args:
        op: The op's name in torch's table of samples.
        dtype: The samples' dtype.
        among: The ops that the test is run for; groups of them share an export.
        count: About how many samples are taken.
    """
    first = among.index(op) // GROUP * GROUP if op in among else 0
    found = results(tuple(among[first : first + GROUP]) or (op,), dtype, count)[op]
    assert found, f"no sample of {op} for {dtype}"
    for sample, outputs in found:
        for got, want in zip(torch.utils._pytree.tree_leaves(outputs), sample.expected, strict=True):
            rtol, atol = TOLERANCE.get(getattr(want, "dtype", None), (0.0, 0.0))
            torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True, msg=named(sample))


@cache
def results(ops: tuple[str, ...], dtype: str, count: int) -> dict[str, list[tuple[Case, Any]]]:
    """The samples of each op and what their decomposed program gives; one export for all if that succeeds."""
    samples = [sample for op in ops for sample in cases(op, dtype, count)]
    tensors = tuple(tensor.clone() for sample in samples for tensor in sample.tensors)
    try:
        outputs = decomposed(Together(samples).eval(), tensors).module()(*tensors) if samples else []
    except Exception:
        if len(ops) == 1:
            raise
        return Alone(dtype, count)
    found: dict[str, list[tuple[Case, Any]]] = {op: [] for op in ops}
    for sample, output in zip(samples, outputs, strict=True):
        found[sample.op].append((sample, output))
    return found


class Alone(dict[str, list[tuple[Case, Any]]]):
    """Results of ops that fail together: each test exports its own, so that the right one fails."""

    def __init__(self, dtype: str, count: int) -> None:
        super().__init__()
        self.dtype, self.count = dtype, count

    def __missing__(self, op: str) -> list[tuple[Case, Any]]:
        return results((op,), self.dtype, self.count)[op]


def named(sample: Case) -> Callable[[str], str]:
    return lambda text: f"{sample.name}\n{text}"
