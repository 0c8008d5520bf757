"""Bundles in OCI registries, as artifacts in the layout of the CNCF ModelPack specification.

`push` gives each file of a bundle as one layer, as it is, under its own SHA-256; equal bundles have equal
digests. `pull` trusts nothing that the registry says: it reads the layer of `manifest.json` within its
limits, and then takes exactly the files that this names, with these digests. Torch-free.

The client is oras (`aotpipe[oci]`), which takes the credentials of `docker login`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from aotpipe.errors import BundleCorrupt, BundleError, RegistryError
from aotpipe.runtime.bundle import atomic_replace, files, limits
from aotpipe.runtime.bundle import manifest as manifests
from aotpipe.runtime.bundle.files import Bundle
from aotpipe.runtime.bundle.manifest import GOLDENS, WEIGHT_INDEX, Manifest
from aotpipe.runtime.bundle.pack import require_replaceable
from aotpipe.runtime.installed import is_installed
from aotpipe.runtime.store import typed_os_errors, workspace

ARTIFACT_TYPE: Final = "application/vnd.cncf.model.manifest.v1+json"
_MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE: Final = "application/vnd.cncf.model.config.v1+json"
_LAYER_TYPE: Final = "application/vnd.cncf.model.{}.v1.raw"
_KINDS: Final[Mapping[str, str]] = {
    manifests.FILE_NAME: "weight.config",
    WEIGHT_INDEX: "weight.config",
    GOLDENS: "dataset",
}
_PATH: Final = "org.cncf.model.filepath"
# By which clients that know no models name files.
_TITLE: Final = "org.opencontainers.image.title"
_REFERENCE: Final = re.compile(
    r"\w[\w.-]*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?", re.ASCII
)
_TIMEOUT_S: Final = 120
# Of connections that were not made: nothing was sent then.
_RETRIES: Final = 2
_CHUNK_BYTES: Final = 32 << 20
_READ_BYTES: Final = 1 << 20


def push(path: str | PathLike[str], reference: str, *, plain_http: bool = False) -> str:
    """Push a bundle that is as it was packed.

    Args:
        path: The bundle.
        reference: Where to, such as `registry.example.com/models/minilm:1.0`; `latest` where it has no tag.
        plain_http: Without TLS.

    Returns:
        The artifact's digest, `sha256:...`, by which it can be pulled.

    Raises:
        BundleError: There is no bundle, or its files are not those that were packed.
        RegistryError: The registry did not take it.
    """
    bundle = files.open_bundle(path)
    files.require_whole(bundle)
    artifact, config = described(bundle.manifest)
    first = manifests.write(bundle.manifest)
    with _registry(reference, plain_http=plain_http) as (client, container), workspace("push") as folder:
        for descriptor in (artifact["config"], *artifact["layers"]):
            name = descriptor.get("annotations", {}).get(_PATH)
            if name is None or name == manifests.FILE_NAME or bundle.begins is not None:
                source = folder / "blob"
                whole = config if name is None else first if name == manifests.FILE_NAME else None
                source.write_bytes(files.content(bundle, name).data if whole is None else whole)
            else:
                source = files.locate(bundle.path, name)
            is_large = descriptor["size"] > _CHUNK_BYTES
            _require_done(
                client.upload_blob(
                    str(source), container, descriptor, do_chunked=is_large, chunk_size=_CHUNK_BYTES
                )
            )
        content = _dump(artifact)
        url = f"{client.prefix}://{container.manifest_url()}"
        _require_done(client.do_request(url, "PUT", data=content, headers={"Content-Type": _MANIFEST_TYPE}))
    return _digest(content)


def pull(reference: str, out: str | PathLike[str], *, plain_http: bool = False) -> tuple[Bundle, str]:
    """Pull a bundle into a folder; a bundle there is replaced once all of the new one is there.

    Args:
        reference: As `push` takes it; with `@sha256:...` it must be that very artifact.
        out: The folder.
        plain_http: Without TLS.

    Returns:
        The bundle, and the artifact's digest.

    Raises:
        RegistryError: The registry does not give it.
        BundleCorrupt: It is no bundle, or a file is not the one that its manifest names.
        BundleError: Something else lies at `out`.
        StoreError: It cannot be written.
    """
    destination = Path(out).absolute()
    require_replaceable(destination)
    with _registry(reference, plain_http=plain_http) as (client, container):
        url = f"{client.prefix}://{container.manifest_url()}"
        response = client.do_request(url, headers={"Accept": _MANIFEST_TYPE}, stream=True)
        content = b"".join(_chunks(lambda: response, limits.SIZE_BYTES))
        found = _digest(content)
        if container.digest and found != container.digest:
            raise BundleCorrupt(f"the registry gave {found} for {reference}")
        layers = _layers(content)

        def blob(name: str, size_bytes: int) -> Iterator[bytes]:
            if name not in layers:
                raise BundleCorrupt(f"the artifact has no {name}")
            return _chunks(lambda: client.get_blob(container, layers[name], stream=True), size_bytes)

        first = b"".join(blob(manifests.FILE_NAME, limits.SIZE_BYTES))
        # Its own digest says that it is a manifest, not that it is this artifact's.
        if _digest(first) != layers[manifests.FILE_NAME]:
            raise BundleCorrupt(f"{manifests.FILE_NAME} is not the file that the artifact names")
        manifest = manifests.read(first)
        with typed_os_errors("the bundle", destination.parent):
            destination.parent.mkdir(parents=True, exist_ok=True)
            with atomic_replace.folder(destination) as work:
                for name, file in manifest.files.items():
                    _write(work / name, blob(name, file.size_bytes), file)
                (work / manifests.FILE_NAME).write_bytes(manifests.write(manifest))
    return Bundle(destination, manifest), found


def described(manifest: Manifest) -> tuple[dict[str, Any], bytes]:
    """The OCI manifest of a bundle, and the ModelPack configuration that it names."""
    first = manifests.write(manifest)
    sizes = {manifests.FILE_NAME: (_digest(first), len(first))}
    sizes |= {
        name: (f"sha256:{each.sha256}", each.size_bytes) for name, each in sorted(manifest.files.items())
    }
    kinds = {**_KINDS, **dict.fromkeys(manifest.weight_files, "weight")}
    layers = [
        {
            "mediaType": _LAYER_TYPE.format(kinds.get(name, "code")),
            "digest": sha256,
            "size": size_bytes,
            "annotations": {_PATH: name, _TITLE: name},
        }
        for name, (sha256, size_bytes) in sizes.items()
    ]
    config = _dump(
        {
            "descriptor": {"name": manifest.name, "version": manifest.digest},
            "config": {
                "format": "aotpipe",
                **({"precision": str(manifest.precision)} if manifest.precision else {}),
                **({"quantization": str(manifest.quantization)} if manifest.quantization else {}),
            },
            "modelfs": {"type": "layers", "diffIds": [sha256 for sha256, _ in sizes.values()]},
        }
    )
    artifact = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST_TYPE,
        "artifactType": ARTIFACT_TYPE,
        "config": {"mediaType": _CONFIG_TYPE, "digest": _digest(config), "size": len(config)},
        "layers": layers,
    }
    return artifact, config


def artifact_digest(manifest: Manifest) -> str:
    """The digest under which a registry has a bundle."""
    return _digest(_dump(described(manifest)[0]))


@contextmanager
def _registry(reference: str, *, plain_http: bool) -> Iterator[tuple[Any, Any]]:
    if not is_installed("oras"):
        raise BundleError(
            "bundles cannot be pushed or pulled on this host",
            reason="the module oras is not installed",
            hint="pip install 'aotpipe[oci]'",
        )
    if not _REFERENCE.fullmatch(reference):
        raise RegistryError(
            f"{reference!r} is no reference", hint="write it as registry.example.com/models/minilm:1.0"
        )
    import requests
    from oras.provider import Registry

    client = Registry(insecure=plain_http)
    # Its own retries wait for two minutes where nobody listens.
    client.do_request = partial(inspect.unwrap(Registry.do_request), client)
    client.session.request = partial(client.session.request, timeout=_TIMEOUT_S)
    for scheme in ("http://", "https://"):
        client.session.mount(scheme, requests.adapters.HTTPAdapter(max_retries=_RETRIES))
    container = client.get_container(reference)
    client.auth.load_configs(container)
    try:
        yield client, container
    except (requests.RequestException, ValueError) as error:  # oras raises ValueError where it has no access
        raise RegistryError(
            f"{reference} cannot be reached",
            reason=str(error)[:500],
            hint="a registry without TLS takes --plain-http; `docker login` keeps credentials",
        ) from error


def _require_done(response: Any) -> None:
    if not response.ok:
        raise RegistryError(
            f"the registry answered {response.status_code}", reason=(response.text or response.reason)[:500]
        )


def _chunks(ask: Callable[[], Any], most: int) -> Iterator[bytes]:
    """The bytes of a response that is asked for, of which there are so many at most."""
    try:
        with ask() as response:
            _require_done(response)
            for chunk in response.iter_content(_READ_BYTES):
                most -= len(chunk)
                if most < 0:
                    raise BundleCorrupt("the registry gave more bytes than were named")
                yield chunk
    except OSError as error:
        # Those of requests are; unchanged, the file that is written would be blamed for them.
        raise RegistryError("the registry stopped in the middle", reason=str(error)[:500]) from error


def _layers(content: bytes) -> dict[str, str]:
    """The digest of each file's layer."""
    try:
        artifact = limits.parsed(content)
        kind = artifact["artifactType"]
        layers = {str(each["annotations"][_PATH]): str(each["digest"]) for each in artifact["layers"]}
    except (ValueError, LookupError, TypeError) as error:
        raise BundleCorrupt(
            "the artifact is no model of the ModelPack layout", reason=str(error)[:200]
        ) from error
    if kind != ARTIFACT_TYPE:
        raise BundleCorrupt(
            "the artifact is no model of the ModelPack layout", reason=f"it is {str(kind)[:100]}"
        )
    return layers


def _write(path: Path, chunks: Iterator[bytes], file: manifests.File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    found = hashlib.sha256()
    with path.open("xb") as to:
        for chunk in chunks:
            found.update(chunk)
            to.write(chunk)
    if found.hexdigest() != file.sha256 or path.stat().st_size != file.size_bytes:
        raise BundleCorrupt(f"{path.name} is not the file that was packed", reason="its SHA-256 differs")


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _dump(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
