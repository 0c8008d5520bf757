"""What a bundle is made of, in the forms that supply chain tools read: all of it from the manifest.

`attest` writes an in-toto statement with SLSA provenance (which source, exported program and modules became
these files) and a CycloneDX ML-BOM (the model, its files, the packages of the toolchain, parity). A bundle
gives the same bytes whoever writes them, where and when: there is no time and no random number in either.
Torch-free.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from aotpipe.core.serialization import to_json
from aotpipe.errors import BundleError
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle import manifest as manifests
from aotpipe.runtime.bundle.files import Bundle
from aotpipe.runtime.bundle.manifest import Manifest, Program
from aotpipe.runtime.installed import is_installed
from aotpipe.runtime.store import digest, typed_os_errors

PROVENANCE: Final = ".intoto.json"
BOM: Final = ".cdx.json"
_PREDICATE: Final = "https://slsa.dev/provenance/v1"
_BUILD_TYPE: Final = "urn:aotpipe:build:v1"
_BUILDER: Final = "urn:aotpipe:builder"
_METRIC: Final = "share of the allowed error"


def attest(path: str | PathLike[str], out: str | PathLike[str] | None = None) -> tuple[Path, Path]:
    """Write the provenance and the bill of materials of a bundle that is as it was packed.

    Args:
        path: The bundle.
        out: What the names of both files begin with; the bundle's own path where None, so that they lie
            beside it.

    Returns:
        The paths of the in-toto statement (`.intoto.json`) and of the CycloneDX document (`.cdx.json`).

    Raises:
        BundleError: There is no bundle, its files are not those that were packed, or the packages that write
            these forms are not installed.
        StoreError: They cannot be written.
    """
    if missing := [name for name in ("cyclonedx", "in_toto_attestation") if not is_installed(name)]:
        raise BundleError(
            "bundles cannot be attested on this host",
            reason=f"the module {missing[0]} is not installed",
            hint="pip install 'aotpipe[attest]'",
        )
    bundle = files.open_bundle(path)
    files.require_whole(bundle)
    base = Path(path if out is None else out).absolute()
    found = []
    for suffix, content in ((PROVENANCE, provenance(bundle)), (BOM, bom(bundle))):
        to = base.with_name(base.name + suffix)
        with typed_os_errors("the attestation", to.parent):
            to.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        found.append(to)
    return found[0], found[1]


def provenance(bundle: Bundle) -> dict[str, Any]:
    """The in-toto statement (v1): its subjects are the bundle's files, SLSA says what they were made of."""
    from google.protobuf.json_format import MessageToDict
    from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
    from in_toto_attestation.v1.statement import Statement

    def described(name: str, value: str) -> Any:
        return ResourceDescriptor(name=name, digest={"sha256": value})

    manifest = bundle.manifest
    materials = [described(name, value) for name, value in manifest.materials.items()]
    packages = [
        ResourceDescriptor(name=name, uri=f"pkg:pypi/{name}@{version}")
        for name, version in _toolchain(manifest)
    ]
    parity = digest([to_json(each.parity, derived=False) for each in _programs(manifest)])
    statement = Statement(
        [described(name, value).pb for name, value in _digests(manifest).items()],
        _PREDICATE,
        {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {
                    "model": manifest.name,
                    "targets": [each.target for each in manifest.programs],
                    "precision": str(manifest.precision or ""),
                    "quantization": str(manifest.quantization or ""),
                },
                "internalParameters": {
                    "flags": {each.target: list(each.flags) for each in _programs(manifest)},
                    "host_features": {each.target: list(each.host_features) for each in _programs(manifest)},
                },
                "resolvedDependencies": [MessageToDict(each.pb) for each in (*materials, *packages)],
            },
            "runDetails": {
                "builder": {"id": _BUILDER},
                "byproducts": [MessageToDict(described("parity", parity).pb)],
            },
        },
    )
    statement.validate()
    found: dict[str, Any] = MessageToDict(statement.pb)
    return found


def bom(bundle: Bundle) -> dict[str, Any]:
    """The ML-BOM: CycloneDX 1.6, of the model, with a model card of what it takes and of parity."""
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    manifest = bundle.manifest

    def of(kind: ComponentType, name: str, value: str = "", **more: Any) -> Component:
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=value)] if value else []
        return Component(type=kind, name=name, hashes=hashes, bom_ref=f"{kind.value}/{name}", **more)

    model = of(ComponentType.MACHINE_LEARNING_MODEL, manifest.name, manifest.digest)
    model.properties.update(
        Property(name=f"aotpipe:material:{name}", value=value) for name, value in manifest.materials.items()
    )
    made = Bom(serial_number=uuid5(NAMESPACE_URL, f"{_BUILD_TYPE}:{manifest.digest}"))
    made.metadata.component = model
    parts = [of(ComponentType.FILE, name, value) for name, value in _digests(manifest).items()]
    for name, version in _toolchain(manifest):
        purl = PackageURL("pypi", name=name, version=version)
        parts.append(of(ComponentType.LIBRARY, name, version=version, purl=purl))
    made.components.update(parts)
    made.register_dependency(model, parts)
    found: dict[str, Any] = json.loads(JsonV1Dot6(made).output_as_string())
    del found["metadata"]["timestamp"]
    # The library has no classes for model cards.
    found["metadata"]["component"]["modelCard"] = {
        "modelParameters": {
            "inputs": [{"format": str(each)} for each in _tensors(manifest, "inputs")],
            "outputs": [{"format": str(each)} for each in _tensors(manifest, "outputs")],
        },
        "quantitativeAnalysis": {
            "performanceMetrics": [
                {"type": _METRIC, "value": f"{each.parity.ratio:.6g}", "slice": each.target}
                for each in _programs(manifest)
                if each.parity is not None
            ]
        },
    }
    return found


def _digests(manifest: Manifest) -> dict[str, str]:
    """Every file of the bundle, the manifest too."""
    own = sha256(manifests.write(manifest)).hexdigest()
    return {manifests.FILE_NAME: own, **{name: file.sha256 for name, file in sorted(manifest.files.items())}}


def _programs(manifest: Manifest) -> list[Program]:
    return [each for program in manifest.programs for each in program.all]


def _toolchain(manifest: Manifest) -> list[tuple[str, str]]:
    return sorted({item for each in _programs(manifest) for item in each.toolchain.items()})


def _tensors(manifest: Manifest, which: str) -> Iterator[object]:
    for name, signature in manifest.signatures.items():
        for leaf in getattr(signature, which):
            yield f"{name}: {leaf}"
