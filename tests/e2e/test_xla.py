"""One model for IREE and XLA side by side: built, compared, packed over one set of weights, run again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import aotpipe
from aotpipe.runtime.bundle import selftest


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        return {"y": torch.softmax(self.linear(x), -1), "calls": self.calls}


def test_both_backends_share_weights_and_pass(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net().eval()
    built = aotpipe.build(
        model,
        args=(torch.randn(2, 6),),
        dynamic_shapes={"x": {0: aotpipe.Dim("batch", min=1, max=8)}},
        targets=["iree-vmvx", "xla-cpu-host"],
        buckets={"batch": (1, 8)},
        out=tmp_path / "net",
        latency=False,
    )
    assert [(row.target, row.status) for row in built.report.targets] == [
        ("iree-vmvx", "executed"),
        ("xla-cpu-host", "executed"),
    ]
    assert built.manifest.weights == ("linear.bias", "linear.weight")
    assert [program.file.rpartition("/")[2] for program in built.manifest.programs] == [
        "program.vmfb",
        "program.xla",
    ]
    assert selftest(built.path).passed
    with aotpipe.load(built.path, target="xla-cpu-host") as runner:
        for count in range(1, 6):
            x = np.random.default_rng(count).standard_normal((8, 6)).astype(np.float32)
            outputs = runner.infer({"x": x})
            assert outputs["calls"] == count
            want = torch.softmax(model.linear(torch.from_numpy(x)), -1).detach().numpy()
            np.testing.assert_allclose(outputs["y"], want, rtol=1e-5, atol=1e-6)


def test_iree_and_xla_share_a_lowering_and_the_bundle_says_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    built = aotpipe.build(
        Net().eval(),
        args=(torch.randn(2, 6),),
        targets=["iree-vmvx", "xla-cpu-host"],
        dialect="stablehlo",
        out=tmp_path / "net",
        latency=False,
    )
    assert [(row.target, row.status, row.dialect) for row in built.report.targets] == [
        ("iree-vmvx", "executed", "stablehlo"),
        ("xla-cpu-host", "executed", "stablehlo"),
    ]
    assert [program.dialect for program in built.manifest.programs] == ["stablehlo", "stablehlo"]
    assert built.manifest.weights == ("linear.bias", "linear.weight")
    assert selftest(built.path).passed
