"""Mixtures of experts: a matrix product per group of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from aotpipe.passes.decompositions.entries import Table, iota, static, widened

aten = torch.ops.aten


def grouped_rows(rows: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Multiply each row by its group's matrix.

    Args:
        rows: `(rows, k)`, sorted by group.
        weight: `(groups, k, n)`.
        ends: `(groups,)`, where each group ends; rows after the last end give zeros.
    """
    group = (iota(rows.shape[0], rows).unsqueeze(1) >= ends.unsqueeze(0)).sum(1)
    present = group < ends.shape[0]
    group = group.clamp(max=ends.shape[0] - 1)
    wide_rows, wide_weight = widened(rows, weight)
    if static(rows.shape[0]) and static(ends.shape[0]) and rows.shape[0] <= ends.shape[0]:
        # Fewer rows than groups: the matrices in use are gathered, the others are not touched.
        product = torch.bmm(wide_rows.unsqueeze(1), wide_weight.index_select(0, group)).squeeze(1)
    else:
        # Sizes of groups are data; every matrix meets every row, and a row keeps its own group's product.
        products = torch.matmul(wide_rows.unsqueeze(0), wide_weight)
        index = group.reshape(1, -1, 1).expand(1, -1, products.shape[2])
        product = products.gather(0, index).squeeze(0)
    return torch.where(present.unsqueeze(1), product, 0.0).to(rows.dtype)


def grouped_mm(
    rows: torch.Tensor,
    weight: torch.Tensor,
    ends: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    if ends is None or rows.dim() != 2 or weight.dim() != 3:
        return NotImplemented
    product = grouped_rows(rows, weight, ends)
    product = product if bias is None else product + bias
    return product if out_dtype is None else product.to(out_dtype)


DECOMPOSITIONS: Table = {
    aten._grouped_mm.default: grouped_mm,
}

LIBRARIES: Final[Mapping[str, Callable[..., Any]]] = {
    "transformers::grouped_mm_fallback": grouped_rows,
}
"""Ops that a library registers when it is imported, by qualified name."""
