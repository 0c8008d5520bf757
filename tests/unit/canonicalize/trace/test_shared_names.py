"""Two names of one tensor, around and in branches and loops, as in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.errors import ExportFailed
from tests.sweep import sweep
from tests.unit.canonicalize.trace.agree import check

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


def one_of_several_is_written_after_an_early_return(x):
    y = x * 0.5
    pair = (y, 1)
    for _ in range(3):
        if y.max() > 1:
            y = y + 1
            if x.sum() < 4:
                return x, y
        y[1:] = 2
    return x, pair[0]


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


def two_results_of_a_branch_are_one(x):
    if x.sum() > 0:
        z = x * 2
        w = z
    else:
        z = x - 1
        w = x + 1
    z += 1
    return z, w


def a_loop_of_no_trips_gives_a_second_name(x):
    y = x * 1
    z = y
    while y.sum() > 3:
        y = y * 0.5
    y.add_(1)
    return y, z


def two_names_of_the_last_trip(x):
    a = x * 1
    b = a
    for _ in range(4):
        a = a + 1
        b = a
        if a.sum() > 7:
            break
    b += 5
    return a, b


def names_that_trips_swap(x):
    a, b = x * 1, x * 2
    first = a
    i = 0
    while a.sum() < 6 and i < 3:
        a, b = b, a
        a += 1.5
        i += 1
    b += 5
    return a, b, first, i


@pytest.mark.parametrize(
    "model",
    sweep(
        [
            the_original_is_written,
            the_copy_is_written,
            an_assigned_name_is_written_in_a_loop,
            a_name_is_written_in_a_loop,
            one_of_two_is_written_in_a_branch,
            one_of_several_is_written_after_an_early_return,
            the_input_is_written_on_one_path,
            a_second_name_is_written,
            two_results_of_a_branch_are_one,
            a_loop_of_no_trips_gives_a_second_name,
            two_names_of_the_last_trip,
            names_that_trips_swap,
        ],
        quick=0,
        always=[
            the_original_is_written,
            an_assigned_name_is_written_in_a_loop,
            one_of_several_is_written_after_an_early_return,
            the_input_is_written_on_one_path,
            two_results_of_a_branch_are_one,
            a_loop_of_no_trips_gives_a_second_name,
        ],
    ),
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


def what_a_loop_found_is_written_in_another_one(x):
    y, held = x * 1, [x]
    for _ in range(3):
        x = y if x.sum() > 1 else x
        if y.sum() > 8:
            break
        x += 1
        if x.max() > 2:
            y = y + x
            x = y
        x *= 0.5
    return x, y, held[0]


def a_call_gives_its_argument(x):
    def same(v):
        if v.sum() > 0:
            return v
        return v * 2

    y = same(x)
    for _ in range(2):
        y += 1
        if y.sum() > 4:
            y = same(x)
    return x, y


@pytest.mark.parametrize(
    "model",
    sweep(
        [
            a_copy_is_written_in_a_later_branch,
            a_second_name_is_written_in_a_region,
            the_input_is_assigned_and_written,
            a_copy_is_assigned_and_written_in_a_loop,
            a_call_gives_its_argument,
            what_a_loop_found_is_written_in_another_one,
        ],
        quick=0,
        always=[a_copy_is_written_in_a_later_branch, a_copy_is_assigned_and_written_in_a_loop],
    ),
    ids=lambda model: model.__name__,
)
def test_writes_inside_of_a_region_reach_other_names(model: Any):
    check(model, *CASES)


def a_list_that_grows_holds_what_is_written(x):
    v, seen = x * 1, []
    for _ in range(4):
        v += 1
        seen.append(v)
        if v.sum() > 7:
            break
    return torch.stack(seen)


def an_element_of_a_list_that_grows_is_written(x):
    v, seen = x * 1, []
    for _ in range(4):
        v = v + 1
        seen.append(v * 2)
        if v.sum() > 7:
            break
    last = seen[-1]
    last += 1
    return torch.stack(seen)


@pytest.mark.parametrize(
    "model",
    sweep([a_list_that_grows_holds_what_is_written, an_element_of_a_list_that_grows_is_written], quick=1),
    ids=lambda model: model.__name__,
)
def test_a_write_to_an_element_of_a_list_that_grows_is_refused(model: Any):
    with pytest.raises(ExportFailed, match="second name"):
        check(model, *CASES)


def a_stacked_list_is_written(x):
    v, seen = x * 1, []
    for _ in range(2):
        v = v + 1
        seen.append(v * 2)
        if v.sum() > 7:
            break
    found = torch.stack(seen)
    found += 1
    return torch.stack(seen), found


def test_what_is_made_of_a_list_that_grows_is_a_tensor_of_its_own():
    check(a_stacked_list_is_written, *CASES)
