"""Loops over tiny decoders of transformers, as people write them: greedy, beam search, drafts, early exit.

Eager's own answer depends on the prompt: an end that comes early or never.
"""

from __future__ import annotations

import torch
from torch import nn

from models._vision import make_torchvision_importable
from tests.programs.cases import Calls, Models

WORDS, END, LONGEST = 32, 3, 10


def gpt2() -> nn.Module:
    make_torchvision_importable()
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=WORDS, n_positions=16, bos_token_id=1, eos_token_id=END
    )
    return GPT2LMHeadModel(config).eval()


def llama() -> nn.Module:
    make_torchvision_importable()
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        hidden_size=16,
        intermediate_size=32,
        vocab_size=WORDS,
        max_position_embeddings=16,
        bos_token_id=1,
        eos_token_id=END,
    )
    return LlamaForCausalLM(config).eval()


class Greedy(nn.Module):
    """The whole text again for each token."""

    def __init__(self, model: nn.Module, scale: float = 40.0):
        super().__init__()
        self.model = model
        self.scale = scale  # random weights hardly prefer a token

    def forward(self, prompt):
        tokens = torch.zeros(1, LONGEST, dtype=torch.int64)
        tokens[:, : prompt.shape[1]] = prompt
        length = prompt.shape[1]
        while length < LONGEST:
            logits = self.model(tokens, use_cache=False).logits
            token = logits[0, length - 1].argmax()
            tokens[0, length] = token
            length += 1
            if token == END:
                break
        return tokens, length


class Cached(nn.Module):
    """One token at a time, over a cache of transformers."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, prompt):
        from transformers import StaticCache

        cache = StaticCache(config=self.model.config, max_cache_len=LONGEST)
        tokens = torch.zeros(1, LONGEST, dtype=torch.int64)
        tokens[:, : prompt.shape[1]] = prompt
        out = self.model(prompt, past_key_values=cache, use_cache=True)
        token = out.logits[:, -1].argmax(-1)
        length = prompt.shape[1]
        while length < LONGEST:
            tokens[:, length] = token
            length += 1
            if token == END:
                break
            out = self.model(token[:, None], past_key_values=cache, use_cache=True)
            token = out.logits[:, -1].argmax(-1)
        return tokens, length


class Beams(nn.Module):
    """Beam search over the whole text, until every beam ended or the best can no longer be beaten."""

    def __init__(self, model: nn.Module, width: int = 3):
        super().__init__()
        self.model, self.width = model, width

    def forward(self, prompt):
        start = prompt.shape[1]
        beams = torch.zeros(self.width, LONGEST, dtype=torch.int64)
        beams[:, :start] = prompt
        scores = torch.tensor([0.0] + [-1e9] * (self.width - 1))
        ended = torch.zeros(self.width, dtype=torch.bool)
        for place in range(start, LONGEST):
            logits = self.model(beams, use_cache=False).logits[:, place - 1]
            following = (logits * 40).log_softmax(-1)
            # A beam that ended goes on with nothing, for nothing.
            silent = torch.full_like(following, -1e9)
            silent[:, 0] = 0.0
            following = torch.where(ended[:, None], silent, following)
            scores, best = (scores[:, None] + following).flatten().topk(self.width)
            parent, token = best // WORDS, best % WORDS
            beams = beams[parent]
            beams[:, place] = token
            ended = ended[parent] | (token == END)
            if ended.all():
                break
        return beams, scores


class EarlyExit(nn.Module):
    """Layers until one is sure of the next token (CALM)."""

    def __init__(self, model: nn.Module, sure: float = 0.5):
        super().__init__()
        self.model, self.sure = model, sure

    def forward(self, tokens):
        body = self.model.transformer
        place = torch.arange(tokens.shape[1])
        hidden = body.wte(tokens) + body.wpe(place)
        used = 0
        for block in body.h:
            out = block(hidden)
            hidden = out[0] if isinstance(out, tuple) else out
            used += 1
            logits = self.model.lm_head(body.ln_f(hidden))[:, -1] * 40
            if logits.softmax(-1).max() > self.sure:
                return logits, used
        return logits, used


class Speculative(nn.Module):
    """A draft of three tokens by a small model, kept as far as a large one agrees."""

    def __init__(self, draft: nn.Module, target: nn.Module):
        super().__init__()
        self.draft, self.target = draft, target

    def forward(self, prompt):
        tokens = torch.zeros(1, LONGEST, dtype=torch.int64)
        start = prompt.shape[1]
        tokens[:, :start] = prompt
        length = start
        rounds = 0
        while length < LONGEST - 3:
            for ahead in range(3):
                logits = self.draft(tokens, use_cache=False).logits
                tokens[0, length + ahead] = logits[0, length + ahead - 1].argmax()
            wanted = self.target(tokens, use_cache=False).logits[0].argmax(-1)
            accepted = 0
            while accepted < 3 and wanted[length + accepted - 1] == tokens[0, length + accepted]:
                accepted += 1
            tokens[0, length + accepted] = wanted[length + accepted - 1]
            length += accepted + 1
            rounds += 1
        return tokens[:, : LONGEST - 3], rounds


def _prompts(*texts: list[int]) -> Calls:
    return [{"prompt": torch.tensor([text])} for text in texts]


PROMPTS = _prompts([1, 5, 9], [1, 17, 22], [4, 4, 4], [30, 2, 11])
MODELS: Models = {
    "greedy": lambda: (Greedy(gpt2()), PROMPTS, None),
    "greedy_llama": lambda: (Greedy(llama()), PROMPTS, None),
    "greedy_with_a_cache": lambda: (Cached(llama()), PROMPTS, None),
    "beams": lambda: (Beams(gpt2()), PROMPTS, None),
    "early_exit": lambda: (EarlyExit(gpt2()), [{"tokens": each["prompt"]} for each in PROMPTS], None),
    "speculative": lambda: (Speculative(gpt2(), llama()), PROMPTS, None),
}
