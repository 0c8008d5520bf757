"""What a path demands of sizes that depend on data, as asserts: they hold, or the path is not taken."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._sympy.interp import (
    sympy_interp,  # torch has no public way to compute a condition of symbols
)
from torch.utils._sympy.reference import PythonReferenceAnalysis

from aotpipe.canonicalize.trace import runtime_asserts, torch_functions
from aotpipe.canonicalize.trace.region_asserts import as_size, environment


def add_assert(size_conditions: Iterable[Any], test: torch.Tensor, *, holds: bool) -> None:
    """Put an assert into the graph for each condition: it holds, or the test has another truth."""
    for condition in size_conditions:
        truth = torch_functions.predicate(_computed(condition))
        elsewhere = test.logical_not() if holds else test
        said = f"a size that depends on data does not fit: {condition} does not hold"
        runtime_asserts.add_assert(elsewhere.logical_or(truth), said)


def _computed(condition: Any) -> Any:
    """A condition as torch's bool, op by op: of a whole one torch traces functions that no program holds."""
    env = environment()
    symbols = {symbol: as_size(env, symbol) for symbol in condition.free_symbols}
    return sympy_interp(PythonReferenceAnalysis, symbols, condition)


__all__ = ["add_assert"]
