"""What a check says, as types."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.errors import Obstructed
from aotpipe.tools.check import diagnostics
from aotpipe.tools.check.diagnostics import CODES
from tests.unit.tools.check.samples import sample


def test_an_error_blocks_and_nothing_else_does(tmp_path: Path):
    checked = sample(tmp_path)
    assert [each.code for each in checked.obstacles] == ["tensor-to-numpy"]
    assert (checked.ok, checked.exit_code) == (False, Obstructed.exit_code)
    free = replace(checked, diagnostics=checked.diagnostics[1:])
    assert (free.ok, free.exit_code) == (True, 0)
    free.require()


def test_require_raises_with_the_first_obstacle(tmp_path: Path):
    checked = sample(tmp_path)
    with pytest.raises(Obstructed, match=r"net.py:3: `x.numpy\(\)` takes a tensor") as raised:
        checked.require()
    assert raised.value.hint == "use torch's function"


def test_a_fix_gives_the_line_as_it_reads_afterwards(tmp_path: Path):
    fix = sample(tmp_path).diagnostics[0].fix
    assert fix is not None
    assert fix.line == "    größe = x.sum(); y = größe > 0 and x"


ROOT = Path(__file__).resolve().parents[4]


def test_everything_is_there_and_is_json(tmp_path: Path):
    data = json.loads(json.dumps(sample(tmp_path).to_json(), allow_nan=False))
    assert (data["schema"], data["ok"], data["exit_code"], data["name"]) == (1, False, 22, "net")
    first = data["diagnostics"][0]
    assert first["place"]["line"] == 3
    assert first["place"]["text"][first["place"]["column"] - 1 :] == "x.numpy()"
    assert first["fix"]["line"].endswith("> 0 and x")
    assert first["history"][1] == {"what": "the input `x`", "place": None}
    assert data["diagnostics"][1]["where"] is None
    assert data["rewrites"][0]["into"] == "torch.cond"


def test_the_page_names_every_field(tmp_path: Path):
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    data = sample(tmp_path).to_json()
    first = data["diagnostics"][0]
    names = {*data, *first, *first["place"], *first["fix"], *first["history"][0], *data["rewrites"][0]}
    assert not [name for name in names if f"`{name}`" not in page]


PAGE = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")


def test_every_code_has_a_section_with_its_severity_and_title():
    sections = re.findall(r"^### ([\w-]+)\n(\w+): (.+)$", PAGE, re.MULTILINE)
    assert {code: (severity, title) for code, severity, title in sections} == {
        code: (each.severity, each.title) for code, each in CODES.items()
    }


def test_every_code_that_the_package_uses_is_in_the_table():
    used = {
        code
        for path in (ROOT / "aotpipe").rglob("*.py")
        for code in re.findall(
            r'(?:\bcode=|\bnote\(\s*"\w+",\s*)"([\w-]+)"', path.read_text(encoding="utf-8")
        )
    }
    assert used <= set(CODES)


def test_a_code_that_nobody_described_is_its_own_title():
    assert diagnostics.code_of("something-new") == diagnostics.Code("note", "something-new")


@pytest.mark.parametrize("code", CODES)
def test_codes_are_stable_words(code: str):
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert CODES[code].severity in ("error", "warning", "note")
