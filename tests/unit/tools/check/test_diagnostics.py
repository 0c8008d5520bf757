"""What a check says, as types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aotpipe.errors import Obstructed
from tests.unit.tools.check.samples import sample


def test_an_error_blocks_and_nothing_else_does(tmp_path: Path):
    checked = sample(tmp_path)
    assert [each.code for each in checked.obstacles] == ["tensor-to-numpy"]
    assert (checked.ok, checked.exit_code) == (False, Obstructed.exit_code)
    free = replace(checked, diagnostics=checked.diagnostics[1:])
    assert (free.ok, free.exit_code) == (True, 0)
    free.require()


def test_require_raises_with_the_first_obstacle(tmp_path: Path):
    checked = sample(tmp_path)
    with pytest.raises(Obstructed, match=r"net.py:3: `x.numpy\(\)` takes a tensor") as raised:
        checked.require()
    assert raised.value.hint == "use torch's function"


def test_a_fix_gives_the_line_as_it_reads_afterwards(tmp_path: Path):
    fix = sample(tmp_path).diagnostics[0].fix
    assert fix is not None
    assert fix.line == "    größe = x.sum(); y = größe > 0 and x"
