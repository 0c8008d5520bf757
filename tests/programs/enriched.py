"""Models whose calls differ in what they have, as people write them, with every example that a build takes.

`MODELS` maps a name to a function that gives the model, what `aotpipe.build` takes beside it, and further
calls: args and kwargs as the model takes them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import aotpipe
from aotpipe import Dim, Example

Call = tuple[tuple[Any, ...], dict[str, Any]]
Case = tuple[nn.Module, dict[str, Any], list[Call]]

ROWS = Dim("rows", max=4)
LENGTH = Dim("length", min=2, max=12)
OPTIONAL = ("doc_ids", "valid_token_counts", "fim_bounds", "aux_mask")


class EnrichedLM(nn.Module):
    """A block of a language model that takes what the loader's batches may carry: any subset of four keys."""

    def __init__(self, vocabulary=32, width=16):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.boundary = nn.Embedding(2, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, vocabulary)
        self.seen_documents = 0

    def forward(self, batch):
        tokens = batch["tokens"]
        x = self.embedding(tokens)
        if "fim_bounds" in batch:
            x = x + self.boundary(batch["fim_bounds"])
        q, k, v = self.qkv(x).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask(batch, tokens.shape[1]))
        logits = self.out(x + y)
        aux = batch.get("aux_mask")
        loss = None
        if aux is not None:
            loss = (logits.logsumexp(-1) * aux).sum() / aux.sum().clamp(min=1.0)
        return {"logits": logits, "aux_loss": loss}

    def _mask(self, batch, length):
        mask = None
        if "doc_ids" in batch:
            ids = batch["doc_ids"]
            self.seen_documents += 1
            mask = ids[:, :, None] == ids[:, None, :]
        counts = batch.get("valid_token_counts", None)
        if counts is not None:
            valid = (torch.arange(length)[None, None, :] < counts[:, None, None]).expand(-1, length, -1)
            mask = valid if mask is None else mask & valid
        return mask


@dataclass
class Prompt:
    tokens: torch.Tensor
    image: torch.Tensor | None = None
    mask: torch.Tensor | None = None

    @property
    def is_multimodal(self):
        return self.image is not None


class Captioner(nn.Module):
    """Takes a dataclass whose fields may be None, and optional arguments beside it."""

    def __init__(self, width=8):
        super().__init__()
        self.words = nn.Embedding(16, width)
        self.pixels = nn.Linear(4, width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, prompt, bias=None, *, temperature=None):
        x = self.words(prompt.tokens)
        if prompt.is_multimodal:
            x = x + self.pixels(prompt.image)[:, None]
        x, _ = self.attention(x, x, x, key_padding_mask=prompt.mask, need_weights=False)
        x = add_bias(x, bias)
        if temperature is None:
            return x, None
        return x / temperature, x.abs().amax((1, 2)) / temperature


def add_bias(x, bias):
    return x if bias is None else x + bias


class Sampler(nn.Module):
    """Python numbers that calls vary, and one that the model holds."""

    def __init__(self, width=12):
        super().__init__()
        self.head = nn.Linear(width, width)
        self.penalty = 0.25

    def forward(self, x, top_k=5, temperature=1.0, greedy=False, **extra):
        logits = self.head(x) / temperature
        if "bias" in extra:
            logits = logits + extra["bias"]
        if greedy:
            return logits.argmax(-1), logits
        kept = logits.masked_fill(logits < logits.topk(top_k)[0][..., -1, None], -math.inf)
        for step in range(top_k):
            kept = kept - self.penalty * step
        return kept.argmax(-1), kept.softmax(-1)


class CapacityMoE(nn.Module):
    """Experts whose capacity follows the number of tokens, and a counter of those that find no room."""

    def __init__(self, experts=4, width=8, factor=1.25):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.weights = nn.Parameter(torch.randn(experts, width, width))
        self.experts = experts
        self.factor = factor
        self.overflow_total = 0

    def forward(self, x):
        tokens = x.shape[0] * x.shape[1]
        flat = x.reshape(tokens, -1)
        capacity = int(tokens * self.factor / self.experts)
        gate, choice = self.gate(flat).softmax(-1).max(-1)
        order = F.one_hot(choice, self.experts).cumsum(0) - 1
        place = order.gather(1, choice[:, None])[:, 0]
        kept = (place < capacity)[:, None]
        slot = choice * capacity + place.clamp(max=capacity - 1)
        slots = torch.zeros(self.experts * capacity, flat.shape[-1]).index_add(0, slot, flat * kept)
        done = torch.bmm(slots.view(self.experts, capacity, -1), self.weights).flatten(0, 1)
        self.overflow_total += int((~kept).sum().item())
        return (done[slot] * kept * gate[:, None]).view(x.shape), self.overflow_total


