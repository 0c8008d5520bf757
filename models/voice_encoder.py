"""The Resemblyzer voice encoder: a 3-layer LSTM over mel frames, one unit vector per utterance out."""

from __future__ import annotations

import torch
from torch import nn

from aotpipe import Dim, EntryPoint, Spec
from models._packages import package_file

MELS, HIDDEN = 40, 256


class VoiceEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(MELS, HIDDEN, 3, batch_first=True)
        self.linear = nn.Linear(HIDDEN, HIDDEN)
        self.relu = nn.ReLU()

    def forward(self, mels: torch.Tensor) -> dict[str, torch.Tensor]:
        _, (hidden, _) = self.lstm(mels)
        raw = self.relu(self.linear(hidden[-1]))
        return {"embedding": raw / torch.norm(raw, dim=1, keepdim=True)}


def build() -> nn.Module:
    checkpoint = torch.load(
        package_file("resemblyzer", "pretrained.pt"), map_location="cpu", weights_only=True
    )
    model = VoiceEncoder()
    # The training's similarity scale is no part of the encoder.
    weights = {name: value for name, value in checkpoint["model_state"].items() if "similarity" not in name}
    model.load_state_dict(weights)
    return model.eval()


SPEC = Spec(
    name="voice_encoder",
    build=build,
    entry_points={
        "forward": EntryPoint(
            args=(torch.linspace(0.0, 1.0, 2 * 40 * MELS).reshape(2, 40, MELS),),
            dynamic_shapes={"mels": {0: Dim("batch", min=1, max=16), 1: Dim("frames", min=1, max=400)}},
            value_ranges={"mels": (0.0, 1.0)},
        )
    },
)
