"""The JSON of a check: what docs/check.md says is there."""

from __future__ import annotations

import json
from pathlib import Path

from aotpipe.tools.check.codec import to_json
from tests.unit.tools.check.samples import sample

ROOT = Path(__file__).resolve().parents[4]


def test_everything_is_there_and_is_json(tmp_path: Path):
    data = json.loads(json.dumps(to_json(sample(tmp_path)), allow_nan=False))
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
    data = to_json(sample(tmp_path))
    first = data["diagnostics"][0]
    names = {*data, *first, *first["place"], *first["fix"], *first["history"][0], *data["rewrites"][0]}
    assert not [name for name in names if f"`{name}`" not in page]
