"""Notes and texts."""

from __future__ import annotations

import pytest

from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.trace import Trace, started
from aotpipe.errors import ExportFailed


def test_a_note_is_kept_once_per_line():
    with started(Trace()) as found:
        for _ in range(2):
            trace.note("note", "a-code", "said")
        assert [each.code for each in found.findings] == ["a-code"]


def test_only_a_message_shows_a_traced_value():
    with started(Trace()), trace.message():
        assert f"{trace.text():>8.2f}" == "..."
    with pytest.raises(ExportFailed, match="a text is made"):
        trace.text()
