"""Aligned columns."""

from __future__ import annotations

from aotpipe.cli.text import fields, table


def test_plain_text():
    assert table(("a", "bb"), [("ccc", "d")]) == "a    bb\nccc  d"
    assert fields({"a": "1", "bbb": ""}) == "a    1\nbbb"
