"""Notes and texts."""

from __future__ import annotations

import pytest

from aotpipe.canonicalize.trace import refusals
from aotpipe.errors import ExportFailed


def test_a_note_is_kept_once_per_line():
    with refusals.noted() as notes:
        for _ in range(2):
            refusals.note("note", "a-code", "said")
        assert [each.code for each in notes] == ["a-code"]
    assert not notes


def test_only_a_message_shows_a_traced_value():
    with refusals.message():
        assert f"{refusals.text():>8.2f}" == "..."
    with pytest.raises(ExportFailed, match="a text is made"):
        refusals.text()
