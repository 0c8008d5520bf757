"""Archives: one form, whoever makes it; loaded where they lie; every other form is refused."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aotpipe
from aotpipe.errors import BundleCorrupt, BundleError, BundleNotFound, SignatureInvalid, StoreError
from aotpipe.runtime import bundle, process, tensor_file
from aotpipe.runtime.bundle import files, tar
from aotpipe.runtime.bundle import manifest as manifests
from tests.sweep import sweep
from tests.unit.runtime.bundle import samples

REST = "goldens.safetensors programs/iree-vmvx/program.vmfb weights.safetensors".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return samples.packed(tmp_path_factory.mktemp("archives") / "b").path


@pytest.fixture
def packed(folder: Path, tmp_path: Path) -> Path:
    return aotpipe.archive(folder, tmp_path / "b.tar")


@pytest.mark.parametrize("options", [{}, {"verify": False}, {"check": "goldens"}], ids=str)
def test_an_archive_is_loaded_where_it_lies(packed, options):
    before = set(packed.parent.iterdir())
    with aotpipe.load(packed, **options) as runner:
        np.testing.assert_array_equal(runner.infer(samples.call())["y"][0], np.arange(4))
        assert set(packed.parent.iterdir()) == before


def test_an_archive_is_taken_where_a_folder_is(packed, folder):
    assert bundle.selftest(packed).passed
    assert aotpipe.verify(packed) == aotpipe.verify(folder)


def test_weights_are_mapped_and_not_copied(packed):
    opened = bundle.open_bundle(packed)
    path, part = files.place(opened, "weights.safetensors")
    for array in tensor_file.read(path, part).values():
        assert not array.flags.owndata
        assert array.ctypes.data % array.itemsize == 0


def test_tar_unpacks_a_bundle(packed, folder, tmp_path):
    with tarfile.open(packed) as archive:
        assert archive.getnames() == [manifests.FILE_NAME, *REST]
        archive.extractall(tmp_path / "out", filter="data")
    assert aotpipe.verify(tmp_path / "out") == aotpipe.verify(folder)
    listed = subprocess.run(["tar", "tf", packed], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == [manifests.FILE_NAME, *REST]
    assert not listed.stderr


def test_the_bytes_are_the_same_from_other_folders_days_and_users(packed, folder, tmp_path, monkeypatch):
    other = Path(shutil.copytree(folder, tmp_path / "elsewhere" / "other name"))
    for path in [other, *other.rglob("*")]:
        os.utime(path, (1, 1))
        path.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(path, 1234, 1234)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    again = aotpipe.archive(other, tmp_path / "again.tar")
    assert again.read_bytes() == packed.read_bytes()
    assert aotpipe.archive(packed, tmp_path / "of an archive.tar").read_bytes() == packed.read_bytes()


def test_another_process_with_another_hash_seed_gives_the_same_bytes(packed, folder, tmp_path):
    code = "import aotpipe, sys; aotpipe.archive(*sys.argv[1:])"
    env = {"PYTHONPATH": process.python_path(), "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "PATH": ""}
    subprocess.run([sys.executable, "-c", code, folder, tmp_path / "c.tar"], env=env, check=True)
    assert (tmp_path / "c.tar").read_bytes() == packed.read_bytes()


@pytest.mark.parametrize(
    ("name", "size"), [("a", 0), ("b/" + "c" * 200, 7), ("d" * 101, 9 << 30), ("e", 8**11)]
)
def test_long_names_and_large_files_have_records_that_tar_reads(folder, name, size):
    manifest = replace(
        bundle.open_bundle(folder).manifest, files={name: manifests.File(sha256="0" * 64, size_bytes=size)}
    )
    found = tar.layout(manifest, 0)
    entry = found.frames[1][1]
    with tarfile.open(fileobj=io.BytesIO(entry + bytes(1024))) as archive:
        member = archive.next()
    assert (member.name, member.size, member.mtime, member.uid) == (name, size, 0, 0)
    assert found.begins[name] == found.frames[0][0] + len(found.frames[0][1]) + len(entry)
    assert found.size_bytes % 512 == 0


def _hostile(packed: Path) -> dict[str, bytes]:
    """Archives that `tar` unpacks, and to what it should not."""
    data = packed.read_bytes()

    def made(change, *, kind="w", add=()) -> bytes:
        out = io.BytesIO()
        with tarfile.open(packed) as source, tarfile.open(fileobj=out, mode=kind) as archive:
            for member in source.getmembers():
                content = source.extractfile(member)
                if (changed := change(member)) is not None:
                    archive.addfile(changed, content if changed.isreg() else None)
            for member in add:
                archive.addfile(member, io.BytesIO(bytes(member.size)))
        return out.getvalue()

    def entry(name: str, **fields) -> tarfile.TarInfo:
        found = tarfile.TarInfo(name)
        for field, value in fields.items():
            setattr(found, field, value)
        return found

    def other(name: str, **fields):
        return lambda member: entry(name, size=member.size, **fields) if member.name == REST[1] else member

    def same(member):
        return member

    link = entry("programs/link", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    return {
        "a path that leaves": made(other("../../evil")),
        "an absolute path": made(other("/tmp/evil")),
        "a symlink": made(other(REST[1], type=tarfile.SYMTYPE, linkname="/etc/passwd")),
        "a hard link": made(other(REST[1], type=tarfile.LNKTYPE, linkname="/etc/passwd")),
        "a device": made(other(REST[1], type=tarfile.CHRTYPE, devmajor=1, devminor=3)),
        "a pipe": made(other(REST[1], type=tarfile.FIFOTYPE)),
        "a link more": made(same, add=[link]),
        "a duplicate": made(same, add=[entry(REST[1], size=8)]),
        "a second manifest": made(same, add=[entry(manifests.FILE_NAME, size=8)]),
        "code": made(same, add=[entry("sitecustomize.py", size=8)]),
        "a missing file": made(lambda member: None if member.name == REST[0] else member),
        "another owner": made(lambda member: member.replace(uid=1)),
        "another time": made(lambda member: member.replace(mtime=1)),
        "gzip": made(same, kind="w:gz"),
        "an owner's padding": data[:-1] + b"x",
        "more at the end": data + bytes(512),
        "less at the end": data[:-512],
        "a header alone": data[:512],
        "nothing": b"",
        "zeros": bytes(10240),
        "a manifest of 8 GiB": tar._entry(manifests.FILE_NAME, 8**11 - 1) + data[512:],
        "a manifest of no size": data[:124] + b"9" * 11 + data[135:],
    }


def test_hostile_archives_are_refused(packed, tmp_path):
    refused = {}
    for what, content in _hostile(packed).items():
        path = tmp_path / "hostile.tar"
        path.write_bytes(content)
        started = time.monotonic()
        for take in (aotpipe.load, aotpipe.verify, bundle.selftest):
            with pytest.raises((BundleCorrupt, BundleNotFound)) as found:
                take(path)
            refused[what] = found.value.message
        assert time.monotonic() - started < 1, what
    assert len(refused) == 22
    assert refused["nothing"] == f"{tmp_path}/hostile.tar is no bundle"
    assert refused["a link more"] == f"{tmp_path}/hostile.tar is not the archive that belongs to its manifest"


def test_a_file_that_says_to_be_huge_is_refused(packed, tmp_path):
    """A bomb: a manifest that names terabytes, in an archive of a few bytes, or of a hole."""
    opened = bundle.open_bundle(packed)
    huge = manifests.File(sha256="0" * 64, size_bytes=1 << 42)
    for size in (1 << 42, -512, 1 << 62):
        manifest = replace(
            opened.manifest, files={**opened.manifest.files, "x": replace(huge, size_bytes=size)}
        )
        written = manifests.write(manifest)
        laid = tar.layout(manifest, len(written)) if size > 0 else tar.layout(opened.manifest, len(written))
        path = tmp_path / "bomb.tar"
        path.write_bytes(laid.frames[0][1] + written)
        if size == 1 << 42:
            os.truncate(path, laid.size_bytes)
        with pytest.raises(BundleCorrupt):
            aotpipe.load(path)


@pytest.mark.parametrize("seed", sweep(range(200), quick=15))
def test_any_flipped_bit_is_found(packed, seed):
    data = bytearray(packed.read_bytes())
    place = int(np.random.default_rng(seed).integers(len(data) * 8)) if seed else 8 * 512 * 3
    data[place // 8] ^= 1 << place % 8
    packed.write_bytes(data)
    with pytest.raises((BundleCorrupt, BundleNotFound)):
        aotpipe.verify(packed)


def test_what_lies_at_the_destination(folder, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BundleError, match="no archive that could be replaced"):
        aotpipe.archive(folder, tmp_path / "notes.txt")
    with pytest.raises(BundleError, match="no archive that could be replaced"):
        aotpipe.archive(folder, folder)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    first = aotpipe.archive(folder, tmp_path / "b.tar")
    assert aotpipe.archive(first, first) == first
    with pytest.raises(StoreError):
        aotpipe.archive(folder, tmp_path / "none" / "b.tar")
    with pytest.raises(BundleError, match="no bundle that this aotpipe can replace"):
        samples.packed(first)
    assert aotpipe.verify(first).name == "accumulate"
    assert not list(tmp_path.glob(".*"))


def test_a_damaged_bundle_is_not_archived(folder, tmp_path):
    other = Path(shutil.copytree(folder, tmp_path / "c"))
    samples.flip(other / "weights.safetensors")
    with pytest.raises(BundleCorrupt):
        aotpipe.archive(other, tmp_path / "c.tar")
    assert {each.name for each in tmp_path.iterdir()} == {"c"}


def test_a_signature_is_of_a_folder_and_its_archive_alike(packed, folder, tmp_path):
    pytest.importorskip("model_signing")
    private, public = samples.keys(tmp_path, "ours")
    signature = aotpipe.sign(folder, private, signature=tmp_path / "b.tar.sig")
    aotpipe.load(packed, require_signature=public).close()
    aotpipe.load(folder, require_signature=public, signature=signature).close()
    other = samples.packed(tmp_path / "other", name="other")
    aotpipe.archive(other, packed)
    with pytest.raises(SignatureInvalid):
        aotpipe.load(packed, require_signature=public)
