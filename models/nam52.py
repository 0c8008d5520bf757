"""A small NAM52: Attention, Experts, Mamba and Engram blocks in turn, with heads that predict further tokens.

Written as one writes it in eager PyTorch, with what costs a lazy or tracing compiler a program for each
value: `.item()` guards of document ids and boundaries, a count of dropped tokens that is a Python int, an
expert's capacity taken from the batch's own tokens, and metadata that may be None. Weights are seeded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from aotpipe import EntryPoint, Spec

BATCH, SEQ, WORDS = 2, 8, 64


@dataclass(frozen=True)
class Config:
    pattern: str = "AEMGA"
    width: int = 32
    heads: int = 4
    kv_heads: int = 2
    experts: int = 4
    chosen: int = 2
    capacity: int = 5
    state: int = 4
    slots: int = 97
    ngram: int = 3
    sparse_layers: tuple[int, ...] = (4,)
    sparse_keys: int = 3
    mtp_depth: int = 1


def rotate(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions of `(batch, seq, heads, size)`."""
    half = x.shape[-1] // 2
    rate = 10000.0 ** (-torch.arange(half) / half)
    angle = torch.arange(x.shape[1])[:, None, None] * rate
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


class Indexer(nn.Module):
    """Picks the keys that each query may attend to (DeepSeek's sparse attention)."""

    def __init__(self, width: int, keys: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, 8, bias=False), nn.Linear(width, 8, bias=False)
        self.keys = keys

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        scores = scores.masked_fill(~mask, float("-inf"))
        best = scores.topk(min(self.keys, x.shape[1]), dim=-1).indices
        return mask & torch.zeros_like(mask).scatter(-1, best, True)


class Attention(nn.Module):
    """Grouped queries from one projection; some layers attend sparsely."""

    def __init__(self, config: Config, *, sparse: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.size = config.width // config.heads
        self.qkv = nn.Linear(config.width, (self.heads + 2 * self.kv_heads) * self.size, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.indexer = Indexer(config.width, config.sparse_keys) if sparse else None

    def _doc_ids_are_uniform(self, doc_ids: torch.Tensor) -> bool:
        return bool((doc_ids == doc_ids[..., :1]).all().item())

    def forward(
        self, x: torch.Tensor, doc_ids: torch.Tensor | None, valid_token_counts: torch.Tensor | None
    ) -> torch.Tensor:
        batch, seq, width = x.shape
        groups = [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size]
        q, k, v = self.qkv(x).split(groups, dim=-1)
        q = rotate(q.view(batch, seq, self.heads, self.size)).transpose(1, 2)
        k = rotate(k.view(batch, seq, self.kv_heads, self.size)).transpose(1, 2)
        v = v.view(batch, seq, self.kv_heads, self.size).transpose(1, 2)
        mask = torch.ones(seq, seq, dtype=torch.bool).tril().expand(batch, seq, seq)
        if valid_token_counts is not None:
            inside = torch.arange(seq) < valid_token_counts[:, None]
            mask = mask & (inside[:, None, :] | torch.eye(seq, dtype=torch.bool))
        if self.indexer is not None:
            mask = self.indexer(x, mask)
        if doc_ids is None or self._doc_ids_are_uniform(doc_ids):
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], enable_gqa=True)
        else:
            same = doc_ids[:, :, None] == doc_ids[:, None, :]
            mask = (mask & same) | torch.eye(seq, dtype=torch.bool)
            k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
            v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
            scores = q @ k.transpose(-1, -2) / math.sqrt(self.size)
            y = scores.masked_fill(~mask[:, None], float("-inf")).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, seq, width))


class Experts(nn.Module):
    """Routed experts of a bounded capacity beside a shared one; counts what found no place."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, hidden = config.width, 2 * config.width
        self.config = config
        self.router = nn.Linear(width, config.experts, bias=False)
        self.up = nn.Parameter(torch.randn(config.experts, width, hidden) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(config.experts, hidden, width) / math.sqrt(hidden))
        self.shared = nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, width))
        self.overflow_total = 0

    def forward(self, x: torch.Tensor, valid_token_counts: torch.Tensor | None) -> torch.Tensor:
        flat = x.flatten(0, 1)
        tokens = flat.shape[0]
        if valid_token_counts is not None:
            tokens = int(valid_token_counts.sum().item())
        capacity = min(self.config.capacity, tokens)

        gate, choice = self.router(flat).softmax(-1).topk(self.config.chosen, dim=-1)
        gate = gate / gate.sum(-1, keepdim=True)
        routed = F.one_hot(choice, self.config.experts).flatten(0, 1)
        place = ((routed.cumsum(0) - 1) * routed).sum(-1).view_as(choice)
        kept = place < capacity
        place = place.clamp(max=self.config.capacity)

        slots = flat.new_zeros(self.config.experts, self.config.capacity + 1, flat.shape[1])
        slots[choice, place] = flat[:, None].expand(-1, self.config.chosen, -1)
        done = F.silu(slots @ self.up) @ self.down
        out = (done[choice, place] * (gate * kept)[..., None]).sum(1)

        dropped = (~kept).sum()
        if dropped > 0:
            self.overflow_total += int(dropped.item())
        return out.view_as(x) + self.shared(x)


class Mamba(nn.Module):
    """A selective state space that starts anew where a document does."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        inner, self.state = config.width, config.state
        self.in_proj = nn.Linear(config.width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 3, groups=inner, padding=2)
        self.dt, self.bc = nn.Linear(inner, inner), nn.Linear(inner, 2 * config.state, bias=False)
        self.a_log = nn.Parameter(torch.arange(1.0, config.state + 1).log().repeat(inner, 1))
        self.out_proj = nn.Linear(inner, config.width, bias=False)

    def forward(self, x: torch.Tensor, doc_ids: torch.Tensor | None) -> torch.Tensor:
        seq = x.shape[1]
        u, gate = self.in_proj(x).chunk(2, dim=-1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :seq]).transpose(1, 2)
        dt = F.softplus(self.dt(u))
        b, c = self.bc(u).chunk(2, dim=-1)
        decay = torch.exp(-dt[..., None] * self.a_log.exp())
        if doc_ids is not None:
            boundary = F.pad(doc_ids[:, 1:] != doc_ids[:, :-1], (1, 0))
            if boundary.any().item():
                decay = decay.masked_fill(boundary[..., None, None], 0.0)
        h = x.new_zeros(x.shape[0], u.shape[2], self.state)
        ys = []
        for t in range(seq):
            h = decay[:, t] * h + (dt[:, t] * u[:, t])[..., None] * b[:, t, None]
            ys.append((h * c[:, t, None]).sum(-1))
        return self.out_proj(torch.stack(ys, 1) * F.silu(gate))


