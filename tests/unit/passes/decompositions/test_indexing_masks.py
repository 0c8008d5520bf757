"""Boolean-mask reads and writes, beside eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.unit.passes.legal import Runner, check, legal, model, targets

X = torch.linspace(-3.0, 2.0, 60).reshape(3, 4, 5)
ROWS = torch.tensor([True, False, True])
COLUMNS = torch.tensor([False, True, True, False])


def _written(x: torch.Tensor, mask: Any, value: Any) -> torch.Tensor:
    y = x.clone()
    y[mask] = value
    return y


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        (lambda self, x: x[x > 0], [X]),
        (lambda self, x, m: x[m], [X, ROWS]),
        (lambda self, x, m: x[:, m], [X, COLUMNS]),
        (lambda self, x, m: x[m], [X, X.sum(2) > 0]),
        (lambda self, x, m: x[m, 1:3], [X, ROWS]),
        (lambda self, x, m: torch.masked_select(x, m), [X, torch.tensor([True, False, True, False, True])]),
        (lambda self, x, m: torch.masked_select(x[0, 0, 0], m[0]), [X, ROWS]),
        (lambda self, x, m: x[m.to(torch.uint8)] if False else x[m].sum(0), [X, ROWS]),
        (lambda self, x: x[x > 99].sum(), [X]),
    ],
    ids=["all", "rows", "columns", "two-dims", "then-slice", "masked_select", "one", "reduced", "none-true"],
)
def test_reads(forward: Any, inputs: list[torch.Tensor]) -> None:
    program = check(model(forward), inputs)
    assert "aten.masked_select.default" not in targets(program)


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        (lambda self, x: _written(x, x > 0, 0.0), [X]),
        (lambda self, x, m, v: _written(x, m, v), [X, ROWS, torch.arange(40.0).reshape(2, 4, 5)]),
        (lambda self, x, m, v: _written(x, m, v), [X, ROWS, torch.arange(20.0).reshape(1, 4, 5)]),
        (lambda self, x, m, v: _written(x, m, v), [X, ROWS, torch.arange(5.0)]),
        (
            lambda self, x, m, v: _written(x, (slice(None), m), v),
            [X, COLUMNS, torch.arange(10.0).reshape(2, 5)],
        ),
        (lambda self, x, m: _written(x, m, x[m] * 2), [X, ROWS]),
        (lambda self, x, m: _written(x, m, x[m] * 2), [X, X > 99]),
        (lambda self, x, m, v: x.index_put([m], v, accumulate=True), [X, ROWS, torch.ones(2, 4, 5)]),
        (lambda self, x, m: x.masked_fill(m, 7.0), [X, X > 0]),
        (lambda self, x, m: _written(x > 1, m, True), [X, ROWS]),
    ],
    ids="scalar per-row one-row vector columns own none-true accumulate masked_fill bools".split(),
)
def test_writes(forward: Any, inputs: list[torch.Tensor]) -> None:
    check(model(forward), inputs)


def test_as_many_values_as_true_elements() -> None:
    def forward(self, x, m, v):
        return _written(x, m, v)

    run = Runner(legal(model(forward), [X, ROWS, torch.ones(2, 4, 5)]))
    run([X, ~ROWS, torch.ones(2, 4, 5)])
    line = forward.__code__.co_firstlineno + 1
    text = f"as many values as true elements of a mask are written (test_indexing_masks.py:{line})"
    assert run.asserts == {text: False}
