"""The line that changes something."""

from __future__ import annotations

import inspect
from typing import Any

from aotpipe.canonicalize.state import discovery


class Box:
    def __init__(self) -> None:
        self.value = 0

    def plus(self) -> int:
        return self.value + 1

    def change(self) -> None:
        for _ in range(2):
            self.plus()
        self.value = self.plus()  # here
        self.value += 5


def _line_of(function: Any, mark: str) -> int:
    lines, start = inspect.getsourcelines(function)
    return start + next(index for index, line in enumerate(lines) if mark in line)


def test_the_first_line_that_changes_it_is_found() -> None:
    box = Box()
    found = discovery.changing(box.change, lambda: box.value)
    assert found is not None
    assert found.path.endswith("test_mutation_line.py")
    assert found.line == _line_of(Box.change, "# here")


def test_a_line_before_an_exception_is_found_too() -> None:
    box = Box()

    def fail() -> None:
        box.value = 1  # here
        raise ValueError

    found = discovery.changing(fail, lambda: box.value)
    assert found is not None
    assert found.line == _line_of(fail, "# here")


def test_nothing_is_found_where_nothing_changes() -> None:
    box = Box()
    assert discovery.changing(box.plus, lambda: box.value) is None
