import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from aotpipe.errors import BundleError, BundleNotFound, DiskFull, ReadOnly
from aotpipe.runtime import bundle, tensor_file
from aotpipe.runtime.bundle import atomic_replace
from aotpipe.runtime.bundle.manifest import WEIGHTS
from aotpipe.runtime.goldens import loads
from tests.unit.runtime.bundle import samples


def names(folder):
    return [path.name for path in folder.iterdir()]


def tree(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_the_layout(tmp_path):
    made = samples.packed(tmp_path / "deep" / "b")
    assert sorted(tree(made.path)) == [
        "goldens.safetensors",
        "manifest.json",
        "programs/iree-vmvx/program.vmfb",
        "weights.safetensors",
    ]
    assert bundle.open_bundle(made) == made
    assert os.fspath(made) == str(tmp_path / "deep" / "b")
    assert names(tmp_path / "deep") == ["b"]


def test_the_manifest_tells_each_targets_status(tmp_path):
    executed, failed = samples.packed(tmp_path / "b").manifest.programs
    assert (executed.target, executed.status, executed.reason) == ("iree-vmvx", "executed", "")
    assert executed.flags == ("--iree-hal-target-device=local",)
    assert executed.parity.ratio == 0.25
    assert executed.parity.output == "y"
    assert (failed.status, failed.stage, failed.reason, failed.file) == (
        "failed",
        "compile",
        "it crashed",
        "",
    )


def test_weights_are_stored_once_under_their_own_names(tmp_path):
    made = samples.packed(tmp_path / "b", programs=[samples.validated(), samples.validated(samples.HOST)])
    found = load_file(made.path / "weights.safetensors")
    assert sorted(found) == ["state/count", "state/total", "weight"]
    assert made.manifest.weights == ("weight",)


def test_large_weights_are_several_files_and_their_index(tmp_path):
    made = samples.packed(tmp_path / "b", weights=samples.weight_files(most_bytes=16))
    names = [f"weights-0000{at}-of-00003.safetensors" for at in (1, 2, 3)]
    assert list(made.manifest.weight_files) == names
    found = {name: sorted(load_file(made.path / name)) for name in names}
    index = json.loads((made.path / "weights.safetensors.index.json").read_text())
    assert index["weight_map"] == {array: name for name, arrays in found.items() for array in arrays}
    assert index["weight_map"].keys() == {"state/count", "state/total", "weight"}
    assert index["metadata"]["total_size"] == sum(
        array.nbytes for name in names for array in load_file(made.path / name).values()
    )
    whole = samples.packed(tmp_path / "whole")
    assert made.manifest.arrays == whole.manifest.arrays
    assert made.manifest.weights == whole.manifest.weights


def test_a_written_file_of_weights_is_taken_as_it_is(tmp_path):
    one = samples.packed(tmp_path / "one")
    written = tensor_file.write_shards(tensor_file.read(one.path / "weights.safetensors"), tmp_path, WEIGHTS)
    two = samples.packed(tmp_path / "two", weights=written)
    assert two.manifest == one.manifest
    assert bundle.verify(two.path)


def test_a_written_file_that_somebody_keeps_is_copied(tmp_path):
    one = samples.packed(tmp_path / "one")
    written = tensor_file.write_shards(tensor_file.read(one.path / "weights.safetensors"), tmp_path, WEIGHTS)
    two = samples.packed(tmp_path / "two", weights=written)
    assert (two.path / "weights.safetensors").samefile(written[0].path)
    three = samples.packed(tmp_path / "three", weights=written)
    assert not (three.path / "weights.safetensors").samefile(written[0].path)
    assert bundle.verify(three.path)


def test_goldens_are_in_the_bundle(tmp_path):
    made = samples.packed(tmp_path / "b")
    assert [golden.case for golden in loads((made.path / "goldens.safetensors").read_bytes())] == [
        "seed 0",
        "seed 0/1",
        "seed 0/2",
    ]


def test_equal_contents_give_equal_bytes_from_any_folder(tmp_path, monkeypatch):
    first = samples.packed(tmp_path / "one" / "b")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    stored = tensor_file.read(first.path / "weights.safetensors")
    written = tensor_file.write_shards(dict(reversed(stored.items())), tmp_path, WEIGHTS)
    second = samples.packed("two", weights=written)
    assert tree(first.path) == tree(second.path)
    assert first.manifest.digest == second.manifest.digest


def test_another_weight_is_another_digest(tmp_path):
    first = samples.packed(tmp_path / "a")
    second = samples.packed(tmp_path / "b", weights=samples.weight_files(weight=np.ones(4, np.float32)))
    assert first.manifest.digest != second.manifest.digest


def test_a_bundle_is_replaced_whole(tmp_path):
    samples.packed(tmp_path / "b", programs=[samples.validated(), samples.validated(samples.HOST)])
    samples.packed(tmp_path / "b", name="again")
    assert bundle.verify(tmp_path / "b").name == "again"
    assert names(tmp_path) == ["b"]


def test_an_empty_folder_is_taken(tmp_path):
    (tmp_path / "b").mkdir()
    samples.packed(tmp_path / "b")
    bundle.verify(tmp_path / "b")


def test_what_is_no_bundle_is_left_alone(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years of work")
    with pytest.raises(BundleError, match="not empty and no bundle"):
        samples.packed(home)
    with pytest.raises(BundleError):
        samples.packed(home / "thesis.tex")
    assert tree(home) == {"thesis.tex": b"years of work"}


def test_a_file_of_the_users_in_a_bundle_is_not_removed(tmp_path):
    samples.packed(tmp_path / "b")
    (tmp_path / "b" / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"notes\.txt in it is not part of it"):
        samples.packed(tmp_path / "b")
    assert (tmp_path / "b" / "notes.txt").read_text() == "mine"


def test_a_bundle_of_another_schema_is_not_replaced_unseen(tmp_path):
    samples.packed(tmp_path / "b")
    samples.rewrite_manifest(tmp_path / "b", lambda content: content.update(schema=9))
    with pytest.raises(BundleError, match="no bundle that this aotpipe can replace"):
        samples.packed(tmp_path / "b")


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EROFS, ReadOnly), (errno.EACCES, ReadOnly)],
)
def test_a_disk_that_takes_no_more_leaves_nothing_half_written(tmp_path, monkeypatch, code, kind, existing):
    if existing:
        samples.packed(tmp_path / "b", name="old")
    before = tree(tmp_path)
    made = samples.contents()

    def full(source, path):
        path.write_bytes(b"half")
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(sys.modules[bundle.pack.__module__], "_take", full)
    with pytest.raises(kind):
        bundle.pack(tmp_path / "b", **made)
    assert tree(tmp_path) == before
    assert names(tmp_path) == (["b"] if existing else [])


def test_a_folder_where_none_can_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BundleError):
        samples.packed(tmp_path / "file")
    from aotpipe.errors import StoreError

    with pytest.raises((StoreError, BundleError)):
        samples.packed(tmp_path / "file" / "b")


def test_ctrl_c_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic_replace, "_put", interrupt)
    with pytest.raises(KeyboardInterrupt):
        samples.packed(tmp_path / "b")
    assert names(tmp_path) == []
    with pytest.raises(BundleNotFound):
        bundle.open_bundle(tmp_path / "b")


KILLED = """
import os, sys
from aotpipe.runtime import bundle
from tests.unit.runtime.bundle import samples
packing = sys.modules[bundle.pack.__module__]
take = packing._take
def killed(source, path):
    take(source, path)
    os.kill(os.getpid(), 9)
packing._take = killed
samples.packed(sys.argv[1])
"""


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path):
    samples.contents()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "b")], env=environment)
    assert done.returncode == -9
    [left] = names(tmp_path)
    assert left.startswith(".b.")
    samples.packed(tmp_path / "b")
    assert names(tmp_path) == ["b"]
