"""The records of workarounds, all of them."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from aotpipe.core.fixes import Fix
from aotpipe.core.targets import expand

ROOT = Path(__file__).parents[5]


def load_script() -> Any:
    spec = spec_from_file_location("fixes_script", ROOT / "scripts/fixes.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()
RECORDS: list[tuple[str, Fix]] = list(SCRIPT.every_record())


def test_ids_are_unique() -> None:
    ids = [fix.id for _, fix in RECORDS]
    assert len(set(ids)) == len(ids) > 15


@pytest.mark.parametrize(("path", "fix"), RECORDS, ids=[fix.id for _, fix in RECORDS])
def test_a_record_has_its_module_a_canary_and_targets_that_there_are(path: str, fix: Fix) -> None:
    module = ROOT / "aotpipe" / path
    assert module.is_file()
    test = ROOT / "tests/unit" / Path(path).with_name(f"test_{module.name}")
    assert re.search(rf"@canary\({module.stem}\.FIX[,)]", test.read_text())
    assert all(any(fix.is_for(target) for target in expand([pattern])) for pattern in fix.targets)
    assert not any(text.endswith(".") for text in (fix.fault, fix.remedy))


@pytest.mark.parametrize("fix", [fix for _, fix in RECORDS], ids=lambda fix: fix.id)
def test_the_installed_version_is_one_that_was_seen_to_have_the_fault(fix: Fix) -> None:
    """After an upgrade every record is looked at again: its canary says whether it is still needed."""
    try:
        version = metadata.version(fix.package)
    except metadata.PackageNotFoundError:
        assert fix.package in ("mesa", "metal")
        return
    assert version in SpecifierSet(fix.versions)


def test_the_documents_table_is_that_of_the_records() -> None:
    assert SCRIPT.page() == SCRIPT.PAGE.read_text(encoding="utf-8"), "run scripts/fixes --write"
