"""Ops of which the compiler still fails on some sample, with the cause. The list may only get shorter."""

from __future__ import annotations

from typing import Final

_POOL: Final = "a window of integers, or beyond the end, that the compiler's pooling does not take"
_SCALAR: Final = "a float as a result, or a size of two bounds, has no form in the importer"
_LIBRARY: Final = "the compiler calls a C function that it does not link"
_CHAIN: Final = "the compiler's stream dialect fails on a chain of integer products"

FAILING: Final[dict[str, str]] = {
    "combinations": _SCALAR,
    "cumprod": _CHAIN,
    "item": _SCALAR,
    "linalg_vander": _CHAIN,
    "logspace": _LIBRARY,
    "logspace_tensor_overload": _LIBRARY,
    "masked_select": _SCALAR,
    "max_pool2d_with_indices_backward": _POOL,
    "nn_functional_adaptive_max_pool1d": _POOL,
    "nn_functional_adaptive_max_pool2d": _POOL,
    "nn_functional_binary_cross_entropy_with_logits": "its vector.contract has a wrong shape",
    "nn_functional_conv3d": "the compiler multiplies integers as floats",
    "nn_functional_max_pool1d": _POOL,
    "nn_functional_max_pool2d": _POOL,
    "nn_functional_max_pool3d": _POOL,
    "resize_": "a view of more elements than the tensor has",
}
