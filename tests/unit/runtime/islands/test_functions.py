"""The functions of islands on a host."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from aotpipe.errors import IslandNotFound
from aotpipe.runtime.islands import marks
from aotpipe.runtime.islands.functions import functions
from tests.unit.islands import models
from tests.unit.runtime.islands.test_chain import ISLAND

HERE = replace(ISLAND, name="tests.unit.islands.models:order")


def test_a_marked_function_is_found_in_the_process_or_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    want = marks.mark_of(models.order)
    assert want is not None
    assert functions([HERE]) == {HERE.name: want.function}
    monkeypatch.delitem(marks.MARKS, HERE.name)
    assert functions([HERE]) == {HERE.name: want.function}


def test_what_is_given_comes_first() -> None:
    assert functions([HERE], {HERE.name: len}) == {HERE.name: len}


def test_an_op_is_found_in_torch() -> None:
    island = replace(ISLAND, name="aten.relu.default", kind="op")
    assert functions([island])["aten.relu.default"] is torch.ops.aten.relu.default


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("no_such_module:f", "function", "cannot be imported"),
        ("os:system", "function", "is not marked"),
        ("os:no_such", "function", "no_such"),
        ("aten.nothing.default", "op", "nothing"),
        ("aten.relu", "op", "no op"),
    ],
)
def test_what_a_host_lacks_or_must_not_be_named_is_refused(name: str, kind: str, message: str) -> None:
    with pytest.raises(IslandNotFound, match=message):
        functions([replace(ISLAND, name=name, kind=kind)])
