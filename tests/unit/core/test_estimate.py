"""What a program will cost: what follows from the counts."""

from __future__ import annotations

import json
from dataclasses import replace

from aotpipe.core.estimate import Estimate, MatmulWork

SAMPLE = Estimate(
    entry_point="forward",
    sizes={"seq": 64, "batch": 8},
    flops=4_000_000,
    bytes_accessed=5_000_000,
    traffic_bytes=1_000_000,
    matmuls=(
        MatmulWork(dtype="bfloat16", precision="highest", flops=3_000_000),
        MatmulWork(dtype="float32", precision="highest", flops=1_000_000),
    ),
    arguments_bytes=600_000,
    peak_bytes=700_000,
    memory_bytes=16 * 2**30,
    compute_s=2e-6,
    memory_s=5e-6,
)


def test_the_longer_side_is_the_bound() -> None:
    assert (SAMPLE.intensity, SAMPLE.bound_s, SAMPLE.bound_by) == (4.0, 5e-6, "memory")
    assert replace(SAMPLE, compute_s=9e-6).bound_by == "compute"
    nowhere = replace(SAMPLE, compute_s=0.0, memory_s=0.0, traffic_bytes=0)
    assert (nowhere.intensity, nowhere.bound_s, nowhere.bound_by) == (0.0, 0.0, "")


def test_matmuls_have_shares_by_dtype() -> None:
    assert SAMPLE.matmul_shares == {"bfloat16": 0.75, "float32": 0.25}
    assert SAMPLE.matmuls_text == "75% bfloat16, 25% float32 (highest)"
    assert replace(SAMPLE, matmuls=()).matmuls_text == "–"
    assert replace(SAMPLE, matmuls=()).matmul_shares == {}


def test_a_program_is_named_by_its_sizes() -> None:
    assert SAMPLE.program == "forward batch=8 seq=64"


def test_json_gives_it_back() -> None:
    data = json.loads(json.dumps(SAMPLE.to_json()))
    assert data["bound_by"] == "memory"
    assert Estimate.from_json(data) == SAMPLE


def test_what_was_written_before_there_were_several_devices_is_read() -> None:
    data = SAMPLE.to_json()
    del data["devices"]
    assert Estimate.from_json(data) == SAMPLE
