"""The report in a real headless Chromium: fits a phone, is legible in light and dark, says and asks nothing.

It needs node with puppeteer-core, and a Chromium: in some folder of your own
`npm install puppeteer-core @sparticuz/chromium`, then NODE_PATH=FOLDER/node_modules. AOTPIPE_CHROMIUM names
another Chromium's executable. AOTPIPE_PICTURES names a folder for pictures of what was looked at.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotpipe.build import report_folder
from aotpipe.build.report import Budget, Failure, Origin, Report
from aotpipe.core.coverage import Coverage, Goal
from aotpipe.core.stages import Parity
from aotpipe.errors import SourceLine
from tests.unit.build.reports import BAD, GOOD, REPORT

SCRIPT = Path(__file__).with_name("page_in_browser.cjs")
ORIGIN = Origin(
    command="aotpipe build models/a_model_with_a_rather_long_name.py --out artifacts/out --budget size=1MB",
    date="2026-11-25T22:00:00Z",
    machine="Some CPU of some vendor, 2 cores, Linux x86_64",
    commit="0123456789012345678901234567890123456789+changes",
    source="model.py",
)
WHERE = SourceLine(str(SCRIPT), 5)
LONG = " + ".join(["a_rather_long_name"] * 12)
DIFF = f"--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n same\n-if {LONG} > 0:\n+torch.cond({LONG} > 0)\n"
FAILURE = Failure(error="ExportFailed", stage="export", exit_code=20, message="no", hint="do", where=WHERE)


def _full() -> Report:
    """A report that has everything."""
    cases = tuple(
        replace(GOOD, case=f"batch={size}", ratio=share)
        for size, share in ((1, 0.002), (7, 0.05), (64, 0.4), (255, 0.9), (256, 0.0))
    )
    off = replace(BAD, case="batch=13", failing=900, elements=1000, profile=(0.1, 3.0, 900.0, 0.5) * 16)
    rows = [replace(row, parity=Parity(cases=(*cases, off), calls=6, rule="a law")) for row in REPORT.targets]
    goals = (
        Goal(entry_point="forward", kind="branch", what="true", where=WHERE, case="seed 0"),
        Goal(entry_point="forward", kind="branch", what="false", where=WHERE, reason="no call was found"),
        Goal(entry_point="forward", kind="size", what="batch=64", case="batch=64"),
    )
    budget = Budget(target="iree-cpu-host", name="size", limit="2.0 MB", found="3.0 MB", passed=False)
    return replace(
        REPORT,
        targets=tuple(rows),
        origin=ORIGIN,
        budgets=(budget,),
        coverage=Coverage(goals=goals),
        source_diff=DIFF,
    )


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed")
    packages = ["puppeteer-core", *([] if os.environ.get("AOTPIPE_CHROMIUM") else ["@sparticuz/chromium"])]
    asked = ";".join(f"require.resolve({name!r})" for name in packages)
    if subprocess.run([found, "-e", asked], capture_output=True, check=False).returncode:
        pytest.skip(f"node has no {' and '.join(packages)}; NODE_PATH names the folder that has")
    return found


@pytest.mark.parametrize("kind", ["full", "failed"])
def test_the_page_is_fit_to_be_seen(kind: str, node: str, tmp_path: Path):
    report = _full() if kind == "full" else Report(name="tiny", failure=FAILURE, origin=ORIGIN)
    report_folder.write(report, tmp_path / "out.report")
    pictures = Path(os.environ.get("AOTPIPE_PICTURES") or tmp_path) / kind
    pictures.mkdir(parents=True, exist_ok=True)
    url = (tmp_path / "out.report" / "report.html").as_uri()
    argv = [node, str(SCRIPT), url, str(pictures)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    views: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(views) == 4
    for view in views:
        assert view["said"] == view["asked"] == view["too_wide"] == view["cut"] == [], view
        assert view["page_width"] <= view["width"], view
        assert (view["headings"], view["landmarks"], view["language"]) == (1, 1, "en")
        assert view["unnamed"] == view["unscoped"] == 0
        # What WCAG asks of text.
        assert view["least_contrast"] >= 4.5, view
        assert (view["background"] < 0.1) == (view["scheme"] == "dark")
        assert view["svgs"] > 5 or kind == "failed"
        # Long lines are scrolled to in their box.
        assert view["diff"] == ([[True, "auto"]] if kind == "full" else [])
