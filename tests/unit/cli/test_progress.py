"""A build's events on stderr: bars for people, lines for logs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from aotpipe.build.events import Event, Planned, Remark, StageFinished, StageStarted
from aotpipe.cli import progress
from aotpipe.core.stages import Finding
from aotpipe.errors import SourceLine

FINDING = Finding(
    severity="warning",
    code="unused-input",
    message="nothing reads 'x'",
    hint="drop it",
    where=SourceLine("m.py", 3),
)


def finished(stage: str, target: str = "", **more: bool) -> StageFinished:
    return StageFinished(stage=stage, target=target, wall_s=1.25, peak_rss_bytes=0, **more)


EVENTS: list[Event] = [
    Planned(totals={"compile": 2}),
    StageStarted(stage="export"),
    FINDING,
    finished("export"),
    StageStarted(stage="compile", target="iree-vmvx"),
    StageStarted(stage="compile", target="iree-cpu-host"),
    finished("compile", "iree-vmvx", cached=True),
    finished("compile", "iree-cpu-host", failed=True),
    Remark(message="the cache is full"),
]


def test_plain_lines(capsys: pytest.CaptureFixture[str]):
    with progress.shown() as listener:
        for event in EVENTS:
            listener(event)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "export                       ...",
        "warning[unused-input]: m.py:3: nothing reads 'x'",
        "  hint: drop it",
        "export                       1.2 s",
        "compile iree-vmvx            ...",
        "compile iree-cpu-host        ...",
        "compile iree-vmvx            cached",
        "compile iree-cpu-host        failed",
        "warning: the cache is full",
    ]


def test_quiet_says_what_should_not_be_missed(capsys: pytest.CaptureFixture[str]):
    with progress.shown(quiet=True) as listener:
        for event in EVENTS:
            listener(event)
    assert capsys.readouterr().err.splitlines() == [
        "warning[unused-input]: m.py:3: nothing reads 'x'",
        "  hint: drop it",
        "warning: the cache is full",
    ]


def test_bars_count_targets_and_leave_findings_above():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100)
    with Progress(console=console) as bars:
        listener = progress._Bars(bars)
        for event in EVENTS:
            listener(event)
        tasks = {task.description: task for task in bars.tasks}
    assert (tasks["compile"].completed, tasks["compile"].total) == (2, 2)
    assert tasks["compile"].fields["note"] == "iree-cpu-host failed"
    assert (tasks["export"].completed, tasks["export"].total) == (1, 1)
    assert "warning[unused-input]: m.py:3" in stream.getvalue()


def test_no_bars_in_ci(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert progress.is_terminal()
    monkeypatch.setenv("CI", "true")
    assert not progress.is_terminal()
