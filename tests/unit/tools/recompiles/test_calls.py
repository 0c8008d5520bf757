"""Which calls are made."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.errors import SpecInvalid
from aotpipe.tools.recompiles import calls
from aotpipe.tools.recompiles.calls import ModelCall
from tests.unit.tools.recompiles.models import Counting, Scaled, canonical


def sizes(given: tuple[ModelCall, ...]) -> list[int]:
    return [call.args[0].shape[0] for call in given]


def planned(module: torch.nn.Module, *args: Any, **settings: Any) -> tuple[ModelCall, ...]:
    model = canonical(module, *args)
    return calls.planned(model, calls.signatures_of(model), **settings)


def test_drawn_calls_reach_both_ends() -> None:
    found = planned(Scaled(), torch.ones(3, 2))
    assert {1, 3, 8} <= set(sizes(found))
    assert found[0].case == "example"


def test_as_many_as_are_asked_for_and_the_same_for_one_seed() -> None:
    many = planned(Scaled(), torch.ones(3, 2), count=30)
    again = planned(Scaled(), torch.ones(3, 2), count=30)
    other = planned(Scaled(), torch.ones(3, 2), count=30, seed=9)
    assert len(many) == 30
    assert sizes(many) == sizes(again) != sizes(other)
    assert len(planned(Scaled(), torch.ones(3, 2), count=2)) == 2


def test_state_in_python_goes_on_over_calls() -> None:
    found = planned(Counting(), torch.ones(3, 2))
    assert [call.reset for call in found[:4]] == [True, False, False, False]


def test_given_calls_are_args_kwargs_or_values() -> None:
    model = canonical(Scaled(), torch.ones(3, 2), 2)
    x = torch.ones(4, 2)
    found = calls.given(model, [(x, 3), {"x": x, "k": 3}, x])
    assert [calls.leaves(model.entries[0], call).keys() for call in found] == [{"x", "k"}, {"x", "k"}, {"x"}]


def test_what_is_no_call_is_refused() -> None:
    model = canonical(Scaled(), torch.ones(3, 2))
    with pytest.raises(SpecInvalid, match="no call is given"):
        calls.given(model, [])
    with pytest.raises(SpecInvalid, match="entry point 'other'"):
        calls.given(model, [ModelCall(entry_point="other", case="a")])
    with pytest.raises(SpecInvalid, match="do not fit"):
        calls.given(model, [(1, 2, 3, 4)])
    with pytest.raises(SpecInvalid, match="'z', which is no input"):
        calls.filled(model.entries[0], {"z": 1})
