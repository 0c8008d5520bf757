"""Runs torch's own samples of an op through the table of decompositions, in eager, and compares."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from aotpipe.backends.iree import legalization
from tests.opinfo.cases import Case, cases
from tests.opinfo.sweep import TOLERANCE


def decomposed(module: torch.nn.Module, tensors: tuple[torch.Tensor, ...]) -> ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, tensors)
        return program.run_decompositions(dict(legalization.CPU.decompositions()))


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


def check_op(op: str, dtype: str, *, count: int = 4, left: Iterable[str] = ()) -> None:
    """Every sample gives what eager gives, and no op of `left` is left in their graph."""
    samples = list(cases(op, dtype, count))
    assert samples, f"no sample of {op} for {dtype}"
    tensors = tuple(tensor.clone() for sample in samples for tensor in sample.tensors)
    program = decomposed(Together(samples).eval(), tensors)
    targets = {str(node.target) for node in program.graph.nodes}
    assert not targets & set(left), targets
    for sample, results in zip(samples, program.module()(*tensors), strict=True):
        for got, want in zip(torch.utils._pytree.tree_leaves(results), sample.expected, strict=True):
            rtol, atol = TOLERANCE.get(getattr(want, "dtype", None), (0.0, 0.0))
            torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True, msg=named(sample))


def named(sample: Case) -> Callable[[str], str]:
    return lambda text: f"{sample.name}\n{text}"
