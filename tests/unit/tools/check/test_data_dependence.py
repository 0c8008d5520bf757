"""Watching a run: each look into a tensor, its expression, and where the value came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aotpipe.tools.check.data_dependence import Forced, Seen, Watch


def watched(call: Any, *inputs: torch.Tensor, forced: tuple[Forced, ...] = ()) -> Seen:
    names = [(tensor, "input", f"x{number}") for number, tensor in enumerate(inputs)]
    watch = Watch(names, forced)
    with watch:
        call(*inputs)
    return watch.seen


X = torch.tensor([1.0, -2.0, 3.0])
LOOKS = {
    "truth": lambda x: bool(x.sum() > 0),
    "truth-any": lambda x: 1 if x.any() else 2,
    "truth-in": lambda x: 2.0 in x,
    "number": lambda x: x.sum().item(),
    "number-int": lambda x: int(x.sum()),
    "number-list": lambda x: x.tolist(),
    "number-index": lambda x: [1, 2, 3][x[0].long()],
    "array": lambda x: x.numpy(),
    "text": lambda x: f"{x}",
    "text-str": lambda x: str(x),
    "size": lambda x: x[x > 0],
    "size-nonzero": lambda x: x.nonzero(),
    "size-where": lambda x: torch.where(x > 0),
    "size-slice": lambda x: x[: x[0].long()],
    "size-repeat": lambda x: x.repeat_interleave(torch.tensor([1, 2, 1])),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_into_a_tensor_is_an_event(name: str):
    kinds = {event.kind for event in watched(LOOKS[name], X).events}
    assert kinds == {name.partition("-")[0]}


def test_what_stays_in_torch_is_none():
    def call(x: torch.Tensor) -> Any:
        return torch.where(x > 0, x, 0.0)[:2].topk(1), len(x), x.shape[0], x.dtype

    assert not watched(call, X).events


def test_an_event_has_its_expression_and_a_history():
    def call(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        z = y.abs().sum()
        if z > 3 and y.mean() < 100:
            return y
        return x

    first, second = watched(call, X).events
    assert (first.place.expression, second.place.expression) == ("z > 3", "y.mean() < 100")
    assert [step.what for step in first.node.history()] == [
        "`z > 3`",
        "`y.abs().sum()`",
        "`x * 2`",
        "the input `x0`",
    ]


def test_the_truth_of_a_call_is_the_call_and_not_the_whole_statement():
    def call(x: torch.Tensor) -> int:
        if x.isnan().any():
            return 1
        return 2

    [event] = watched(call, X).events
    assert event.place.expression == "x.isnan().any()"


def test_what_depends_on_no_input_does_not_vary():
    def call(x: torch.Tensor) -> torch.Tensor:
        limit = torch.tensor(3.0)
        return x if limit > 2 else -x

    [event] = watched(call, X).events
    assert not event.node.varies


def test_writes_in_place_are_part_of_the_history():
    def call(x: torch.Tensor) -> bool:
        y = torch.zeros(3)
        y[0] = x.sum()
        return bool(y.sum() > 0)

    [event] = watched(call, X).events
    assert event.node.varies
    assert event.node.history()[-1].what == "the input `x0`"


def test_a_decision_can_be_forced():
    taken = []

    def call(x: torch.Tensor) -> None:
        taken.append(bool(x.sum() > 0))

    seen = watched(call, X)
    [place] = seen.outcomes
    assert seen.outcomes[place] == {True}
    assert watched(call, X, forced=(Forced(place, to=False),)).outcomes[place] == {False}
    assert taken == [True, False]


def test_what_numpy_gives_back_comes_from_what_was_taken():
    def call(x: torch.Tensor) -> bool:
        y = torch.from_numpy(np.sort(x.numpy()))
        return bool(y.sum() > 0)

    event = watched(call, X).events[-1]
    assert event.node.varies
    assert [step.what for step in event.node.history()] == [
        "`y.sum() > 0`",
        "what Python made of `x.numpy()`",
        "the input `x0`",
    ]
