"""Exports functions of tensors as they are, and compares the program with eager on every case."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.export import export
from aotpipe.model.spec import as_spec

Call = tuple[torch.Tensor, ...]


def check(model: Callable[..., Any], *cases: Call) -> None:
    """The first case is the example; a case that raises in eager raises in the program."""
    program = export(canonicalize(as_spec(model, args=copy.deepcopy(cases[0])))).entries[0].program.module()
    for case in cases:
        want, got = _outcome(model, case), _outcome(program, case)
        assert len(want) == len(got), (case, want, got)
        for mine, other in zip(want, got, strict=True):
            if isinstance(mine, str) or isinstance(other, str):
                assert mine == other, (case, want, got)
                continue
            if isinstance(mine, torch.Tensor):
                assert mine.dtype == other.dtype
                assert mine.shape == other.shape
            torch.testing.assert_close(
                torch.as_tensor(mine, dtype=torch.float64),
                torch.as_tensor(other, dtype=torch.float64),
                equal_nan=True,
                rtol=1e-5,
                atol=1e-6,
            )


def _outcome(model: Callable[..., Any], case: Sequence[torch.Tensor]) -> list[Any]:
    try:
        with torch.no_grad(), uncompiled():
            return pytree.tree_leaves(model(*copy.deepcopy(case)))
    except Exception:
        return ["raises"]
