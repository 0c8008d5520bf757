"""The text for people, and SARIF 2.1.0: the parts that GitHub requires, with columns as it counts them."""

from __future__ import annotations

import json
import linecache
from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.tools.check.formats import render, to_sarif
from tests.unit.tools.check.samples import sample


def test_a_diagnostic_has_its_line_a_caret_its_history_and_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert render(sample(tmp_path)).splitlines() == [
        "net.py:3:40: error[tensor-to-numpy]: `x.numpy()` takes a tensor out of torch",
        "  3 |     größe = x.sum(); y = größe > 0 and x.numpy()",
        "    |                                        ^^^^^^^^^",
        "  first",
        "  second",
        "  came from: `x * 2` at net.py:3",
        "  came from: the input `x`",
        "  fix (executed: eager's answers on 3 calls, and no obstacle):",
        "    3 | größe = x.sum(); y = größe > 0 and x",
        "  hint: use torch's function",
        "",
        "warning[unused-input]: nothing reads 'z'",
        "",
        "gone.py:7: note[integer-output]: a number",
        "",
        "rewritten into the graph:",
        "  net.py:3  if -> torch.cond",
        "",
        "net does not become one program as it is: 1 obstacle, 1 warning, 1 note (1.2 s)",
    ]


def test_quiet_leaves_out_notes_and_what_is_rewritten(tmp_path: Path):
    text = render(sample(tmp_path), quiet=True)
    assert "note[" not in text
    assert "torch.cond" not in text
    assert "warning[unused-input]" in text


def test_a_result_names_its_rule_its_level_and_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    sarif = json.loads(json.dumps(to_sarif(sample(tmp_path))))
    assert sarif["version"] == "2.1.0"
    [run] = sarif["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [
        result["ruleId"] for result in run["results"]
    ]
    first = run["results"][0]
    physical = first["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == "net.py"
    assert physical["region"] == {"startLine": 3, "startColumn": 40, "endLine": 3, "endColumn": 49}
    assert [result["level"] for result in run["results"]] == ["error", "warning", "note"]
    assert first["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"] == {"text": "x"}
    assert "locations" not in run["results"][1]
    assert run["results"][2]["locations"][0]["physicalLocation"]["region"] == {"startLine": 7}


def test_columns_count_utf16_units(tmp_path: Path):
    checked = sample(tmp_path)
    place = checked.diagnostics[0].place
    assert place is not None
    path = Path(place.path)
    path.write_text(path.read_text(encoding="utf-8").replace("größe", "gr😀ße"), encoding="utf-8")
    linecache.checkcache(str(path))
    [location, *_] = to_sarif(checked)["runs"][0]["results"][0]["locations"]
    # Two such signs stand before it, each of two units.
    assert location["physicalLocation"]["region"]["startColumn"] == place.column + 2


def test_a_fingerprint_stays_when_lines_move(tmp_path: Path):
    checked = sample(tmp_path)
    first = checked.diagnostics[0]
    before = to_sarif(checked)["runs"][0]["results"][0]["partialFingerprints"]
    assert first.place is not None
    path = Path(first.place.path)
    path.write_text("\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    linecache.checkcache(str(path))
    moved = replace(first, place=replace(first.place, line=4, end_line=4))
    after = to_sarif(replace(checked, diagnostics=(moved,)))["runs"][0]["results"][0]
    assert after["partialFingerprints"] == before
