"""`for` and comprehensions over as many items as only a run knows, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.operators import unbacked_items
from aotpipe.canonicalize.operators.unbacked_items import TensorRange
from aotpipe.core.dims import Dim
from aotpipe.core.signature import admits
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check
from tests.unit.export.models import exported

ROWS = tuple(
    (torch.tensor(v),)
    for v in ([1.0, -1.0, 2.0, 3.0], [-1.0, -1.0, -2.0, 3.0], [2.0, 2.0, 3.0, 3.0], [-1.0] * 4)
)


def places(x):
    out = x.sum()
    for k in (x > 0).nonzero()[:, 0]:
        out = out * 2 + x[k]
    return out


def numbered(x):
    out = x.sum()
    for i, (k,) in enumerate((x > 0).nonzero(), 1):
        out = out * i + x[k]
    return out


def paired(x):
    keep = x > 0
    out = x.sum()
    for a, b, c, d in zip(x[keep], (x * 2)[keep], [10, 20, 30], x, strict=False):
        out = out * a + b * c - d
    return out


def backwards(x):
    out = x.sum()
    for each in reversed(x[x > 0]):
        out = out * 2 + each
    return out


def left_early(x):
    for k in (x > 0).nonzero().flatten():
        if x[k] > 2:
            return x[k] + k
    return x.sum()


def otherwise(x):
    found = (x > 0).nonzero().flatten()
    out = x.sum()
    for i in range(found.size(0)):
        if x[found[i]] > 2:
            break
        out = out * 2 + x[found[i]]
    else:
        out = out + 100
    return out


def nested(x):
    out = x.sum()
    for a in x[x > 0]:
        for b in x[x < 2].unbind():
            out = out + a * b
    return out


def written(x):
    y = x.clone()
    for k in (x > 0).nonzero().flatten():
        y[k] = y[k] * 3 + 1
    rows = x[x > 0]
    for row in rows:
        row.mul_(2)
    return y, rows.sum()


def collected(x):
    at = (x > 0).nonzero()[:, 0]
    some = [x[k] * 2 for k in at if x[k] < 3]
    return x * len(some) + sum(some), torch.stack([*[x[k] for k in at], x[0]]).sum(), sum(x[k] for k in at)


def as_lists(x):
    out = x
    for k, v in zip((x > 0).nonzero().flatten().tolist(), x[x > 0].tolist(), strict=False):
        out = out + k * v
    return out, x * len(list(x[x > 0])), max([*list(x[x > 0]), x[0]]), min(list(x[x < 9]))


@pytest.mark.parametrize(
    "model",
    [
        slow(places),
        slow(numbered),
        paired,
        backwards,
        slow(left_early),
        slow(otherwise),
        slow(nested),
        slow(written),
        slow(collected),
        slow(as_lists),
    ],
    ids=lambda model: model.__name__,
)
def test_loops_as_in_eager(model: Any) -> None:
    check(model, *ROWS)


def unequal(x):
    out = x.sum()
    for a, b in zip(x[x > 0], x[x < 2.5], strict=True):
        out = out + a * b
    return out


def test_lengths_that_must_be_equal() -> None:
    check(unequal, *ROWS)


def test_what_only_python_can_go_through_is_refused_at_its_line() -> None:
    def mapped(x):
        return x + len(tuple(zip(x[x > 0], x[x > 0], strict=False)))

    with pytest.raises(ExportFailed, match="other than by a `for`") as caught:
        check(mapped, *ROWS)
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_unbacked_items.py")


def test_items_of_pythons_own_are_left_to_it() -> None:
    assert unbacked_items.of([1, 2]) is None
    assert list(unbacked_items.zipped([1, 2], "ab")) == [(1, "a"), (2, "b")]
    assert list(unbacked_items.enumerated("ab", 3)) == [(3, "a"), (4, "b")]
    assert list(unbacked_items.reversed_((1, 2))) == [2, 1]


COMPREHENSIONS = tuple(
    (torch.tensor(v),) for v in ([1.0, 2.0], [-3.0, 1.0], [0.5, 4.0], [9.0, 9.0], [-1.0, -1.0])
)


def grown(x):
    seen = []
    for number in range(3):
        if x.sum() > 6:
            break
        x = x + 1
        seen.append((x, number))
    return seen


def of_a_list_that_grows(x):
    seen = grown(x)
    doubled = [row * 2 + number for row, number in seen]
    made = torch.stack([x, *[x]]), len(doubled), sum(doubled, x), sum(number for _, number in seen)
    large = [row for row, number in seen if row.sum() > 3 and number < 2]
    filtered = len(large), sum(large, x * 0)
    rows = [row for row, _ in seen]
    return made, filtered, any(row.max() > 5 for row in rows), all(row.min() > 0 for row in rows)


def filtered_by_a_tensor(x):
    found = [row * 2 for row in (x, x + 1, x * x) if row.sum() > 2 if row.max() < 20]
    return len(found), sum(found, x)


@pytest.mark.parametrize(
    "model", [of_a_list_that_grows, slow(filtered_by_a_tensor)], ids=lambda model: model.__name__
)
def test_comprehensions_as_in_eager(model: Any) -> None:
    check(model, *COMPREHENSIONS)


def test_of_plain_items_it_is_as_it_was() -> None:
    def apart(items):
        return [(lambda n=n: n % 2, lambda n=n: n * n) for n in items]

    found = unbacked_items.comprehended(
        range(5), lambda items: [n * n for n in items if n % 2], apart, tested=True
    )
    assert found == [1, 9]
    assert unbacked_items.comprehended(range(3), list, apart, tested=False) == [0, 1, 2]


RANGES = tuple((torch.tensor([1.0, 2.0]), torch.tensor(n)) for n in (3, 0, 1, -2, 7))


def steps(x, n):
    for i in range(2 * n, -1, -3):
        x = x + i
    for i in range(1, n + 1):
        if x[0] > 20:
            break
        x = x * i
    else:
        x = x - 1
    return x


def test_ranges_as_in_eager() -> None:
    check(steps, *RANGES)


def strides(x, n):
    out, step, seen = torch.zeros(6), n.item(), 0
    for start in range(0, 6, step):
        part = x[start : start + step]
        out[start : start + step] = part - part.mean()
    for i in range(5, -1, -step):
        seen = seen + i
        if seen > 7:
            break
    for i in range(step, 6, step):
        seen = seen + 10 * i
    return out, seen


def test_a_step_that_a_tensor_decides() -> None:
    check(strides, *((torch.randn(6), torch.tensor(step)) for step in (2, 3, 1, 6, -1, 9, 0)))


def test_a_range_of_plain_numbers_knows_its_trips() -> None:
    assert TensorRange.of((5,)).iterations == 5
    assert TensorRange.of((9, 2, -3)).iterations == len(range(9, 2, -3))
    assert TensorRange(0, torch.tensor(3), 1, most=4).iterations == 4


def test_it_is_not_written_out() -> None:
    def listed(x, n):
        return x + sum(tuple(range(n)))

    with pytest.raises(ExportFailed, match="other than by a `for`"):
        export(canonicalize(as_spec(listed, args=RANGES[0])))


def test_rows_that_were_unbound_are_a_tuple():
    def model(x):
        rows = x[x[:, 0] > 0].unbind(0)
        out = rows[0] * 2 + rows[-1] + len(rows)
        for at in range(1, len(rows)):
            out = out * 0.5 + rows[at] - rows[len(rows) - at]
        for row in rows[1:]:
            out = out + row
        return out

    rows = ([1.0, 2, -1, 3, 4, 5, 6, 7], [1.0, 2, 3, 4, 5, 6, 7, 8])
    cases = [torch.tensor(each).reshape(-1, 2) for each in rows]
    check(model, *((each,) for each in cases), (torch.tensor([[-1.0, 2]] * 3 + [[3.0, 4]]),), (-cases[1],))


def _with_a_key_from_the_first_iteration(x):
    state = {"v": torch.zeros(3)}
    for t in range(x.shape[0]):
        if "i" not in state:
            state = {**state, "i": torch.zeros(3)}
        state = {"v": state["v"] * 0.9 + state["i"], "i": x[t] + state["i"] * 0.5}
    return state["v"]


def _left_early(x):
    state, count = {}, 0
    for t, row in enumerate(x):
        state = {"k": row + state["k"] * 0.5} if "k" in state else {"k": row * 2}
        count = t + 1
        if state["k"].sum() > 1:
            break
    return state["k"], count


def _none_at_all(x):
    carried = ()
    for row in x:
        carried = (row + carried[0] * 0.5,) if carried else (row * 2,)
    return carried[0] if carried else x.sum(0) + 7


@pytest.mark.parametrize(
    ("call", "least"), [(_with_a_key_from_the_first_iteration, 1), (_left_early, 1), slow((_none_at_all, 0))]
)
def test_the_first_iteration_may_give_a_variable_its_form(call, least):
    found = exported(call, torch.randn(5, 3), shapes={"x": {0: Dim("rows", min=least, max=30)}})
    assert len(found.entries) <= 3
    for rows in (0, 1, 2, 9):
        x = torch.randn(rows, 3)
        taken = [each for each in found.entries if admits(each.signature, {"rows": rows})]
        assert bool(taken) is (rows >= least)
        for each in taken[:1]:
            got, want = each.program.module()(x), call(x)
            for mine, other in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
                torch.testing.assert_close(torch.as_tensor(mine), torch.as_tensor(other))
