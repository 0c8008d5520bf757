"""What is traced, and what an `if` makes of it."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize.python import dispatch
from tests.unit.canonicalize.python.agree import check


def a_size_that_only_a_run_knows(x):
    found = x[x > 0]
    if found.shape[0] == 0:
        return x.sum()
    if len(found) > 1:
        return found.sum() * 2
    return found.sum()


def test_a_size_decides():
    check(
        a_size_that_only_a_run_knows, *((torch.tensor(v),) for v in ([1.0, 2.0], [-1.0, -2.0], [1.0, -2.0]))
    )


def test_plain_values_are_not_traced():
    assert not any(map(dispatch.is_traced, (1, True, None, "a", torch.ones(()), [torch.ones(())])))


def test_a_predicate_is_one_bool():
    assert dispatch.predicate(torch.tensor([2.0])).item() is True
    with pytest.raises(RuntimeError, match="ambiguous"):
        dispatch.predicate(torch.ones(2))
