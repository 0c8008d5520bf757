"""Parametrizations of which the quick run takes a few cases, and `scripts/test --all` every one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sweep(cases: Iterable[Any], *, quick: int, always: Collection[Any] = ()) -> list[Any]:
    """Cases for `pytest.mark.parametrize`, of which the quick run takes `quick`, evenly spread.

    Args:
        cases: The cases; several arguments as a tuple, or a `pytest.param`.
        quick: How many the quick run takes.
        always: Cases, or ids of a `pytest.param`, that it takes beside those.
    """
    found = list(cases)
    count = min(quick, len(found))
    taken = {round(place * (len(found) - 1) / max(count - 1, 1)) for place in range(count)}
    return [
        case if place in taken or _identity(case) in always else _slow(case)
        for place, case in enumerate(found)
    ]


def _identity(case: Any) -> Any:
    return case.id if isinstance(case, _ParameterSet) and case.id else case


def _slow(case: Any) -> Any:
    if isinstance(case, _ParameterSet):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)


_ParameterSet = type(pytest.param())
