"""Linear layers computed in int8: the weights are stored so, and the activations are rounded in each call.

    y = (round(x / a) @ round(W / b).T) * a * b + bias

The step `a` of each row of `x` is its largest magnitude / 127, taken in each call; the step `b` of each
output is that of its row of `W`, taken once. Products of int8 are summed in int32, which is exact. This is
what torchao calls int8 dynamic activations with int8 weights; norms, attention, embeddings and convolutions
stay as they are.

`quantized(model)` gives a copy; the model itself stays as it is. Raises `SpecInvalid`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from aotpipe.errors import SpecInvalid

_LARGEST: Final = 127
# A layer of fewer weights takes longer to round its activations than it saves.
_FEWEST_WEIGHTS: Final = 1 << 12
# torch's CPU product of int8 gives other numbers where it sums over one element (torch 2.13).
_FEWEST_INPUTS: Final = 2


class QuantizedLinear(nn.Module):
    """A linear layer in int8.

    Args:
        weight: `(outputs, inputs)`, of floats.
        bias: `(outputs,)`, or None.
    """

    weight_int8: Tensor
    weight_step: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        weight = weight.detach()
        step = _step(weight)
        self.register_buffer("weight_int8", (weight / step).round().to(torch.int8))
        self.register_buffer("weight_step", step.squeeze(1))
        self.bias = bias

    @property
    def weight(self) -> Tensor:
        """The weights as floats, for code that reads them without calling the layer."""
        return self.weight_int8 * self.weight_step[:, None]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as nn.Linear names it
        """`(..., inputs)` to `(..., outputs)`."""
        rows = input.reshape(-1, self.in_features)
        step = _step(rows)
        rounded = (rows / step).round().to(torch.int8)
        sums = torch._int_mm(rounded, self.weight_int8.t()).to(input.dtype)  # noqa: SLF001  # it has no other name
        result = sums * step * self.weight_step.to(input.dtype)
        if self.bias is not None:
            result = result + self.bias
        return result.reshape(*input.shape[:-1], self.out_features)


def _step(rows: Tensor) -> Tensor:
    """What 1 stands for in each row; of a row of zeros the least normal number, so that it stays zero."""
    return rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny * _LARGEST) / _LARGEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """A quantized copy of a model.

    Attributes:
        model: The copy; parameters that are not quantized are the model's own.
        layers: How many layers are computed in int8.
        kept: The names of linear layers that are not.
    """

    model: nn.Module
    layers: int
    kept: tuple[str, ...]


def quantized(model: nn.Module) -> Quantized:
    """A copy of a model whose linear layers of at least 4,096 weights are computed in int8.

    A layer with hooks stays as it is, for they may make its weight, and so does one of a class whose
    `forward` is not that of `nn.Linear`.

    Raises:
        SpecInvalid: The model has no such layer, or cannot be copied.
    """
    shared = {id(tensor): tensor for tensor in model.parameters()}
    try:
        made = copy.deepcopy(model, dict(shared))
    # What a class of the user's raises when it is copied may be anything.
    except Exception as error:
        raise SpecInvalid(
            f"{type(model).__name__} cannot be copied, so that its layers cannot be quantized",
            reason=f"{type(error).__name__}: {error}",
            hint="make it so that copy.deepcopy(model) works, or leave --quantize out",
        ) from error
    found: dict[nn.Module, QuantizedLinear] = {}
    kept = []
    for name, layer in list(made.named_modules(remove_duplicate=False)):
        if isinstance(layer, nn.TransformerEncoderLayer):
            # Its fused path would read the weights of its layers as floats.
            layer.activation_relu_or_gelu = 0
        weight = _weight_of(layer)
        if weight is None:
            if isinstance(layer, nn.Linear):
                kept.append(name)
            continue
        if layer not in found:
            found[layer] = QuantizedLinear(weight, layer.bias).train(layer.training)
        parent, _, attribute = name.rpartition(".")
        if not name:
            made = found[layer]
        else:
            setattr(made.get_submodule(parent), attribute, found[layer])
    if not found:
        raise SpecInvalid(
            f"{type(model).__name__} has no linear layer of at least {_FEWEST_WEIGHTS} weights to quantize",
            hint="leave --quantize out; --dtype bf16 halves the weights of any layer",
        )
    return Quantized(model=made, layers=len(found), kept=tuple(kept))


def _weight_of(layer: nn.Module) -> Tensor | None:
    """The `(outputs, inputs)` weight of a layer that is to be quantized."""
    if layer._forward_pre_hooks or layer._forward_hooks:  # noqa: SLF001  # a module shows its hooks nowhere else
        return None
    if type(layer).forward is nn.Linear.forward and not isinstance(layer, _READ_BY_ATTENTION):
        weight = layer.weight
    elif f"{type(layer).__module__}.{type(layer).__qualname__}" in _TRANSPOSED:
        weight = layer.weight.t()  # type: ignore[operator]
    else:
        return None
    assert isinstance(weight, Tensor)
    is_large = weight.numel() >= _FEWEST_WEIGHTS and weight.shape[1] >= _FEWEST_INPUTS
    return weight if is_large and weight.dtype in (torch.float32, torch.float64) else None


# nn.MultiheadAttention reads the weight of its output projection and never calls it.
_READ_BY_ATTENTION: Final = nn.modules.linear.NonDynamicallyQuantizableLinear
# Linear layers whose weight is `(inputs, outputs)`.
_TRANSPOSED: Final = frozenset({"transformers.pytorch_utils.Conv1D"})
