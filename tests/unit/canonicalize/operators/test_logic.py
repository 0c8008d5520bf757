"""Operands of `and`, `or`, chains of comparisons, `any` and `all` are computed where Python comes to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check


def in_range(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    n = int(k)
    return x + 1 if n < x.shape[0] and x[n] > 0 else x


def divided(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    n = int(k)
    return x + 1 if n != 0 and 4 // n > 1 else x


def either(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    n = int(k)
    return x + 1 if n == 0 or 12 % n == 2 else x


def chained(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    n = int(k)
    return x + 1 if 0 <= n < x.shape[0] <= n + x[n] else x


def any_of_some(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    n = int(k)
    return x + 1 if any(n + at == 0 or 6 // (n + at) > 2 for at in range(3) if x[at] > 0) else x


def all_of_some(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    n = int(k)
    return x + 1 if all(n > at and x[n - at] > 0 for at in range(3)) else x


def appended(x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, int]:
    seen = [0]

    def note(value: torch.Tensor) -> Any:
        seen[0] = seen[0] + 1
        return value > 0

    found = x
    if (k > 0 and note(x[0])) or any(note(each) for each in x):
        found = x * 2
    return found, seen[0]


@pytest.mark.parametrize(
    "model", [in_range, divided, either, chained, slow(any_of_some), slow(all_of_some), slow(appended)]
)
def test_what_is_not_reached_has_no_effect(model: Callable[..., object]) -> None:
    vectors = ([1.0, 2.0, -3.0], [-1.0, 0.0, 4.0])
    check(model, *((torch.tensor(v), torch.tensor(k)) for k in (1, 0, 2, 5) for v in vectors))


def test_a_tensor_leaves_a_loop_over_a_generator_expression() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        for each in (v * 2 for v in x):
            if each > 1:
                break
        return each

    check(model, *((torch.tensor(each),) for each in ([0.1, 0.2], [2.0, 3.0], [0.1, 2.0])))


def test_what_only_gives_a_value_is_computed_without_a_branch() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.tensor((0 < x.sum() < 3 and x.max() > 1) or all(v > 0 for v in x)), x, -x)

    program = export(canonicalize(as_spec(model, args=(torch.ones(2),)))).entries[0].program
    assert not [node for node in program.graph.nodes if node.op == "get_attr"]


def halved(x: torch.Tensor, k: torch.Tensor) -> Any:
    n, last = 0, 100
    while x.item() > 1:
        x = x / 2
        n += 1
        if n > 3:
            break
    else:
        last = n
    return x + k, last


def test_a_number_that_an_operand_asks_for_is_asked_for_anew_in_the_graph() -> None:
    check(halved, *((torch.tensor([value]), torch.tensor(1)) for value in (8.0, 100.0, 0.5)))
