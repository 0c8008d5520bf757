"""Records of earlier builds: good exactly as long as nothing has changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.build import dependencies
from aotpipe.build.cache import Cache
from aotpipe.build.dependencies import Dependencies, FileStamp
from aotpipe.build.events import Recorder
from aotpipe.build.record import BuildRecord, FrontRecord, build_key, front_key
from aotpipe.runtime import toolchain
from aotpipe.runtime.store import digest, file_digest

KEY, OLD, NEW = digest("key"), digest("old"), digest("new")


@pytest.fixture
def cache() -> Cache:
    return Cache.open(Recorder())


def front_record(*paths: Path, prepared: str = OLD) -> FrontRecord:
    files = {str(path): FileStamp.take(path) for path in paths}
    return FrontRecord(
        name="tiny", dependencies=Dependencies(files=files, folders={}, variables={}), prepared=prepared
    )


def test_a_front_record_is_fresh_until_a_file_changes(cache: Cache, tmp_path: Path):
    path = tmp_path / "m.py"
    path.write_text("one")
    front_record(path).save(cache, KEY)
    for _ in range(2):
        found = FrontRecord.fresh(cache, KEY)
        assert found is not None
        assert (found.name, found.prepared) == ("tiny", OLD)
    path.write_text("two")
    assert FrontRecord.fresh(cache, KEY) is None


def test_stamps_are_renewed_so_that_a_file_is_hashed_once(cache: Cache, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(dependencies, "_FINE_TICK_NS", -(10**12))
    monkeypatch.setattr(dependencies, "_COARSE_TICK_NS", -(10**12))
    path = tmp_path / "m.py"
    path.write_text("one")
    record = front_record(path)
    stamps = {name: replace(stamp, stat=None) for name, stamp in record.dependencies.files.items()}
    replace(record, dependencies=replace(record.dependencies, files=stamps)).save(cache, KEY)
    assert FrontRecord.fresh(cache, KEY) is not None
    monkeypatch.setattr(dependencies, "file_digest", lambda path: pytest.fail("read again"))
    assert FrontRecord.fresh(cache, KEY) is not None


def test_a_new_front_record_drops_the_prepared_model_of_the_old(cache: Cache, tmp_path: Path):
    for prepared in (OLD, NEW):
        cache.put("prepared", prepared, lambda: {"x": b"1"})
        front_record(prepared=prepared).save(cache, KEY)
    assert cache.load("prepared", OLD, lambda entry: entry.text("x")) is None
    assert cache.load("prepared", NEW, lambda entry: entry.text("x")) == "1"


def test_a_front_key_is_of_the_place_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    here = front_key("m.py", {})
    assert here == front_key("m.py", {})
    assert here != front_key("n.py", {})
    assert here != front_key("m.py", {"name": "x"})
    monkeypatch.chdir(tmp_path)
    assert here != front_key("m.py", {})


def test_another_toolchain_is_another_key(monkeypatch: pytest.MonkeyPatch):
    before = front_key("m.py", {}), build_key(KEY, Path("/out"), {})
    tools = toolchain.current()
    monkeypatch.setattr(toolchain, "current", lambda: replace(tools, source="edited"))
    assert front_key("m.py", {}) != before[0]
    monkeypatch.setattr(toolchain, "current", lambda: replace(tools, host_features=("x86_64", "avx9")))
    assert build_key(KEY, Path("/out"), {}) != before[1]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    bundle, report = tmp_path / "out", tmp_path / "out.report"
    (bundle / "programs").mkdir(parents=True)
    (bundle / "programs" / "p").write_bytes(b"program")
    report.mkdir()
    (report / "report.json").write_text("{}")
    return bundle, report


def test_an_untouched_build_is_intact(cache: Cache, folders: tuple[Path, Path]):
    digests = {folders[0] / "programs" / "p": file_digest(folders[0] / "programs" / "p")}
    BuildRecord.of(OLD, folders, digests).save(cache, KEY)
    assert BuildRecord.intact(cache, KEY, OLD, folders)
    assert BuildRecord.intact(cache, KEY, OLD, folders)
    assert not BuildRecord.intact(cache, KEY, NEW, folders)
    assert not BuildRecord.intact(cache, digest("other"), OLD, folders)


@pytest.mark.parametrize(
    "touch",
    [
        lambda bundle, report: (bundle / "programs" / "p").write_bytes(b"progrAm"),
        lambda bundle, report: (bundle / "programs" / "p").unlink(),
        lambda bundle, report: (bundle / "added").write_bytes(b""),
        lambda bundle, report: (report / "report.json").unlink(),
    ],
)
def test_a_touched_build_is_not(cache: Cache, folders: tuple[Path, Path], touch):
    BuildRecord.of(OLD, folders, {}).save(cache, KEY)
    touch(*folders)
    assert not BuildRecord.intact(cache, KEY, OLD, folders)
