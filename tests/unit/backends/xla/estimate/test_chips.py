"""A chip's peaks, a program's costs on it, and its topologies."""

from __future__ import annotations

from typing import Any

import pytest

from aotpipe.backends.xla.estimate import chips
from aotpipe.backends.xla.estimate.chips import chip
from aotpipe.core.targets import Target, table
from aotpipe.errors import MeshError
from aotpipe.runtime.xla.mesh import Mesh


def test_every_chip_that_may_not_be_there_is_known():
    for name in table():
        target = Target.parse(name)
        if target.backend == "xla":
            assert (chip(target) is None) == (target.device == "cpu"), name


def test_peaks_have_units_and_a_source():
    found = chip(Target.parse("xla-tpu-v5e"))
    assert found is not None
    assert (found.rates["bfloat16"], found.bandwidth, found.memory) == (197e12, 819e9, 16 * 2**30)
    assert found.source.startswith("https://")
    assert not found.config


def test_a_gpu_is_described_to_its_compiler():
    found = chip(Target.parse("xla-cuda-h100"))
    assert found is not None
    assert found.config.count("{") == found.config.count("}")
    assert "cuda_compute_capability { major: 9 minor: 0 }" in found.config
    assert 'name: "NVIDIA H100 80GB HBM3"' in found.config


def test_a_device_that_is_half_of_a_chip_has_half_of_its_peaks():
    found = chip(Target.parse("xla-tpu-v7x"))
    assert found is not None
    assert (found.rates["bfloat16"], found.bandwidth, found.memory) == (2307e12 / 2, 3690e9, 96 * 2**30)


def test_what_a_chip_lacks_runs_at_the_rate_of_what_it_is_widened_to():
    found = chip(Target.parse("xla-cuda-t4"))
    assert found is not None
    assert found.rate("bfloat16") == found.rates["float32"]
    assert found.rate("complex64") is None


PROGRAM = {"entry_point": "forward", "sizes": {"batch": 8}}


def figures(*matmuls: list[Any], traffic_bytes: int = 819_000) -> dict[str, Any]:
    return {"flops": 10**9, "traffic_bytes": traffic_bytes, "matmuls": list(matmuls)}


@pytest.mark.parametrize(
    ("target", "dtype", "precision", "per_second"),
    [
        ("xla-tpu-v5e", "bfloat16", "highest", 197e12),
        ("xla-tpu-v5e", "float32", "highest", 197e12 / 6),
        ("xla-tpu-v5e", "float32", "high", 197e12 / 3),
        ("xla-tpu-v5e", "float32", "default", 197e12),
        ("xla-tpu-v5e", "int8", "default", 394e12),
        # A device is half of this chip, and its unit for matrices has no integers.
        ("xla-tpu-v7x", "int8", "default", 2307e12 / 2),
        ("xla-cuda-h100", "float32", "highest", 67e12),
        ("xla-cuda-h100", "float32", "default", 495e12),
        ("xla-cuda-t4", "float32", "default", 8.1e12),
        # No bfloat16 in its tensor cores.
        ("xla-cuda-t4", "bfloat16", "highest", 8.1e12),
        ("xla-cuda-t4", "float16", "highest", 65e12),
    ],
)
def test_the_compute_side_is_that_of_the_dtype_and_precision(
    target: str, dtype: str, precision: str, per_second: float
) -> None:
    work = figures([dtype, precision, 10**12])
    found = chips.estimate(PROGRAM, work, chip(Target.parse(target)))
    assert found.compute_s == pytest.approx(10**12 / per_second)


def test_a_dtype_without_a_published_rate_adds_nothing() -> None:
    found = chips.estimate(
        PROGRAM, figures(["float64", "highest", 10**12]), chip(Target.parse("xla-tpu-v5e"))
    )
    assert (found.compute_s, found.memory_s, found.bound_by) == (0.0, 1e-6, "memory")


def test_of_a_cpu_there_are_counts_and_no_bound() -> None:
    found = chips.estimate(PROGRAM, figures(["float32", "highest", 5]), None)
    assert (found.flops, found.bound_s, found.memory_bytes) == (10**9, 0.0, 0)
    assert found.program == "forward batch=8"


def test_devices_that_share_a_program_are_counted() -> None:
    found = chips.estimate(PROGRAM, figures(), chip(Target.parse("xla-tpu-v5e")), 4)
    assert (found.devices, found.flops) == (4, 10**9)


@pytest.mark.parametrize(
    ("target", "devices", "name"),
    [
        ("xla-tpu-v5e", 1, "v5e:1x1"),
        ("xla-tpu-v5e", 4, "v5e:2x2"),
        ("xla-tpu-v7x", 16, "tpu7x:2x2x2"),
        ("xla-cpu-host", 4, "cpu"),
    ],
)
def test_a_topology_has_as_many_devices(target: str, devices: int, name: str) -> None:
    chips.require_topology(Target.parse(target), Mesh((("x", devices),)))
    assert chips.topology(Target.parse(target), devices) == name


@pytest.mark.parametrize("target", ["iree-vmvx", "xla-cuda-h100", "xla-tpu-v5e"])
def test_others_are_refused(target: str) -> None:
    with pytest.raises(MeshError) as caught:
        chips.require_topology(Target.parse(target), Mesh.parse("3x3"))
    assert caught.value.hint
    if target == "xla-tpu-v5e":
        assert "2x2 (4)" in caught.value.reason
