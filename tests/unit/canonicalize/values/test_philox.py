"""Philox 2x32-10 gives the words that its authors publish, and numbers of the distributions that it names."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.canonicalize.values import philox


# Random123 1.14, `tests/kat_vectors`: counter, key, words.
@pytest.mark.parametrize(
    ("low", "high", "key", "words"),
    [
        (0, 0, 0, (0xFF1DAE59, 0x6CD10DF2)),
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, (0x2C3F628B, 0xAB4FD7AD)),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, (0xDD7CE038, 0xF62A4C12)),
    ],
)
def test_the_words_are_those_of_the_known_answers(low, high, key, words):
    counter = (high << 32) | low
    first = torch.tensor(counter - 2**64 if counter >= 2**63 else counter)
    assert tuple(map(int, philox.words(torch.tensor(key), first, ()))) == words


@given(st.integers(0, philox.HIGHEST_SEED), st.integers(0, 2**40), st.integers(1, 9), st.integers(1, 9))
def test_a_draw_goes_on_where_another_ends(seed, first, before, after):
    """Two draws in a row are one of as many numbers, whatever their shapes."""
    key = torch.tensor(seed)
    whole = philox.words(key, torch.tensor(first), (before + after,))
    parts = [
        philox.words(key, torch.tensor(first), (before, 1)),
        philox.words(key, torch.tensor(first + before), (1, after)),
    ]
    for both, one, other in zip(whole, *parts, strict=True):
        assert torch.equal(both, torch.cat([one.flatten(), other.flatten()]))


def test_the_numbers_are_spread_as_their_distributions_say():
    drawn = philox.words(torch.tensor(1), torch.tensor(0), (200_000,))
    uniform, normal = philox.uniform(drawn[0]), philox.normal(drawn)
    assert float(uniform.min()) >= 0
    assert float(uniform.max()) < 1
    counts = torch.histc(uniform, 64, 0, 1)
    expected = len(uniform) / 64
    # Chi-squared of 63 degrees of freedom is above 110 in 2 of 10,000.
    assert float(((counts - expected) ** 2 / expected).sum()) < 110
    assert abs(float(normal.mean())) < 0.01
    assert abs(float(normal.std()) - 1) < 0.01
    for bound, share in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):
        assert abs(float((normal.abs() < bound).float().mean()) - share) < 0.004
    # The two words, and neighbours, are independent.
    other = philox.uniform(drawn[1])
    for one, two in ((uniform, other), (uniform[1:], uniform[:-1])):
        assert abs(float(torch.corrcoef(torch.stack([one, two]))[0, 1])) < 0.01


def test_numbers_that_are_logarithms_operands_are_inside():
    ends = torch.tensor([0, 0xFFFFFFFF])
    inside = philox.inside(ends)
    assert (inside > 0).all()
    assert (inside < 1).all()


def test_an_order_is_a_permutation():
    found = philox.order(philox.words(torch.tensor(5), torch.tensor(7), (100,)))
    assert sorted(found.tolist()) == list(range(100))
