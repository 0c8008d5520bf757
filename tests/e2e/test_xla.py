"""One model for IREE and XLA side by side: built, compared, packed over one set of weights, run again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import aotpipe
from aotpipe.bundle import selftest


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
