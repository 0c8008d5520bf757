"""One of two values, chosen by Python's values or by the graph."""

from __future__ import annotations

import torch

from aotpipe.canonicalize.operators import conditional
from tests.unit.canonicalize.trace.agree import check


def test_plain_values_choose_as_python_does_and_call_one_side() -> None:
    called: list[str] = []
    assert conditional.choose([1], lambda: "then", lambda: called.append("other")) == "then"
    assert conditional.choose("", lambda: called.append("then"), lambda: "other") == "other"
    assert not called


def test_a_traced_test_chooses_in_the_graph() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return (x * 2 if x.sum() > 0 else x - 1) + (0 if x.max() > 5 else 1)

    check(model, (torch.tensor([1.0, 2.0]),), (torch.tensor([-1.0, -2.0]),), (torch.tensor([9.0, -20.0]),))
