"""The cache keeps what it was given, whole or not at all, and nothing that was changed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.errors import DiskFull, ReadOnly, StoreError
from aotpipe.runtime.store import Store, digest, file_digest, parse_size, workspace

KEY = digest("a")
OTHER = digest("b")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def leftovers(store: Store) -> list[Path]:
    return list((store.root / "tmp").glob("*"))


def fail_writing(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def write(self: Path, data: bytes) -> int:
        with self.open("wb") as file:  # half of it lands before the device says no
            file.write(data[: len(data) // 2])
        raise OSError(code, os.strerror(code), str(self))

    monkeypatch.setattr(Path, "write_bytes", write)


def write_braces(path: Path) -> None:
    path.write_text("{}")


def test_what_was_put_is_got(store: Store):
    store.put("compiled", KEY, {"program.vmfb": b"abc", "stats.json": write_braces})
    entry = store.get("compiled", KEY)
    assert entry is not None
    assert entry.read("program.vmfb") == b"abc"
    assert entry.text("stats.json") == "{}"
    assert entry.files["program.vmfb"] == file_digest(entry.path / "program.vmfb")
    assert leftovers(store) == []


def test_a_key_is_of_one_kind(store: Store):
    store.put("compiled", KEY, {"x": b"1"})
    assert store.get("validated", KEY) is None
    assert store.get("compiled", OTHER) is None


def test_a_short_key_is_refused(store: Store):
    with pytest.raises(AssertionError):
        store.get("compiled", "abc123")


def test_the_first_of_two_writers_wins(store: Store):
    store.put("compiled", KEY, {"x": b"first"})
    store.put("compiled", KEY, {"x": b"second"})
    entry = store.get("compiled", KEY)
    assert entry is not None
    assert entry.read("x") == b"first"
    assert leftovers(store) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "x").write_bytes(b"12345678X"),
        lambda path: (path / "x").write_bytes(b"1234"),
        lambda path: (path / "x").unlink(),
        lambda path: (path / "entry.json").unlink(),
        lambda path: (path / "entry.json").write_text("{"),
        lambda path: (path / "entry.json").write_text("[]"),
        lambda path: (path / "entry.json").write_text('{"files": {"x": 5}}'),
    ],
)
def test_a_damaged_entry_is_dropped_and_can_be_put_again(store: Store, damage):
    entry = store.put("compiled", KEY, {"x": b"123456789"})
    damage(entry.path)
    assert store.get("compiled", KEY) is None
    assert not entry.path.exists()
    store.put("compiled", KEY, {"x": b"123456789"})
    assert store.get("compiled", KEY) is not None


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EFBIG, DiskFull),
        (errno.EROFS, ReadOnly),
        (errno.EACCES, ReadOnly),
        (errno.EIO, StoreError),
    ],
)
def test_a_failed_write_is_typed_and_leaves_nothing(store: Store, monkeypatch, code, error):
    fail_writing(monkeypatch, code)
    with pytest.raises(error) as caught:
        store.put("prepared", KEY, {"x": b"0123456789"})
    assert type(caught.value) is error
    assert "AOTPIPE_CACHE" in caught.value.hint
    monkeypatch.undo()
    assert store.get("prepared", KEY) is None
    assert leftovers(store) == []


def test_a_writer_that_raises_leaves_nothing(store: Store):
    def fail(path: Path) -> str:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put("prepared", KEY, {"x": fail})
    assert leftovers(store) == []
    assert store.get("prepared", KEY) is None


def test_require_writable_says_so_before_any_work(store: Store, monkeypatch):
    store.require_writable()
    assert leftovers(store) == []
    fail_writing(monkeypatch, errno.EROFS)
    with pytest.raises(ReadOnly, match="the cache cannot be written"):
        store.require_writable()


def test_a_folder_that_cannot_exist_is_typed(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        Store(tmp_path / "file" / "cache").require_writable()


def test_trim_removes_the_least_recently_used(store: Store):
    for index in range(4):
        entry = store.put("compiled", digest(index), {"x": bytes(1000)})
        os.utime(entry.path / "entry.json", (1000 + index, 1000 + index))
    assert store.get("compiled", digest(0)) is not None  # now the newest
    freed = store.trim(max_bytes=2500)
    assert freed > 1900
    alive = [store.get("compiled", digest(index)) is not None for index in range(4)]
    assert alive == [True, False, False, True]


def test_trim_keeps_what_fits(store: Store):
    store.put("compiled", KEY, {"x": bytes(1000)})
    assert store.trim() == 0
    assert store.get("compiled", KEY) is not None


def test_trim_sweeps_what_a_killed_process_left(store: Store):
    store.require_writable()
    left, log, young = store.root / "tmp" / ("0" * 32), store.logs / "old", store.logs / "young"
    left.mkdir()
    store.logs.mkdir()
    for path in (left / "x", log, young):
        path.write_bytes(b"1")
    past = time.time() - 2 * 24 * 3600
    os.utime(log, (past, past))
    store.trim()
    assert not left.exists()
    assert not log.exists()
    assert young.exists()


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EACCES, PermissionError)]
)
def test_a_workspace_without_space_is_a_full_disk(code: int, kind: type[Exception]):
    with pytest.raises(kind) as caught, workspace("build") as folder:
        raise OSError(code, "no")
    assert not folder.exists()
    if kind is DiskFull:
        assert "TMPDIR" in caught.value.hint


def test_a_workspace_that_cannot_be_made_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="temporary files"), workspace("build"):
        pass


def test_clear_and_usage(store: Store):
    assert store.clear() == 0
    store.put("compiled", KEY, {"x": bytes(1000)})
    store.put("validated", KEY, {"x": bytes(10)})
    usage = {row.kind: row for row in store.usage()}
    assert usage["compiled"].entries == 1
    assert usage["compiled"].size_bytes > 1000
    assert usage["record"].entries == 0
    assert store.clear() > 1000
    assert sum(row.entries for row in store.usage()) == 0


def test_the_environment_names_folder_and_cap(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("AOTPIPE_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("AOTPIPE_CACHE_SIZE", "1.5MB")
    store = Store.default()
    assert store.root == tmp_path / "elsewhere"
    assert store.max_bytes == 1_500_000
    monkeypatch.setenv("AOTPIPE_CACHE_SIZE", "lots")
    with pytest.raises(StoreError, match="not a size"):
        Store.default()


def test_without_the_environment_it_is_the_users_cache_folder(monkeypatch, tmp_path: Path):
    monkeypatch.delenv("AOTPIPE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Store.default().root.name == "aotpipe"


@pytest.mark.parametrize(
    ("text", "size"), [("5", 5), ("2 KB", 2000), ("10gb", 10**10), ("1TB", 10**12), ("0.5MB", 500_000)]
)
def test_sizes(text: str, size: int):
    assert parse_size(text) == size


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON, JSON)
def test_values_have_equal_digests_exactly_where_their_json_is_equal(left, right):
    same = json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
    assert (digest(left) == digest(right)) == same
    assert len(digest(left)) == 64


WRITERS = """
import sys
from pathlib import Path
from aotpipe.runtime.store import Store, digest
store = Store(Path(sys.argv[1]))
for turn in range(30):
    key = digest(turn % 5)
    content = key.encode() * 200
    entry = store.get("compiled", key)
    if entry is not None:
        try:
            assert entry.read("x") == content
        except FileNotFoundError:
            pass  # trimmed by another process after it was verified
    store.put("compiled", key, {"x": content})
    if turn % 7 == 0:
        store.trim(max_bytes=30000)
"""


def test_processes_share_a_store(store: Store):
    command = [sys.executable, "-c", WRITERS, str(store.root)]
    writers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for writer in writers:
        _, stderr = writer.communicate(timeout=60)
        assert writer.returncode == 0, stderr
    assert leftovers(store) == []
    for index in range(5):
        entry = store.get("compiled", digest(index))
        assert entry is None or entry.read("x") == digest(index).encode() * 200
