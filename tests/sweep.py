"""Parametrizations and examples of which the quick run takes a few, and `scripts/test --all` every one.

A past fault (`tests/faults`) names a case that the quick run takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from os import environ
from typing import Any

import pytest
from hypothesis import settings


def sweep(cases: Iterable[Any], *, quick: int, always: Collection[Any] = ()) -> list[Any]:
    """Cases for `pytest.mark.parametrize`, of which the quick run takes `quick`, evenly spread.

    Args:
        cases: The cases; several arguments as a tuple, or a `pytest.param`.
        quick: How many the quick run takes.
        always: Cases, or ids of a `pytest.param`, that it takes beside those.
    """
    found = list(cases)
    known = list(map(_identity, found))
    unknown = [each for each in always if each not in known]
    assert not unknown, f"no case is {unknown}"
    count = min(quick, len(found))
    taken = {round(place * (len(found) - 1) / max(count - 1, 1)) for place in range(count)}
    return [
        case if place in taken or known[place] in always else slow(case) for place, case in enumerate(found)
    ]


def slow(case: Any) -> Any:
    """A case that the quick run leaves out: other tests take each branch of aotpipe's that it takes."""
    if isinstance(case, _ParameterSet):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)


def examples(*, quick: int, nightly: int) -> settings:
    """How many random examples each of hypothesis's profiles takes."""
    return settings(
        deadline=None, max_examples=nightly if environ.get("HYPOTHESIS_PROFILE") == "nightly" else quick
    )


def _identity(case: Any) -> Any:
    return case.id if isinstance(case, _ParameterSet) and case.id else case


_ParameterSet = type(pytest.param())
