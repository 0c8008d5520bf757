"""The table of codes: docs/check.md has a section for each, and the package uses no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aotpipe.tools.check import codes
from aotpipe.tools.check.codes import TABLE, severity_of

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")


def test_every_code_has_a_section_with_its_severity_and_title():
    sections = re.findall(r"^### ([\w-]+)\n(\w+): (.+)$", PAGE, re.MULTILINE)
    assert {code: (severity, title) for code, severity, title in sections} == {
        code: (each.severity, each.title) for code, each in TABLE.items()
    }


def test_every_code_that_the_package_uses_is_in_the_table():
    used = {
        code
        for path in (ROOT / "aotpipe").rglob("*.py")
        for code in re.findall(
            r'(?:\bcode=|\bnote\(\s*"\w+",\s*)"([\w-]+)"', path.read_text(encoding="utf-8")
        )
    }
    assert used <= set(TABLE)


def test_a_code_that_nobody_described_is_its_own_title():
    assert codes.of("something-new") == codes.Code("note", "something-new")


@pytest.mark.parametrize("code", TABLE)
def test_codes_are_stable_words(code: str):
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert severity_of(code) in ("error", "warning", "note")
