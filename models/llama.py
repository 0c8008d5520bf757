"""A Llama of transformers (random weights, grouped-query attention) with its key-value cache as state."""

from __future__ import annotations

import torch

from models._decoder import CachedDecoder, decoder_spec
from models._vision import make_torchvision_importable

VOCAB = 256


def build() -> torch.nn.Module:
    make_torchvision_importable()
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return CachedDecoder(LlamaForCausalLM(config), max_length=64).eval()


SPEC = decoder_spec("llama", build, vocab=VOCAB, max_prompt=32)
