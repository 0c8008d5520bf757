"""Ranges of traced numbers, against eager."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.operators.dynamic_range import TensorRange
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.unit.canonicalize.trace.agree import check

CASES = tuple((torch.tensor([1.0, 2.0]), torch.tensor(n)) for n in (3, 0, 1, -2, 7))


def steps(x, n):
    for i in range(2 * n, -1, -3):
        x = x + i
    for i in range(1, n + 1):
        if x[0] > 20:
            break
        x = x * i
    else:
        x = x - 1
    return x


def test_ranges_as_in_eager() -> None:
    check(steps, *CASES)


def test_a_range_of_plain_numbers_knows_its_trips() -> None:
    assert TensorRange.of((5,)).iterations == 5
    assert TensorRange.of((9, 2, -3)).iterations == len(range(9, 2, -3))
    assert TensorRange(0, torch.tensor(3), 1, most=4).iterations == 4


def test_it_is_not_written_out() -> None:
    def listed(x, n):
        return x + sum(tuple(range(n)))

    with pytest.raises(ExportFailed, match="other than by a `for`"):
        export(canonicalize(as_spec(listed, args=CASES[0])))
