"""Normalizations, computed in float32 for half-precision inputs as eager does."""

from __future__ import annotations

import math

import torch

from aotpipe.passes.decompositions.entries import Table, empty, wide, widened

aten = torch.ops.aten
Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Optional = torch.Tensor | None


def _per_channel(vector: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return vector.reshape(1, -1, *([1] * (like.dim() - 2)))


def _in_one_dtype(tensor: torch.Tensor, out: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> Triple:
    """The result and the statistics in the dtype that torch.export takes them for."""
    return out.to(tensor.dtype), mean.to(tensor.dtype), scale.to(tensor.dtype)


def batch_norm_no_training(
    tensor: torch.Tensor,
    weight: Optional,
    bias: Optional,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    momentum: float,
    eps: float,
) -> Triple:
    mean, var = widened(running_mean, running_var)
    scale = torch.rsqrt(var + eps)
    if weight is not None:
        scale = scale * weight.to(scale.dtype)
    shift = -mean * scale
    if bias is not None:
        shift = shift + bias.to(scale.dtype)
    values = tensor.to(scale.dtype) * _per_channel(scale, tensor) + _per_channel(shift, tensor)
    nothing = tensor.new_empty(0)
    return values.to(tensor.dtype), nothing, nothing


def native_batch_norm(
    tensor: torch.Tensor,
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


def _batch_statistics(tensor: torch.Tensor, weight: Optional, bias: Optional, eps: float) -> Triple:
    dims = [0, *range(2, tensor.dim())]
    values = widened(tensor)[0]
    mean = values.mean(dims)
    centered = values - _per_channel(mean, tensor)
    scale = torch.rsqrt((centered * centered).mean(dims) + eps)
    out = centered * _per_channel(scale, tensor)
    if weight is not None:
        out = out * _per_channel(weight.to(out.dtype), tensor)
    if bias is not None:
        out = out + _per_channel(bias.to(out.dtype), tensor)
    return _in_one_dtype(tensor, out, mean, scale)


def batch_norm_functional(
    tensor: torch.Tensor,
    weight: Optional,
    bias: Optional,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    if not training:
        found = batch_norm_no_training(tensor, weight, bias, running_mean, running_var, momentum, eps)
        return (*found, running_mean.clone(), running_var.clone())
    dims = [0, *range(2, tensor.dim())]
    wide = tensor.to(running_mean.dtype)
    mean = running_mean * (1 - momentum) + wide.mean(dims) * momentum
    var = running_var * (1 - momentum) + wide.var(dims, correction=1) * momentum
    return (*_batch_statistics(tensor, weight, bias, eps), mean, var)


def batch_norm_no_stats(
    tensor: torch.Tensor, weight: Optional, bias: Optional, training: bool, momentum: float, eps: float
) -> Triple:
    return _batch_statistics(tensor, weight, bias, eps)


def layer_norm(
    tensor: torch.Tensor, normalized_shape: list[int], weight: Optional, bias: Optional, eps: float
) -> Triple:
    dims = list(range(tensor.dim() - len(normalized_shape), tensor.dim()))
    values = widened(tensor)[0]
    mean = values.mean(dims, keepdim=True)
    centered = values - mean
    rstd = torch.rsqrt((centered * centered).mean(dims, keepdim=True) + eps)
    out = centered * rstd
    if weight is not None:
        out = out * weight.to(out.dtype)
    if bias is not None:
        out = out + bias.to(out.dtype)
    return _in_one_dtype(tensor, out, mean, rstd)


def group_norm(
    tensor: torch.Tensor,
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
    values = widened(tensor)[0].reshape(batch, groups, -1)
    mean = values.mean(-1, keepdim=True)
    centered = values - mean
    rstd = torch.rsqrt((centered * centered).mean(-1, keepdim=True) + eps)
    out = (centered * rstd).reshape(tensor.shape)
    if weight is not None:
        out = out * _per_channel(weight.to(out.dtype), tensor)
    if bias is not None:
        out = out + _per_channel(bias.to(out.dtype), tensor)
    return out.to(tensor.dtype), mean.squeeze(-1).to(tensor.dtype), rstd.squeeze(-1).to(tensor.dtype)


def rms_norm(
    tensor: torch.Tensor, normalized_shape: list[int], weight: Optional, eps: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    dims = list(range(tensor.dim() - len(normalized_shape), tensor.dim()))
    values = widened(tensor)[0]
    small = torch.finfo(values.dtype).eps if eps is None else eps
    rstd = torch.rsqrt((values * values).mean(dims, keepdim=True) + small)
    out = values * rstd
    if weight is not None:
        out = out * weight.to(out.dtype)
    return out.to(tensor.dtype), rstd


def weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    dims = [axis for axis in range(v.dim()) if axis != dim % v.dim()]
    wide_v = widened(v)[0]
    norms = (wide_v * wide_v).sum(dims, keepdim=True).sqrt()
    return (wide_v * (g.to(norms.dtype) / norms)).to(v.dtype), norms.to(g.dtype)


def vector_norm(
    tensor: torch.Tensor,
    ord: float = 2,
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
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


DECOMPOSITIONS: Table = {
    aten._native_batch_norm_legit_no_training.default: batch_norm_no_training,
    aten._native_batch_norm_legit.no_stats: batch_norm_no_stats,
    aten._native_batch_norm_legit_functional.default: batch_norm_functional,
    aten.native_batch_norm.default: native_batch_norm,
    aten.native_layer_norm.default: layer_norm,
    aten.native_group_norm.default: group_norm,
    aten._fused_rms_norm.default: rms_norm,
    aten._weight_norm_interface.default: weight_norm,
    aten.linalg_vector_norm.default: vector_norm,
}
