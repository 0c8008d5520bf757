"""`for` and comprehensions over as many items as only a run knows, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotpipe.canonicalize.operators import unbacked_rows
from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check

CASES = tuple(
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
    for a, b, c in zip(x[keep], (x * 2)[keep], [10, 20, 30], strict=False):
        out = out * a + b * c
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
        places,
        numbered,
        paired,
        backwards,
        left_early,
        otherwise,
        nested,
        written,
        collected,
        as_lists,
    ],
    ids=lambda model: model.__name__,
)
def test_loops_as_in_eager(model: Any) -> None:
    check(model, *CASES)


def unequal(x):
    out = x.sum()
    for a, b in zip(x[x > 0], x[x < 2.5], strict=True):
        out = out + a * b
    return out


def test_lengths_that_must_be_equal() -> None:
    check(unequal, *CASES)


def test_what_only_python_can_go_through_is_refused_at_its_line() -> None:
    def mapped(x):
        return x + len(tuple(zip(x[x > 0], x[x > 0], strict=False)))

    with pytest.raises(ExportFailed, match="other than by a `for`") as caught:
        check(mapped, *CASES)
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_unbacked_rows.py")


def test_items_of_pythons_own_are_left_to_it() -> None:
    assert unbacked_rows.of([1, 2]) is None
    assert list(unbacked_rows.zipped([1, 2], "ab")) == [(1, "a"), (2, "b")]
    assert list(unbacked_rows.enumerated("ab", 3)) == [(3, "a"), (4, "b")]
    assert list(unbacked_rows.turned((1, 2))) == [2, 1]
