"""Tables are plain where nobody watches, and fit the window of who does."""

from __future__ import annotations

import io
import re
import sys

import pytest

from aotpipe.cli import text

HEAD = ("target", "status", "size")
LONG = "a reason of more than eighty characters, " * 4
ROWS = [("iree-cpu-host", "executed", "17.7 kB"), ("iree-vmvx", "failed", LONG.strip())]
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_plain_lines_of_any_length() -> None:
    assert text.table(HEAD, ROWS).splitlines() == [
        "target         status    size",
        "iree-cpu-host  executed  17.7 kB",
        f"iree-vmvx      failed    {LONG.strip()}",
    ]


def test_a_terminal_gets_colour_and_lines_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    found = text.table(HEAD, ROWS)
    assert "\x1b[32mexecuted" in found
    plain = ANSI.sub("", found)
    assert max(map(len, plain.splitlines())) <= 60
    assert plain.count("characters,") == 4


def test_cells_are_not_read_as_markup() -> None:
    assert text.table(("line",), [("[red]x[/red] :smile:",)]).splitlines()[1] == "[red]x[/red] :smile:"


def test_values_are_aligned() -> None:
    assert text.fields({"bundle": "/tmp/out", "at": LONG.strip()}).splitlines() == [
        "bundle  /tmp/out",
        f"at      {LONG.strip()}",
    ]


def test_nothing_is_an_empty_text() -> None:
    assert text.fields({}) == ""
