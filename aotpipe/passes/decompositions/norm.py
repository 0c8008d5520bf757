"""Norms and distances, in float32 for half-precision inputs as in eager, and bags of embeddings."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from aotpipe.passes import ops
from aotpipe.passes.decompositions.entries import HALF, Table, empty, wide, widened

aten = torch.ops.aten
Triple = tuple[Tensor, Tensor, Tensor]
Optional = Tensor | None
Bags = tuple[Tensor, Tensor, Tensor, Tensor]
_MEAN, _MAX = 1, 2
_OF_FAST_BAGS = (torch.float32, torch.float16, torch.bfloat16)


def _per_channel(vector: Optional, like: Tensor) -> Optional:
    return None if vector is None else vector.reshape(1, -1, *([1] * (like.dim() - 2)))


def _standardized(values: Tensor, dims: list[int], eps: float) -> Triple:
    """Give `(values - mean) / deviation`, the mean, and the inverse of the deviation."""
    mean = values.mean(dims, keepdim=True)
    centered = values - mean
    scale = torch.rsqrt((centered * centered).mean(dims, keepdim=True) + eps)
    return centered * scale, mean, scale


def _affine(values: Tensor, weight: Optional, bias: Optional) -> Tensor:
    values = values if weight is None else values * weight.to(values.dtype)
    return values if bias is None else values + bias.to(values.dtype)


def _in_one_dtype(tensor: Tensor, out: Tensor, mean: Tensor, scale: Tensor) -> Triple:
    """The result and the statistics in the dtype that torch.export takes them for."""
    return out.to(tensor.dtype), mean.to(tensor.dtype), scale.to(tensor.dtype)


def batch_norm_no_training(
    tensor: Tensor,
    weight: Optional,
    bias: Optional,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> Triple:
    mean, var = widened(running_mean, running_var)
    scale = _affine(torch.rsqrt(var + eps), weight, None)
    shift = _affine(-mean * scale, None, bias)
    values = _affine(tensor.to(scale.dtype), _per_channel(scale, tensor), _per_channel(shift, tensor))
    nothing = tensor.new_empty(0)
    return values.to(tensor.dtype), nothing, nothing


def native_batch_norm(
    tensor: Tensor,
    weight: Optional,
    bias: Optional,
    running_mean: Optional,
    running_var: Optional,
    training: bool,
    momentum: float,
    eps: float,
) -> Triple:
    if not training and running_mean is not None and running_var is not None:
        return batch_norm_no_training(tensor, weight, bias, running_mean, running_var, momentum, eps)
    return _batch_statistics(tensor, weight, bias, eps)


def _batch_statistics(tensor: Tensor, weight: Optional, bias: Optional, eps: float) -> Triple:
    out, mean, scale = _standardized(widened(tensor)[0], [0, *range(2, tensor.dim())], eps)
    out = _affine(out, _per_channel(weight, tensor), _per_channel(bias, tensor))
    return _in_one_dtype(tensor, out, mean.reshape(-1), scale.reshape(-1))


def batch_norm_functional(
    tensor: Tensor,
    weight: Optional,
    bias: Optional,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    if not training:
        found = batch_norm_no_training(tensor, weight, bias, running_mean, running_var, momentum, eps)
        return (*found, running_mean.clone(), running_var.clone())
    dims = [0, *range(2, tensor.dim())]
    wide = tensor.to(running_mean.dtype)
    mean = running_mean * (1 - momentum) + wide.mean(dims) * momentum
    var = running_var * (1 - momentum) + wide.var(dims, correction=1) * momentum
    return (*_batch_statistics(tensor, weight, bias, eps), mean, var)


def batch_norm_with_update(
    tensor: Tensor,
    weight: Optional,
    bias: Optional,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    found = batch_norm_functional(tensor, weight, bias, running_mean, running_var, True, momentum, eps)
    # Between them is what a GPU's library keeps for the gradient.
    return (*found[:3], tensor.new_empty(0, dtype=torch.uint8), *found[3:])


def layer_norm(
    tensor: Tensor, normalized_shape: list[int], weight: Optional, bias: Optional, eps: float
) -> Triple:
    dims = list(range(tensor.dim() - len(normalized_shape), tensor.dim()))
    out, mean, scale = _standardized(widened(tensor)[0], dims, eps)
    return _in_one_dtype(tensor, _affine(out, weight, bias), mean, scale)


def group_norm(
    tensor: Tensor,
    weight: Optional,
    bias: Optional,
    batch: int,
    channels: int,
    spatial: int,
    groups: int,
    eps: float,
) -> Triple:
    if empty(tensor):
        none = tensor.new_zeros(batch, groups)
        return tensor.clone(), none, none
    out, mean, scale = _standardized(widened(tensor)[0].reshape(batch, groups, -1), [-1], eps)
    out = _affine(out.reshape(tensor.shape), _per_channel(weight, tensor), _per_channel(bias, tensor))
    return _in_one_dtype(tensor, out, mean.squeeze(-1), scale.squeeze(-1))


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    dims = [axis for axis in range(v.dim()) if axis != dim % v.dim()]
    wide_v = widened(v)[0]
    norms = (wide_v * wide_v).sum(dims, keepdim=True).sqrt()
    return (wide_v * (g.to(norms.dtype) / norms)).to(v.dtype), norms.to(g.dtype)


def vector_norm(
    tensor: Tensor,
    ord: float = 2,
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    result = dtype or (tensor.dtype if not tensor.is_complex() else tensor.real.dtype)
    values = tensor.abs()
    values = values.to(wide(result if result.is_floating_point else values.dtype))
    dims = dim or list(range(tensor.dim()))
    if not tensor.dim():
        new = (values != 0).to(values.dtype) if ord == 0 else values
        return new.to(result)
    match ord:
        case 0:
            new = (values != 0).to(values.dtype).sum(dims, keepdim)
        case 1:
            new = values.sum(dims, keepdim)
        case 2:
            new = (values * values).sum(dims, keepdim).sqrt()
        case math.inf:
            new = values.amax(dims, keepdim)
        case _ if ord == -math.inf:
            new = values.amin(dims, keepdim)
        case _:
            new = values.pow(ord).sum(dims, keepdim).pow(1 / ord)
    return new.to(result)


def dist(left: Tensor, right: Tensor, p: float = 2) -> Tensor:
    return vector_norm(left - right, p)


def _distance(difference: Tensor, p: float) -> Tensor:
    """The norm over the last dim; 0 where that has no elements."""
    none = math.isinf(p) and not difference.shape[-1]
    return vector_norm(difference, 1 if none else p, [-1])


def cdist(left: Tensor, right: Tensor, p: float, _: int | None = None) -> Tensor:
    return _distance(left.unsqueeze(-2) - right.unsqueeze(-3), p)


def pdist(rows: Tensor, p: float = 2.0) -> Tensor:
    count = rows.shape[0]
    if not isinstance(count, int):
        return NotImplemented
    if count < 2:
        return rows.new_zeros(0)
    return torch.cat([_distance(rows[at : at + 1] - rows[at + 1 :], p) for at in range(count - 1)])


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Bags:
    starts = offsets[:-1] if include_last_offset else offsets
    ops.ASSERT_TENSOR(offsets[:1].sum() == 0, "offsets[0] has to be 0")
    ops.ASSERT_TENSOR(offsets[-1:].sum() <= indices.shape[0], "offsets[-1] is beyond the input's length")
    rows = weight.index_select(0, indices)
    rows = rows.float() if rows.dtype in HALF else rows
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    count, bags = indices.shape[0], starts.shape[0]
    # As eager numbers the bags: how many start at an element or before. One may start after the last.
    begun = torch.zeros(count + 1, dtype=torch.int64, device=indices.device)
    begun = begun.scatter_add(0, starts.to(torch.int64).clamp(0, count), begun.new_ones(bags))
    bag = begun.cumsum(0)[:count] - 1
    is_kept = indices != padding_idx if padding_idx >= 0 else torch.ones_like(indices, dtype=torch.bool)

    def added(values: Tensor) -> Tensor:
        """The sums over each bag; a product with its members would be NaN where another's row is infinite."""
        if empty(starts, indices):
            return values.new_zeros(bags, *values.shape[1:])
        return values.new_zeros(bags, *values.shape[1:]).index_add(0, bag.clamp(0, bags - 1), values)

    counts = added(is_kept.to(torch.int64))
    sizes = counts.to(offsets.dtype)
    if mode == _MAX:
        numbers = torch.arange(bags, device=indices.device, dtype=bag.dtype)
        found, place = _largest((bag.unsqueeze(0) == numbers.unsqueeze(1)) & is_kept.unsqueeze(0), rows)
        found, place = (torch.where(counts.unsqueeze(1) > 0, each, 0) for each in (found, place))
        largest = torch.where(counts.unsqueeze(1) > 0, indices[place], 0).to(offsets.dtype)
    else:
        # Eager's kernel for these leaves out what comes after the last offset, and counts it for a mean; its
        # other one adds it to the last bag.
        ends_early = include_last_offset and padding_idx < 0 and weight.dtype in _OF_FAST_BAGS
        is_added = torch.arange(count, device=indices.device) < offsets[-1:] if ends_early else is_kept
        masks = ends_early or padding_idx >= 0
        found = added(torch.where(is_added.unsqueeze(1), rows, 0.0) if masks else rows)
        found = found / counts.clamp(min=1).unsqueeze(1) if mode == _MEAN else found
        # What only a mean needs eager leaves out of a sum.
        largest = sizes = sizes if mode == _MEAN else torch.zeros_like(sizes)
        if mode != _MEAN and padding_idx < 0 and weight.dtype in (torch.float32, torch.float16):
            bag = bag[:0]
    return found.to(weight.dtype), bag.to(offsets.dtype), sizes, largest


