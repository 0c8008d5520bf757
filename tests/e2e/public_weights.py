"""Weights drawn so that a model's outputs vary with its inputs, and a measure of how much they do.

A library's own draw is one to train from: branches that start at zero, gains of 1e-6, running variances that
nothing fed. Its outputs may be zeros or the last bias, and then parity says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import torch
from torch.utils import _pytree as pytree

_NOISE: Final = 0.1


def draw(model: torch.nn.Module, inputs: Mapping[str, Any], *, seed: int = 0) -> None:
    """Draw every parameter anew, and take the statistics of batch norms from a run on `inputs`.

    Matrices and kernels come from a normal scaled by their fan-in, the weights of norms lie near 1, and other
    vectors and numbers near their own value, none at it. A table of zeros, as a codebook before training, is
    normal noise; other buffers are constants of the model.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            for name, value in module.named_parameters(recurse=False):
                if value.is_floating_point():
                    value.copy_(_drawn(module, name, value, generator))
            for value in module.buffers(recurse=False):
                if value.is_floating_point() and value.ndim > 1 and not value.any():
                    value.copy_(torch.randn(value.shape, generator=generator))
        _fit_statistics(model, inputs)


def _drawn(
    module: torch.nn.Module, name: str, value: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    noise = torch.randn(value.shape, generator=generator)
    if value.squeeze().ndim < 2:
        return (1 if name == "weight" else value) + _NOISE * noise
    is_kernel = isinstance(module, torch.nn.modules.conv._ConvNd)  # the base of all convolutions
    fan_in = math.prod(value.shape[1:]) if is_kernel else value.shape[-1]
    return noise * math.sqrt(2 / fan_in)


def _fit_statistics(model: torch.nn.Module, inputs: Mapping[str, Any]) -> None:
    """Let each batch norm, in the order in which they run, normalize what it gets.

    A variance is drawn towards the mean of all channels' variances: two pixels that agree would else make
    a channel a huge factor.
    """

    def fit(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        mean, variance = module.running_mean, module.running_var
        features = args[0].transpose(0, 1).reshape(mean.numel(), -1)
        spread = features.var(1, correction=0)
        mean.copy_(features.mean(1).view_as(mean))
        variance.copy_((0.5 * (spread + spread.mean()) + 1e-6).view_as(variance))

    hooks = [
        module.register_forward_pre_hook(fit)
        for module in model.modules()
        if isinstance(getattr(module, "running_var", None), torch.Tensor)
    ]
    try:
        model(**inputs)
    finally:
        for hook in hooks:
            hook.remove()


class Unvaried(Exception):
    """The outputs are not finite, or follow no input."""


class Spread(NamedTuple):
    """Of the output that follows the inputs best.

    Attributes:
        std: Its standard deviation.
        change: How much of it follows the inputs: the RMS of two calls' difference by the RMS of one.
    """

    std: float
    change: float


def spread(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Spread:
    """Run the model twice, the second time with the batch's rows in reverse.

    Raises:
        Unvaried: An output is not finite, or none follows the inputs.
    """
    turned = {
        name: value.flip(0) if isinstance(value, torch.Tensor) and value.ndim else value
        for name, value in inputs.items()
    }
    with torch.no_grad():
        pairs = list(zip(_tensors(model(**inputs)), _tensors(model(**turned)), strict=True))
    if not all(bool(tensor.isfinite().all()) for tensor, _ in pairs):
        raise Unvaried("an output is not finite")
    spreads = [_spread(first, second) for first, second in pairs if first.shape == second.shape]
    found = max(spreads, key=lambda each: each.change, default=Spread(0.0, 0.0))
    if not (found.std > 1e-3 and found.change > 0.05):
        raise Unvaried(f"the outputs do not follow the inputs: {found}")
    return found


def _spread(first: torch.Tensor, second: torch.Tensor) -> Spread:
    first, second = first.double(), second.double()
    std = float(first.std(correction=0)) if first.numel() > 1 else float(first.abs().sum())
    rms = float(first.square().mean().sqrt()) if first.numel() else 0.0
    return Spread(std, float((first - second).square().mean().sqrt()) / rms if rms else 0.0)


def _tensors(output: Any) -> list[torch.Tensor]:
    # Not every output class of transformers is one of torch's pytrees; each is a dict.
    tree = dict(output) if isinstance(output, Mapping) else output
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
