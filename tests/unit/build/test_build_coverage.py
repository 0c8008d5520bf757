"""A build says what its calls reach, and fails where that is less than was required."""

from __future__ import annotations

from pathlib import Path

import pytest

import aotpipe
from aotpipe.errors import NotCovered
from tests.unit.validate.coverage.models import Nested, Unreachable, X


def test_all_that_can_be_reached_is_compared(tmp_path: Path) -> None:
    built = aotpipe.build(
        Nested().eval(),
        args=(X,),
        out=tmp_path / "nested",
        latency=False,
        require_coverage=100,
        name="nested",
    )
    assert built.report.coverage.percent == 100
    [row] = built.report.targets
    assert row.parity is not None
    refused = [case for case in row.parity.cases if case.output == "*"]
    assert [case.note for case in refused] == ["the program refuses the call, as eager does"]


def test_what_no_call_reaches_fails_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(NotCovered, match="1 of 2 are reached") as raised:
        aotpipe.build(
            Unreachable().eval(),
            args=(X,),
            out=tmp_path / "never",
            latency=False,
            require_coverage=100,
            name="never",
        )
    assert raised.value.where is not None
    assert raised.value.where.path.endswith("models.py")
    assert not (tmp_path / "never").exists()
