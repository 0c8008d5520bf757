"""Exceptions of the user's own `raise` become asserts of the program; talk is left out."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from aotpipe.canonicalize.trace import runtime_asserts
from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check

logger = logging.getLogger(__name__)
VECTORS = tuple(
    (torch.tensor(v),) for v in ([0.5, -1.0, 2.0], [90.0, 90.0, 0.0], [-3.0, 1.0, 0.25], [0.0, 0.0, 0.0])
)


def one_path_raises(x):
    if x.max() > 50:
        raise ValueError(f"{x.max().item():.2f} is too large")
    return x + 1


def the_other_path_raises(x):
    if (x < 50).all():
        return x.masked_fill(x < 0, 0.0)
    raise RuntimeError("too large")


def all_paths_of_a_branch_raise(x):
    if x.max() > 50:
        if x.min() > 0:
            raise ValueError("all")
        raise TypeError
    return x


def a_loop_that_gives_up(x):
    n = 0
    while True:
        x = x * 0.5
        n += 1
        if x.abs().max() < 0.2:
            break
        if n >= 6:
            raise RuntimeError("no convergence")
    return x, n


def an_assert_in_a_branch(x):
    if x.sum() > 0:
        assert x.max() < 50, "large"
        x = x + 1
    return x


@pytest.mark.parametrize(
    "model",
    [
        one_path_raises,
        the_other_path_raises,
        all_paths_of_a_branch_raise,
        slow(a_loop_that_gives_up),
        an_assert_in_a_branch,
    ],
    ids=lambda model: model.__name__,
)
def test_what_eager_raises_the_program_asserts(model: Any):
    check(model, *VECTORS)


def caught_by_the_model(x):
    try:
        if x.shape[0] == 3:
            raise ValueError("three")  # noqa: TRY301  # as people write it
        y = x
    except ValueError:
        y = x * 2
    return y if x.sum() > 0 else y - 1


def talks(x):
    if x.sum() > 0:
        print(f"the sum is {x.sum().item():.1f}")
        logger.info("%s", x.max().item())
        return x
    return -x


@pytest.mark.parametrize("model", [caught_by_the_model, slow(talks)], ids=lambda model: model.__name__)
def test_what_goes_on(model: Any):
    check(model, *VECTORS)


def test_what_a_distribution_checks_is_an_assert() -> None:
    def density(scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.distributions.Normal(0.0, scale).log_prob(x)

    x = torch.tensor([0.5, -1.0])
    check(density, (x + 2, x), (x, x), (x + 3, x * float("nan")))


def not_caught(x):
    for each in x:
        try:
            if each < -3.5:
                raise ValueError("too low")
            if each > 2:
                return x * each
            x = x + each
        except (KeyError, OSError):
            pass
        finally:
            x = x + 0.5
    return x


def test_what_no_handler_is_for_is_an_assert():
    check(not_caught, *((torch.tensor(each),) for each in ([1.0, 2.5], [1.0, -4.0], [0.0, 1.0])))


@pytest.mark.parametrize("wanted", [1, 2, 3, 5])
def test_another_number_of_claims_says_the_same(wanted: int) -> None:
    for flags in ([True] * 3, [True, True, False], [False, True, True]):
        truths = runtime_asserts.padded([(torch.tensor(flag), "said") for flag in flags], wanted)
        assert len(truths) == wanted
        assert all(map(bool, truths)) is all(flags)


def test_claims_that_nobody_waits_for_are_made_at_once() -> None:
    assert runtime_asserts.padded([(torch.tensor(True), "said")], 0) == []
    with pytest.raises(RuntimeError, match="said"):
        runtime_asserts.padded([(torch.tensor(False), "said")], 0)
