"""A store's troubles never fail a build that has begun."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from aotpipe.build.cache import Cache
from aotpipe.build.events import Recorder
from aotpipe.errors import ReadOnly
from aotpipe.runtime.store import Entry, Store, digest

KEY = digest("a")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def read(entry: Entry) -> str:
    return entry.text("x")


def test_what_is_put_is_loaded(recorder: Recorder):
    cache = Cache.open(recorder)
    assert cache.load("compiled", KEY, read) is None
    cache.put("compiled", KEY, lambda: {"x": b"1"})
    assert cache.load("compiled", KEY, read) == "1"
    cache.put("compiled", KEY, lambda: {"x": b"2"})
    assert cache.load("compiled", KEY, read) == "1"
    cache.put("compiled", KEY, lambda: {"x": b"2"}, replace=True)
    assert cache.load("compiled", KEY, read) == "2"


def test_without_a_store_nothing_is_made_or_kept(recorder: Recorder):
    cache = Cache.open(recorder, enabled=False)
    cache.put("compiled", KEY, lambda: pytest.fail("made"))
    assert cache.load("compiled", KEY, read) is None
    assert cache.logs is None
    cache.close()


def test_a_store_that_cannot_be_written_is_an_error_before_the_build(recorder, monkeypatch):
    monkeypatch.setenv("AOTPIPE_CACHE", "/sys/aotpipe")
    with pytest.raises(ReadOnly):
        Cache.open(recorder)


def test_a_disk_that_fills_up_costs_a_remark(recorder: Recorder, monkeypatch: pytest.MonkeyPatch):
    cache = Cache.open(recorder)

    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    cache.put("compiled", KEY, lambda: {"x": b"1"})
    cache.put("compiled", digest("b"), lambda: {"x": b"1"})
    (remark,) = recorder.remarks
    assert "no space for the cache" in remark
    assert "not kept" in remark


def test_an_entry_of_another_version_is_dropped(recorder: Recorder):
    cache = Cache.open(recorder)
    cache.put("compiled", KEY, lambda: {"x": b"1"})

    def unreadable(entry: Entry) -> str:
        raise KeyError("new field")

    assert cache.load("compiled", KEY, unreadable) is None
    assert cache.load("compiled", KEY, read) is None


def test_an_entry_that_is_trimmed_while_it_is_read_is_a_miss(recorder: Recorder):
    cache = Cache.open(recorder)
    cache.put("compiled", KEY, lambda: {"x": b"1"})
    assert cache.load("compiled", KEY, lambda entry: entry.read("gone")) is None
    assert cache.load("compiled", KEY, read) == "1"


def test_closing_brings_the_store_under_its_cap(recorder: Recorder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AOTPIPE_CACHE_SIZE", "1KB")
    cache = Cache.open(recorder)
    cache.close()
    for number in range(4):
        cache.put("compiled", digest(number), lambda: {"x": bytes(600)})
    cache.close()
    assert sum(row.size_bytes for row in Store.default().usage()) <= 1000
