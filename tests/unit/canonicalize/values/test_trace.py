"""The object of one trace: its parts last as long as it does."""

from __future__ import annotations

import cProfile
import sys
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


def test_a_trace_may_be_profiled() -> None:
    before, profile = sys.getprofile(), cProfile.Profile()
    profile.enable()
    try:
        with trace.started(Trace()):
            pass
        assert sys.getprofile() is profile  # a function call, which a restored object would not take
        with trace.started(Trace()):
            sys.setprofile(lambda *_: None)
        assert sys.getprofile() is None
    finally:
        profile.disable()
        sys.setprofile(before)


def test_attributes_are_as_before_after_an_assignment() -> None:
    class Base:
        shown = 1

    class Own(Base):
        @staticmethod
        def made() -> int:
            return 2

    before = dict(vars(Own))
    with trace.assigned(Own, shown=3, made=4):
        assert (Own.shown, Own.made) == (3, 4)
    assert dict(vars(Own)) == before
    with pytest.raises(AttributeError), trace.assigned(Own, misspelt=1):
        pass
