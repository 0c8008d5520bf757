"""Stage types survive JSON, numbers that JSON lacks included."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from aotpipe.build.report import codec
from aotpipe.core.stages import Latency, Parity, ParityCase
from tests.unit.build.report.samples import TIME

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


@given(st.lists(CASES), st.integers(0), st.text())
def test_parity(cases: list[ParityCase], calls: int, rule: str):
    parity = Parity(cases=tuple(cases), calls=calls, rule=rule)
    text = json.dumps(codec.parity_to_json(parity), allow_nan=False)
    assert codec.parity_from_json(json.loads(text)) == parity


def test_latency():
    latency: Latency = codec.latency_from_json(json.loads(json.dumps(codec.latency_to_json(TIME))))
    assert latency == TIME
