"""CPUs and GPUs share all rules but the form of a convolution."""

from __future__ import annotations

from dataclasses import fields

import torch

from aotpipe.backends.iree import legalization
from aotpipe.backends.iree.tuning import cpu, gpu

CONVOLUTION = torch.ops.aten.convolution.default


def test_only_convolutions_differ() -> None:
    on_cpu, on_gpu = dict(legalization.CPU.decompositions()), dict(legalization.GPU.decompositions())
    assert on_cpu.pop(CONVOLUTION) is cpu.convolution
    assert on_gpu.pop(CONVOLUTION) is gpu.convolution
    assert on_cpu == on_gpu
    for field in fields(legalization.CPU):
        if field.name != "decompositions":
            assert getattr(legalization.CPU, field.name) == getattr(legalization.GPU, field.name)
