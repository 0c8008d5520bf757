"""A bundle keeps few calls: every example, and those that reach something first."""

from __future__ import annotations

import numpy as np

from aotpipe.core.coverage import Coverage, Goal
from aotpipe.runtime.goldens import Golden
from aotpipe.validate.kept import to_keep


def golden(
    case: str, elements: int, entry_point: str = "forward", *, reset: bool = True, raises: str = ""
) -> Golden:
    return Golden(
        entry_point=entry_point,
        case=case,
        reset=reset,
        inputs={"x": np.zeros(elements, np.uint8)},
        outputs={},
        allowed={},
        raises=raises,
    )


def kept(goldens: list[Golden], weights_bytes: int = 0, reached: str = "") -> list[str]:
    goals = (Goal(entry_point="forward", kind="branch", what="is true", case=reached),) if reached else ()
    return [each.case for each in to_keep(goldens, Coverage(goals=goals), weights_bytes)]


def test_small_ones_are_all_kept_but_those_that_eager_refuses():
    assert kept([golden("example", 10), golden("bad", 10, raises="ValueError"), golden("seed 0", 10)]) == [
        "example",
        "seed 0",
    ]


def test_the_example_is_kept_whatever_its_size_and_what_tells_comes_first():
    large = 1 << 18
    goldens = [golden("example", 2 * large), golden("seed 0", large), golden("found 1", large)]
    assert kept(goldens) == ["example"]
    assert kept(goldens, weights_bytes=8 * 3 * large, reached="found 1") == ["example", "found 1"]


def test_a_run_is_kept_whole():
    large = 1 << 18
    goldens = [golden("example", 8), golden("a/0", 8), golden("a/1", large, reset=False), golden("b", 8)]
    assert kept(goldens) == ["example", "b"]
    assert kept([golden("p/0", large, "prefill"), golden("p/1", large, "decode", reset=False)]) == [
        "p/0",
        "p/1",
    ]


def test_what_follows_a_call_that_raises_is_not_kept():
    run = [
        golden("a/0", 8),
        golden("a/1", 8, reset=False, raises="ValueError"),
        golden("a/2", 8, reset=False),
    ]
    assert kept(run) == ["a/0"]
    assert kept([golden("example", 8), *run[1:], golden("b", 8)]) == ["example", "b"]
