"""Boolean-mask reads and writes, beside eager."""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.unit.passes.legal import Runner, check, legal, model, targets

X = torch.linspace(-3.0, 2.0, 60).reshape(3, 4, 5)
ROWS = torch.tensor([True, False, True])
COLUMNS = torch.tensor([False, True, True, False])
VALUES = [(2, 4, 5), (1, 4, 5), (5,), (2, 5)]


def _written(x: torch.Tensor, mask: Any, value: Any) -> torch.Tensor:
    y = x.clone()
    y[mask] = value
    return y


def test_reads() -> None:
    def forward(self, x, rows, columns, both, last):
        return (
            x[x > 0],
            x[rows],
            x[:, columns],
            x[both],
            x[rows, 1:3],
            torch.masked_select(x, last),
            torch.masked_select(x[0, 0, 0], rows[0]),
            x[rows].sum(0),
            x[x > 99].sum(),
        )

    last = torch.tensor([True, False, True, False, True])
    program = check(model(forward), [X, ROWS, COLUMNS, X.sum(2) > 0, last])
    assert "aten.masked_select.default" not in targets(program)


def test_reads_by_a_mask_that_is_larger() -> None:
    def forward(self, x, mask):
        return torch.masked_select(x, mask), torch.masked_select(x[0], mask[:, :1]).sum()

    few, many = torch.arange(12).reshape(3, 4) == 7, torch.ones(3, 4, dtype=torch.bool)
    x = torch.randn(3, 1)
    check(model(forward), [x, few], [x, many], [x, ~many])
    rows = {0: torch.export.Dim("rows", min=2, max=9)}
    both = {"x": rows, "mask": rows}
    check(model(forward), [x, few], [torch.randn(9, 1), torch.ones(9, 4) > 0], dynamic_shapes=both)


def test_writes() -> None:
    def forward(self, x, rows, columns, none, each, one, vector, pair):
        return (
            _written(x, x > 0, 0.0),
            _written(x, rows, each),
            _written(x, rows, one),
            _written(x, rows, vector),
            _written(x, (slice(None), columns), pair),
            _written(x, rows, x[rows] * 2),
            _written(x, none, x[none] * 2),
            x.index_put([rows], torch.ones_like(each), accumulate=True),
            x.masked_fill(x > 0, 7.0),
            _written(x > 1, rows, True),
        )

    values = [torch.arange(float(math.prod(shape))).reshape(shape) for shape in VALUES]
    check(model(forward), [X, ROWS, COLUMNS, X > 99, *values])


def test_as_many_values_as_true_elements() -> None:
    def forward(self, x, m, v):
        return _written(x, m, v)

    run = Runner(legal(model(forward), [X, ROWS, torch.ones(2, 4, 5)]))
    run([X, ~ROWS, torch.ones(2, 4, 5)])
    line = _written.__code__.co_firstlineno + 2
    text = f"as many values as true elements of a mask are written (test_indexing_masks.py:{line})"
    assert run.asserts == {text: False}


def test_a_mask_beside_an_index() -> None:
    """XLA paired positions with a mask's that were none, and IREE refused the scatter."""
    aten = torch.ops.aten

    def forward(self, x, index, mask, values):
        impl = x.clone()
        aten._index_put_impl_(impl, (index, mask), values, accumulate=True)
        return (
            aten.index_put(x, (index, mask), values),
            impl,
            aten.index_put(x, (index[:1], mask), values[:1]),
        )

    def call(*true: int) -> list[torch.Tensor]:
        mask = torch.zeros(5, dtype=torch.bool)
        mask[list(true)] = True
        return [torch.randn(5, 5), torch.tensor([0, 2, 4]), mask, torch.randn(3)]

    program = check(model(forward), call(0, 2, 3), call(1), call(0, 1, 4), call(4))
    run = Runner(program)
    for true in ((), (1, 2), (0, 1, 2, 3)):
        run(call(*true))
        assert not all(run.asserts.values())


def test_two_masks_choose_as_many() -> None:
    def forward(self, x, one, two):
        return torch.ops.aten.index_put(x, (one, two), x.sum())

    def call(one: int, two: int) -> list[torch.Tensor]:
        return [torch.randn(4, 5), torch.arange(4) < one, torch.arange(5) >= 5 - two]

    program = check(model(forward), call(2, 2), call(4, 4), call(3, 1), call(1, 1), call(0, 0))
    run = Runner(program)
    for one, two in ((2, 3), (3, 2), (0, 2)):
        run(call(one, two))
        assert not all(run.asserts.values())
