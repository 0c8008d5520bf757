"""The records of past faults fit today's code: `scripts/faults` can put each of them back."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.faults.faults import ROOT, Fault, load

FAULTS = load()
LEAST = 60


@cache
def _quick_tests(file: str) -> frozenset[str]:
    """The names of a file's test functions that are not marked slow as a whole."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and not any(ast.unparse(each) == "pytest.mark.slow" for each in node.decorator_list)
    )


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own() -> None:
    assert len(FAULTS) >= LEAST
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_can_be_put_back_and_its_test_is_a_quick_one(fault: Fault) -> None:
    for path, text in fault.changed(ROOT).items():
        compile(text, str(path), "exec")
    assert fault.test_name in _quick_tests(fault.test_file)
