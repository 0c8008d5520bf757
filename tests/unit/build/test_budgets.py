"""Budgets: read from texts and pyproject.toml, judged on a report; what is not known does not hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.build.budgets import Limit, chosen, judged, least_coverage, of_coverage, of_project
from aotpipe.build.report import Report
from aotpipe.core.coverage import UNKNOWN, Coverage, Goal
from aotpipe.core.stages import Latency
from aotpipe.core.targets import Target
from aotpipe.errors import BudgetExceeded, BudgetInvalid
from tests.unit.build.reports import REPORT, TIME

GOOD = replace(REPORT, targets=REPORT.targets[:2])


@pytest.mark.parametrize(
    "text",
    [
        "parity=50%",
        "p50=0.8 eager",
        "p90=1.1 torch.compile",
        "size=2000000",
        "iree-cpu-host:memory=500000000",
        "iree-*:compile=60 s",
        "programs=3",
        "coverage=100%",
    ],
)
def test_a_limit_round_trips(text: str):
    assert str(Limit.parse(text)) == text


def test_a_limit_is_read_as_people_write_it():
    assert Limit.parse("size=2 MB") == Limit.parse("size=2000kB")
    assert Limit.parse("p50=0.8") == Limit.parse("p50=×0.8 of eager") == Limit("", "p50", 0.8, "eager")
    assert Limit.parse("parity=0.5") == Limit.parse("parity=50%")
    assert Limit.parse("compile=60") == Limit.parse("compile=60s")


@pytest.mark.parametrize(
    "text",
    [
        "speed=3",
        "size",
        "size=big",
        "parity=-1",
        "parity=nan",
        "p50=eager",
        "iree-cpu-hots:size=1MB",
        "programs=1.5",
    ],
)
def test_what_is_no_budget_is_refused(text: str):
    with pytest.raises(BudgetInvalid) as caught:
        Limit.parse(text)
    assert caught.value.hint


def _judged(*texts: str, report: Report = GOOD) -> dict[tuple[str, str], tuple[bool, str]]:
    found = judged(map(Limit.parse, texts), report)
    return {(each.target, each.name): (each.passed, each.found or each.reason) for each in found}


def test_each_is_judged_on_what_was_measured():
    assert _judged("parity=50%", "p50=0.8", "size=20kB", "memory=50MB", "compile=1", "programs=1") == {
        ("iree-cpu-host", "parity"): (True, "12%"),
        ("iree-cpu-host", "p50"): (True, "×0.786 of eager"),
        ("iree-cpu-host", "size"): (True, "17.7 kB"),
        ("iree-cpu-host", "memory"): (True, "40.0 MB"),
        ("iree-cpu-host", "compile"): (True, "0.0 µs"),
        ("iree-cpu-host", "programs"): (True, "0"),
        # It was not run, so that what takes a run is not asked of it.
        ("iree-cpu-aarch64", "size"): (True, "0 B"),
        ("iree-cpu-aarch64", "compile"): (True, "0.0 µs"),
        ("iree-cpu-aarch64", "programs"): (True, "0"),
    }
    assert not _judged("parity=11%")["iree-cpu-host", "parity"][0]
    assert not _judged("p50=0.7")["iree-cpu-host", "p50"][0]


def test_what_nothing_says_does_not_hold():
    assert _judged("iree-cpu-aarch64:parity=50%") == {
        ("iree-cpu-aarch64", "parity"): (False, "no output was compared")
    }
    passed, reason = _judged("p90=0.8")["iree-cpu-host", "p90"]
    assert not passed
    assert reason == "forward: 50 samples are too few for p90, which takes 64"
    assert not _judged("p50=0.8 openvino")["iree-cpu-host", "p50"][0]
    unknown = replace(GOOD, coverage=UNKNOWN)
    assert not _judged("coverage=1%", report=unknown)["iree-cpu-host", "coverage"][0]


def _timed(latency: Latency) -> Report:
    return replace(GOOD, targets=(replace(GOOD.targets[0], latency=(latency,)),))


def test_a_noisy_run_holds_no_budget():
    report = _timed(replace(TIME, noise=0.5))
    passed, reason = _judged("p50=2", report=report)["iree-cpu-host", "p50"]
    assert (passed, reason) == (False, "forward: the machine was too noisy (50%)")


def test_the_slowest_entry_point_counts():
    fast = replace(TIME, entry_point="other", program=replace(TIME.program, median_us=1.0))
    report = replace(GOOD, targets=(replace(GOOD.targets[0], latency=(fast, TIME, fast)),))
    assert _judged("p50=1", report=report)["iree-cpu-host", "p50"] == (True, "×0.786 of eager")


def test_coverage_is_a_least():
    goals = tuple(Goal(entry_point="f", kind="branch", what=str(n), case="seed 0" * n) for n in (0, 1))
    report = replace(GOOD, coverage=Coverage(goals=goals))
    assert _judged("coverage=50%", report=report)["iree-cpu-host", "coverage"] == (True, "50%")
    assert _judged("coverage=51%", report=report)["iree-cpu-host", "coverage"] == (False, "50%")
    assert _judged("coverage=100%")["iree-cpu-host", "coverage"] == (True, "100%"), "nothing is to be reached"


def test_the_coverage_of_a_target_is_that_of_its_own_budget_before_that_of_all():
    limits = [Limit.parse("iree-cpu-host:coverage=90%"), *of_coverage(50)]
    assert least_coverage(limits, "iree-cpu-host") == 90
    assert least_coverage(limits, "iree-vmvx") == 50
    assert least_coverage(of_coverage(None), "iree-vmvx") is None


def test_one_that_names_the_target_comes_first():
    assert _judged("iree-cpu-host:size=1kB", "size=1MB")["iree-cpu-host", "size"][0] is False
    assert _judged("size=1kB", "iree-cpu-*:size=1MB")["iree-cpu-host", "size"][0] is True


def test_a_budget_that_does_not_hold_is_an_exit_code_of_its_own():
    report = replace(GOOD, budgets=judged([Limit.parse("size=1kB")], GOOD))
    assert not report.ok
    assert report.exit_code == BudgetExceeded.exit_code
    assert next(report.problems).message.endswith("1.0 kB is allowed")


PROJECT = """
[tool.aotpipe.budgets]
parity = "50%"
programs = 2

[tool.aotpipe.budgets.iree-vmvx]
size = "20 kB"
"""


def test_a_project_has_budgets(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "below").mkdir()
    limits = of_project(tmp_path / "below")
    assert list(map(str, limits)) == ["parity=50%", "programs=2", "iree-vmvx:size=20000"]
    given = [Limit.parse("parity=10%")]
    first, *_ = chosen(limits, given, [Target.parse("iree-cpu-host")])
    assert str(first) == "parity=10%"


@pytest.mark.parametrize(
    "text",
    [
        "[tool.aotpipe.budgets]\nspeed = 3",
        "[tool.aotpipe]\nbudget = 3",
        "[tool.aotpipe.budgets.iree-cpu-hots]\nsize = '1MB'",
        "[tool.aotpipe",
    ],
)
def test_a_project_with_another_thing_is_refused(tmp_path: Path, text: str):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(BudgetInvalid):
        of_project(tmp_path)


def test_one_that_was_given_for_a_target_that_is_not_built_is_refused():
    with pytest.raises(BudgetInvalid, match="not built"):
        chosen([], [Limit.parse("iree-vmvx:size=1MB")], [Target.parse("iree-cpu-host")])
