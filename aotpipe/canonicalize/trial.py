"""One eager call on the example inputs: what the model returns, with nothing left behind.

The model's buffers, its modules' attributes and the random generators are as before, the inputs are copies.
Raises `SpecInvalid` with the user's line when the model raises.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from aotpipe import source
from aotpipe.canonicalize import pytrees
from aotpipe.errors import SpecInvalid
from aotpipe.uncompiled import uncompiled


def call(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], entry: str) -> Any:
    """Call the module on copies of its example inputs.

    Raises:
        SpecInvalid: The model raised.
    """
    copied_args, copied_kwargs = pytrees.clone_tensors((args, dict(kwargs)))
    with unchanged(module), torch.random.fork_rng(devices=[]), torch.no_grad(), uncompiled():
        try:
            return module(*copied_args, **copied_kwargs)
        except Exception as error:
            raise SpecInvalid(
                f"{entry} raised {type(error).__name__} on its example inputs",
                reason=str(error),
                hint="call the model in plain PyTorch with these inputs until it works",
                where=source.from_exception(error),
            ) from error


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Put back what a call changes in the model: tensors in place, attributes, lists and dicts of them."""
    modules = list(module.modules())
    attributes = [dict(m.__dict__) for m in modules]
    containers: list[tuple[Any, Any]] = [
        (value, value.copy())
        for found in attributes
        for value in found.values()
        if type(value) in (dict, list, OrderedDict)
    ]
    held = {id(tensor): (tensor, tensor.detach().clone()) for tensor in _tensors(module)}
    try:
        yield
    finally:
        for one, before in zip(modules, attributes, strict=True):
            one.__dict__.clear()
            one.__dict__.update(before)
        for container, items in containers:
            container.clear()
            if isinstance(container, dict):
                container.update(items)
            else:
                container.extend(items)
        with torch.no_grad():
            for tensor, copied in held.values():
                # A weight that was not written may lie in memory that is not to be written.
                if tensor.shape == copied.shape and not torch.equal(tensor, copied):
                    tensor.copy_(copied)


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    """Parameters, buffers, and tensors that are plain attributes."""
    yield from module.parameters()
    yield from module.buffers()
    for one in module.modules():
        yield from (value for value in vars(one).values() if type(value) is torch.Tensor)
