"""What a path's flags say of values that may be None, and what is done with them where they are not there."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from aotpipe.canonicalize.values import trace
from aotpipe.canonicalize.values.optional_values import (
    OptionalValue,
    assume,
    assuming,
    from_origin,
    imply,
    imply_joined,
    presence,
)
from aotpipe.canonicalize.values.trace import Trace, started
from tests.unit.canonicalize.trace.agree import check
from tests.unit.canonicalize.values.asserting import asserting

X = torch.arange(3.0)


def optional() -> OptionalValue:
    return OptionalValue(torch.tensor(True), X, name="'bias'")


def test_it_is_used_as_what_it_holds():
    with asserting(holds=True):
        value = optional()
        assert torch.equal(value + 1, X + 1)
        assert torch.equal(1 - value, 1 - X)
        assert torch.equal(-value, -X)
        assert torch.equal(torch.exp(value), X.exp())
        assert value.shape == X.shape
        assert len(value) == 3


def test_it_hides_no_attribute_of_what_it_holds():
    names = "flag is_key is_present name needed origin payload present require_present".split()
    held = SimpleNamespace(**{name: at for at, name in enumerate(names)})
    with asserting(holds=True):
        value = OptionalValue(torch.tensor(True), held)
        assert [getattr(value, name) for name in names] == [*range(len(names))]


def test_where_eager_would_raise_it_asserts_that_it_is_there():
    with asserting(holds=False) as said:
        value = optional()
        _ = value + 1, value.shape, value[0], torch.exp(value)
        assert len(said) == 4
        assert said[0] == "TypeError: 'bias' is None"
        with assuming(presence(value, wanted=True), holds=True):
            _ = value + 1
        assert len(said) == 4
        assert not value.is_optional_present
    with asserting(holds=True):
        _ = value + 1
        assert value.is_optional_present


def test_flags_of_flags_say_what_is_there():
    with started(Trace()):
        a, b = optional(), optional()
        is_a, no_b = presence(a, wanted=True), presence(b, wanted=False)
        is_b = imply(no_b.logical_not(), no_b, negated=True)
        both = imply(is_a.logical_and(is_b), is_a, is_b)
        either = imply(is_a.logical_or(is_b), is_a, is_b, all_of=False)
        assert trace.current().watches_calls
        with assuming(both, holds=True):
            assert a.is_optional_present
            assert b.is_optional_present
        for flag, holds in ((both, False), (either, True), (either, False)):
            with assuming(flag, holds=holds):
                assert not a.is_optional_present
                assert not b.is_optional_present
        with assuming(no_b, holds=False):
            assert b.is_optional_present
    assert not trace.current().watches_calls


def indexed_after_a_raise(x: torch.Tensor) -> torch.Tensor:
    best = None
    for i in range(3):
        if x[i] > 0.5:
            best = x > x[i] - 1
    if best is None:
        raise RuntimeError("none is large")
    return x[best]


def test_a_value_is_there_after_a_raise_where_it_is_none() -> None:
    """An index of it was taken for one of None, too, which gives another dim."""
    check(indexed_after_a_raise, *((torch.tensor(row),) for row in ([0.3, -0.6, 0.9], [0.1, 0.2, 0.3])))


def test_what_a_branch_reads_of_a_value_is_asserted_nowhere_else():
    def model(x):
        mask = x > 1
        if not mask.any():
            mask = None
        y = x * 2
        if mask is not None:
            y = y * (1 - mask.unsqueeze(-1).to(y).sum(-1)) + mask.mT.sum()
        return y

    check(model, (torch.tensor([[0.5, 2.0]]),), (torch.tensor([[0.5, -2.0]]),))


def test_elements_of_one_index_are_there_together():
    held = [X, X + 1]
    with asserting(holds=False):
        one, again = (from_origin(optional(), 1, held) for _ in range(2))
        other, written = from_origin(optional(), 0, held), from_origin(optional(), torch.tensor(1), held)
        changed = from_origin(optional(), 1, [X, X])
        with assuming(presence(one, wanted=True), holds=True):
            assert again.is_optional_present
            assert not any(each.is_optional_present for each in (other, written, changed))
        assert not again.is_optional_present


def test_what_counts_as_true_is_there():
    with asserting(holds=False):
        value = optional()
        assert assume(value, holds=False) == []
        assert assume(value, holds=True) == [value]
        assert value.is_optional_present


def test_a_flag_that_a_branch_sets_says_what_its_test_says():
    with started(Trace()):
        a, b = optional(), optional()
        no_a, is_b = presence(a, wanted=False), presence(b, wanted=True)

        def known(then: object, other: object, *, holds: bool) -> list[bool]:
            flag = torch.tensor(True)
            imply_joined(flag, no_a, then, other)
            with assuming(flag, holds=holds):
                return [each.is_optional_present for each in (a, b)]

        assert known(True, False, holds=False) == [True, False]
        assert known(True, False, holds=True) == [False, False]
        assert known(False, True, holds=True) == [True, False]
        assert known(False, is_b, holds=True) == [True, True]
        assert known(True, is_b, holds=False) == [True, False]
        assert known(is_b, True, holds=False) == [False, False]
        assert known(is_b, False, holds=True) == [False, True]
        assert known(is_b, is_b, holds=True) == [False, False]
        assert known(0, 1, holds=True) == [False, False]


def _measured(x, least):
    total = 0.0
    for v in x:
        total = total + v.item()
        if total >= least:
            return None
    return total


def skipped_where_it_is_none(x):
    best = 6.5
    for start in range(2):
        found = _measured(x[start:], best)
        if found is None:
            continue
        if found < best:
            best = found
    return best


def noted_by_a_flag(x):
    found = _measured(x, 6.5)
    ok, other = False, True
    if found is not None:
        ok, other = True, False
    total = 0.0
    if not other:
        total = total + found
    if x[0] > 3:
        ok = True
    if ok:
        total = total + found
    return total


def given_anew_under_a_flag(x):
    found, ok = _measured(x, 6.5), True
    if found is None:
        ok = False
        found = _measured(x / 2, 6.5)
    if ok:
        return found + 1
    return -1.0 if found is None else found


def test_a_flag_that_a_branch_sets_keeps_what_it_says_in_a_program():
    cases = [
        (torch.tensor(each),) for each in ([1.0, 2, 3], [4.0, 5, 6], [0.0, 0, 7], [-1.0, 7, 3], [0.0, 4, 4])
    ]
    for model in (skipped_where_it_is_none, noted_by_a_flag, given_anew_under_a_flag):
        check(model, *cases)
