"""What differs between two builds, and what of it is worse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.build import report_folder
from aotpipe.build.difference import Change, difference, read
from aotpipe.build.report import Failure, Report, TargetReport
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.core.stages import Parity
from aotpipe.errors import BundleError, BundleNotFound
from tests.unit.build.reports import GOOD, REPORT, TIME

SIGNATURE = Signature(inputs=(TensorSpec("x", "float32", (2,)),), outputs=(TensorSpec("y", "float32", (2,)),))
OLD = replace(
    REPORT, targets=REPORT.targets[:2], entry_points={"forward": SIGNATURE}, ops={"torch.aten.relu": 2}
)
ROW = OLD.targets[0]


def _changed(**fields: object) -> Report:
    return replace(OLD, targets=(replace(ROW, **fields), *OLD.targets[1:]))  # type: ignore[arg-type]


def _worse(new: Report) -> list[tuple[str, str]]:
    return [(each.kind, each.subject) for each in difference(OLD, new).changes if each.regressed]


def test_equal_builds_do_not_differ():
    assert difference(OLD, OLD).changes == ()


def test_a_target_that_is_missing_or_no_longer_executed_is_worse():
    assert _worse(replace(OLD, targets=OLD.targets[1:])) == [("status", "iree-cpu-host")]
    assert _worse(_changed(status="unproven")) == [("status", "iree-cpu-host")]
    more = replace(OLD, targets=(*OLD.targets, TargetReport(target="iree-vmvx", status="executed")))
    assert _worse(more) == []
    assert len(difference(OLD, more).changes) == 1


def test_a_build_that_fails_is_worse():
    failure = Failure(error="ExportFailed", stage="export", exit_code=20, message="no")
    found = difference(OLD, Report(name="tiny", failure=failure))
    assert found.changes[0] == Change(
        kind="status", subject="build", old="passed", new="ExportFailed", regressed=True
    )


def test_parity_size_and_latency_have_a_tolerance():
    assert ROW.parity is not None

    def parity(ratio: float) -> Parity:
        return Parity(cases=(replace(GOOD, ratio=ratio),), calls=3, rule="")

    assert _worse(_changed(parity=parity(0.2))) == []
    assert _worse(_changed(parity=parity(0.3))) == [("parity", "iree-cpu-host")]
    assert _worse(_changed(size_bytes=ROW.size_bytes + 500)) == []
    assert _worse(_changed(size_bytes=2 * ROW.size_bytes)) == [("size", "iree-cpu-host")]
    slow = replace(TIME, program=replace(TIME.program, median_us=300.0))
    assert _worse(_changed(latency=(slow,))) == [("latency", "iree-cpu-host forward")]


def test_noisy_runs_are_not_compared():
    slow = replace(TIME, program=replace(TIME.program, median_us=900.0), noise=0.4)
    (change,) = difference(OLD, _changed(latency=(slow,))).changes
    assert (change.new, change.regressed) == ("the machine was too noisy (40%)", False)


def test_another_signature_is_worse_and_ops_flags_and_versions_are_told():
    other = replace(SIGNATURE, inputs=(TensorSpec("x", "float32", (3,)),))
    assert _worse(replace(OLD, entry_points={"forward": other})) == [("signature", "forward")]
    new = replace(_changed(flags=("--other",)), ops={"torch.aten.relu": 3}, toolchain={"torch": "2.14.0"})
    found = difference(OLD, new)
    assert not found.regressed
    assert [each.kind for each in found.changes] == ["flags", "ops", "toolchain"]
    assert (found.changes[1].old, found.changes[1].new) == ("2", "3")


def test_a_report_is_found_by_its_bundle_its_folder_and_its_file(tmp_path: Path):
    report_folder.write(OLD, report_folder.folder_of(tmp_path / "out"))
    for place in ("out", "out.report", "out.report/report.json"):
        assert read(tmp_path / place).name == "tiny"
    with pytest.raises(BundleNotFound):
        read(tmp_path / "other")
    (tmp_path / "old.json").write_text(json.dumps({"schema": 1}))
    with pytest.raises(BundleError, match="no report that this aotpipe reads"):
        read(tmp_path / "old.json")
