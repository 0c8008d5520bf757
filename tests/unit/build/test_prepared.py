"""A prepared model survives the store; its weights are one file for everybody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aotpipe.build.chain import write_weights
from aotpipe.build.prepared import Prepared, digest_of, files, read
from aotpipe.errors import DiskFull
from aotpipe.runtime import tensor_file
from aotpipe.runtime.bundle.manifest import WEIGHTS
from aotpipe.runtime.goldens import dumps
from aotpipe.runtime.store import Store, digest
from tests.unit.build.samples import LOWERED, SIGNATURE, prepared
from tests.unit.runtime.islands.test_chain import PARTS

KEY = digest("a")


@pytest.fixture
def made(tmp_path: Path) -> Prepared:
    (tmp_path / "first").mkdir()
    return prepared(tmp_path / "first")


def test_it_survives_the_store(made: Prepared, tmp_path: Path):
    store = Store(tmp_path / "cache")
    store.put("prepared", KEY, files(made))
    entry = store.get("prepared", KEY)
    assert entry is not None
    back = read(entry, tmp_path)

    def plain(prepared: Prepared) -> Prepared:
        loadable = replace(prepared.loadable, weights=(), initial_state={})
        return replace(prepared, loadable=loadable, goldens=())

    assert plain(back) == plain(made)
    assert dumps(back.goldens) == dumps(made.goldens)
    assert back.loadable.initial_state["count"] == 3
    found = tensor_file.read_shards(back.loadable.weights, verify=True)
    assert sorted(found) == ["b", "state/count", "w"]
    np.testing.assert_array_equal(found["w"], tensor_file.read_shards(made.loadable.weights)["w"])


def test_several_files_of_weights_survive_the_store(made: Prepared, tmp_path: Path):
    arrays = tensor_file.read_shards(made.loadable.weights)
    shards = tensor_file.write_shards(arrays, tmp_path, WEIGHTS, most_bytes=8)
    store = Store(tmp_path / "cache")
    store.put("prepared", KEY, files(replace(made, loadable=replace(made.loadable, weights=shards))))
    entry = store.get("prepared", KEY)
    assert entry is not None
    (tmp_path / "back").mkdir()
    back = read(entry, tmp_path / "back").loadable
    assert [each.path.name for each in back.weights] == [each.path.name for each in shards]
    assert len(shards) == 3
    assert tensor_file.read_shards(back.weights, verify=True).keys() == arrays.keys()
    assert back.initial_state["count"] == 3


def test_parts_survive_the_store(made: Prepared, tmp_path: Path):
    store = Store(tmp_path / "cache")
    store.put("prepared", KEY, files(replace(made, loadable=replace(made.loadable, parts=PARTS))))
    entry = store.get("prepared", KEY)
    assert entry is not None
    assert read(entry, tmp_path).loadable.parts == PARTS


def test_what_was_read_outlives_the_entry(made: Prepared, tmp_path: Path):
    store = Store(tmp_path / "cache")
    store.put("prepared", KEY, files(made))
    entry = store.get("prepared", KEY)
    assert entry is not None
    back = read(entry, tmp_path)
    [shard], [first] = back.loadable.weights, made.loadable.weights
    assert shard.path.samefile(first.path)  # linked, not copied
    store.clear()
    first.path.unlink()
    assert sorted(tensor_file.read(shard.path)) == ["b", "state/count", "w"]


def test_weights_are_copied_where_files_cannot_be_linked(made: Prepared, tmp_path: Path, monkeypatch):
    def link(source: Path, destination: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", link)
    store = Store(tmp_path / "cache")
    store.put("prepared", KEY, files(made))
    entry = store.get("prepared", KEY)
    assert entry is not None
    [shard], [first] = read(entry, tmp_path).loadable.weights, made.loadable.weights
    assert not shard.path.samefile(first.path)


def test_the_digest_covers_what_is_loaded_module_and_goldens(made: Prepared):
    lowered, loadable = {"iree": LOWERED}, made.loadable
    [shard] = loadable.weights
    base = digest_of(loadable, lowered, b"g")
    elsewhere = (replace(shard, path=Path("elsewhere")),)
    assert base == digest_of(replace(loadable, weights=elsewhere), lowered, b"g")
    others = [
        digest_of(loadable, {"iree": replace(LOWERED, digest="9" * 64)}, b"g"),
        digest_of(loadable, lowered, b"h"),
        *(
            digest_of(changed, lowered, b"g")
            for changed in (
                replace(loadable, signatures={"forward": replace(SIGNATURE, state=())}),
                replace(loadable, signatures={"other": SIGNATURE}),
                replace(loadable, weights=(replace(shard, sha256="3" * 64),)),
                replace(loadable, weights=(shard, shard)),
                replace(loadable, asserts={"forward": ("x is large",)}),
                replace(loadable, parts=PARTS),
            )
        ),
    ]
    assert len({base, *others}) == len(others) + 1


def test_no_room_for_the_weights_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensor_file, "write", full)
    with pytest.raises(DiskFull) as caught:
        write_weights({}, {}, tmp_path)
    assert "TMPDIR" in caught.value.hint
