"""Signed bundles: what was changed in any way, or signed by somebody else, is refused before it is used."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import aotpipe
from aotpipe.errors import AotpipeError, BundleCorrupt, BundleError, SignatureInvalid
from aotpipe.runtime import bundle
from aotpipe.runtime.bundle import files, signatures
from aotpipe.runtime.bundle.load import choose, contents
from aotpipe.runtime.bundle.recorded import judged
from tests.sweep import sweep
from tests.unit.runtime.bundle import samples
from tests.unit.runtime.bundle.samples import keys
from tests.unit.runtime.bundle.test_recorded import hashed_again

pytest.importorskip("OpenSSL")
model_signing = pytest.importorskip("model_signing")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return keys(tmp_path_factory.mktemp("keys"), "ours")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, pair: tuple[Path, Path]) -> Path:
    """A bundle beside which its signature lies."""
    path = samples.packed(tmp_path_factory.mktemp("signed") / "b").path
    assert aotpipe.sign(path, pair[0]) == path.with_name("b.sig")
    return path


@pytest.fixture
def copied(signed: Path, tmp_path: Path) -> Path:
    shutil.copyfile(f"{signed}.sig", tmp_path / "c.sig")
    return Path(shutil.copytree(signed, tmp_path / "c"))


def test_a_signed_bundle_is_loaded(signed, pair):
    with aotpipe.load(signed, require_signature=pair[1]) as runner:
        assert runner.infer(samples.call())["y"].shape == (2, 4)
    assert aotpipe.verify(signed, pair[1]).name == "accumulate"
    assert bundle.selftest(aotpipe.trusted(signed, pair[1])).passed


def test_a_signature_may_lie_elsewhere_and_go_with_a_moved_bundle(signed, pair, tmp_path, monkeypatch):
    moved = Path(shutil.copytree(signed, tmp_path / "other name"))
    aotpipe.load(moved, require_signature=pair[1], signature=f"{signed}.sig").close()
    shutil.copyfile(f"{signed}.sig", tmp_path / "other name.sig")
    monkeypatch.chdir(moved)
    aotpipe.load(".", require_signature=pair[1]).close()


def test_the_tool_of_model_signing_takes_it_and_the_other_way_round(copied, pair, tmp_path):
    verifying, signing = model_signing.verifying.Config(), model_signing.signing.Config()
    verifying.use_elliptic_key_verifier(public_key=pair[1]).verify(copied, tmp_path / "c.sig")
    signing.use_elliptic_key_signer(private_key=pair[0]).sign(copied, tmp_path / "theirs.sig")
    aotpipe.verify(copied, pair[1], signature=tmp_path / "theirs.sig")


def _flipped(root: Path, draw: np.random.Generator) -> None:
    names = sorted(each for each in root.rglob("*") if each.is_file())
    path = names[int(draw.integers(len(names)))]
    samples.flip(path, int(draw.integers(path.stat().st_size)))


def _forged(root: Path, draw: np.random.Generator) -> None:
    names = sorted(bundle.open_bundle(root).manifest.files)
    name = names[int(draw.integers(len(names)))]
    content = bytearray((root / name).read_bytes())
    content[int(draw.integers(len(content)))] ^= 1 << int(draw.integers(8))
    hashed_again(root, name, bytes(content))


def _renamed(root: Path, draw: np.random.Generator) -> None:
    samples.rewrite_manifest(root, lambda manifest: manifest.update(name=f"other{draw.integers(9)}"))


def _signature(root: Path, draw: np.random.Generator) -> None:
    """Another digest in the signature, or a broken one."""
    path = Path(f"{root}.sig")
    content = json.loads(path.read_bytes())
    envelope = content["dsseEnvelope"]
    field = ["payload", "sig"][int(draw.integers(2))]
    owner = envelope if field == "payload" else envelope["signatures"][0]
    place = int(draw.integers(len(owner[field]) - 4))
    owner[field] = (
        owner[field][:place] + ("A" if owner[field][place] != "A" else "B") + owner[field][place + 1 :]
    )
    path.write_text(json.dumps(content))


def _cut(root: Path, draw: np.random.Generator) -> None:
    path = Path(f"{root}.sig")
    path.write_bytes(path.read_bytes()[: int(draw.integers(path.stat().st_size))])


def _added(root: Path, draw: np.random.Generator) -> None:
    (root / f"programs/more{draw.integers(9)}").write_bytes(b"")


TAMPERING = [_flipped, _forged, _renamed, _signature, _cut, _added]


@pytest.mark.parametrize("seed", sweep(range(100), quick=12))
def test_a_tampered_bundle_is_refused(copied, pair, seed):
    TAMPERING[seed % len(TAMPERING)](copied, np.random.default_rng(seed))
    with pytest.raises((SignatureInvalid, BundleCorrupt)):
        aotpipe.verify(copied, pair[1])


def test_what_was_forged_with_its_digests_is_loaded_by_nobody_who_asks_for_a_signature(copied, pair):
    samples.rewrite_manifest(copied, lambda manifest: manifest.update(name="forged"))
    aotpipe.load(copied).close()
    with pytest.raises(SignatureInvalid, match="not of this bundle and key"):
        aotpipe.load(copied, require_signature=pair[1])


def test_files_are_hashed_whatever_verify_says(copied, pair):
    samples.flip(copied / "weights.safetensors")
    with pytest.raises(BundleCorrupt, match="not the file that was packed"):
        aotpipe.load(copied, require_signature=pair[1], verify=False)


def test_the_process_that_checks_goldens_hashes_the_weights_that_it_reads(copied, pair, monkeypatch):
    """It mapped the file by its path, after this process had hashed it."""
    place = files.place

    def written(bundle, name):
        samples.flip(copied / name, (copied / name).stat().st_size - 1)
        return place(bundle, name)

    made = signatures.trusted(copied, pair[1])
    calls = files.goldens(made)
    program = choose(made.manifest)
    payload, _, state = contents(made, program, verify=True)
    monkeypatch.setattr(files, "place", written)
    with pytest.raises(BundleCorrupt, match="not those that were packed"):
        judged(made, program, calls, payload=payload, state=state)


def test_a_manifest_that_is_changed_after_the_check_is_not_read(copied, pair):
    checked = aotpipe.trusted(copied, pair[1])
    samples.rewrite_manifest(copied, lambda manifest: manifest.update(name="forged"))
    assert bundle.open_bundle(checked).manifest.name == "accumulate"


def test_another_key_and_no_signature(copied, pair, tmp_path):
    others = keys(tmp_path, "theirs")
    with pytest.raises(SignatureInvalid, match="not of this bundle and key"):
        aotpipe.load(copied, require_signature=others[1])
    aotpipe.sign(copied, others[0])
    with pytest.raises(SignatureInvalid, match="not of this bundle and key"):
        aotpipe.load(copied, require_signature=pair[1])
    Path(f"{copied}.sig").unlink()
    with pytest.raises(SignatureInvalid, match="has no signature"):
        aotpipe.load(copied, require_signature=pair[1])
    os.mkfifo(f"{copied}.sig")
    with pytest.raises(SignatureInvalid, match="has no signature"):
        aotpipe.load(copied, require_signature=pair[1])


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"{}", b'{"verificationMaterial": {}}', b"[" * 100_000, b"\xff"]
)
def test_a_signature_that_is_none(copied, pair, content):
    Path(f"{copied}.sig").write_bytes(content)
    with pytest.raises(SignatureInvalid, match="not of this bundle and key"):
        aotpipe.trusted(copied, pair[1])


def test_keys_that_cannot_be_used(copied, pair, tmp_path):
    (tmp_path / "bad").write_text("no key")
    for key in (tmp_path / "bad", tmp_path / "none", pair[1]):
        with pytest.raises(SignatureInvalid, match="cannot be used"):
            aotpipe.sign(copied, key)
    for key in (tmp_path / "bad", tmp_path / "none", pair[0]):
        with pytest.raises(SignatureInvalid, match="cannot be used"):
            aotpipe.trusted(copied, key)


def test_a_damaged_bundle_is_not_signed(copied, pair):
    samples.flip(copied / "goldens.safetensors")
    before = Path(f"{copied}.sig").read_bytes()
    with pytest.raises(BundleCorrupt):
        aotpipe.sign(copied, pair[0])
    assert Path(f"{copied}.sig").read_bytes() == before


def test_a_signature_that_cannot_be_written(copied, pair, tmp_path):
    with pytest.raises(AotpipeError):
        aotpipe.sign(copied, pair[0], signature=tmp_path / "none" / "x.sig")


def test_without_the_package(copied, pair, monkeypatch):
    monkeypatch.setattr(signatures, "is_installed", lambda name: name != "model_signing")
    with pytest.raises(BundleError) as found:
        aotpipe.load(copied, require_signature=pair[1])
    assert found.value.hint == "pip install 'aotpipe[sign]'"
