"""What a build found out, for people and for CI.

`write(report, folder)` puts `report.json`, `report.html`, `junit.xml` and `trace.json` into a folder, all or
nothing. The folder lies beside the bundle (`NAME.report`), not inside: a report holds times of this machine,
and a bundle is equal byte for byte wherever it is built. A build that failed has a report too.

Torch-free; jinja2 is imported by `write`.
"""

from __future__ import annotations

import json
from pathlib import Path

from aotpipe.build.report.contents import Report, StageCost, TargetReport, costs_of, row_of
from aotpipe.build.report.html import render, template
from aotpipe.build.report.junit import to_junit
from aotpipe.build.report.trace import to_trace
from aotpipe.runtime.bundle import atomic_replace
from aotpipe.runtime.store import typed_os_errors

__all__ = ["Report", "StageCost", "TargetReport", "costs_of", "folder_of", "read", "row_of", "write"]


def folder_of(bundle: Path) -> Path:
    """Where a bundle's report lies: beside it."""
    return bundle.with_name(bundle.name + ".report")


def get_ready() -> None:
    """Do what of `write` can be done before there is a report."""
    template()


def write(report: Report, folder: Path) -> None:
    """Write the four files; what was there before is replaced as a whole.

    Raises:
        ReadOnly, DiskFull, StoreError: They cannot be written; what was there before is still there.
    """
    files = {
        "report.json": json.dumps(report.to_json(), indent=2, allow_nan=False) + "\n",
        "report.html": render(report),
        "junit.xml": to_junit(report),
        "trace.json": to_trace(report),
    }
    with typed_os_errors("the report", folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_replace.folder(folder) as work:
            for name, text in files.items():
                (work / name).write_text(text, encoding="utf-8")


def read(folder: Path) -> Report | None:
    """The report in a folder; None where there is none that this aotpipe reads."""
    try:
        return Report.from_json(json.loads((folder / "report.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
