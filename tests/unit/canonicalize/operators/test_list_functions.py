"""Torch's functions of lists whose length only a run knows, against eager."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize import canonicalize
from aotpipe.core.dims import Dim
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.unit.export.models import exported


def numbers(x, n):
    out = []
    for i in range(5):
        if i < n:
            out.append(i)  # noqa: PERF401
    return torch.tensor(out), torch.tensor(out, dtype=torch.int32)


def test_of_no_whole_numbers_torch_makes_floats_which_the_program_refuses():
    eager, _ = numbers(torch.tensor(1.0), torch.tensor(0))
    assert eager.dtype == torch.float32
    program = export(canonicalize(as_spec(numbers, args=(torch.tensor(1.0), torch.tensor(2)))))
    run = program.entries[0].program.module()
    assert run(torch.tensor(1.0), torch.tensor(4))[0].tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="give it a dtype"):
        run(torch.tensor(1.0), torch.tensor(0))


def _states(x):
    if (x == 0).any():
        return x
    states, h = [], torch.zeros(3)
    for t in range(x.shape[0]):
        h = torch.tanh(h + x[t])
        states.append(h)
    return torch.stack(states)


def _of_two_loops(x):
    found = []
    for row in x:
        found.append(row * 2)  # noqa: PERF401
    for at, row in enumerate(reversed(found)):
        found.append(row + at)
    return x if (x == 0).any() else torch.stack(found).view(2, x.shape[0], 3)[1]


def _beside_another(x):
    found = [torch.cat([row, other]) for row, other in zip(x, x * 3, strict=True)]
    return torch.cat([x, x], 1) if (x == 0).any() else torch.stack(found)


@pytest.mark.parametrize("model", [_states, _of_two_loops, _beside_another])
def test_a_list_to_which_each_iteration_appends_has_the_size_of_the_loop(model):
    """A branch gives its stack another path whose size is that of the input."""
    found = exported(model, torch.randn(5, 3), shapes={"x": {0: Dim("rows", min=1, max=30)}})
    assert len(found.entries) == 1
    for x in (torch.randn(1, 3), torch.randn(9, 3), torch.zeros(4, 3)):
        torch.testing.assert_close(found.entries[0].program.module()(x), model(x))


def _until_a_row_is_large(x):
    found = []
    for row in x:
        if row.sum() > 2:
            break
        found.append(row)
    return torch.stack(found), len(found)


def _of_some_rows(x):
    found = []
    for row in x:
        if row.sum() > 2:
            continue
        found.append(row)
    return torch.stack(found), len(found)


def _without_the_last(x):
    found = []
    for row in x:
        found.append(row * 2)  # noqa: PERF401
    found.pop()
    return torch.stack(found), len(found)


def _without_one_in_between(x):
    found = []
    for row in x:
        found.append(row * 2)
        if row.sum() > 2:
            found.pop()
    return torch.stack(found), len(found)


def _until_one_raises(x):
    found = []
    try:
        for row in x:
            found.append(row)
            if row.sum() > 2:
                raise ValueError("large")  # noqa: TRY301
    except ValueError:
        return torch.stack(found).sum(0), len(found)
    return torch.stack(found).sum(0) + 100, len(found)


def _in_an_inner_loop(x):
    found = []
    for row in x:
        for _ in range(3):
            if row.sum() > 2:
                break
            found.append(row)
    return torch.stack(found), len(found)


def _of_few_rows(x):
    found = []
    for row, _ in zip(x, x[x[:, 0] > 0], strict=False):
        found.append(row)
    return torch.stack(found), len(found)


@pytest.mark.parametrize(
    "model",
    [
        _until_a_row_is_large,
        _of_some_rows,
        _without_the_last,
        _without_one_in_between,
        _until_one_raises,
        _in_an_inner_loop,
        _of_few_rows,
    ],
)
def test_a_list_to_which_not_each_iteration_appends_has_its_own_size(model):
    found = exported(model, torch.rand(5, 3), shapes={"x": {0: Dim("rows", min=2, max=30)}})
    one, large = torch.full((6, 3), 0.1), torch.full((6, 3), 0.2)
    large[3] = 5
    for x in (one, large, torch.rand(2, 3) / 2):
        got = pytree.tree_leaves(found.entries[0].program.module()(x))
        for mine, other in zip(got, pytree.tree_leaves(model(x)), strict=True):
            torch.testing.assert_close(torch.as_tensor(mine), torch.as_tensor(other))
