"""Attention as plain matrix products and a softmax.

The compiler's fused attention op is two to three times slower on CPU and is not compiled at all by others.
As in eager, half-precision attention is computed in float32, and a row with nothing to attend to gives zeros.
"""

from __future__ import annotations

import math

import torch

from aotpipe.passes.decompositions.entries import Table, iota, static, widened

aten = torch.ops.aten


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    dtype = query.dtype
    query, key, value = widened(query, key, value)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    # How many query heads share a key head.
    groups = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    length, source = query.shape[-2], key.shape[-2]
    # The heads of a group share keys: folded into the rows, none has to be repeated.
    rows = _folded(query * factor, key.shape[-3], groups) if groups != 1 else query * factor
    scores = rows @ key.transpose(-2, -1)
    if groups != 1:
        scores = scores.reshape(*query.shape[:-1], source)
    if is_causal:
        seen = iota(source, query) <= iota(length, query).unsqueeze(-1)
        scores = scores.masked_fill(~seen, -math.inf)
    if attn_mask is not None:
        masked = (
            scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
        )
        scores = masked
    weights = torch.softmax(scores, -1) if attn_mask is None else _safe_softmax(scores)
    if dropout_p > 0:
        weights = torch.dropout(weights, dropout_p, True)
    if groups != 1:
        mixed = _folded(weights, key.shape[-3], groups) @ value
        return mixed.reshape(*query.shape[:-1], value.shape[-1]).to(dtype)
    return (weights @ value).to(dtype)


def _folded(tensor: torch.Tensor, heads: int, groups: int) -> torch.Tensor:
    """(..., heads * groups, rows, n) as (..., heads, groups * rows, n)."""
    return tensor.reshape(*tensor.shape[:-3], heads, groups * tensor.shape[-2], tensor.shape[-1])


def _safe_softmax(scores: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """A softmax that gives zeros where every score is -inf."""
    highest = scores.amax(dim, keepdim=True)
    nothing = highest == -math.inf
    powers = (scores - highest.masked_fill(nothing, 0.0)).exp()
    return powers / powers.sum(dim, keepdim=True).masked_fill(nothing, 1.0)


def safe_softmax(tensor: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    values = tensor if dtype is None else tensor.to(dtype)
    if not tensor.dim() or (static(tensor.shape[dim]) and tensor.shape[dim] == 0):
        return torch.softmax(values, dim)
    return _safe_softmax(widened(values)[0], dim).to(values.dtype)


def flash_attention_for_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernel that torch picks on CPU; its second result, for the backward, is not computed."""
    gqa = query.shape[-3] != key.shape[-3]
    out = scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=gqa
    )
    return out, query.new_empty(query.shape[:-1], dtype=torch.float32)


DECOMPOSITIONS: Table = {
    aten.scaled_dot_product_attention.default: scaled_dot_product_attention,
    aten._scaled_dot_product_flash_attention_for_cpu.default: flash_attention_for_cpu,
    aten._safe_softmax.default: safe_softmax,
}
