"""The text for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotpipe.tools.check.text import render
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
