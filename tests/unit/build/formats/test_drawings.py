"""Drawings: well-formed SVG that shows each value where it belongs, whatever the values are."""

from __future__ import annotations

import math
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from aotpipe.build.formats import drawings
from aotpipe.build.report import TargetReport
from aotpipe.core.stages import Parity, ParityCase, Timing
from tests.unit.build.reports import BAD, GOOD, TIME


def _row(*cases: ParityCase) -> TargetReport:
    return TargetReport(target="a<b", status="executed", parity=Parity(cases=cases, calls=1, rule=""))


def _dots(svg: str) -> list[tuple[float, str]]:
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.findtext("title")
    return [(float(each.get("cx", "nan")), each.get("class", "")) for each in root.iter("circle")]


def _limit(svg: str) -> float:
    (line,) = (each for each in ET.fromstring(svg).iter("line") if each.get("class") == "limit")
    return float(line.get("x1", "nan"))


def test_a_dot_is_beyond_the_limit_where_the_error_is():
    shares = (0.0, 1e-9, 0.5, 1.0, 2.0, math.inf)
    svg = drawings.errors(_row(*(replace(GOOD, ratio=share) for share in shares)))
    places = [x for x, _ in _dots(svg)]
    assert places == sorted(places)
    assert [x <= _limit(svg) for x in places] == [True, True, True, True, False, False]
    assert all(math.isfinite(x) for x in places)


def test_what_failed_and_what_says_nothing_look_otherwise():
    svg = drawings.errors(_row(GOOD, BAD, replace(GOOD, uninformative=True)))
    assert [kind for _, kind in _dots(svg)] == ["dot", "dot bad", "dot none"]


def test_errors_by_size_need_two_sizes():
    small, large = (replace(GOOD, case=f"batch={size}") for size in (1, 64))
    assert drawings.errors_by_size(_row(GOOD, small)) == ""
    (first, _), (last, _) = _dots(drawings.errors_by_size(_row(small, large, GOOD)))
    assert first < last


def test_latencies_are_on_one_scale():
    svg = drawings.latencies("forward", [("iree-cpu-host", TIME)])
    boxes = [float(each.get("x", "nan")) for each in ET.fromstring(svg).iter("rect")]
    assert boxes == sorted(boxes)
    assert len(boxes) == 2
    empty = replace(TIME, program=replace(TIME.program, points_us=()), baselines={})
    assert drawings.latencies("forward", [("iree-cpu-host", empty)]) == ""


@pytest.mark.parametrize("points", [(5.0,), (5.0, 5.0), (0.0, 5.0)])
def test_few_and_equal_times_are_drawn(points: tuple[float, ...]):
    timing = Timing(samples=len(points), least_us=5.0, median_us=5.0, per_s=1.0, points_us=points)
    svg = drawings.latencies("forward", [("t", replace(TIME, program=timing, baselines={}))])
    assert _dots(svg)


def test_elements_that_differ_are_marked():
    case = replace(BAD, profile=(0.1, math.inf, 2.0), failing=2, elements=3)
    bars = [each.get("class") for each in ET.fromstring(drawings.failing_elements(case)).iter("rect")]
    assert bars == ["bar", "bar bad", "bar bad"]
    assert drawings.failing_elements(BAD) == ""
