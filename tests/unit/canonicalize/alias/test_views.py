"""Views of one tensor that are made again of another one, and models that write through views."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.canonicalize.alias import views
from aotpipe.errors import ExportFailed
from tests.sweep import examples
from tests.unit.canonicalize.trace.agree import check

STEPS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "select": lambda x, at: (
        x.select(at % x.dim(), at % x.shape[at % x.dim()]) if x.dim() and x.numel() else x
    ),
    "from": lambda x, at: (
        x.narrow(at % x.dim(), 1, x.shape[at % x.dim()] - 1) if x.dim() and x.numel() > 8 else x
    ),
    "step": lambda x, at: x[:: 1 + at % 3] if x.dim() else x,
    "transpose": lambda x, at: x.transpose(0, at % x.dim()) if x.dim() else x,
    "unsqueeze": lambda x, at: x.unsqueeze(at % (x.dim() + 1)),
    "flat": lambda x, _: x.view(-1) if x.is_contiguous() else x,
    "detach": lambda x, _: x.detach(),
}


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 5)), max_size=4),
)
@examples(quick=60, nightly=2000)
def test_a_replayed_view_is_the_same_part_of_a_copy(sizes: list[int], steps: list[tuple[str, int]]) -> None:
    base = torch.arange(float(torch.Size(sizes).numel())).reshape(sizes)
    view = base
    for name, at in steps:
        view = STEPS[name](view, at)
    try:
        shared = views.shared_memory([view, base] if view is not base else [base], [view])
    except ExportFailed:
        # Steps over a part of several dims that were made one.
        assert any(name == "flat" for name, _ in steps)
        return
    assert len(shared.written) == 1
    for tensor, of, replay in shared.views:
        copy = of.clone()
        again = replay(copy)
        assert again.shape == tensor.shape
        again.mul_(-1).sub_(1)
        tensor.mul_(-1).sub_(1)
        assert torch.equal(copy, of)


def test_a_view_of_another_dtype_is_refused() -> None:
    base = torch.zeros(4)
    with pytest.raises(ExportFailed, match="written in place"):
        views.shared_memory([base, base.view(torch.int32)], [base])


def test_what_is_not_written_keeps_an_operand_of_its_own() -> None:
    base, other = torch.zeros(4), torch.zeros(4)
    shared = views.shared_memory([base, base[1:], other], [other])
    assert len(shared.outer) == 3
    assert not shared.views


def in_a_branch(x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x = x.clone()
    v, y = x[:2], x * 1
    if k > 0:
        v.mul_(3)
        y = x + 1
    else:
        x.sub_(1)
        y[:2] = v
    return y, x, v


def in_a_loop(x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x = x.clone()
    v, s, i = x[1:], torch.zeros(()), 0
    while i < k:
        v.mul_(2)
        s = s + x.sum()
        i = i + 1
    return x, v, s


def a_row_of_a_loop(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    rows, i = x.repeat(4, 1), 0
    while i < k:
        row = rows[i]
        if row.sum() > 1:
            row.mul_(0.5)
        i = i + 1
    return rows


def no_name_of_the_whole(x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
    left, right = (x * 1).split(2)
    columns = left.view(2, 1).t()
    if k > 1:
        columns.add_(1)
        right = right + left
    return left, right, columns


@pytest.mark.parametrize("model", [in_a_branch, in_a_loop, a_row_of_a_loop, no_name_of_the_whole])
def test_a_write_is_seen_under_every_name(model: Callable[..., object]) -> None:
    x = torch.tensor([1.0, -2.0, 3.0, 0.5])
    check(model, *((x, torch.tensor(k)) for k in (0, 1, 3)))
