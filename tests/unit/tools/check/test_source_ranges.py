"""Places: the exact expression that a frame computes, and the syntax around it."""

from __future__ import annotations

import ast
import inspect
import sys

from aotpipe.tools.check import source_ranges


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
