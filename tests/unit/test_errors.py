"""Every error has its own exit code, docs/errors.md lists them all, and a message says it all."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

from aotpipe import errors
from aotpipe.build.report import KILLED
from aotpipe.errors import BUG, AotpipeError, CompileFailed, SourceLine


def _all() -> list[type[AotpipeError]]:
    found = [AotpipeError]
    for error in found:
        found += error.__subclasses__()
    return [error for error in found if error.__module__ == errors.__name__]


def test_every_error_has_an_exit_code_of_its_own() -> None:
    codes = {error.__name__: error.__dict__.get("exit_code") for error in _all()}
    assert all(isinstance(code, int) and 1 <= code <= 255 for code in codes.values()), codes
    assert len(set(codes.values())) == len(codes)


def test_no_code_is_one_that_click_or_python_uses() -> None:
    taken = {0, 2, BUG, KILLED, 128 + signal.SIGPIPE}
    assert not taken & {error.exit_code for error in _all()}


def test_the_documentation_lists_them_all_in_their_own_words() -> None:
    page = Path(__file__).resolve().parents[2] / "docs/errors.md"
    rows = re.findall(
        r"^\| `([A-Z]\w+)` \| (\d+) \| (.*) \|$", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {name: (int(code), meaning) for name, code, meaning in rows} == {
        error.__name__: (error.exit_code, (error.__doc__ or "").splitlines()[0].rstrip("."))
        for error in _all()
    }


def test_the_message_names_stage_place_reason_log_and_hint() -> None:
    error = CompileFailed(
        "no luck", reason="first\nsecond", hint="try again", where=SourceLine("model.py", 7), log="a.log"
    )
    assert str(error).splitlines() == [
        "error[compile]: model.py:7: no luck",
        "  first",
        "  second",
        "  log: a.log",
        "  hint: try again",
    ]


def test_json_holds_the_same() -> None:
    data = json.loads(json.dumps(CompileFailed("no luck", where=SourceLine("model.py", 7)).to_json()))
    assert data["error"] == "CompileFailed"
    assert data["exit_code"] == 35
    assert data["where"] == "model.py:7"
    assert data["log"] is None
