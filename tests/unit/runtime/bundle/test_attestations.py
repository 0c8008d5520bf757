"""Provenance and the bill of materials: valid by their schemas, and the same bytes each time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf.json_format import ParseDict
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.statement import Statement

from aotpipe.errors import BundleCorrupt, BundleError
from aotpipe.runtime import bundle
from aotpipe.runtime.bundle import attestations
from aotpipe.runtime.store import file_digest
from tests.unit.runtime.bundle import samples

MATERIALS = {"source/model.py": "1" * 64, "exported/forward": "2" * 64, "module/iree": "3" * 64}


def attested(folder: Path) -> tuple[Path, Path, Path]:
    made = samples.packed(folder, materials=MATERIALS)
    return made.path, *bundle.attest(made)


def test_provenance_links_files_to_what_they_were_made_of(tmp_path: Path) -> None:
    path, provenance, _ = attested(tmp_path / "b")
    assert provenance == tmp_path / "b.intoto.json"
    found = json.loads(provenance.read_text())
    subjects = {each["name"]: each["digest"]["sha256"] for each in found["subject"]}
    here = [each for each in path.rglob("*") if each.is_file()]
    assert subjects == {each.relative_to(path).as_posix(): file_digest(each) for each in here}
    statement = Statement.copy_from_pb(ParseDict(found, Statement([], "", {}).pb))
    statement.validate()
    predicate = ParseDict(found["predicate"], Provenance())
    dependencies = predicate.build_definition.resolved_dependencies
    assert {each.name: each.digest["sha256"] for each in dependencies if each.digest} == MATERIALS
    assert predicate.run_details.byproducts[0].name == "parity"


def test_the_bill_of_materials_is_cyclonedx(tmp_path: Path) -> None:
    _, _, bom = attested(tmp_path / "b")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bom.read_text()) is None
    found = json.loads(bom.read_text())
    component = found["metadata"]["component"]
    assert component["type"] == "machine-learning-model"
    assert component["modelCard"]["quantitativeAnalysis"]["performanceMetrics"][0]["value"] == "0.25"
    assert {each["type"] for each in found["components"]} == {"file", "library"}


def test_equal_bundles_give_equal_bytes(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first, second = attested(tmp_path / "b"), attested(tmp_path / "other" / "c")
    archive = bundle.archive(first[0], tmp_path / "b.tar")
    third = (archive, *bundle.attest(archive))
    for each in zip(first[1:], second[1:], third[1:], strict=True):
        assert len({path.read_bytes() for path in each}) == 1


def test_a_bundle_that_is_not_as_packed_is_not_attested(tmp_path: Path) -> None:
    made = samples.packed(tmp_path / "b")
    (made.path / "goldens.safetensors").write_bytes(b"x")
    with pytest.raises(BundleCorrupt):
        bundle.attest(made)


def test_without_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attestations, "is_installed", lambda name: name != "cyclonedx")
    with pytest.raises(BundleError, match="cannot be attested") as caught:
        bundle.attest(samples.packed(tmp_path / "b"))
    assert caught.value.hint == "pip install 'aotpipe[attest]'"
