"""A GPT-2 of transformers (random weights) with its key-value cache as state."""

from __future__ import annotations

import torch

from models._decoder import CachedDecoder, decoder_spec
from models._vision import make_torchvision_importable

VOCAB = 256


def build() -> torch.nn.Module:
    make_torchvision_importable()
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCAB, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    return CachedDecoder(GPT2LMHeadModel(config), max_length=64).eval()


SPEC = decoder_spec("gpt2", build, vocab=VOCAB, max_prompt=32)
