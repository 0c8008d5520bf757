"""What a convolution with the channels last becomes for each target."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.fixes.rewrites import rewritten
from aotpipe.backends.iree.kernels import lowering
from aotpipe.backends.iree.kernels.convolution import Registers
from aotpipe.backends.iree.lower import importer
from aotpipe.core.targets import Target
from tests.programs import through


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 24, 3, 2, padding=1)
        self.line = nn.Conv1d(24, 16, 3, groups=2, dilation=2)
        self.last = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lines = self.line(self.first(x).flatten(2))
        return self.last(lines.transpose(1, 2))


def lowered() -> tuple[nn.Module, tuple[torch.Tensor], object, bytes]:
    torch.manual_seed(0)
    model, call = Net().eval(), (torch.randn(1, 3, 12, 12),)
    program = through.legal(model, call)
    return model, call, program, importer.lower(program).module


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["iree-cpu-x86_64"], Registers(4, 16)),
        (["iree-cpu-x86_64_v2"], Registers(4, 16)),
        (["iree-cpu-x86_64_v3"], Registers(8, 16)),
        (["iree-cpu-x86_64_v4"], Registers(16, 32)),
        (["iree-cpu-aarch64"], Registers(4, 32)),
        (["iree-vmvx"], None),
        (["iree-vulkan"], None),
        (["iree-cpu-x86_64_v4", "iree-vulkan"], None),
    ],
    ids=lambda value: " ".join(map(str, value or ())),
)
def test_a_program_takes_the_registers_that_its_targets_have(
    names: list[str], wanted: Registers | None
) -> None:
    assert lowering.registers([Target.parse(name) for name in names]) == wanted


def test_a_cpu_gets_dispatches_and_others_ops_of_torch() -> None:
    *_, module = lowered()
    own = rewritten(module, [lowering.rewrite([Target.parse("iree-cpu-x86_64_v3")])])
    plain = rewritten(module, [lowering.rewrite([Target.parse("iree-vmvx")])])
    assert own is not None
    assert plain is not None
    assert own.count(b"flow.executable private @convolve_") == 3
    assert b"torch.operator" not in own
    assert plain.count(b"torch.aten.convolution") == 2
    assert plain.count(b"linalg.matmul") == 1
    assert b"flow.executable" not in plain
    assert b"torch.operator" not in plain


@pytest.mark.parametrize("target", ["iree-cpu-host", "iree-cpu-x86_64", "iree-vmvx"])
def test_each_form_computes_what_the_model_does(target: str) -> None:
    model, call, program, _ = lowered()
    compiled = compiler.compile(importer.lower(program), Target.parse(target))  # type: ignore[arg-type]
    assert not compiled.notes
    with through.load_payload(program, compiled.payload, "local-sync") as runner:  # type: ignore[arg-type]
        through.compare(runner, program, model, call)  # type: ignore[arg-type]
