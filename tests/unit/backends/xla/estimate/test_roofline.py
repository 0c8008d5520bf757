"""A chip's peaks under a compiler's counts."""

from __future__ import annotations

from typing import Any

import pytest

from aotpipe.backends.xla.estimate import roofline
from aotpipe.backends.xla.estimate.chips import chip
from aotpipe.core.targets import Target

PROGRAM = {"entry_point": "forward", "sizes": {"batch": 8}}


def figures(*matmuls: list[Any], traffic_bytes: int = 819_000) -> dict[str, Any]:
    counts = {**dict.fromkeys(roofline.COUNTS, 0), "flops": 10**9, "traffic_bytes": traffic_bytes}
    return {**counts, "matmuls": list(matmuls)}


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
    found = roofline.estimate(PROGRAM, work, chip(Target.parse(target)))
    assert found.compute_s == pytest.approx(10**12 / per_second)


def test_a_dtype_without_a_published_rate_adds_nothing() -> None:
    found = roofline.estimate(
        PROGRAM, figures(["float64", "highest", 10**12]), chip(Target.parse("xla-tpu-v5e"))
    )
    assert (found.compute_s, found.memory_s, found.bound_by) == (0.0, 1e-6, "memory")


def test_of_a_cpu_there_are_counts_and_no_bound() -> None:
    found = roofline.estimate(PROGRAM, figures(["float32", "highest", 5]), None)
    assert (found.flops, found.bound_s, found.memory_bytes) == (10**9, 0.0, 0)
    assert found.program == "forward batch=8"


def test_devices_that_share_a_program_are_counted() -> None:
    found = roofline.estimate(PROGRAM, figures(), chip(Target.parse("xla-tpu-v5e")), 4)
    assert (found.devices, found.flops) == (4, 10**9)
