"""The page: one file, escaped, complete."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import jinja2
import pytest

from aotpipe.build.formats import page as pages
from aotpipe.build.formats.page import render
from aotpipe.build.report import Budget, Failure, Origin, Report
from aotpipe.core.coverage import Coverage, Goal
from aotpipe.errors import SourceLine
from tests.unit.build.reports import REPORT
from tests.unit.core.test_estimate import SAMPLE


class _Outline(HTMLParser):
    void = frozenset({"meta", "br", "link", "line", "rect"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        asked = [value or "" for name, value in attrs if name in {"src", "href"}]
        assert all(value.startswith("data:") for value in asked), "the page needs another file"
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.void:
            self.handle_endtag(tag)

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


def test_the_page_is_compiled_once_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def compile_slowly(_: jinja2.Environment, source: str) -> object:
        compiled.append(source)
        time.sleep(0.2)
        return object()

    pages._template.cache_clear()
    monkeypatch.setattr(jinja2.Environment, "from_string", compile_slowly)
    try:
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda _: pages.template(), range(2))
    finally:
        pages._template.cache_clear()
    assert first is second
    assert len(compiled) == 1


def test_the_verdict_is_one_sentence():
    assert pages.verdict(REPORT) == "1 of 3 targets failed."
    good = replace(REPORT, targets=REPORT.targets[:2])
    assert pages.verdict(good) == (
        "1 of 2 targets ran here and answer as PyTorch does, within the tolerance; the others are compiled."
    )
    budget = Budget(target="iree-vmvx", name="size", limit="2 MB", found="3 MB", passed=False)
    assert (
        pages.verdict(replace(good, budgets=(budget,))) == "No target failed, and 1 of 1 budgets do not hold."
    )


def test_a_failed_build_has_a_page_with_its_origin():
    failure = Failure(
        error="ExportFailed", stage="export", exit_code=20, message="<no>", where=SourceLine("net.py", 3)
    )
    origin = Origin(
        command="aotpipe build net.py", date="2026-11-25T22:00:00Z", machine="a CPU", commit="abc"
    )
    page = render(Report(name="net", failure=failure, origin=origin))
    for part in (
        "failed in the stage export: &lt;no&gt;",
        "net.py:3",
        "aotpipe build net.py",
        "a CPU",
        "abc",
    ):
        assert part in page, part


def test_the_rewritten_source_is_shown_line_by_line():
    assert "Rewritten source" not in render(REPORT)
    diff = "--- net.py\n+++ net.py\n@@ -1,3 +1,3 @@\n-if x < 0 & y:\n--- x\n+++y\n+z = torch.cond(x < 0)\n \n"
    assert [line.kind for line in pages.diff_lines(diff)] == (
        ["head", "head", "hunk", "removed", "removed", "added", "added", "same"]
    )
    page = render(replace(REPORT, source_diff=diff))
    assert '<code class="removed">-if x &lt; 0 &amp; y:</code>' in page
    assert '<code class="added">+z = torch.cond(x &lt; 0)</code>' in page
    assert "left out" not in page
    outline = _Outline()
    outline.feed(page)
    assert outline.open == []


def test_of_a_long_diff_the_page_says_how_much_is_left_out():
    diff = "--- net.py\n+++ net.py\n" + "".join(f"+x = {number}\n" for number in range(500))
    page = render(replace(REPORT, source_diff=diff))
    assert "102 more lines are left out" in page
    assert "+x = 397<" in page
    assert "+x = 398<" not in page


def test_coverage_stands_beside_the_source(tmp_path: Path):
    path = tmp_path / "net.py"
    path.write_text("def f(x):\n    if x > 0 & x < 9:\n        return 1\n    return 2\n")
    where = SourceLine(str(path), 2)
    goals = (
        Goal(entry_point="f", kind="branch", what="true", where=where, case="seed 0"),
        Goal(entry_point="f", kind="branch", what="false", where=where, reason="no call found"),
        Goal(entry_point="f", kind="size", what="batch=64", case="batch=64"),
    )
    report = replace(REPORT, coverage=Coverage(goals=goals))
    (lines,) = pages.covered_sources(report).values()
    assert [line.number for line in lines] == [1, 2, 3, 4]
    page = render(report)
    assert "if x &gt; 0 &amp; x &lt; 9:" in page
    assert "no call found" in page
    assert "2 of 3 branches, trips and sizes" in page
    path.unlink()
    assert [line.number for line in pages.covered_sources(report)[str(path)]] == [2]
