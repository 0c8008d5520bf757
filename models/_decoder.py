"""A decoder of transformers with its key-value cache as registered buffers.

`prefill` starts a new text, `decode` goes on with one token: two entry points over the same weights and the
same state. The cache object of transformers is made anew in each call around the buffers, so that what it
mutates is the module's state and nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from aotpipe import Dim, EntryPoint, Spec


class CachedDecoder(nn.Module):
    position: torch.Tensor

    def __init__(self, model: Any, max_length: int) -> None:
        super().__init__()
        self.model = model
        self.max_length = max_length
        config = model.config
        self.layers: int = config.num_hidden_layers
        heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
        shape = (1, heads, max_length, config.hidden_size // config.num_attention_heads)
        for layer in range(self.layers):
            self.register_buffer(f"key_{layer}", torch.zeros(shape))
            self.register_buffer(f"value_{layer}", torch.zeros(shape))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    def prefill(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        self.position.zero_()
        return self.decode(input_ids)

    def decode(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        output = self.model(input_ids=input_ids, past_key_values=self._cache(), use_cache=True)
        self.position.add_(input_ids.shape[1])
        return {"logits": output.logits[:, -1]}

    def _cache(self) -> Any:
        from transformers import StaticCache

        cache = StaticCache(config=self.model.config, max_cache_len=self.max_length)
        for number, layer in enumerate(cache.layers):
            layer.keys = self.get_buffer(f"key_{number}")
            layer.values = self.get_buffer(f"value_{number}")
            layer.cumulative_length = self.position.clone()
            layer.dtype, layer.device = layer.keys.dtype, layer.keys.device
            layer.is_initialized = True
        return cache


def decoder_spec(name: str, build: Any, *, vocab: int, max_prompt: int) -> Spec:
    """A Spec with `prefill` over a prompt of any length and `decode` of one token."""
    ids = {"input_ids": (0, vocab - 1)}
    return Spec(
        name=name,
        build=build,
        entry_points={
            "prefill": EntryPoint(
                args=(torch.arange(7).reshape(1, 7),),
                dynamic_shapes={"input_ids": {1: Dim("seq", min=2, max=max_prompt)}},
                value_ranges=ids,
                method="prefill",
            ),
            "decode": EntryPoint(args=(torch.tensor([[7]]),), value_ranges=ids, method="decode"),
        },
    )
