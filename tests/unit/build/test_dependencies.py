"""A changed dependency is seen, whatever its times say; an unchanged one is not read again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from aotpipe.build import dependencies as deps
from aotpipe.build.dependencies import Dependencies, FileStamp, stamps, variable_digest
from aotpipe.core.serialization import dumps, loads


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of this test count as old enough for their stat to be trusted."""
    monkeypatch.setattr(deps, "_FINE_TICK_NS", -(10**12))
    monkeypatch.setattr(deps, "_COARSE_TICK_NS", -(10**12))


def of(*paths: Path) -> Dependencies:
    return Dependencies(files={str(path): FileStamp.take(path) for path in paths}, folders={}, variables={})


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
    monkeypatch.setattr(deps, "file_digest", lambda path: pytest.fail("read"))
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
    found = Dependencies(
        files={},
        folders={str(tmp_path): deps.folder_digest(str(tmp_path))},
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
    assert loads(Dependencies, dumps(found).decode()) == found
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
    assert deps._is_settled((1, 0, changed_ns, 1, 1)) is settled
