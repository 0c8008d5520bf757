"""The ATen ops that the lowering to StableHLO takes as they are, so that nothing decomposes them.

The lowering itself (`backends/xla/ops`) knows jax, which the stages before it do not: a test holds both to
the same ops. An overload `default` is left out.
"""

from __future__ import annotations

from typing import Any, Final

import torch

_NAMES: Final = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _conj_physical _fft_c2c _fft_c2r _fft_r2c _int_mm
    _log_softmax _reshape_copy _softmax _to_copy _unsafe_index.Tensor _unsafe_index_put _unsafe_view abs
    acos acosh add.Scalar add.Tensor addcdiv addcmul addmm addmv alias all all.dim all.dims amax amin
    angle any any.dim any.dims arange.start_step argmax argmin argsort as_strided asin asinh atan atan2
    atanh avg_pool1d avg_pool2d avg_pool3d baddbmm bitwise_and.Scalar bitwise_and.Scalar_Tensor
    bitwise_and.Tensor
    bitwise_left_shift.Scalar_Tensor bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar
    bitwise_not bitwise_or.Scalar bitwise_or.Scalar_Tensor bitwise_or.Tensor
    bitwise_right_shift.Scalar_Tensor bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar
    bitwise_xor.Scalar bitwise_xor.Scalar_Tensor bitwise_xor.Tensor bmm cat ceil clamp clamp.Tensor
    clamp_max clamp_max.Tensor clamp_min clamp_min.Tensor clone complex conj_physical constant_pad_nd
    contiguous convolution copy copysign.Scalar copysign.Tensor cos cosh cummax cummin cumprod cumsum
    detach diagonal diagonal_scatter digamma div.Scalar div.Scalar_mode div.Tensor div.Tensor_mode dot
    elu embedding empty.memory_format empty_like empty_strided eq.Scalar eq.Tensor erf erfc erfinv exp
    exp2 expand expm1 eye eye.m fill.Scalar fill.Tensor flip floor floor_divide floor_divide.Scalar fmax
    fmin fmod.Scalar fmod.Tensor full full_like gather gcd ge.Scalar ge.Tensor gelu gt.Scalar gt.Tensor
    hardtanh hypot i0 imag index.Tensor index_put index_select isfinite isinf isnan lcm le.Scalar
    le.Tensor leaky_relu lgamma lift_fresh_copy log log10 log1p log2 logcumsumexp logical_and
    logical_not logical_or logical_xor lt.Scalar lt.Tensor max max.dim max_pool2d_with_indices
    max_pool3d_with_indices maximum mean mean.dim min min.dim minimum mm mul.Scalar mul.Tensor mv
    ne.Scalar ne.Tensor neg new_zeros nextafter nonzero ones ones_like permute positive pow.Scalar
    pow.Tensor_Scalar pow.Tensor_Tensor prod prod.dim_int real reciprocal reflection_pad1d
    reflection_pad2d reflection_pad3d relu remainder.Scalar remainder.Scalar_Tensor remainder.Tensor
    repeat replication_pad1d replication_pad2d replication_pad3d reshape resolve_conj resolve_neg roll
    round round.decimals rsqrt scalar_tensor scatter.src scatter.value scatter_add select.int
    select_scatter sgn sigmoid sign signbit silu sin sinc sinh slice.Tensor slice_scatter sort
    sort.stable special_erfcx special_i0e special_i1 special_i1e special_zeta split.Tensor
    split_with_sizes sqrt squeeze squeeze.dim squeeze.dims stack std.correction std_mean.correction
    sub.Scalar sub.Tensor sum sum.dim_IntList t take tan tanh topk transpose.int tril triu trunc
    unbind.int unfold unsqueeze var.correction var_mean.correction view view.dtype view_as_complex
    view_as_real where.self xlogy.Tensor zeros zeros_like
"""


def _op(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


OPS: Final = frozenset(map(_op, _NAMES.split()))
