"""The buffers of lists that grow, by themselves."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize.rewrite import staging
from aotpipe.canonicalize.values import element_kinds
from aotpipe.canonicalize.values.dynamic_list import DynamicList, Kind
from aotpipe.canonicalize.values.trace import Trace, started
from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check


def rows(*starts: float) -> list[torch.Tensor]:
    return [torch.tensor([start, start + 0.5]) for start in starts]


def made(items: list[object], capacity: int) -> DynamicList:
    abstract = element_kinds.abstract_list([items, [*items, items[0]]], capacity)
    assert abstract is not None
    assert abstract.fitted is not None
    (found,) = abstract.fitted(items)
    return found


def test_kinds_are_equal_by_what_they_hold() -> None:
    with started(Trace()):
        one, other = made(rows(1), capacity=4), made(rows(2), capacity=4)
        assert one.kind == other.kind
        assert pytree.tree_structure([one]) == pytree.tree_structure([other])
        assert one.kind != made(rows(1), capacity=5).kind
        assert isinstance(one.kind, Kind)


def test_it_is_no_element() -> None:
    with staging.staging(torch.nn.Identity()):
        found = made(rows(1), capacity=2)
        for use in (lambda: found + 1, lambda: list(found), lambda: found == 1, lambda: torch.exp(found)):
            with pytest.raises(ExportFailed):
                use()


def test_a_list_of_texts_that_a_tensor_chooses_gets_longer() -> None:
    def model(x):
        values = dict(zip(("low", "mid", "high"), x.tolist(), strict=True))
        active = {name for name, value in values.items() if value > 0}
        names = [name for name, value in values.items() if value > 1]
        return len(active), "mid" in active, names.count("high"), "low" in names, names.count("other")

    check(model, *((torch.tensor(each),) for each in ([1.0, 2.0, 3.0], [-1.0, 4.0, -1.0], [0.0, 0.0, 2.0])))
