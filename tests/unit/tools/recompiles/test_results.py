"""A count that is too large, and the text for people."""

from __future__ import annotations

import json

import pytest

from aotpipe.errors import ExportFailed, SourceLine, TooManyPrograms
from aotpipe.tools.recompiles.results import Program, Recompiles, Refused, Way


def program(number: int) -> Program:
    return Program(
        number=number,
        call=number,
        function="forward",
        cause="recompile",
        where=SourceLine("net.py", 7),
        value="self.count: 0 -> 1",
        reason="`self.count == 0` does not hold",
        ops=3,
    )


def found(*ways: Way) -> Recompiles:
    return Recompiles(name="net", calls=("a", "b"), ways=ways)


def test_the_first_program_beyond_the_limit_is_named() -> None:
    result = found(Way(name="torch.compile", so_far=(1, 2), programs=(program(1), program(2))))
    result.require()
    result.require(2)
    with pytest.raises(TooManyPrograms, match="takes 2 programs for 2 calls, more than 1") as e:
        result.require(1)
    assert str(e.value.where) == "net.py:7"
    assert "program 2 in call 2: self.count: 0 -> 1" in e.value.reason
    assert result.way("torch.compile").count == 2
    with pytest.raises(KeyError):
        result.way("iree-vmvx")


def test_a_refused_call_is_beyond_any_limit() -> None:
    result = found(Way(name="iree-vmvx", so_far=(1, 1), refused=(Refused(call=2, reason="too large"),)))
    result.require()
    with pytest.raises(TooManyPrograms, match="does not answer 1 of 2 calls"):
        result.require(1)


def test_what_has_no_program_raises_its_own_error() -> None:
    with pytest.raises(ExportFailed):
        found(Way(name="iree-vmvx", so_far=(), error=ExportFailed("no"))).require()


def test_everything_is_there_and_is_json() -> None:
    ways = (
        Way(name="torch.compile", so_far=(1, 1), programs=(program(1),), notes=("a note",)),
        Way(
            name="iree-vmvx",
            so_far=(1, 1),
            refused=(Refused(call=2, reason="no"),),
            ratio=float("inf"),
            error=ExportFailed("why"),
        ),
    )
    data = json.loads(json.dumps(found(*ways).to_json(), allow_nan=False))
    assert data["schema"] == 1
    assert data["ways"][0]["programs"][0]["where"] == ["net.py", 7]
    assert data["ways"][0]["count"] == 1
    assert data["ways"][1]["refused"] == [{"call": 2, "reason": "no"}]
    assert data["ways"][1]["ratio"] is None
    assert data["ways"][1]["error"]["message"] == "why"


def test_a_row_for_each_program() -> None:
    text = str(found(Way(name="torch.compile", so_far=(1, 2), programs=(program(1), program(2)))))
    assert text.splitlines() == [
        "torch.compile: 2 programs for 2 calls",
        "  calls  programs  line      value               reason",
        "  1      1         net.py:7  self.count: 0 -> 1  `self.count == 0` does not hold",
        "  2      2         net.py:7  self.count: 0 -> 1  `self.count == 0` does not hold",
    ]


def test_parity_refusals_and_errors() -> None:
    text = str(
        found(
            Way(name="a", so_far=(1, 1), compared=2, ratio=0.25, notes=("said",)),
            Way(name="b", so_far=(1, 1), refused=(Refused(call=2, reason="no"),)),
            Way(name="c", so_far=(), error=ExportFailed("why")),
        )
    )
    assert (
        "a: 1 program for 2 calls, 2 answers at parity with eager (at most 25% of the allowed error)" in text
    )
    assert "  note: said" in text
    assert "  call 2 is refused: no" in text
    assert "c: no program\nerror[export]: why" in text
