"""The text of a result."""

from __future__ import annotations

from aotpipe.errors import ExportFailed
from aotpipe.tools.recompiles.results import Refused, Way
from aotpipe.tools.recompiles.text import render
from tests.unit.tools.recompiles.test_results import found, program


def test_a_row_for_each_program() -> None:
    text = render(found(Way(name="torch.compile", so_far=(1, 2), programs=(program(1), program(2)))))
    assert text.splitlines() == [
        "torch.compile: 2 programs for 2 calls",
        "  calls  programs  line      value               reason",
        "  1      1         net.py:7  self.count: 0 -> 1  `self.count == 0` does not hold",
        "  2      2         net.py:7  self.count: 0 -> 1  `self.count == 0` does not hold",
    ]


def test_parity_refusals_and_errors() -> None:
    text = render(
        found(
            Way(name="a", so_far=(1, 1), compared=2, ratio=0.25, notes=("said",)),
            Way(name="b", so_far=(1, 1), refused=(Refused(call=2, reason="no"),)),
            Way(name="c", so_far=(), error=ExportFailed("why")),
        )
    )
    assert (
        "a: 1 program for 2 calls, 2 answers at parity with eager (at most 25% of the allowed error)" in text
    )
    assert "  note: said" in text
    assert "  call 2 is refused: no" in text
    assert "c: no program\nerror[export]: why" in text
