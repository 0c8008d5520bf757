"""Expressions that a tensor decides, at their places only."""

from __future__ import annotations

import torch

from tests.unit.passes.codegen.staged import written

X = torch.tensor([1.0, -2.0, 3.0])
ONE = torch.tensor(1)


def logic(x, i):
    if x.sum() > 0 and not i > 5:
        x = x + 1
    plain = True and not False
    if 0 < x.max() < 9 or i == 3:
        x = x * 2
    return x if plain else i


def numbers(x, i):
    n = i.item()
    low = min(float(n), 2.5)
    y = low if x.sum() > 0 else 0.5
    return x * y


def sizes(x, i):
    n = i.item()
    y = x.sum() if x.max() > 2 else x.mean()
    return x[: int(n)] * y


def answers(x, i):
    if torch.equal(x, x.flip(0)):
        return x + 1
    return x * 2 if x.allclose(x * i, atol=0.1) and x.sum().is_nonzero() else -x


def test_and_or_not_and_chains():
    text, _ = written(logic, X, ONE)
    assert "(x.sum() > 0) & ~(i > 5)" in text
    assert "(0 < x.max()) & (x.max() < 9) | (i == 3)" in text
    assert "plain = True and (not False)" in text


def test_numbers_stay_tensors():
    text, made = written(numbers, X, ONE)
    assert "n = i\n" in text
    assert "low = n.to(torch.float32).clamp(max=2.5)" in text
    assert "y = torch.where(x.sum() > 0, low, 0.5)" in text
    torch.testing.assert_close(made(X, ONE), numbers(X, ONE))


def test_numbers_that_are_sizes_are_taken_out():
    text, _ = written(sizes, X, ONE, sizes=True)
    assert "n = i.item()" in text
    assert "torch.cond(x.max() > 2, lambda: x.sum(), lambda: x.mean())" in text


def test_bools_of_pythons_that_torch_gives_are_tensors():
    text, made = written(answers, X, ONE)
    assert "(x == x.flip(0)).all()" in text
    assert "torch.isclose(x, x * i, atol=0.1).all() & (x.sum() != 0)" in text
    for call in ((X, ONE), (X.abs() * 0 + 1, ONE), (X, ONE * 3)):
        torch.testing.assert_close(made(*call), answers(*call))
