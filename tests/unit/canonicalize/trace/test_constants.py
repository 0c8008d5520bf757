"""What is the same in every call is known while a model is traced, until it is written."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check

CASES = tuple((torch.tensor(v),) for v in ([1.0, 2.0, 3.0], [-9.0, 2.0, 1.0], [0.0, 0.0, 0.0]))


def dims_of_a_range(x):
    return x.sum(dim=torch.arange(x.dim()).tolist()) if x.sum() > 0 else x.sum() * 2


def steps_of_a_grid(x):
    grid = torch.linspace(0, 1, 4)
    if grid[1] < grid[0]:
        raise ValueError("the grid falls")
    for i in range(len(grid) - 1):
        if grid[i + 1] - grid[i] > 0.2:
            x = x + (grid[i + 1] - grid[i]) * x
    return x * 2 if x.sum() > 0 else x


def items_of_ranges(x):
    total = 0
    for i in torch.arange(1, 4):
        if i % 2 == 1:
            total += int(i)
    if x.sum() > 0:
        total += 1
    return x * total


def items_of_a_mask(x):
    keep = torch.ones(3).tril() if x.dim() > 5 else torch.eye(3)
    if x.sum() > 0:
        x = x @ keep + 1 if keep[0, 0] > 0 else x - 1
    return x


def parts_by_their_lengths(x):
    ends = torch.nn.functional.pad(torch.as_tensor([1, 2]).cumsum(0), (1, 0))
    parts = []
    for i in range(ends.numel() - 1):
        start, end = int(ends[i].item()), int(ends[i + 1].item())
        if end == start:
            continue
        parts.append(x[start:end].softmax(0).contiguous())
    return torch.cat(parts) * 2 if x.sum() > 0 else torch.cat(parts)


@pytest.mark.parametrize(
    "model",
    [
        parts_by_their_lengths,
        dims_of_a_range,
        pytest.param(steps_of_a_grid, marks=pytest.mark.slow),
        slow(items_of_ranges),
        slow(items_of_a_mask),
    ],
)
def test_what_is_the_same_in_every_call_decides_while_it_is_traced(model: Callable[..., Any]) -> None:
    check(model, *CASES)
    program = export(canonicalize(as_spec(model, args=CASES[0]))).entries[0].program
    conds = [node for node in program.graph.nodes if "cond" in str(node.target)]
    assert len(conds) <= 1


def written_in_a_branch(x):
    found = torch.zeros(3)
    if x.sum() > 0:
        if found[0] == 0:
            x = x + 1
        found[0] = x.sum()
        if found[0] > 1:
            x = x * 2
    if found[0] > 8:
        x = x - 5
    return x


def written_by_a_view(x):
    found = torch.zeros(3)
    part = found[1:]
    if x.sum() > 0:
        part += 1
    return x + 100 if found[1] > 0 else x


def written_by_its_data(x):
    found = torch.zeros(3)
    found.data.copy_(x)
    return x + 100 if found[0] > 0 else x


def written_as_an_output(x):
    found = torch.zeros(3)
    torch.add(x, 1, out=found)
    return x + 100 if found[0] > 1 else x


def written_by_a_function_of_torch(x):
    found = torch.zeros(3)
    torch.nn.init.constant_(found, 2.0)
    found = found + x.mean()
    return x + 100 if found[0] > 1 else x


def counted_in_a_loop(x):
    count = torch.zeros((), dtype=torch.int64)
    while x.sum() < 50:
        x = x * 2 + 1 if count < 2 else x + 7
        count = count + 1
    return x, count


def carried_by_a_loop(x):
    low, high = torch.zeros(()), torch.ones(())
    while high - low > 1e-2:
        middle = (low + high) / 2
        if (middle - x.sigmoid().mean()) > 0:
            high = middle
        else:
            low = middle
    return low


def filled_in_a_loop(x):
    found = torch.zeros(3)
    i = 0
    while x.sum() < 50:
        found[i % 3] = x.sum()
        x = x * 2 + 1
        i += 1
    return (x - 1 if found[0] > 1 else x), found


def written_behind_another_name(x):
    found = torch.as_tensor([0.0, 0.0, 0.0])
    torch.as_tensor(found)[0] = x.sum()
    tail = torch.nn.functional.pad(found, (0, 0))
    tail[1] += x.sum()
    return x + 100 if found[0] > 0 or tail[1] > 0 else x


@pytest.mark.parametrize(
    "model",
    [
        written_behind_another_name,
        slow(written_in_a_branch),
        written_by_a_view,
        pytest.param(written_by_its_data, marks=pytest.mark.slow),
        written_as_an_output,
        pytest.param(written_by_a_function_of_torch, marks=pytest.mark.slow),
        pytest.param(counted_in_a_loop, marks=pytest.mark.slow),
        slow(carried_by_a_loop),
        filled_in_a_loop,
    ],
)
def test_what_was_written_is_not_known_any_more(model: Callable[..., Any]) -> None:
    check(model, *(case for case in CASES if model is not filled_in_a_loop or case[0].sum() > -3))


class _Tables:
    """What a model keeps beside its parameters."""

    def __init__(self) -> None:
        self.noise = torch.tensor([3.0, 2.0, 1.0])


TABLES = _Tables()


def read_by_numpy(x):
    steps = torch.arange(4, dtype=torch.float32)
    grown = np.asarray(steps) + 1
    last = torch.searchsorted(torch.flip(TABLES.noise, [0]), 2.5).numpy().item()
    rates = torch.as_tensor([steps[1], steps[2] * 2])
    if x.sum() > 0:
        x = x + torch.from_numpy(np.asarray(torch.linspace(0, 1, 5)).astype(np.float64)).float()[last]
    return x + float(grown[1]) + rates.sum()


def read_while_another_error_is_handled(x):
    try:
        low = max(_lowest(x), 1e-3)
    except Exception as error:
        raise ValueError("too much memory is needed") from error
    return x / low


def _lowest(x):
    return x.abs().min().item()


def copied_deeply(x):
    found = copy.deepcopy({"x": x, "rows": [x, x + 1], "n": x.sum().item()})
    found["x"] += 1
    if found["n"] > 3:
        found["rows"][0] *= 2
    return x, found["x"], found["rows"][1]


def taken_as_ints(x):
    order = torch.cat((torch.tensor([1, 0]), torch.arange(2, x.dim() + 1)))
    x = x[None].permute(*order) if x.sum() > 0 else x[None].t()
    classes = (x.sum() > 5).long()
    return x, torch.nn.functional.one_hot(classes, classes + 2), x[: order[0] + 1]


@pytest.mark.parametrize(
    "model", [taken_as_ints, read_by_numpy, read_while_another_error_is_handled, copied_deeply]
)
def test_compiled_code_gets_values_that_are_the_same_in_every_call(model: Callable[..., Any]) -> None:
    check(model, *CASES)


def written_after_numpy_has_it(x):
    steps = torch.arange(3)
    array = steps.numpy()
    if x.sum() > 0:
        x = x + 1
    steps += 1
    return x + float(array[0])


def written_by_numpy(x):
    array = torch.arange(3).numpy()
    array += 1
    return x + float(array[0]) if x.sum() > 0 else x


def copied_with_a_view_of_it(x):
    one, other = copy.deepcopy([x, x[1:]])
    one += 1
    return other


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (written_after_numpy_has_it, "memory numpy has too"),
        (written_by_numpy, "read-only"),
        (copied_with_a_view_of_it, "one memory are copied"),
    ],
)
def test_memory_that_a_trace_cannot_follow_is_refused(model: Callable[..., Any], said: str) -> None:
    with pytest.raises(ExportFailed, match=said):
        export(canonicalize(as_spec(model, args=CASES[0])))
