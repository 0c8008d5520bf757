"""Stage types survive JSON, numbers that JSON lacks included, and what is wrong is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.core.serialization import from_json, to_json
from aotpipe.core.signature import Constant
from aotpipe.core.stages import Finding, Parity, ParityCase, Partition, Schedule
from aotpipe.errors import SourceLine, SpecInvalid
from tests.unit.build.reports import TIME

FLOATS = st.floats(allow_nan=False)
CASES = st.builds(
    ParityCase,
    entry_point=st.text(),
    case=st.text(),
    output=st.text(),
    max_abs_error=FLOATS,
    eager_abs_error=FLOATS,
    ratio=FLOATS,
    worst_index=st.lists(st.integers(0)).map(tuple),
    got=FLOATS,
    want=FLOATS,
    message=st.text(),
)
PAIR = Partition(
    mesh="data=2,model=2",
    devices=4,
    splits={"w": "(model, None)", "x": "(data,)"},
    collectives={"all-reduce": 2, "all-gather": 1},
)
SCHEDULE = Schedule(dispatches=7, kernels=6, copies=1, fills=0, waits=2, allocated_bytes=4096)
WARNING = Finding(severity="warning", code="unused-input", message="m", where=SourceLine("m.py", 3))


@given(st.lists(CASES), st.integers(0), st.text())
def test_a_parity_is_read_back(cases: list[ParityCase], calls: int, rule: str) -> None:
    parity = Parity(cases=tuple(cases), calls=calls, rule=rule)
    text = json.dumps(parity.to_json(), allow_nan=False)
    assert json.loads(text)["passed"] == parity.passed
    assert Parity.from_json(json.loads(text)) == parity


@pytest.mark.parametrize("value", [PAIR, SCHEDULE, TIME, WARNING, Constant("causal", True)])
def test_a_value_is_read_back(value: Any) -> None:
    assert type(value).from_json(json.loads(json.dumps(value.to_json(), allow_nan=False))) == value


def test_what_follows_from_the_rest_is_written_for_readers_only() -> None:
    assert TIME.to_json()["noisy"] == TIME.noisy
    assert "noisy" not in to_json(TIME, derived=False)


def test_a_line_is_written_as_a_pair_and_read_as_an_object_too() -> None:
    data = WARNING.to_json()
    assert data["where"] == ["m.py", 3]
    assert Finding.from_json({**data, "where": {"path": "m.py", "line": 3}}) == WARNING


def test_a_field_has_its_name_in_json() -> None:
    assert Constant("causal", True).to_json() == {"name": "causal", "constant": True}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"waits": "many"}, "waits: .*integer"),
        ({"waits": float("nan")}, "waits: .*finite"),
        ({"waits": None}, "waits: .*integer"),
    ],
)
def test_the_first_thing_that_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule.from_json({**SCHEDULE.to_json(), **change})


@pytest.mark.parametrize("data", [None, 3, [], "text", {"dispatches": 1}])
def test_what_is_no_such_value_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(Schedule, data)


def test_keys_of_a_later_release_are_ignored() -> None:
    assert Schedule.from_json({**SCHEDULE.to_json(), "later": 1}) == SCHEDULE


def test_what_writes_itself_is_asked() -> None:
    error = SpecInvalid("no", hint="do")
    assert to_json({"errors": [error]}) == {"errors": [error.to_json()]}
