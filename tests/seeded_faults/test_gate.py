"""The lines that `scripts/gate` prints say what their commands printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import aotpipe
from aotpipe.errors import Unproven
from aotpipe.model.spec import as_spec
from scripts import false_alarms, gate
from tests.faults.faults import ROOT


class _Scaled(torch.nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.number


JUDGES = {line.name: line.judge for line in gate.LINES}


@pytest.mark.parametrize(
    ("name", "printed", "code", "met"),
    [
        ("random", "...\n12 passed in 3 s", 0, True),
        ("random", "1 failed, 11 passed in 3 s", 1, False),
        ("random", "3 skipped in 1 s", 0, False),
        ("faults", "the gate catches 80 of 80, one random call 30", 0, True),
        ("faults", "the gate catches 79 of 80, one random call 30", 1, False),
        ("faults", "a crash", 1, False),
        ("false alarms", "300 executed, 4 refused", 0, True),
        ("false alarms", "299 executed", 0, False),
        ("false alarms", "300 executed, 1 unproven", 1, False),
        ("coverage", "coverage: 8 of 9 reached, 1 named\nlongest search for calls: 3.0 s", 0, True),
        ("coverage", "coverage: 8 of 9 reached, 0 named\nlongest search for calls: 3.0 s", 0, False),
        ("coverage", "coverage: 9 of 9 reached, 0 named\nlongest search for calls: 23.0 s", 0, False),
    ],
)
def test_a_line_is_met_or_not(name: str, printed: str, code: int, met: bool) -> None:
    assert JUDGES[name](printed, code)[1] == met


def test_the_tests_that_lines_name_are_there() -> None:
    for line in gate.LINES:
        for argument in line.command:
            assert not argument.endswith(".py") or (ROOT / argument).is_file()


def test_a_line_of_tests_is_met_by_what_pytest_prints(tmp_path: Path) -> None:
    line = gate.Line("tests", "some", gate._pytest("tests/unit/core/test_units.py"), gate._tests)
    figure, is_met = gate.measure(line, tmp_path)
    assert is_met
    assert figure.endswith(" passed")


def test_a_sweep_goes_on_where_it_ended(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(false_alarms, "cases", lambda parts, seeds: [("a", None), ("b", None)])
    monkeypatch.setattr(false_alarms, "judged", lambda made: {"verdict": "failed", "said": "it"})
    record = tmp_path / "record.jsonl"
    record.write_text(json.dumps({"case": "a", "verdict": "executed", "said": ""}) + "\n")
    monkeypatch.setattr(sys, "argv", ["false_alarms.py", "--record", str(record)])
    assert false_alarms.main() == 1
    assert len(record.read_text().splitlines()) == 2
    assert "1 executed, 1 failed" in capsys.readouterr().out


def test_what_is_no_model_and_what_is_refused_are_no_builds() -> None:
    def raises(_: Path) -> None:
        raise RuntimeError("no")

    assert false_alarms.judged(raises)["verdict"] == "no program"


@pytest.mark.parametrize(("number", "verdict"), [(0.0, "vacuous"), (1e-3, "unproven")])
def test_a_model_of_one_answer_is_no_build_that_failed(
    number: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unproven(*_: object, **__: object) -> None:
        raise Unproven("no output says whether it is right")

    monkeypatch.setattr(aotpipe, "build", unproven)
    model = as_spec(_Scaled(number), args=(torch.ones(3),))
    assert false_alarms.judged(lambda _: model)["verdict"] == verdict


def test_a_model_that_raises_on_every_random_call_says_nothing_of_its_answers() -> None:
    class Raising(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not torch.equal(x, torch.ones(3)):
                raise ValueError("another one")
            return x

    assert not false_alarms._gives_one_answer(as_spec(Raising().eval(), args=(torch.ones(3),)))
