"""A prepared model comes from the store exactly where nothing has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotpipe.build import file_reads, front, source
from aotpipe.build.cache import Cache
from aotpipe.build.dependencies import Dependencies, FileStamp
from aotpipe.build.events import Recorder
from aotpipe.build.prepared import OnLowered
from aotpipe.build.source import Model
from tests.unit.build import samples


def test_only_a_reference_has_a_key():
    assert Model(given="m.py").key
    assert Model(given="m.py", overrides={"name": "x", "args": ()}).key != Model(given="m.py").key
    assert Model(given="m.py", overrides={"args": (1,)}).key is None
    assert Model(given=object()).key is None


def test_the_key_stays_though_loading_changes_the_path(monkeypatch: pytest.MonkeyPatch):
    model = Model(given="m.py")
    before = model.key
    monkeypatch.syspath_prepend("/elsewhere")
    assert model.key == before
    assert Model(given="m.py").key != before


class Front:
    """Stands in for the stages that need torch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dependencies: Dependencies | None) -> None:
        self.calls = 0
        monkeypatch.setattr(front, "prepare", self.prepare)
        monkeypatch.setattr(file_reads.Watch, "dependencies", lambda self, extra_packages: dependencies)

    def prepare(
        self, load: object, recorder: Recorder, folder: Path, form: object, on_lowered: OnLowered
    ) -> front.Front:
        self.calls += 1
        prepared = samples.prepared(folder)
        on_lowered(prepared.lowered)
        return front.Front(prepared=prepared, canonical=None)


@pytest.fixture
def prepare(tmp_path: Path):
    def run(model: Model) -> source.Ready:
        folder = tmp_path / f"work{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        recorder = Recorder()
        return source.prepared(model, Cache.open(recorder), recorder, folder=folder, exclude=[])

    return run


def test_an_unchanged_model_is_not_prepared_again(prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "m.py"
    path.write_text("one")
    stand_in = Front(
        monkeypatch,
        Dependencies(files={str(path): FileStamp.take(path)}, folders={}, variables={}),
    )
    first = prepare(Model(given="m.py"))
    second = prepare(Model(given="m.py"))
    assert stand_in.calls == 1
    assert first.key == second.key
    assert second.prepared.weights_sha256 == first.prepared.weights_sha256
    found = source.unchanged(Model(given="m.py"), Cache.open(Recorder()))
    assert found == source.Unchanged(name="tiny", prepared=first.key or "")
    path.write_text("two")
    assert source.unchanged(Model(given="m.py"), Cache.open(Recorder())) is None
    prepare(Model(given="m.py"))
    assert stand_in.calls == 2


def test_the_modules_are_told_once_wherever_they_come_from(prepare, tmp_path: Path, monkeypatch):
    Front(monkeypatch, Dependencies(files={}, folders={}, variables={}))
    told: list[object] = []
    for name in ("made", "stored"):
        (tmp_path / name).mkdir()
        recorder = Recorder()
        source.prepared(
            Model(given="m.py"),
            Cache.open(recorder),
            recorder,
            folder=tmp_path / name,
            exclude=[],
            on_lowered=told.append,
        )
    assert told == [{"iree": samples.LOWERED}] * 2


def test_what_is_not_wholly_known_is_not_kept(prepare, monkeypatch: pytest.MonkeyPatch):
    stand_in = Front(monkeypatch, None)
    assert prepare(Model(given="m.py")).key is None
    assert prepare(Model(given="m.py")).key is None
    assert prepare(Model(given=object())).key is None
    assert stand_in.calls == 3


def test_stages_that_were_spared_are_told_as_cached(prepare, tmp_path: Path, monkeypatch):
    Front(monkeypatch, Dependencies(files={}, folders={}, variables={}))
    prepare(Model(given="m.py"))
    recorder = Recorder()
    folder = tmp_path / "again"
    folder.mkdir()
    source.prepared(Model(given="m.py"), Cache.open(recorder), recorder, folder=folder, exclude=[])
    assert [done.stage for done in recorder.finished] == list(source.FRONT_STAGES)
    assert all(done.cached for done in recorder.finished)
