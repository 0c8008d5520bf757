"""The types between stages judge themselves."""

from __future__ import annotations

import pytest

from aotpipe.core.stages import Latency, Parity, ParityCase, Partition


def _case(**changes: object) -> ParityCase:
    values = {
        "entry_point": "forward",
        "case": "example",
        "output": "output",
        "max_abs_error": 1e-7,
        "eager_abs_error": 1e-7,
        "ratio": 0.5,
        "worst_index": (0,),
        "got": 1.0,
        "want": 1.0,
    }
    return ParityCase(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ({}, True),
        ({"ratio": 1.0}, True),
        ({"ratio": 1.01}, False),
        ({"ratio": 0.0, "message": "shape"}, False),
    ],
)
def test_a_case_passes_within_its_tolerance_and_without_a_message(
    changes: dict[str, object], passed: bool
) -> None:
    assert _case(**changes).passed is passed


def test_the_worst_case_is_a_failed_one_first() -> None:
    near, failed = _case(ratio=0.99), _case(ratio=0.0, message="shape (2,) for (3,)")
    parity = Parity(cases=(near, failed), calls=2, rule="")
    assert parity.worst is failed
    assert not parity.passed
    assert Parity(cases=(near,), calls=1, rule="").worst is near
    assert Parity(cases=(), calls=0, rule="").worst is None


def test_a_ratio_below_one_means_faster_than_eager() -> None:
    latency = Latency(
        entry_point="forward",
        samples=9,
        threads=1,
        median_us=5.0,
        p90_us=6.0,
        eager_median_us=10.0,
        eager_p90_us=11.0,
    )
    assert latency.ratio == 0.5


def test_a_partition_reads_as_a_line() -> None:
    many = Partition(
        mesh="data=2,model=2",
        devices=4,
        splits={"w": "(model, None)", "x": "(data,)"},
        collectives={"all-reduce": 2, "all-gather": 1},
    )
    assert str(many) == "4 devices (data=2,model=2), 2 arrays are split; 2 all-reduce, 1 all-gather"
    one = Partition(mesh="x=2", devices=2, splits={"x": "(x,)"})
    assert str(one).endswith("1 array is split; no collectives")
