import threading

import pytest

from aotpipe.runtime.bundle import atomic_replace


def names(folder):
    return [path.name for path in folder.iterdir()]


def fill(destination, text):
    with atomic_replace.folder(destination) as work:
        (work / "file").write_text(text)


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_takes_the_place_of_another(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(atomic_replace, "_exchange", lambda *_: False)
    for text in ("first", "second", "third"):
        fill(tmp_path / "d", text)
        assert (tmp_path / "d" / "file").read_text() == text
    assert names(tmp_path) == ["d"]


def test_a_failed_swap_brings_the_old_folder_back(tmp_path, monkeypatch):
    fill(tmp_path / "d", "old")
    monkeypatch.setattr(atomic_replace, "_exchange", lambda *_: False)
    renames = []
    rename = type(tmp_path).rename

    def fail_third(self, target):
        renames.append(self)
        if len(renames) == 3:
            raise OSError(28, "no space")
        return rename(self, target)

    monkeypatch.setattr(type(tmp_path), "rename", fail_third)
    with pytest.raises(OSError, match="no space"):
        fill(tmp_path / "d", "new")
    assert (tmp_path / "d" / "file").read_text() == "old"
    assert names(tmp_path) == ["d"]


def test_a_reader_sees_the_old_or_the_new_and_never_neither(tmp_path):
    fill(tmp_path / "d", "x" * 1000)
    stop = threading.Event()
    seen = []

    def read():
        while not stop.is_set():
            try:
                # One folder is opened, whichever it is; its file may be gone once it was replaced.
                seen.append(len(names(tmp_path / "d")))
            except FileNotFoundError:
                seen.append(-1)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for number in range(200):
            fill(tmp_path / "d", f"{number}")
    finally:
        stop.set()
        thread.join()
    # 0: the folder that was replaced, being removed while it is listed.
    assert set(seen) <= {0, 1}


def test_what_belongs_to_others_is_not_swept(tmp_path):
    other = tmp_path / f".e.{'a' * 32}.partial"
    dead = tmp_path / f".d.999999999-{'a' * 32}.partial"
    for path in (other, dead):
        path.mkdir()
    with atomic_replace.folder(tmp_path / "d") as mine:
        fill(tmp_path / "d", "x")
        assert mine.exists()
    assert other.exists()
    assert not dead.exists()
