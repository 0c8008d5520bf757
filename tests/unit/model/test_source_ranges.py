"""Places: the exact expression that a frame computes, and the syntax around it."""

from __future__ import annotations

import ast
import inspect
import sys
from typing import Any

import pytest
import torch

import aotpipe
from aotpipe.model import source_ranges
from aotpipe.model.source_ranges import deciding


def here() -> source_ranges.Place:
    frame = sys._getframe(1)
    return source_ranges.of_frame(frame)


def test_a_place_is_the_expression_that_is_computed():
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    found = [1, here(), 3][1]
    assert isinstance(found, source_ranges.Place)
    assert (found.line, found.expression) == (line, "here()")
    assert found.text[found.column - 1 : found.end_column - 1] == "here()"
    assert found.where.line == line


def test_columns_count_characters_and_not_bytes():
    name = {"größe": 1, "ß": here()}["ß"]
    assert isinstance(name, source_ranges.Place)
    assert name.expression == "here()"


def test_an_expression_of_several_lines_is_shown_on_one():
    found = [
        here()
        if True
        else 0
    ][0]  # fmt: skip
    assert isinstance(found, source_ranges.Place)
    whole = next(node for node in source_ranges.around(found) if isinstance(node, ast.IfExp))
    assert source_ranges.of_node(found.path, whole).expression == "here() if True else 0"


def test_around_goes_from_the_inside_out():
    if here().line > 0:
        found = here()
    kinds = [type(node).__name__ for node in source_ranges.around(found)]
    assert kinds[:3] == ["Call", "Assign", "If"]
    assert kinds[-1] == "Module"


def test_a_model_is_what_is_neither_python_nor_torch():
    folder = "/usr/lib/python3/site-packages"
    assert source_ranges.is_model_file(__file__)
    assert source_ranges.is_model_file(f"{folder}/transformers/models/x.py")
    assert source_ranges.is_model_file("<string>")
    assert not source_ranges.is_model_file(f"{folder}/torch/nn/modules/linear.py")
    assert not source_ranges.is_model_file(f"{folder}/numpy/core.py")
    assert not source_ranges.is_model_file(inspect.__file__)
    assert not source_ranges.is_model_file(source_ranges.__file__)
    assert not source_ranges.is_model_file("<frozen importlib._bootstrap>")


def test_what_has_no_source_has_no_text():
    place = source_ranges.of_line("<string>", 3)
    assert (place.text, place.expression, source_ranges.around(place)) == ("", "", [])


FOUND: list[tuple[str, str] | None] = []
X = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)


def look() -> bool:
    found = deciding(source_ranges.of_frame(sys._getframe(1)))
    FOUND.append((found.what, found.into) if found else None)
    return False


def _if() -> None:
    if look():
        pass


def _while() -> None:
    while look():
        pass


def _and() -> None:
    _ = look() and True


def _or() -> None:
    _ = look() or True


def _not() -> None:
    _ = not look()


def _listed() -> None:
    _ = [number for number in (1,) if look()]


def _chosen() -> None:
    _ = 1 if look() else 2


def _assert() -> None:
    assert not look()


def _nothing() -> None:
    _ = [look()]


def _range() -> None:
    for _ in range(look()):
        pass


@pytest.mark.parametrize(
    ("function", "what", "into"),
    [
        (_if, "if", "torch.cond"),
        (_listed, "comprehension", "torch.cond"),
        (_while, "while", "torch.while_loop"),
        (_and, "and", "torch.logical_and"),
        (_or, "or", "torch.logical_or"),
        (_not, "not", "torch.logical_not"),
        (_chosen, "conditional expression", "torch.cond"),
        (_assert, "not", "torch.logical_not"),
        (_range, "for over range", "torch.while_loop"),
    ],
)
def test_a_construct_is_found(function: Any, what: str, into: str):
    FOUND.clear()
    function()
    [found] = FOUND
    assert found == (what, into)


def test_an_expression_that_decides_nothing():
    FOUND.clear()
    _nothing()
    assert not any(FOUND)


def test_rewrites_are_named_by_line_in_their_order():
    class Net(torch.nn.Module):
        def forward(self, x, n):
            if x.sum() > 0 and x.max() < 5:
                x = x + 1
            for _ in range(n):
                x = x * 2
            while x.abs().max() > 1:
                x = x / 2
            return x if x.mean() > 0 else -x

    checked = aotpipe.check(Net().eval(), (X, torch.tensor(2)))
    assert checked.ok
    assert [(each.what, each.into) for each in checked.rewrites] == [
        ("if", "torch.cond"),
        ("and", "torch.logical_and"),
        ("for over range", "torch.while_loop"),
        ("while", "torch.while_loop"),
        ("conditional expression", "torch.cond"),
    ]
    first = checked.rewrites[0].place.line
    assert [each.place.line - first for each in checked.rewrites] == [0, 0, 2, 4, 6]
