"""Products of matrices and vectors by way of `mm`, one per group of rows, and attention.

Attention is plain matrix products and a softmax: the compiler's fused op is two to three times slower on CPU
and is not compiled at all by others. As in eager, half-precision attention is computed in float32, and a row
with nothing to attend to gives zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from aotpipe.passes.decompositions.entries import HALF, Table, iota, static, widened

aten = torch.ops.aten
Number = int | float | complex


def scaled_sum(bias: Tensor, product: Tensor, beta: Number, alpha: Number | torch.SymFloat) -> Tensor:
    """`beta * bias + alpha * product`, rounded once."""
    dtype = product.dtype
    scales = not isinstance(alpha, Number) or alpha != 1  # a number of `.item()` is compared with none
    if dtype in HALF and (beta != 1 or scales):
        product, bias = product.float(), bias.float()
    if scales:
        product = product * _as(alpha, dtype)
    if beta == 0:
        # A NaN of the bias does not count where beta is 0.
        return product.to(dtype)
    return (product + (bias if beta == 1 else bias * _as(beta, dtype))).to(dtype)


def _as(number: Number | torch.SymFloat, dtype: torch.dtype) -> Any:
    if dtype.is_complex or dtype.is_floating_point or not isinstance(number, Number):
        return number
    return int(number.real)


def addbmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    batch, rows, inner = left.shape
    product = torch.mm(left.transpose(0, 1).reshape(rows, batch * inner), right.reshape(batch * inner, -1))
    return scaled_sum(bias, product, beta, alpha)


def trilinear(
    one: Tensor,
    two: Tensor,
    three: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """The product of three tensors, each of which lacks some dims, added up over some dims."""
    rank = one.dim() + len(expand1)
    letters = "abcdefghijklmnopqrstuvwxyz"[:rank]

    def kept(*lacking: int) -> str:
        gone = {dim % rank for dim in lacking}
        return "".join(letter for dim, letter in enumerate(letters) if dim not in gone)

    operands = kept(*expand1), kept(*expand2), kept(*expand3)
    result = kept(*sumdim)
    form = f"{','.join(operands)}->{''.join(letter for letter in result if letter in ''.join(operands))}"
    # The compiler adds up its products in half precision.
    found = torch.einsum(form, *widened(one, two, three)).to(one.dtype)
    for dim, letter in enumerate(result):
        if letter not in "".join(operands):
            # Of a dim that all of them lack eager gives nothing.
            found = found.unsqueeze(dim).narrow(dim, 0, 0)
    return found


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_: bool,  # settings of a library, which change no numbers
    **_settings: bool,
) -> Tensor:
    options = stride, padding, dilation, transposed, output_padding, groups
    found: Tensor = aten.convolution.default(input, weight, bias, *options)
    return found


def grouped_rows(rows: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Multiply each row by its group's matrix.

    `rows` is `(rows, k)`, sorted by group, `weight` `(groups, k, n)`, and `ends` `(groups,)`, where each
    group ends; rows after the last end give zeros.
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
    rows: Tensor,
    weight: Tensor,
    ends: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    if ends is None or rows.dim() != 2 or weight.dim() != 3:
        return NotImplemented
    product = grouped_rows(rows, weight, ends)
    product = product if bias is None else product + bias
    return product if out_dtype is None else product.to(out_dtype)


def scaled_mm(
    left: Tensor,
    right: Tensor,
    scale_left: Tensor,
    scale_right: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Any:
    """Of numbers of 8 bits, with one scale each or one per row of the left and column of the right."""
    scales = [(scale_left, left.shape[0]), (scale_right, right.shape[1])]
    if scale_result is not None or any(
        scale.dtype is not torch.float32 or scale.numel() not in (1, size) for scale, size in scales
    ):
        return NotImplemented
    product = torch.mm(left.float(), right.float()) * scale_left * scale_right
    product = product if bias is None else product + bias.float()
    return product.to(left.dtype if out_dtype is None else out_dtype)


def conv_tbc(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution of (time, batch, channels)."""
    convolved = torch.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return convolved.permute(2, 0, 1)


LIBRARIES: Final[Mapping[str, Callable[..., Any]]] = {"transformers::grouped_mm_fallback": grouped_rows}
"""Ops that a library registers when it is imported, by qualified name."""


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    dtype = query.dtype
    query, key, value = widened(query, key, value)
    width = query.shape[-1]
    # Python's own root would fix a width that varies.
    factor = 1 / (math.sqrt(width) if static(width) else width**0.5) if scale is None else scale
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
        is_bool = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if is_bool else scores + attn_mask
    weights = torch.softmax(scores, -1) if attn_mask is None else _safe_softmax(scores)
    if dropout_p > 0:
        weights = torch.dropout(weights, dropout_p, True)
    if groups != 1:
        mixed = _folded(weights, key.shape[-3], groups) @ value
        return mixed.reshape(*query.shape[:-1], value.shape[-1]).to(dtype)
    return (weights @ value).to(dtype)


def _folded(tensor: Tensor, heads: int, groups: int) -> Tensor:
    """(..., heads * groups, rows, n) as (..., heads, groups * rows, n)."""
    return tensor.reshape(*tensor.shape[:-3], heads, groups * tensor.shape[-2], tensor.shape[-1])


def _safe_softmax(scores: Tensor) -> Tensor:
    """A softmax over the last dim that gives zeros where every score is -inf."""
    highest = scores.amax(-1, keepdim=True)
    nothing = highest == -math.inf
    powers = (scores - highest.masked_fill(nothing, 0.0)).exp()
    return powers / powers.sum(-1, keepdim=True).masked_fill(nothing, 1.0)


def flash_attention_for_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The kernel that torch picks on CPU; its second result, for the backward, is not computed."""
    gqa = query.shape[-3] != key.shape[-3]
    out = scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=gqa
    )
    return out, query.new_empty(query.shape[:-1], dtype=torch.float32)


DECOMPOSITIONS: Table = {
    aten.addbmm.default: addbmm,
    aten._convolution.default: convolution,
    aten._convolution.deprecated: convolution,
    aten._trilinear.default: trilinear,
    aten._grouped_mm.default: grouped_mm,
    aten._scaled_mm.default: scaled_mm,
    aten.conv_tbc.default: conv_tbc,
    aten.scaled_dot_product_attention.default: scaled_dot_product_attention,
    aten._scaled_dot_product_flash_attention_for_cpu.default: flash_attention_for_cpu,
}
