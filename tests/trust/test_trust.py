"""A small part of each line that is quick; `python -m tests.trust --all` measures all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sweep import sweep
from tests.trust import __main__ as command
from tests.trust import hostile, mutations


@pytest.mark.parametrize("kind", sweep(mutations.UNITS, quick=3))
def test_mutated_bundles_are_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "_stop_before_native_code", lambda: _stopped(monkeypatch))
    counts = mutations.run(kind, tmp_path, count=40)
    assert counts["cases"] == counts["refused"] + counts["forged"]
    assert counts["cases"] >= 35


def _stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    from aotpipe.runtime import loading
    from aotpipe.runtime.bundle import recorded

    def reached(*_: object, **__: object) -> None:
        raise mutations.Reached

    monkeypatch.setattr(loading, "runtime", reached)
    monkeypatch.setattr(recorded, "Worker", reached)


@pytest.mark.parametrize("case", sweep(hostile.CASES, quick=3))
def test_hostile_bundles_are_refused(case: str, tmp_path: Path) -> None:
    assert hostile._tried(tmp_path, hostile.CASES[case]) == ""
    assert not (tmp_path / "canary").exists()


def test_every_line_has_parts_and_a_judgement() -> None:
    for name in command.LINES:
        line = command._line(name)
        assert line.UNITS
        assert line.WANTED
        figure, met = line.judge(command._Counts())
        assert figure
        assert not met, f"{name} is met with nothing measured"


def test_what_was_measured_is_kept_and_a_death_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_commit", str)
    started = []

    class Dying(subprocess.Popen[str]):
        def __init__(self, argv: list[str], **options: object) -> None:
            started.append(argv[-1])
            code = "import os; os.kill(os.getpid(), 11)" if argv[-1] == "all" else "print()"
            super().__init__([sys.executable, "-c", code], **options)

    monkeypatch.setattr(command.subprocess, "Popen", Dying)
    for _ in range(2):
        row = command._measured("hostile", tmp_path, every=True, again=False)
        assert row["counts"] == {"signals": 1}
        assert not row["met"]
        assert "1 signals of parts" in row["figure"]
    assert started == ["all"]
    [kept] = map(json.loads, (tmp_path / "hostile.jsonl").read_text().splitlines())
    assert kept["unit"] == "all"
