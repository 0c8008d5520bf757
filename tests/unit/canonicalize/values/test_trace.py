"""The object of one trace: its parts last as long as it does."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.trace import Trace


@dataclass
class Notes:
    lines: list[str] = field(default_factory=list)


def test_a_part_is_made_once_for_a_trace_and_dropped_with_it() -> None:
    with trace.started(Trace()):
        assert trace.is_on()
        trace.part(Notes).lines.append("first")
        assert trace.part(Notes).lines == ["first"]
        with trace.started(Trace()):
            assert trace.part(Notes).lines == []
        assert trace.part(Notes).lines == ["first"]
    assert not trace.is_on()
    trace.part(Notes).lines.append("nobody keeps it")
    assert trace.part(Notes).lines == []


def test_a_trace_ends_where_its_body_raises() -> None:
    with pytest.raises(KeyError), trace.started(Trace()):
        raise KeyError
    assert not trace.is_on()
    with pytest.raises(AssertionError, match="outside of it"):
        trace.operators()
