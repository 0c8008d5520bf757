import os
from functools import partial

import pytest

from aotpipe.errors import BundleCorrupt, BundleNotFound
from aotpipe.runtime import bundle
from aotpipe.runtime.bundle import files
from tests.unit.runtime.bundle import samples


@pytest.fixture
def made(tmp_path):
    return samples.packed(tmp_path / "b")


def test_content_is_what_was_packed(made):
    for name in made.manifest.files:
        assert files.content(made, name).tobytes() == (made.path / name).read_bytes()
    with pytest.raises(BundleCorrupt, match=r"has no other\.bin"):
        files.content(made, "other.bin")


def test_a_link_out_of_the_bundle_is_not_followed(made, tmp_path):
    path = made.path / "weights.safetensors"
    outside = tmp_path / "outside"
    path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(BundleCorrupt, match="is a link out of the bundle"):
        files.content(made, "weights.safetensors")
    with pytest.raises(BundleCorrupt, match="is a link out of the bundle"):
        files.arrays(made, verify=False)


def test_a_folder_that_leads_out_of_the_bundle_is_not_followed(made, tmp_path):
    (made.path / "programs").rename(tmp_path / "elsewhere")
    (made.path / "programs").symlink_to(tmp_path / "elsewhere")
    [name] = [name for name in made.manifest.files if name.startswith("programs/")]
    with pytest.raises(BundleCorrupt, match="is a link out of the bundle"):
        files.content(made, name)


def test_links_within_the_bundle_and_to_it_are_fine(made, tmp_path):
    """Kubernetes mounts every file as a link within the volume."""
    path = made.path / "weights.safetensors"
    path.rename(made.path / "..data")
    path.symlink_to("..data")
    (tmp_path / "link").symlink_to(made.path)
    assert files.content(bundle.Bundle(tmp_path / "link", made.manifest), "weights.safetensors").size


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_not_opened(made, make):
    path = made.path / "weights.safetensors"
    path.unlink()
    make(path)
    for verify in (True, False):
        with pytest.raises(BundleCorrupt, match="is no regular file"):
            files.arrays(made, verify=verify)


def test_a_link_to_itself(made):
    path = made.path / "weights.safetensors"
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(BundleCorrupt, match="is missing"):
        files.content(made, "weights.safetensors")


@pytest.mark.parametrize(
    "name", ["sitecustomize.py", "programs/iree-vmvx/libm.so.6", ".hidden.pyc", "README", "empty/"]
)
def test_what_was_added_is_refused_before_anything_is_read(made, monkeypatch, name):
    (made.path / name).mkdir() if name.endswith("/") else (made.path / name).touch()
    monkeypatch.setattr(files, "content", None)
    monkeypatch.setattr(files, "arrays", None)
    for load in (bundle.load, partial(bundle.load, verify=False)):
        with pytest.raises(BundleCorrupt, match=f"{name.strip('/')} was added to the bundle"):
            load(made)
    monkeypatch.undo()
    with pytest.raises(BundleCorrupt, match=f"{name.strip('/')} was added"):
        bundle.verify(made)


def test_a_bundle_that_kubernetes_mounts(made):
    """A volume's files are links to a hidden folder, which is exchanged when they change."""
    data = made.path / "..2026_01_01"
    data.mkdir()
    for each in [each for each in made.path.iterdir() if each != data]:
        each.rename(data / each.name)
        each.symlink_to(f"..data/{each.name}")
    (made.path / "..data").symlink_to(data.name)
    bundle.verify(made)
    with bundle.load(made) as runner:
        assert runner.infer(samples.call())["y"].shape == (2, 4)


def test_a_file_that_is_not_loaded_must_not_lead_out_of_the_bundle(made, tmp_path):
    path = made.path / "goldens.safetensors"
    path.rename(tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    with pytest.raises(BundleCorrupt, match="is a link out of the bundle"):
        bundle.load(made)


def test_a_file_that_is_not_loaded_may_be_missing(made):
    (made.path / "goldens.safetensors").unlink()
    bundle.load(made).close()


def test_names_are_all_files_but_the_manifest(made):
    (made.path / "empty").mkdir()
    assert list(files.names(made.path)) == sorted(made.manifest.files)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_manifest_that_is_no_regular_file(made, make):
    path = made.path / "manifest.json"
    path.unlink()
    make(path)
    with pytest.raises(BundleCorrupt, match="is no regular file"):
        files.open_bundle(made.path)


@pytest.mark.parametrize("device", [False, True])
def test_a_manifest_that_is_a_link_out_of_the_bundle(made, tmp_path, device):
    path = made.path / "manifest.json"
    path.rename(tmp_path / "outside")
    path.symlink_to("/dev/zero" if device else tmp_path / "outside")
    with pytest.raises(BundleCorrupt, match="is a link out of the bundle"):
        files.open_bundle(made.path)


def test_a_manifest_that_is_put_in_place_of_another_while_it_is_opened(made, monkeypatch):
    """A plain open of a pipe waits for ever."""
    located = files.locate

    def replaced(root, name):
        found = located(root, name)
        found.unlink()
        os.mkfifo(found)
        return found

    monkeypatch.setattr(files, "locate", replaced)
    with pytest.raises(BundleCorrupt, match="is no regular file"):
        files.open_bundle(made.path)


def test_a_manifest_of_a_terabyte(made):
    with (made.path / "manifest.json").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(BundleCorrupt, match="is not a manifest") as caught:
        files.open_bundle(made.path)
    assert caught.value.reason == "it has more than 2097152 bytes"


def test_a_bundle_as_packed(made):
    assert bundle.verify(made) == made.manifest


def test_every_file_is_checked(made):
    for name in made.manifest.files:
        samples.flip(made.path / name)
        with pytest.raises(BundleCorrupt, match=f"{name} is not the file that was packed"):
            bundle.verify(made)
        samples.flip(made.path / name)
    bundle.verify(made)


def test_all_problems_are_listed(made):
    (made.path / "goldens.safetensors").unlink()
    samples.flip(made.path / "weights.safetensors")
    (made.path / "programs" / "extra.vmfb").touch()
    with pytest.raises(BundleCorrupt, match="3 files of the bundle are not as packed") as caught:
        bundle.verify(made)
    assert sorted(caught.value.reason.splitlines()) == [
        "goldens.safetensors is missing",
        "programs/extra.vmfb was added",
        "weights.safetensors is not the file that was packed",
    ]


def test_a_dangling_link_is_an_added_file(made):
    (made.path / "link").symlink_to("nowhere")
    with pytest.raises(BundleCorrupt, match="link was added"):
        bundle.verify(made)


def test_no_bundle(tmp_path):
    with pytest.raises(BundleNotFound):
        bundle.verify(tmp_path)


@pytest.mark.parametrize("is_archive", [False, True])
def test_a_manifest_that_is_another_by_now(made, tmp_path, is_archive):
    path = tmp_path / "archive.tar" if is_archive else made.path
    if is_archive:
        bundle.archive(made, path)
    opened = files.open_bundle(path)
    assert files.is_in_place(opened)
    at = path if is_archive else path / "manifest.json"
    data = at.read_bytes()
    at.write_bytes(data.replace(b'"status"', b'"Status"', 1))
    assert not files.is_in_place(opened)
    if not is_archive:
        at.write_bytes(data + b" ")
        assert not files.is_in_place(opened)
        at.unlink()
        with pytest.raises(BundleCorrupt, match="missing"):
            files.is_in_place(opened)
