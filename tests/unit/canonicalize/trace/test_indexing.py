"""Indices that a graph computes, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check

TABLE = torch.arange(24.0).reshape(4, 3, 2)
CASES = tuple((TABLE - shift, torch.tensor(i)) for shift, i in ((3.0, 1), (100.0, 0), (0.0, 2), (12.0, -1)))
DECIDES = "if x.sum() > 0:\n        x = x + 1\n    "


def an_item(x, i):
    return x * 2 if x[i].sum() > 0 else x + x[i, 0]


def behind_an_ellipsis(x, i):
    return x[..., 1, i % 2] if x.sum() > 0 else x[:, i, 0]


def new_dims_and_slices(x, i):
    return x[None, 1:, i] if x.sum() > 0 else x[None, :3, 0]


def beside_a_tensor(x, i):
    rows = torch.tensor([0, 2])
    return x[i, rows] if x.sum() > 0 else x[0, rows]


def a_window(x, i):
    start = i.abs()
    return x[start : start + 2].sum(0) if x.sum() > 0 else x[1:3].sum(0)


def items_are_assigned(x, i):
    out = torch.zeros(4, 3, 2)
    if x.sum() > 0:
        out[i] = x[0]
        out[1:, i % 3, 0] = 7
        out[i, 0] = x[1, 0]
    return out


def a_window_is_assigned(x, i):
    out = torch.zeros(4, 3, 2)
    start = i.abs()
    if x.sum() > 0:
        out[start : start + 2] = x[:2]
        out[i, start : start + 1] = 5
    return out


def an_item_is_added_to(x, i):
    out = x.clone()
    if x.sum() > 0:
        out[i] += 1
        out[i, 0] *= 2
    return out


@pytest.mark.parametrize(
    "model",
    [
        an_item,
        behind_an_ellipsis,
        new_dims_and_slices,
        beside_a_tensor,
        items_are_assigned,
        slow(an_item_is_added_to),
    ],
    ids=lambda model: model.__name__,
)
def test_items_at_a_traced_index(model: Any):
    check(model, *CASES)


def a_slice_from_one_element(x, i):
    """Python takes a tensor of one integer, of whatever rank, for an end of a slice."""
    start = i.abs().reshape(1)
    return x[start:].sum(0), x[: start + 2].sum(0) if x.sum() > 0 else x[0] * 0


@pytest.mark.parametrize(
    "model", [a_window, a_window_is_assigned, a_slice_from_one_element], ids=lambda model: model.__name__
)
def test_slices_of_known_length(model: Any):
    check(model, *CASES[:3])


def a_row_is_written_in_place(x, i):
    y = x * 1
    row, same = y[i], y[0]
    if x.sum() > 0:
        row = row * 1
    held = y[i]
    held += 1
    y[1] *= 2
    return y, row, held, same


def test_a_row_and_its_tensor_are_written_together():
    check(a_row_is_written_in_place, *CASES)


def a_row_is_written_in_a_branch(x, i):
    y = x * 1
    held = y[i]
    if x.sum() > 0:
        held += 1
    return y


def test_a_row_is_written_in_a_branch():
    check(a_row_is_written_in_a_branch, *CASES)


def a_view_of_a_row_is_written_in_a_branch(x, i):
    y = x * 1
    held = y[i]
    if x.sum() > 0:
        held[0] += 1
    return y


def test_a_view_of_a_row_is_written_in_a_branch():
    check(a_view_of_a_row_is_written_in_a_branch, *CASES)


def rows_are_exchanged(x, i):
    """`a[[i, j]] = a[[j, i]]`, as a pivot is brought to its place."""
    out, at = x.clone(), int(i)
    if at != 0:
        out[[0, at]] = out[[at, 0]]
    column = at % 2
    return out, out[[at, 1]], out[:, [column, 0]], out[[at, 0], [column, 1]], out[[[at], [0]], 1]


def test_lists_of_traced_numbers_are_indices() -> None:
    check(rows_are_exchanged, *CASES)
