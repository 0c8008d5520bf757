"""Bundles in a real registry: what is pushed comes back, and what the registry changes is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from aotpipe.errors import BundleCorrupt, BundleError, RegistryError
from aotpipe.runtime import bundle
from aotpipe.runtime.bundle import oci
from tests.registry import registry
from tests.unit.runtime.bundle import samples


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registry")


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[str]:
    pytest.importorskip("oras")
    with registry(folder) as address:
        yield address


def artifact(host: str, name: str, tag: str) -> tuple[bytes, dict]:
    url = f"http://{host}/v2/{name}/manifests/{tag}"
    with urlopen(Request(url, headers={"Accept": oci._MANIFEST_TYPE})) as answer:
        content = answer.read()
    return content, json.loads(content)


def put(host: str, name: str, tag: str, content: bytes) -> None:
    request = Request(f"http://{host}/v2/{name}/manifests/{tag}", content, method="PUT")
    request.add_header("Content-Type", oci._MANIFEST_TYPE)
    urlopen(request).close()


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_what_is_pushed_comes_back(host: str, tmp_path: Path) -> None:
    made = samples.packed(tmp_path / "b")
    digest = bundle.push(made, f"{host}/models/small:1.0", plain_http=True)
    assert digest == oci.artifact_digest(made.manifest)
    for number, reference in enumerate([":1.0", f"@{digest}", f":1.0@{digest}"]):
        out = tmp_path / f"out{number}"
        found, same = bundle.pull(f"{host}/models/small{reference}", out, plain_http=True)
        assert (same, found.manifest, files_of(out)) == (digest, made.manifest, files_of(made.path))
    bundle.verify(out)
    content, described = artifact(host, "models/small", "1.0")
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    assert described["artifactType"] == "application/vnd.cncf.model.manifest.v1+json"
    kinds = {
        each["annotations"]["org.cncf.model.filepath"]: each["mediaType"] for each in described["layers"]
    }
    assert kinds["weights.safetensors"] == "application/vnd.cncf.model.weight.v1.raw"


def test_an_archive_is_the_same_artifact_and_a_bundle_is_replaced(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oci, "_CHUNK_BYTES", 100)
    made = samples.packed(tmp_path / "b", name="other")
    packed = bundle.archive(made, tmp_path / "b.tar")
    digest = bundle.push(packed, f"{host}/archives:latest", plain_http=True)
    assert digest == oci.artifact_digest(made.manifest)
    before = samples.packed(tmp_path / "out")
    assert before.manifest != made.manifest
    bundle.pull(f"{host}/archives", tmp_path / "out", plain_http=True)
    assert files_of(tmp_path / "out") == files_of(made.path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(BundleError, match="not empty"):
        bundle.pull(f"{host}/archives", tmp_path / "mine", plain_http=True)


def test_a_registry_that_gives_other_bytes(host: str, folder: Path, tmp_path: Path) -> None:
    made = samples.packed(tmp_path / "b", name="changed")
    digest = bundle.push(made, f"{host}/changed:1", plain_http=True)
    for file in made.manifest.files.values():
        [data] = (folder / "blobs").rglob(f"{file.sha256}/data")
        before = data.read_bytes()
        for after in (before[:-1] + bytes([before[-1] ^ 1]), before[:-1]):
            data.write_bytes(after)
            with pytest.raises((BundleCorrupt, RegistryError)):
                bundle.pull(f"{host}/changed@{digest}", tmp_path / "out", plain_http=True)
            assert not (tmp_path / "out").exists()
        data.write_bytes(before)
    # Another bundle's manifest is one, too, and its own digest says so.
    other = (samples.packed(tmp_path / "c", name="other").path / "manifest.json").read_bytes()
    written = (made.path / "manifest.json").read_bytes()
    [data] = (folder / "blobs").rglob(f"{hashlib.sha256(written).hexdigest()}/data")
    data.write_bytes(other)
    with pytest.raises((BundleCorrupt, RegistryError)):
        bundle.pull(f"{host}/changed@{digest}", tmp_path / "out", plain_http=True)
    data.write_bytes(written)
    bundle.pull(f"{host}/changed@{digest}", tmp_path / "out", plain_http=True)


def test_an_artifact_that_names_other_layers(host: str, tmp_path: Path) -> None:
    made = samples.packed(tmp_path / "b", name="named")
    bundle.push(made, f"{host}/named:1", plain_http=True)
    _, described = artifact(host, "named", "1")
    first, *rest = described["layers"]

    def refused(said: str, **changes: object) -> None:
        put(host, "named", "2", json.dumps(described | changes).encode())
        with pytest.raises(BundleCorrupt, match=said):
            bundle.pull(f"{host}/named:2", tmp_path / "out", plain_http=True)
        assert not (tmp_path / "out").exists()

    refused("has no", layers=[first, *rest[1:]])
    refused("has no manifest.json", layers=rest)
    swapped = [
        {**rest[0], "annotations": rest[1]["annotations"]},
        {**rest[1], "annotations": rest[0]["annotations"]},
    ]
    refused("more bytes|not the file", layers=[first, *swapped, *rest[2:]])
    refused("is not a manifest|more bytes", layers=[{**rest[-1], "annotations": first["annotations"]}, *rest])
    refused("no model", artifactType="application/vnd.example")
    refused("no model", layers=[{**each, "annotations": {}} for each in described["layers"]])


@pytest.mark.parametrize(
    "reference", ["", "x", "a b/c:1", "../x/y", "h/UPPER:1", "h/x@sha256:12", "http://h/x"]
)
def test_no_reference(reference: str, tmp_path: Path) -> None:
    pytest.importorskip("oras")
    with pytest.raises(RegistryError, match="is no reference"):
        bundle.pull(reference, tmp_path / "out")


def test_nobody_listens_and_nothing_is_there(host: str, tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="cannot be reached"):
        bundle.pull("127.0.0.1:9/x:1", tmp_path / "out", plain_http=True)
    with pytest.raises(RegistryError, match="cannot be reached"):
        bundle.pull(f"{host}/x:1", tmp_path / "out")  # it speaks no TLS
    with pytest.raises(RegistryError, match="404"):
        bundle.pull(f"{host}/x:1", tmp_path / "out", plain_http=True)
    assert not (tmp_path / "out").exists()


def test_without_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oci, "is_installed", lambda _: False)
    with pytest.raises(BundleError, match="cannot be pushed") as caught:
        bundle.push(samples.packed(tmp_path / "b"), "h/x:1")
    assert caught.value.hint == "pip install 'aotpipe[oci]'"
