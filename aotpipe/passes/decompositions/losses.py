"""Losses that torch computes in chunks of the batch, to save memory, as those of the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import Tensor
from torch.nn import functional


def linear_cross_entropy(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    *options: Any,
) -> Any:
    """The loss of a linear layer's rows, and the gradients of no use where none is asked for."""
    _, _, acc_dtype, _, *gradients = options
    if any(gradients) or acc_dtype != x.dtype:
        return NotImplemented
    loss = functional.cross_entropy(
        functional.linear(x, linear_weight.to(x.dtype), linear_bias),
        target,
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
    return loss, x.new_empty((0, 0)), x.new_empty((0, 0)), x.new_empty(0)


def linear_cross_entropy_rows(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    *options: Any,
) -> Any:
    common = (x, linear_weight, target, linear_bias, weight, "none", ignore_index, 0.0)
    found = linear_cross_entropy(*common, *options, False, False, False, False)
    return NotImplemented if found is NotImplemented else found[0]


_CHUNKED: Final = "torch_nn::_linear_cross_entropy_batch_chunked"
LIBRARIES: Final[Mapping[str, Callable[..., Any]]] = {
    _CHUNKED: linear_cross_entropy,
    f"{_CHUNKED}_no_reduction": linear_cross_entropy_rows,
}
"""Ops that torch registers at their first call, by qualified name."""
