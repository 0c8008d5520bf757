"""Texts of traced values that are made before the `raise` that shows them."""

from __future__ import annotations

import ast

import pytest
import torch

from aotpipe.canonicalize.rewrite import raised_texts
from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check
from tests.unit.export.models import exported, run


def of_one_name(x):
    if x.min() < -5:
        msg = f"too low: {x.min():.2f}"
        raise ValueError(msg)
    return x * 2


def of_several(x):
    low = x.min()
    if low < -5:
        found = [f"{v:.1e}" for v in x]
        msg = "too low: " + ", ".join(found)
        msg += f" ({low})"
        raise ValueError(msg)
    return x * 2


def inlined(text: str) -> str:
    tree = ast.parse(text)
    assert isinstance(tree.body[0], ast.FunctionDef)
    raised_texts.inline(tree.body[0])
    return ast.unparse(tree)


@pytest.mark.parametrize("model", [of_one_name, of_several])
def test_the_path_that_raises_is_an_assert(model):
    check(model, (torch.tensor([3.0, 1.0, 2.0]),), (torch.tensor([-1.0, 2.0, 0.5]),))
    with pytest.raises(RuntimeError, match="too low"):
        run(exported(model, torch.randn(3)), torch.tensor([-9.0, 0.0, 1.0]))


def test_a_name_that_is_read_elsewhere_stays():
    caught = """
def f(x):
    try:
        if x < 0:
            msg = f'{x}'
            raise ValueError(msg)
    except ValueError:
        return msg
"""
    assert inlined(caught) == ast.unparse(ast.parse(caught))
    added = """
def f(x):
    msg = 'low'
    if x < 0:
        msg += f'{x}'
        raise ValueError(msg)
    raise KeyError(msg)
"""
    assert "msg += " in inlined(added)
    raised_again = """
def f(x):
    try:
        msg = f'{x}'
        raise ValueError(msg)
    except ValueError:
        raise KeyError(msg)
"""
    assert inlined(raised_again) == ast.unparse(ast.parse(raised_again))


def test_what_may_change_something_stays():
    changing = """
def f(x):
    at = self.count(x)
    msg = f'{at}'
    raise ValueError(msg)
"""
    assert inlined(changing) == ast.unparse(
        ast.parse("def f(x):\n    at = self.count(x)\n    raise ValueError(f'{at}')")
    )


def test_a_text_that_a_handler_reads_is_refused():
    def model(x):
        try:
            if x.min() < -5:
                msg = f"{x.min()}"
                raise ValueError(msg)  # noqa: TRY301
        except ValueError:
            return x * len(msg)
        return x

    with pytest.raises(ExportFailed, match="a text is made of"):
        exported(model, torch.randn(3))
