"""Runs torch's own samples of an op through the table of decompositions, in eager, and compares."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch
from torch.export import ExportedProgram

from aotpipe.legalize import decompositions
from tests.opinfo.cases import cases
from tests.opinfo.sweep import TOLERANCE


def decomposed(module: torch.nn.Module, tensors: tuple[torch.Tensor, ...]) -> ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, tensors)
        return program.run_decompositions(dict(decompositions.table("torch")))


def check_op(op: str, dtype: str, *, count: int = 4, left: Iterable[str] = ()) -> None:
    """Every sample gives what eager gives, and no op of `left` is left in its graph."""
    seen = 0
    for case in cases(op, dtype, count):
        program = decomposed(case.module, case.tensors)
        targets = {str(node.target) for node in program.graph.nodes}
        assert not targets & set(left), (case.name, targets)
        results = torch.utils._pytree.tree_leaves(program.module()(*(t.clone() for t in case.tensors)))
        for got, want in zip(results, case.expected, strict=True):
            rtol, atol = TOLERANCE.get(getattr(want, "dtype", None), (0.0, 0.0))
            torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True)
        seen += 1
    assert seen, f"no sample of {op} for {dtype}"
