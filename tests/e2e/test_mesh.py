"""Models on several devices: equal to eager and to the program of one, with their collectives counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import aotpipe
from aotpipe.errors import MeshError
from aotpipe.runtime import toolchain
from aotpipe.runtime.bundle import selftest


class Pair(torch.nn.Module):
    """Megatron's: the first is split by its outputs, the second by its inputs; a state is split, too."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(8, 32)
        self.down = torch.nn.Linear(32, 8)
        self.register_buffer("total", torch.zeros(8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.down(torch.nn.functional.gelu(self.up(x)))
        self.total.add_(y.sum(0))
        self.calls += 1
        return y, self.total * self.calls


MESH = "data=2,model=2"
SHARD = {
    r"up\.weight": ("model", None),
    r"up\.bias": ("model",),
    r"down\.weight": (None, "model"),
    "total": ("model",),
    "x": ("data", None),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, aotpipe.Bundle]:
    folder = tmp_path_factory.mktemp("mesh")
    built = {}
    for name, settings in {"one": {}, "four": {"mesh": MESH, "shard": SHARD}}.items():
        torch.manual_seed(0)
        built[name] = aotpipe.build(
            Pair().eval(),
            args=(torch.randn(4, 8),),
            targets=["xla-cpu-host"],
            out=folder / name,
            latency=False,
            **settings,
        )
    return built


def test_four_devices_give_what_one_does(pair) -> None:
    [row] = pair["four"].report.targets
    assert row.status == "executed"
    assert row.partition.devices == 4
    # One sum over the axis model at the end of the pair, and one of the batch for the state.
    assert set(row.partition.collectives) <= {"all-reduce", "all-gather", "collective-permute", "all-to-all"}
    assert row.partition.collectives["all-reduce"] >= 2
    assert row.partition.splits["down.weight"] == "(None, model)"
    [program] = pair["four"].manifest.programs
    assert program.partition == row.partition
    assert selftest(pair["four"].path).passed
    with aotpipe.load(pair["one"].path) as one, aotpipe.load(pair["four"].path) as four:
        for seed in range(3):
            x = np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32)
            wanted, got = one.infer({"x": x}), four.infer({"x": x})
            for name, array in wanted.items():
                np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-6)
        one.reset()
        four.reset()
        np.testing.assert_allclose(
            list(four.infer({"x": x}).values())[1],
            list(one.infer({"x": x}).values())[1],
            rtol=1e-5,
            atol=1e-6,
        )


@pytest.mark.parametrize(
    ("settings", "says", "remedy"),
    [
        ({"shard": {r"left\.weight": ("model",)}}, "matches nothing", "regular expression"),
        ({"shard": {"x": ("rows",)}}, "names the axis 'rows'", "data, model"),
        ({"shard": {"x": (None, None, "data")}}, "names 3 dims, and x has 2", "fewer"),
        ({"mesh": "data=3", "shard": {"x": ("data",)}}, "does not divide x: its dim 0 is 4", "divides"),
        ({"mesh": "two"}, "is no mesh", "--mesh data=2"),
        ({"mesh": None, "shard": {"x": ("data",)}}, "over no mesh", "--mesh"),
        ({"targets": ["iree-cpu-host"]}, "an IREE program is for one device", "xla-cpu-host"),
        ({"targets": ["xla-tpu-v5e"], "mesh": "3x5"}, "no topology of 15 devices", "one of them"),
        ({"targets": ["xla-cuda-h100"]}, "has no mesh", "xla-tpu"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(settings, says: str, remedy: str, tmp_path: Path) -> None:
    given = {"targets": ["xla-cpu-host"], "mesh": MESH, "shard": {}, **settings}
    with pytest.raises(MeshError, match=says) as caught:
        aotpipe.build(Pair().eval(), args=(torch.randn(4, 8),), out=tmp_path / "out", latency=False, **given)
    assert remedy in caught.value.hint


@pytest.mark.skipif(toolchain.version_of("libtpu") is None, reason="needs pip install 'aotpipe[tpu]'")
def test_what_each_chip_of_a_mesh_computes_and_holds_is_estimated(tmp_path: Path) -> None:
    estimates = {}
    for name, settings in {"one": {}, "four": {"mesh": MESH, "shard": SHARD}}.items():
        built = aotpipe.build(
            Pair().eval(),
            args=(torch.randn(4, 8),),
            targets=["xla-tpu-v5e"],
            out=tmp_path / name,
            latency=False,
            **settings,
        )
        [row] = built.report.targets
        assert row.status == "compiled"
        [estimates[name]] = row.estimates
    one, four = estimates["one"], estimates["four"]
    assert (one.devices, four.devices) == (1, 4)
    # Two products, each split over both axes of the mesh.
    assert sum(each.flops for each in one.matmuls) == 2 * 2 * 4 * 8 * 32
    assert sum(each.flops for each in four.matmuls) == 2 * 2 * 4 * 8 * 32 // 4
    assert 0 < four.traffic_bytes < one.traffic_bytes
    assert 0 < four.memory_bytes == one.memory_bytes


def test_one_thread_is_enough(pair) -> None:
    x = np.ones((4, 8), np.float32)
    with aotpipe.load(pair["four"].path, driver="local-sync") as runner:
        assert {array.shape for array in runner.infer({"x": x}).values()} == {(4, 8), (8,)}


@pytest.mark.slow
def test_gpt2_is_split_as_megatron_does(tmp_path: Path) -> None:
    """Two entry points over one key-value cache, on four devices here and on four chips there."""
    shard = [
        r".*(c_attn|c_fc)\.weight=(None, model)",
        r".*(c_attn|c_fc)\.bias=(model,)",
        r".*c_proj\.weight=(model, None)",
    ]
    built = aotpipe.build(
        "models/gpt2.py",
        targets=["xla-cpu-host", "xla-tpu-v5e"],
        buckets={"seq": (32,)},
        mesh="model=4",
        shard=shard,
        out=tmp_path / "gpt2",
        latency=False,
    )
    here, there = built.report.targets
    assert (here.status, there.status) == ("executed", "compiled")
    assert here.partition.collectives["all-reduce"] >= 4
    assert there.partition.collectives["all-reduce"] >= 4
    assert selftest(built.path).passed


@pytest.mark.slow
def test_resnet50_takes_a_batch_in_parts_and_sends_nothing(tmp_path: Path) -> None:
    built = aotpipe.build(
        "models/resnet50.py:SMALL",
        targets=["xla-cpu-host"],
        buckets={"batch": (4,)},
        mesh="data=4",
        shard=["x=(data,)"],
        out=tmp_path / "resnet50",
        latency=False,
    )
    [row] = built.report.targets
    assert row.status == "executed"
    assert row.partition.collectives == {}
