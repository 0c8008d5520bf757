"""The page needs nothing but itself, and shows what it is given as text."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

from aotpipe.build.report.html import render
from tests.unit.build.report.samples import REPORT
from tests.unit.core.test_estimate import SAMPLE


class _Outline(HTMLParser):
    void = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {name for name, _ in attrs} & {"src", "href"}, "the page needs another file"
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_html_is_one_page_and_escapes_what_it_shows():
    page = render(REPORT)
    outline = _Outline()
    outline.feed(page)
    assert outline.open == []
    text = " ".join(" ".join(outline.text).split())
    for part in (
        "model.py:7",
        "got nan & <1.0>",
        "--iree-b=<c>",
        "×0.79",
        "17.7 kB",
        "12%",
        "the cache is full",
    ):
        assert part in text, part
    assert "<1.0>" not in page


def test_estimates_are_called_so():
    assert "estimate" not in render(REPORT).lower()
    row = replace(REPORT.targets[1], estimates=(SAMPLE, replace(SAMPLE, memory_bytes=0, loops=77)))
    page = render(replace(REPORT, targets=(row,)))
    assert "<h2>Estimates</h2>" in page
    assert "75% bfloat16, 25% float32 (highest)" in page
    assert "unknown length" not in page
