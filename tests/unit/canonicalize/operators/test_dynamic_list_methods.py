"""Lists that branches and loops on tensors append to, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.unit.canonicalize.trace.agree import check

CASES = tuple(
    (torch.tensor([1.0, 2.0, 3.0]) * scale, torch.tensor(n))
    for scale, n in ((1.0, 2), (-1.0, 0), (0.2, 5), (9.0, 1))
)


def until_a_break(x, n):
    out = []
    for i in range(6):
        x = torch.tanh(x) + i * 0.1
        out.append(x)
        if x.sum() < 2 + n:
            break
    return torch.stack(out), len(out)


def joined(x, n):
    out = [x[None]]
    for _ in range(5):
        x = x * 0.5
        if x.sum() > n:
            out.append(x[None])
        else:
            out += [x[None] - 1, x[None] + 1]
    return torch.cat(out), torch.cat(out, dim=-2), len(out) * 2


def only_some(x, n):
    kept = []
    for value in x:
        if value > 1:
            kept.append(value)  # noqa: PERF401
    return torch.stack(kept)


def by_a_counter(x, n):
    out, i = [x], 0
    while i < 4 and x.sum() < 20:
        out.append(out[-1] * 2 + n)
        x = x + out[-1]
        i += 2
    return torch.stack(out, dim=1)


def by_its_own_length(x, n):
    out = [x]
    while len(out) < 5 and out[-1].sum() < 30:
        out.append(out[-1] * 2 + 1)
    return torch.stack(out).sum(0), len(out)


def looped_over(x, n):
    out = []
    for i in range(4):
        out.append((x * i, i))
        if i >= n:
            break
    total = torch.zeros(3)
    for row, number in out:
        total = total + row * number
    return total


def summed(x, n):
    out = []
    for i in range(5):
        out.append(x.sum() * i)
        if x[0] * i > n:
            break
    return sum(out), sum(out, 1.5)


def indexed(x, n):
    out = []
    for i in range(4):
        out.append(x + i)
        if i == n:
            break
    return out[0], out[-1], out[n - n], out[len(out) // 2]


def taken_off(x, n):
    stack = [x, x * 2]
    for i in range(3):
        if n > i:
            stack.append(x * i)  # noqa: PERF401
    top = stack.pop()
    return top, len(stack), torch.stack(stack)


def empty_or_not(x, n):
    out = []
    if n > 1:
        out.append(x)
    if out:
        x = x + 1
    return x * 2 if not out else x


def filled_in_a_nested_loop(x, n):
    out = []
    for i in range(2):
        for j in range(3):
            if x[i] > j:
                out.append(x[i] + j)
            if x[0] > 5:
                break
    return torch.stack(out).sum() if len(out) > 0 else x.sum(), len(out)


@pytest.mark.parametrize(
    "model",
    [
        until_a_break,
        joined,
        only_some,
        by_a_counter,
        by_its_own_length,
        looped_over,
        summed,
        indexed,
        taken_off,
        empty_or_not,
        filled_in_a_nested_loop,
    ],
    ids=lambda model: model.__name__,
)
def test_lists_as_in_eager(model: Any) -> None:
    check(model, *CASES)


def returned(x, n):
    out = []
    if n > 1:
        out.append(x)
    return out


def sliced(x, n):
    out = [x]
    if n > 1:
        out.append(x)
    return torch.stack(out[:1])


def without_a_bound(x, n):
    out = [x]
    while out[-1].sum() < n:
        out.append(out[-1] + 1)
    return torch.stack(out)


def mixed_up(x, n):
    out = [x]
    if n > 1:
        out.append(x)
    out.reverse()
    return torch.stack(out)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (returned, "a list whose length a tensor decides"),
        (sliced, "is sliced"),
        (without_a_bound, "whose number of iterations has no bound"),
        (mixed_up, "`reverse` of a list whose length a tensor decides"),
    ],
)
def test_what_no_graph_can_do_with_it_is_refused_at_its_line(model: Any, said: str) -> None:
    with pytest.raises(ExportFailed) as caught:
        export(canonicalize(as_spec(model, args=CASES[0])))
    assert said in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_dynamic_list_methods.py")