class Engram(nn.Module):
    """Looks up what is remembered of the last few tokens, by their hash."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.slots, self.ngram = config.slots, config.ngram
        self.table = nn.Embedding(config.slots, config.width)
        self.key, self.value = nn.Linear(config.width, config.width), nn.Linear(config.width, config.width)

    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        code = torch.zeros_like(tokens)
        for back in range(self.ngram):
            code = code * 31 + F.pad(tokens, (back, 0))[:, : tokens.shape[1]]
        memory = self.table(code % self.slots)
        gate = (F.normalize(x, dim=-1) * F.normalize(self.key(memory), dim=-1)).sum(-1, keepdim=True)
        return torch.sigmoid(4 * gate) * self.value(memory)


class Block(nn.Module):
    def __init__(self, config: Config, kind: str, number: int) -> None:
        super().__init__()
        self.kind = kind
        self.norm = nn.RMSNorm(config.width)
        match kind:
            case "A":
                self.mixer: nn.Module = Attention(config, sparse=number in config.sparse_layers)
            case "E":
                self.mixer = Experts(config)
            case "M":
                self.mixer = Mamba(config)
            case _:
                self.mixer = Engram(config)

    def forward(
        self,
        x: torch.Tensor,
        tokens: torch.Tensor,
        doc_ids: torch.Tensor | None,
        valid_token_counts: torch.Tensor | None,
    ) -> torch.Tensor:
        h = self.norm(x)
        if self.kind == "A":
            return x + self.mixer(h, doc_ids, valid_token_counts)
        if self.kind == "E":
            return x + self.mixer(h, valid_token_counts)
        if self.kind == "M":
            return x + self.mixer(h, doc_ids)
        return x + self.mixer(h, tokens)


class Further(nn.Module):
    """One depth of multi-token prediction: the hidden state joined with a later token's embedding."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm_h, self.norm_e = nn.RMSNorm(config.width), nn.RMSNorm(config.width)
        self.join = nn.Linear(2 * config.width, config.width, bias=False)
        self.block = Block(config, "A", -1)

    def forward(
        self,
        h: torch.Tensor,
        later: torch.Tensor,
        tokens: torch.Tensor,
        doc_ids: torch.Tensor | None,
        valid_token_counts: torch.Tensor | None,
    ) -> torch.Tensor:
        joined = self.join(torch.cat([self.norm_h(h), self.norm_e(later)], -1))
        return self.block(joined, tokens, doc_ids, valid_token_counts)


class NAM52(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, config.width)
        self.blocks = nn.ModuleList(Block(config, kind, n) for n, kind in enumerate(config.pattern))
        self.norm = nn.RMSNorm(config.width)
        self.mtp = nn.ModuleList(Further(config) for _ in range(config.mtp_depth))
        self.head = nn.Linear(config.width, WORDS, bias=False)
        self.steps = 0

    def forward(
        self,
        tokens: torch.Tensor,
        doc_ids: torch.Tensor | None = None,
        valid_token_counts: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, tokens, doc_ids, valid_token_counts)
        self.steps += 1
        logits = {"logits": self.head(self.norm(x))}
        for depth, further in enumerate(self.mtp, 1):
            later = self.embed(F.pad(tokens[:, depth:], (0, depth)))
            x = further(x, later, tokens, doc_ids, valid_token_counts)
            logits[f"mtp_{depth}"] = self.head(self.norm(x))
        return logits

    def overflow(self) -> int:
        """How many routed tokens found no place so far."""
        return sum(block.mixer.overflow_total for block in self.blocks if block.kind == "E")


def batch(seed: int, doc_ids: list[list[int]], valid: list[int]) -> dict[str, torch.Tensor]:
    tokens = torch.randint(WORDS, (BATCH, SEQ), generator=torch.Generator().manual_seed(seed))
    return {"tokens": tokens, "doc_ids": torch.tensor(doc_ids), "valid_token_counts": torch.tensor(valid)}


ONE_DOCUMENT = [[0] * SEQ] * BATCH
SEVERAL = [[0, 0, 0, 1, 1, 1, 1, 2], [0, 0, 0, 0, 0, 1, 1, 1]]


def spec(name: str, config: Config) -> Spec:
    return Spec(
        name=name,
        build=partial(NAM52, config),
        entry_points={
            "forward": EntryPoint(
                kwargs=batch(0, SEVERAL, [8, 6]),
                optional=("doc_ids", "valid_token_counts"),
                value_ranges={"tokens": (0, WORDS - 1), "doc_ids": (0, 3), "valid_token_counts": (1, SEQ)},
            )
        },
    )


SPEC = spec("nam52", Config())
MTP_3 = spec("nam52_mtp3", Config(mtp_depth=3))
