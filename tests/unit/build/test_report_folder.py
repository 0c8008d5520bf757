"""Reports are written whole and read back."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from aotpipe.build import report_folder
from aotpipe.errors import DiskFull
from tests.unit.build.reports import REPORT


def test_written_files(tmp_path: Path):
    folder = report_folder.folder_of(tmp_path / "out")
    assert folder == tmp_path / "out.report"
    report_folder.write(REPORT, folder)
    report_folder.write(REPORT, folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "junit.xml",
        "report.html",
        "report.json",
        "report.sarif",
        "trace.json",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["out.report"]
    read = report_folder.read(folder)
    assert read is not None
    assert read.name == "tiny"
    assert report_folder.read(tmp_path) is None


def test_a_full_disk_leaves_the_report_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "out.report"
    report_folder.write(REPORT, folder)
    before = (folder / "report.json").read_bytes()

    def full(self: Path, *args: object, **kwargs: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(DiskFull):
        report_folder.write(REPORT, folder)
    assert (folder / "report.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out.report"]
