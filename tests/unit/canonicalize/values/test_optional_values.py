"""What a path's flags say of values that may be None, and what is done with them where they are not there."""

from __future__ import annotations

import torch

from aotpipe.canonicalize.values.optional_values import Maybe, imply, may_lack, presence, there
from aotpipe.canonicalize.values.trace import Trace, started

X = torch.arange(3.0)


def maybe() -> Maybe:
    return Maybe(torch.tensor(True), X)


def test_it_is_used_as_what_it_holds():
    value = maybe()
    assert torch.equal(value + 1, X + 1)
    assert torch.equal(1 - value, 1 - X)
    assert torch.equal(-value, -X)
    assert torch.equal(torch.exp(value), X.exp())
    assert value.shape == X.shape
    assert len(value) == 3


def test_where_eager_would_raise_it_claims_to_be_there():
    value = maybe()
    said: list[str] = []
    value.claim = lambda _, text: bool(said.append(text))
    _ = value + 1, value.shape, value[0], torch.exp(value)
    assert len(said) == 4
    with started(Trace()), there(presence(value, wanted=True), holds=True):
        _ = value + 1
    assert len(said) == 4
    value.claim = lambda _, text: True
    _ = value + 1
    assert value.is_there


def test_flags_of_flags_say_what_is_there():
    with started(Trace()):
        a, b = maybe(), maybe()
        is_a, no_b = presence(a, wanted=True), presence(b, wanted=False)
        is_b = imply(no_b.logical_not(), no_b, negated=True)
        both = imply(is_a.logical_and(is_b), is_a, is_b)
        either = imply(is_a.logical_or(is_b), is_a, is_b, all_of=False)
        assert may_lack()
        with there(both, holds=True):
            assert a.is_there
            assert b.is_there
        for flag, holds in ((both, False), (either, True), (either, False)):
            with there(flag, holds=holds):
                assert not a.is_there
                assert not b.is_there
        with there(no_b, holds=False):
            assert b.is_there
    assert not may_lack()
