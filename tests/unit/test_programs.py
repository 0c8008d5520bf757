"""What tests have compiled is kept for later runs, by all that the compiler is given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import programs


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(programs, "FOR_LATER_RUNS", tmp_path)
    programs._forget_unused.cache_clear()
    return tmp_path


def test_equal_keys_are_made_once_and_others_anew() -> None:
    made: list[bytes] = []

    def make(_: Path) -> bytes:
        made.append(b"program")
        return made[-1]

    for key, count in ((("a", "b"), 1), (("a", "b"), 1), (("ab",), 2), (("b", "a"), 3)):
        assert programs.for_later_runs(key, make) == b"program"
        assert len(made) == count


def test_what_fails_is_not_kept(folder: Path) -> None:
    def fail(_: Path) -> bytes:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  # its own
        programs.for_later_runs(("a",), fail)
    assert not list(folder.iterdir())


def test_what_no_run_asked_for_is_removed(folder: Path) -> None:
    (folder / "old").write_bytes(b"")
    (folder / "new").write_bytes(b"")
    os.utime(folder / "old", (0, 0))
    programs.for_later_runs(("a",), lambda _: b"")
    assert {"new"} < {path.name for path in folder.iterdir()}
    assert not (folder / "old").exists()