class LoadedMoE(nn.Module):
    """Experts whose capacity is the load of the fullest one, with a declared bound."""

    def __init__(self, experts=4, width=8):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.weights = nn.Parameter(torch.randn(experts, width, width))
        self.experts = experts

    def forward(self, x):
        gate, choice = self.gate(x).softmax(-1).max(-1)
        chosen = F.one_hot(choice, self.experts)
        capacity = aotpipe.capacity(int(chosen.sum(0).max().item()), max=8)
        place = (chosen.cumsum(0) - 1).gather(1, choice[:, None])[:, 0]
        slots = torch.zeros(self.experts, capacity, x.shape[-1])
        slots[choice, place] = x
        return torch.bmm(slots, self.weights)[choice, place] * gate[:, None], slots


def _enriched() -> Case:
    def batch(rows: int, length: int, keys: tuple[str, ...], seed: int) -> dict[str, torch.Tensor]:
        draw = torch.Generator().manual_seed(seed)
        every = {
            "tokens": torch.randint(0, 32, (rows, length), generator=draw),
            "doc_ids": torch.arange(length).div(3, rounding_mode="floor").expand(rows, length).clone(),
            # Every document of a row has a valid token.
            "valid_token_counts": torch.full((rows,), length),
            "fim_bounds": torch.randint(0, 2, (rows, length), generator=draw),
            "aux_mask": torch.rand(rows, length, generator=draw),
        }
        return {key: every[key] for key in ("tokens", *keys)}

    subsets = [keys for n in range(len(OPTIONAL) + 1) for keys in itertools.combinations(OPTIONAL, n)]
    both = {0: ROWS, 1: LENGTH}
    build = {
        "args": (batch(2, 6, OPTIONAL, 0),),
        "examples": [Example(batch(2, 6, (), 1))],
        "dynamic_shapes": {
            "batch": {
                **dict.fromkeys(("tokens", "doc_ids", "fim_bounds", "aux_mask"), both),
                "valid_token_counts": {0: ROWS},
            }
        },
        "value_ranges": {"batch.valid_token_counts": (1, 12)},
    }
    calls: list[Call] = [((batch(1 + n % 4, 2 + n % 11, keys, n),), {}) for n, keys in enumerate(subsets)]
    return EnrichedLM(), build, calls


def _captioner() -> Case:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 16, (2, 5), generator=draw)
    image, bias = torch.rand(2, 4, generator=draw), torch.rand(8, generator=draw)
    mask = torch.tensor([[False] * 5, [False, False, False, True, True]])
    temperature = torch.tensor(0.7)
    build = {
        "args": (Prompt(tokens, image, mask), bias),
        "kwargs": {"temperature": temperature},
        "examples": [Example(Prompt(tokens))],
    }
    calls: list[Call] = [
        ((Prompt(tokens, i, m), *([b] if b is not None else [])), {} if t is None else {"temperature": t})
        for i in (image, None)
        for m in (mask, None)
        for b in (bias, None)
        for t in (temperature, None)
    ]
    return Captioner(), build, calls


def _sampler() -> Case:
    draw = torch.Generator().manual_seed(0)
    x, bias = torch.rand(3, 12, generator=draw), torch.rand(12, generator=draw)
    build = {
        "args": (x,),
        "kwargs": {"top_k": 5, "temperature": 0.5, "greedy": False, "bias": bias},
        "optional": ("bias",),
        "tensorize": ("top_k", "temperature", "greedy", "self.penalty"),
        "value_ranges": {"top_k": (1, 12), "temperature": (0.25, 4.0)},
    }
    calls: list[Call] = [
        ((x,), {"top_k": k, "temperature": t, "greedy": g, **more})
        for k, t, g, more in ((5, 0.5, False, {}), (1, 2.0, False, {"bias": bias}), (12, 1.0, True, {}))
    ]
    return Sampler(), build, calls


def _capacity_moe() -> Case:
    def tokens(rows: int, length: int) -> Call:
        return (torch.rand(rows, length, 8, generator=torch.Generator().manual_seed(rows)),), {}

    build = {"args": tokens(2, 6)[0], "dynamic_shapes": {"x": {0: ROWS, 1: Dim("length", min=4, max=12)}}}
    return CapacityMoE(), build, [tokens(2, 6), tokens(1, 4), tokens(4, 12), tokens(3, 7), tokens(2, 6)]


def _loaded_moe() -> Case:
    def tokens(rows: int) -> Call:
        return (torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows)),), {}

    build = {"args": tokens(6)[0], "dynamic_shapes": {"x": {0: Dim("tokens", max=12)}}}
    return LoadedMoE(), build, [tokens(rows) for rows in (6, 1, 8, 9)]


MODELS: dict[str, Callable[[], Case]] = {
    "enriched_lm": _enriched,
    "captioner": _captioner,
    "sampler": _sampler,
    "capacity_moe": _capacity_moe,
    "loaded_moe": _loaded_moe,
}


def case(name: str) -> Case:
    """A model with seeded weights, in eval mode."""
    torch.manual_seed(0)
    model, build, calls = MODELS[name]()
    return model.eval(), build, calls
