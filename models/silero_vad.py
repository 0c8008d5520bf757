"""Silero's voice activity detector as a stream, with the weights of the package: a chunk in, events out.

The package carries the net as TorchScript, of which there is no Python; here it stands in torch, under the
archive's weights. What the stream keeps between chunks is kept as the package's `OnnxWrapper` and
`VADIterator` keep it: Python attributes, some of them None before the first chunk.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from aotpipe import EntryPoint, Spec
from models._packages import package_file

RATE, CHUNK, CONTEXT = 16000, 512, 64
ARCHIVE = "data/silero_vad.jit"


class Net(nn.Module):
    """The probability of speech in a chunk, from it and the end of the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.stft = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.encoder = nn.ModuleList(
            [
                nn.Conv1d(129, 128, 3, padding=1),
                nn.Conv1d(128, 64, 3, stride=2, padding=1),
                nn.Conv1d(64, 64, 3, stride=2, padding=1),
                nn.Conv1d(64, 128, 3, padding=1),
            ]
        )
        self.rnn = nn.LSTMCell(128, 128)
        self.decoder = nn.Conv1d(128, 1, 1)

    def forward(
        self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        x = self.stft(F.pad(x, (0, 64), mode="reflect").unsqueeze(1))
        x = (x[:, :129] ** 2 + x[:, 129:] ** 2).sqrt()
        for layer in self.encoder:
            x = layer(x).relu()
        h, c = self.rnn(x.squeeze(-1), state)
        return self.decoder(h.relu().unsqueeze(-1)).sigmoid().mean((1, 2)), (h, c)


class Stream(nn.Module):
    """Where speech starts and ends in a stream of chunks, in samples; -1 where it does not in this one."""

    def __init__(
        self, threshold: float = 0.5, min_silence_duration_ms: int = 100, speech_pad_ms: int = 30
    ) -> None:
        super().__init__()
        self.net = Net()
        self.threshold = threshold
        self.min_silence_samples = RATE * min_silence_duration_ms / 1000
        self.speech_pad_samples = RATE * speech_pad_ms / 1000
        self.reset_states()

    def reset_states(self) -> None:
        self.state: tuple[torch.Tensor, torch.Tensor] | None = None
        self.context: torch.Tensor | None = None
        self.triggered = False
        self.temp_end = 0
        self.current_sample = 0

    def forward(self, chunk: torch.Tensor) -> dict[str, torch.Tensor | float | int]:
        if self.context is None:
            self.context = torch.zeros(chunk.shape[0], CONTEXT)
        probability, self.state = self.net(torch.cat([self.context, chunk], 1), self.state)
        self.context = chunk[:, -CONTEXT:]
        self.current_sample += chunk.shape[1]

        start = end = -1
        speech_prob = probability.item()
        if speech_prob >= self.threshold and self.temp_end:
            self.temp_end = 0
        if speech_prob >= self.threshold and not self.triggered:
            self.triggered = True
            start = int(max(0, self.current_sample - self.speech_pad_samples - chunk.shape[1]))
        elif speech_prob < self.threshold - 0.15 and self.triggered:
            if not self.temp_end:
                self.temp_end = self.current_sample
            if self.current_sample - self.temp_end >= self.min_silence_samples:
                end = int(self.temp_end + self.speech_pad_samples - chunk.shape[1])
                self.temp_end = 0
                self.triggered = False
        return {"probability": speech_prob, "start": start, "end": end}


def archived(name: str) -> str:
    """What the archive calls a weight of the net."""
    first, _, rest = name.partition(".")
    match first:
        case "stft":
            return "_model.stft.forward_basis_buffer"
        case "encoder":
            place, _, kind = rest.partition(".")
            return f"_model.encoder.{place}.reparam_conv.{kind}"
        case "rnn":
            return f"_model.decoder.rnn.{rest}"
        case _:
            return f"_model.decoder.decoder.2.{rest}"


def build() -> nn.Module:
    archive = torch.jit.load(str(package_file("silero_vad", ARCHIVE))).state_dict()
    model = Stream()
    model.net.load_state_dict({name: archive[archived(name)] for name in model.net.state_dict()})
    return model.eval()


def voice(chunks: int, pitch: float = 140.0) -> torch.Tensor:
    """What the net takes for speech: a pulse train through the resonances of an open vowel."""
    time = torch.arange(chunks * CHUNK) / RATE
    pitch_now = pitch * (1 + 0.05 * torch.sin(2 * torch.pi * 3 * time))
    phase = (2 * torch.pi * pitch_now / RATE).cumsum(0)
    wave = torch.zeros_like(time)
    for harmonic in range(1, 40):
        frequency = harmonic * pitch
        gain = sum(1 / (1 + ((frequency - formant) / 90) ** 2) for formant in (700, 1220, 2600))
        wave = wave + gain * torch.sin(harmonic * phase)
    loudness = 0.6 + 0.4 * torch.sin(2 * torch.pi * 4 * time)
    return (0.2 * wave * loudness / wave.abs().max() * 2).reshape(chunks, 1, CHUNK)


SPEC = Spec(
    name="silero_vad",
    build=build,
    entry_points={"forward": EntryPoint(args=(voice(1)[0],), value_ranges={"chunk": (-1.0, 1.0)})},
)
