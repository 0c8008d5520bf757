"""The types between stages judge themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aotpipe.core.stages import Latency, Parity, ParityCase, Partition, Timing


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


def _timing(median_us: float, **more: float | None) -> Timing:
    return Timing(samples=99, least_us=median_us, median_us=median_us, per_s=1.0, **more)  # type: ignore[arg-type]


def _latency(noise: float = 0.0, **more: float | None) -> Latency:
    eager = _timing(10.0, p90_us=20.0)
    program = _timing(5.0, p90_us=11.0, **more)
    return Latency(entry_point="forward", threads=1, program=program, baselines={"eager": eager}, noise=noise)


def test_a_ratio_below_one_means_faster_than_eager() -> None:
    latency = _latency()
    assert latency.ratios == {"eager": 0.5}
    assert latency.compared("eager", "p50") == (0.5, "")
    assert latency.compared("eager", "p90") == (0.55, "")
    assert latency.compared("openvino", "p50") == (None, "openvino was not timed beside it; eager was")


def test_a_noisy_run_has_no_ratio() -> None:
    latency = _latency(noise=0.3)
    assert latency.noisy
    assert latency.ratios == {}
    assert latency.compared("eager", "least") == (None, "the machine was too noisy (30%)")
    drifting = _latency(spread=0.2)
    assert drifting.compared("eager", "least") == (0.5, "")
    assert drifting.compared("eager", "p50")[0] is None


def test_few_samples_have_no_p90() -> None:
    few = replace(_latency(), program=Timing(samples=63, least_us=1.0, median_us=1.0, per_s=1.0))
    ratio, reason = few.compared("eager", "p90")
    assert ratio is None
    assert reason == "63 samples are too few for p90, which takes 64"


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
