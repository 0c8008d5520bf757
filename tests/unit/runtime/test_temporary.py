"""Temporary folders: whose they are, and that the next one removes those of processes that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aotpipe.runtime import temporary

KILLED = """
import os, sys
from pathlib import Path
from aotpipe.runtime import temporary
with temporary.folder(Path(sys.argv[1]), "kind-") as folder:
    (folder / "file").write_text("x")
    os.kill(os.getpid(), 9)
"""


def test_it_is_gone_after_the_block_also_where_that_raises(tmp_path: Path) -> None:
    def interrupted() -> None:
        with temporary.folder(tmp_path / "new", "a-", ".b") as folder:
            (folder / "file").write_text("x")
            assert (folder.name.startswith("a-"), folder.suffix) == (True, ".b")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert list((tmp_path / "new").iterdir()) == []


def test_what_was_renamed_stays(tmp_path: Path) -> None:
    with temporary.folder(tmp_path) as folder:
        folder.rename(tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_killed_process_leaves_nothing_after_the_next(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with temporary.folder(tmp_path, "kind-") as mine, temporary.folder(tmp_path, "other-") as other:
        done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment)
        assert done.returncode == -9
        assert len(list(tmp_path.iterdir())) == 3
        with temporary.folder(tmp_path, "kind-") as next_one:
            assert set(tmp_path.iterdir()) == {mine, other, next_one}


def test_a_folder_that_is_being_swept_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process holds the lock of the new folder, and has not removed it yet."""
    taken: list[int] = []
    locked = temporary._locked

    def held_first(path: Path) -> int:
        if not taken:
            taken.append(locked(path))
        return locked(path)

    monkeypatch.setattr(temporary, "_locked", held_first)
    with temporary.folder(tmp_path, "kind-") as folder:
        swept = [path for path in tmp_path.iterdir() if path != folder]
        assert len(swept) == 1
    os.close(taken[0])


def test_a_name_that_is_not_its_own_is_left_alone(tmp_path: Path) -> None:
    for name in ("kind-notes", f"kind-{'0' * 32}.txt"):
        (tmp_path / name).mkdir()
    (tmp_path / f"kind-{'0' * 32}").symlink_to(tmp_path / "kind-notes")
    with temporary.folder(tmp_path, "kind-"):
        assert len(list(tmp_path.iterdir())) == 4
