"""Models whose calls differ in what they have, as people write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

X = torch.tensor([[0.5, -1.0, 2.0], [3.0, 0.25, -0.5]])


class Keys(nn.Module):
    """Asks for keys in every way."""

    def forward(self, batch):
        y = batch["x"] * 1.0
        if "a" in batch:
            y = y + batch["a"]
        b = batch.get("b")
        if b is not None and "a" in batch.keys():  # noqa: SIM118
            y = y * b
        elif b is not None:
            y = y - b
        return y + batch.get("c", torch.full((3,), 2.0))


class Popped(nn.Module):
    def forward(self, batch):
        batch = dict(batch)
        bias = batch.pop("bias", None)
        y = batch["x"] * 2
        return y if bias is None else y + bias


class Passed(nn.Module):
    """Hands what may be None to a method, a submodule, a lambda and torch."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.layers = nn.ModuleList([Inner()])

    def forward(self, x, mask=None):
        y = self.method(x, mask=mask) + self.inner(x, mask)
        y = self.layers[0](y, mask)
        return (lambda m: y if m is None else y * 3)(mask)

    def method(self, x, mask):
        if mask is None:
            return x
        return x + mask


class Inner(nn.Module):
    def forward(self, x, mask=None):
        return x * (1 if mask is None else 2)


class Attention(nn.Module):
    """torch itself takes None."""

    def forward(self, q, mask=None):
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


class OfTorch(nn.Module):
    """A layer of torch's that decides on None in Python."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x, padding=None):
        y, _ = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)
        return y


class Keywords(nn.Module):
    def forward(self, x, **kwargs):
        if "scale" in kwargs:
            x = x * kwargs["scale"]
        return inner(x, **kwargs)


def inner(x, bias=None, **rest):
    y = x if bias is None else x + bias
    return y if rest.get("scale") is None else y + 1


@dataclass
class Batch:
    x: torch.Tensor
    mask: torch.Tensor | None = None
    w: torch.Tensor | None = None

    def has_mask(self):
        return self.mask is not None

    @property
    def weighted(self):
        return self.x if self.w is None else self.x * self.w


class OfDataclass(nn.Module):
    """Counts its calls, too."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def forward(self, batch):
        self.count += 1
        y = batch.weighted
        if batch.has_mask():
            self.count += 10
            y = torch.where(batch.mask, y, 0.0)
        return y * self.count


class OverItems(nn.Module):
    """Goes over all keys: only a program of each combination can do that."""

    def forward(self, batch):
        y = torch.zeros(2, 3)
        for value in batch.values():
            y = y * 0.5 + value
        return {**{key: value + 1 for key, value in batch.items()}, "n": y + len(batch)}


class GivesNone(nn.Module):
    def forward(self, x, aux=None):
        return {"y": x, "aux": None if aux is None else aux.sum(), "more": (x, aux)}


class Demanding(nn.Module):
    """Takes `b` only beside `a`."""

    def forward(self, batch):
        if "b" in batch:
            return batch["a"] + batch["b"]
        return batch["x"]


MASK = X > 0
CASES: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "keys": (
        Keys,
        {
            "args": ({"x": X, "a": X + 1, "b": X * 3, "c": X[0]},),
            "optional": ("batch.a", "batch.b", "batch.c"),
        },
    ),
    "popped": (Popped, {"args": ({"x": X, "bias": X},), "examples": [({"x": X},)]}),
    "passed": (Passed, {"args": (X, X * 2), "examples": [(X,)]}),
    "attention": (
        Attention,
        {"args": (X[None], torch.tensor([[[True, False], [True, True]]])), "examples": [(X[None],)]},
    ),
    "of_torch": (
        OfTorch,
        {
            "args": (torch.arange(24.0).reshape(2, 3, 4) / 24,),
            "kwargs": {"padding": torch.tensor([[False, True, True], [False, False, True]])},
            "optional": ("padding",),
        },
    ),
    "keywords": (Keywords, {"args": (X,), "kwargs": {"scale": X, "bias": X[0]}, "examples": [(X,)]}),
    "of_dataclass": (OfDataclass, {"args": (Batch(X, MASK, X + 2),), "examples": [(Batch(X),)]}),
    "over_items": (OverItems, {"args": ({"x": X, "y": X + 1},), "optional": ("batch.y",)}),
    "gives_none": (GivesNone, {"args": (X, X), "examples": [(X,)]}),
    "demanding": (Demanding, {"args": ({"x": X, "a": X, "b": X},), "optional": ("batch.a", "batch.b")}),
}
