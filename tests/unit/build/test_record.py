"""Records of earlier builds: good exactly as long as nothing has changed."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.build import record
from aotpipe.build.cache import Cache
from aotpipe.build.events import Recorder
from aotpipe.build.record import (
    FileStamp,
    Record,
    Snapshot,
    build_key,
    front_key,
    stamps,
    variable_digest,
    written,
)
from aotpipe.core.serialization import dumps, loads
from aotpipe.runtime import toolchain
from aotpipe.runtime.store import digest, file_digest

KEY, OLD, NEW = digest("key"), digest("old"), digest("new")


@pytest.fixture
def cache() -> Cache:
    return Cache.open(Recorder())


def front_record(*paths: Path, prepared: str = OLD) -> Record:
    files = {str(path): FileStamp.take(path) for path in paths}
    return Record(name="tiny", snapshot=Snapshot(files=files, folders={}, variables={}), prepared=prepared)


def test_a_front_record_is_fresh_until_a_file_changes(cache: Cache, tmp_path: Path):
    path = tmp_path / "m.py"
    path.write_text("one")
    front_record(path).save(cache, KEY)
    for _ in range(2):
        found = Record.fresh(cache, KEY)
        assert found is not None
        assert (found.name, found.prepared) == ("tiny", OLD)
    path.write_text("two")
    assert Record.fresh(cache, KEY) is None


def test_stamps_are_renewed_so_that_a_file_is_hashed_once(cache: Cache, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(record, "_FINE_TICK_NS", -(10**12))
    monkeypatch.setattr(record, "_COARSE_TICK_NS", -(10**12))
    path = tmp_path / "m.py"
    path.write_text("one")
    made = front_record(path)
    unproven = {name: replace(stamp, stat=None) for name, stamp in made.snapshot.files.items()}
    replace(made, snapshot=replace(made.snapshot, files=unproven)).save(cache, KEY)
    assert Record.fresh(cache, KEY) is not None
    monkeypatch.setattr(record, "file_digest", lambda path: pytest.fail("read again"))
    assert Record.fresh(cache, KEY) is not None


def test_a_record_of_a_build_drops_no_prepared_model(cache: Cache, tmp_path: Path):
    # Another process may have prepared it again meanwhile.
    for prepared in (OLD, NEW):
        cache.put("prepared", prepared, lambda: {"x": b"1"})
        front_record(prepared=prepared).save(cache, KEY)
    assert cache.load("prepared", OLD, lambda entry: entry.text("x")) == "1"


def test_a_front_key_is_of_the_place_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    here = front_key("m.py", {})
    assert here == front_key("m.py", {})
    assert here != front_key("n.py", {})
    assert here != front_key("m.py", {"name": "x"})
    monkeypatch.chdir(tmp_path)
    assert here != front_key("m.py", {})


def test_another_toolchain_is_another_key(monkeypatch: pytest.MonkeyPatch):
    before = front_key("m.py", {}), build_key(KEY, Path("/out"), {})
    monkeypatch.setattr(toolchain, "tools_digest", lambda: "edited")
    assert front_key("m.py", {}) != before[0]
    monkeypatch.setattr(toolchain, "host_features", lambda: ("x86_64", "avx9"))
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
    Record(name="tiny", snapshot=written(folders, digests), prepared=OLD).save(cache, KEY)
    assert Record.fresh(cache, KEY) is not None
    assert Record.fresh(cache, KEY) is not None
    assert Record.fresh(cache, digest("other")) is None


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
    Record(name="tiny", snapshot=written(folders, {}), prepared=OLD).save(cache, KEY)
    touch(*folders)
    assert Record.fresh(cache, KEY) is None


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of this test count as old enough for their stat to be trusted."""
    monkeypatch.setattr(record, "_FINE_TICK_NS", -(10**12))
    monkeypatch.setattr(record, "_COARSE_TICK_NS", -(10**12))


def of(*paths: Path) -> Snapshot:
    return Snapshot(files={str(path): FileStamp.take(path) for path in paths}, folders={}, variables={})


def test_a_young_file_is_hashed_again_since_its_stat_proves_nothing(tmp_path: Path):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"one")
    stamp = FileStamp.take(path)
    assert stamp.stat is None
    times = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert stamp.renewed(path) is None


def test_an_old_file_with_its_times_put_back_is_still_seen(tmp_path: Path, settled: None):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"one")
    stamp = FileStamp.take(path)
    assert stamp.stat is not None
    times = path.stat()
    time.sleep(0.02)
    path.write_bytes(b"two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # the change time cannot be put back
    assert stamp.renewed(path) is None


def test_an_unchanged_old_file_is_not_read(tmp_path: Path, settled: None, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"one")
    stamp = FileStamp.take(path)
    monkeypatch.setattr(record, "file_digest", lambda path: pytest.fail("read"))
    assert stamp.renewed(path) is stamp


def test_a_touched_file_is_unchanged_and_gets_a_new_stamp(tmp_path: Path, settled: None):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"one")
    stamp = FileStamp.take(path)
    os.utime(path, (1, 1))
    renewed = stamp.renewed(path)
    assert renewed is not None
    assert renewed.sha256 == stamp.sha256
    assert renewed.stat != stamp.stat


def test_a_file_that_is_gone_or_a_folder_has_changed(tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(b"one")
    before = of(path)
    path.unlink()
    assert before.renewed() is None
    path.mkdir()
    assert before.renewed() is None


def test_variables_and_folders_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AOTPIPE_TEST_SIZE", raising=False)
    found = Snapshot(
        files={},
        folders={str(tmp_path): record.folder_digest(str(tmp_path))},
        variables={"AOTPIPE_TEST_SIZE": variable_digest("AOTPIPE_TEST_SIZE")},
    )
    assert found.renewed() == found
    monkeypatch.setenv("AOTPIPE_TEST_SIZE", "")
    assert found.renewed() is None
    monkeypatch.delenv("AOTPIPE_TEST_SIZE")
    (tmp_path / "new").write_text("")
    assert found.renewed() is None


def test_json_round_trip_and_a_digest_of_content_alone(tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(b"one")
    found = of(path)
    assert loads(Snapshot, dumps(found).decode()) == found
    os.utime(path, (1, 1))
    assert of(path).digest == found.digest
    path.write_bytes(b"two")
    assert of(path).digest != found.digest


def test_a_file_that_changed_while_it_was_watched_is_no_dependency_to_trust(tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(b"one")
    since = path.stat().st_ctime_ns
    assert stamps([str(path)], since_ns=since) is None
    assert stamps([str(path)], since_ns=since + 10**7) is None  # file systems' clocks lag
    assert stamps([str(path)], since_ns=since + 10**8) is not None


@pytest.mark.parametrize(
    ("changed_ns", "age_ns", "settled"),
    [
        (5 * 10**9 + 1, 2 * 10**8, True),
        (5 * 10**9 + 1, 10**7, False),
        (5 * 10**9, 10**9, False),
        (5 * 10**9, 3 * 10**9, True),
    ],
)
def test_whole_seconds_mean_a_coarse_clock(changed_ns: int, age_ns: int, settled: bool, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: changed_ns + age_ns)
    assert record._is_settled((1, 0, changed_ns, 1, 1)) is settled
