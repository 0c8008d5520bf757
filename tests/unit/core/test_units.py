"""Numbers as people write them."""

from __future__ import annotations

import math

import pytest

from aotpipe.core.units import count, duration, share, size


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (17743, "17.7 kB"),
        (999_949, "999.9 kB"),
        (999_990, "1.0 MB"),
        (10**12, "1000.0 GB"),
    ],
)
def test_size(number: int, text: str):
    assert size(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (4100, "4.1 k"), (999_960, "1.0 M"), (2.5e12, "2.5 T"), (1e18, "1000.0 P")],
)
def test_count(number: float, text: str):
    assert count(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 µs"),
        (4.9e-8, "49 ns"),
        (4.52e-5, "45.2 µs"),
        (0.0013, "1.30 ms"),
        (2.5, "2.5 s"),
        (185.2, "3 min 5 s"),
    ],
)
def test_duration(seconds: float, text: str):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.0, "0%"), (0.001, "<1%"), (0.124, "12%"), (1.0, "100%"), (3.4, "×3.4"), (math.inf, "∞")],
)
def test_share(ratio: float, text: str):
    assert share(ratio) == text
