"""Where a build's report lies, and how it is written there and read back.

`write(report, folder)` puts `report.json`, `report.html`, `junit.xml`, `report.sarif` and `trace.json` into a
folder, all or nothing. The folder lies beside the bundle (`NAME.report`), not inside: a report holds times of
this machine, and a bundle is equal byte for byte wherever it is built.

Torch-free; jinja2 is imported by `write`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from html import escape
from pathlib import Path

from aotpipe.build.formats import junit, page, sarif, trace
from aotpipe.build.report import Report
from aotpipe.errors import StoreError
from aotpipe.runtime.bundle import atomic_replace
from aotpipe.runtime.store import typed_os_errors


def folder_of(bundle: Path) -> Path:
    """Where a bundle's report lies: beside it."""
    return bundle.with_name(bundle.name + ".report")


def write(report: Report, folder: Path) -> None:
    """Write all files of the report; what was there before is replaced as a whole.

    Raises:
        ReadOnly, DiskFull, StoreError: They cannot be written; what was there before is still there.
    """
    _put(report, folder, page.render(report))


def _put(report: Report, folder: Path, html: str) -> None:
    files = {
        "report.json": json.dumps(report.to_json(), indent=2, allow_nan=False) + "\n",
        "report.html": html,
        "junit.xml": junit.to_junit(report),
        "report.sarif": sarif.to_sarif(report),
        "trace.json": trace.to_trace(report),
    }
    with typed_os_errors("the report", folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_replace.folder(folder) as work:
            for name, text in files.items():
                (work / name).write_text(text, encoding="utf-8")


def write_draft(report: Report, folder: Path) -> None:
    """Write the report of a build that has not ended, where that is possible: it is read if none follows.

    The page has nothing to show but one sentence, so that no build waits for jinja2.
    """
    assert report.failure is not None
    said = escape(f"{report.name}: {report.failure.message}")
    html = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{said}</title></head><body><p>{said}</p></body></html>\n"
    )
    with suppress(StoreError):
        _put(report, folder, html)


def read(folder: Path) -> Report | None:
    """The report in a folder; None where there is none that this aotpipe reads."""
    try:
        return Report.from_json(json.loads((folder / "report.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