def embedding_renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """The rows that are looked up, scaled to the largest norm where theirs is larger."""
    if empty(weight, indices):
        return weight.clone()
    rows = weight.shape[0]
    ids = indices.reshape(-1).to(torch.int64)
    ops.ASSERT_TENSOR(((ids >= 0) & (ids < rows)).all(), "index out of range: embedding with max_norm")
    used = (
        torch.zeros(rows, dtype=torch.int64, device=weight.device).index_fill(0, ids.clamp(0, rows - 1), 1)
        > 0
    )
    length = weight.norm(norm_type, dim=1)
    scale = torch.where(used & (length > max_norm), max_norm / (length + 1e-7), 1.0)
    return weight * scale.unsqueeze(1).to(weight.dtype)


def _largest(member: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of each bag and its place, as in eager: a NaN counts only where it comes first."""
    first = member.to(torch.int64).argmax(1, keepdim=True)
    leader = rows[first.squeeze(1)]
    is_number = member.unsqueeze(2) & (rows == rows).unsqueeze(0)
    best = torch.where(is_number, rows.unsqueeze(0), -math.inf).amax(1)
    at = (is_number & (rows.unsqueeze(0) == best.unsqueeze(1))).to(torch.int64).argmax(1)
    holds = leader == leader
    return torch.where(holds, best, leader), torch.where(holds, at, first)


DECOMPOSITIONS: Table = {
    aten._native_batch_norm_legit_no_training.default: batch_norm_no_training,
    aten._native_batch_norm_legit.no_stats: lambda tensor, weight, bias, _training, _momentum, eps: (
        _batch_statistics(tensor, weight, bias, eps)
    ),
    aten._native_batch_norm_legit_functional.default: batch_norm_functional,
    aten._batch_norm_with_update_functional.default: batch_norm_with_update,
    aten.native_batch_norm.default: native_batch_norm,
    aten.native_layer_norm.default: layer_norm,
    aten.native_group_norm.default: group_norm,
    aten._weight_norm_interface.default: weight_norm,
    aten.linalg_vector_norm.default: vector_norm,
    aten.dist.default: dist,
    aten._cdist_forward.default: cdist,
    aten._pdist_forward.default: pdist,
    aten.embedding_renorm.default: embedding_renorm,
    aten._embedding_bag.default: embedding_bag,
    aten._embedding_bag_forward_only.default: embedding_bag,
}
