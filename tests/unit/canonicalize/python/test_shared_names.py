"""Two names of one tensor, around and in branches and loops, as in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.unit.canonicalize.python.agree import check

CASES = tuple((torch.tensor(v),) for v in ([1.0, 2.0], [-1.0, -2.0], [3.0, 0.5]))


def the_original_is_written(x):
    y = x * 1
    z = y if y.sum() > 0 else y * 2
    y += 1
    return z, y


def the_copy_is_written(x):
    y = x * 1
    z = y if y.sum() > 0 else y * 2
    z += 1
    return z, y


def an_assigned_name_is_written_in_a_loop(x):
    y = x * 1
    i = 0
    while y.sum() > i:
        y += -1
        y = y * 0.5
        i += 1
    return y, i


def a_name_is_written_in_a_loop(x):
    y = x * 1
    z = y
    i = 0
    while y.sum() > i:
        y += -1
        i += 1
    return y, z, i


def one_of_two_is_written_in_a_branch(x):
    y = x * 1
    w = y * 3
    if x.sum() > 0:
        z = y if y.max() > 2 else w
        z += 1
        y = y + z
    return y, w


def the_input_is_written_on_one_path(x):
    if x.sum() > 0:
        x = x * 2
    x[0] = 1.0
    return x


def a_second_name_is_written(x):
    y = x * 2
    z = y
    if x.sum() > 0:
        y = y * 3
    y += 1
    return y, z


@pytest.mark.parametrize(
    "model",
    [
        the_original_is_written,
        the_copy_is_written,
        an_assigned_name_is_written_in_a_loop,
        a_name_is_written_in_a_loop,
        one_of_two_is_written_in_a_branch,
        the_input_is_written_on_one_path,
        a_second_name_is_written,
    ],
    ids=lambda model: model.__name__,
)
def test_both_names_see_a_write(model: Any):
    check(model, *CASES)


def a_copy_is_written_in_a_later_branch(x):
    y = x * 1
    z = y if y.sum() > 0 else y * 2
    if x.max() > 2:
        z += 1
    return z, y


def a_second_name_is_written_in_a_region(x):
    y = x * 2
    z = [y]
    if x.sum() > 0:
        y = y * 3
    if x.sum() > 1:
        y.mul_(2)
    return y, z[0]


def the_input_is_assigned_and_written(x):
    while x.sum() > 1:
        x += -1
        x = x * 0.5
    return x


def a_copy_is_assigned_and_written_in_a_loop(x):
    y = x * 1
    z = y if y.sum() > 0 else y * 2
    while z.sum() > 1:
        z += -1
        z = z * 0.5
    return z, y


@pytest.mark.parametrize(
    "model",
    [
        a_copy_is_written_in_a_later_branch,
        a_second_name_is_written_in_a_region,
        the_input_is_assigned_and_written,
        a_copy_is_assigned_and_written_in_a_loop,
    ],
    ids=lambda model: model.__name__,
)
def test_writes_inside_of_a_region_reach_other_names(model: Any):
    check(model, *CASES)
