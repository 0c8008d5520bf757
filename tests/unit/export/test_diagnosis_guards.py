"""The log of what torch assumed."""

from __future__ import annotations

import logging

import pytest
import torch

from aotpipe.errors import SourceLine
from aotpipe.export.diagnosis import GuardLog, listening


def test_assumptions_are_heard_and_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    before = (logger.level, list(logger.handlers))
    model = torch.nn.Linear(3, 3)
    from aotpipe.export.tracing import quiet

    with listening() as log, quiet():
        torch.export.export(
            model, (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)
        )
    assert log.symbols.keys() == {"L['input'].size()[0]", "L['input'].size()[1]"}
    symbol = log.symbols["L['input'].size()[1]"]
    found = log.about(symbol)
    assert found is not None
    assert found[0] == f"Eq({symbol}, 3)"
    assert (logger.level, list(logger.handlers)) == before
    captured = capfd.readouterr()
    assert not captured.out + captured.err


def test_assumptions_are_heard_where_an_application_disabled_all_loggers() -> None:
    logging.disable(logging.WARNING)
    try:
        with listening() as log:
            sizes = ({0: torch.export.Dim.AUTO},)
            torch.export.export(torch.nn.Identity(), (torch.ones(4, 3),), dynamic_shapes=sizes)
    finally:
        logging.disable(logging.NOTSET)
    assert log.symbols.keys() == {"L['input'].size()[0]"}


def test_a_guard_that_fixes_a_symbol_comes_first() -> None:
    line = SourceLine("m.py", 3)
    log = GuardLog(guards=[("Ne(s1, 1)", None), ("Eq(s1, 4)", line), ("Eq(s12, 4)", None)])
    assert log.about("s1") == ("Eq(s1, 4)", line)
    assert log.about("s12") == ("Eq(s12, 4)", None)
    assert log.about("s2") is None


def test_where_a_size_is_rounded_is_noted() -> None:
    class Rounding(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[: int(x.shape[0] * 0.5)]

    with listening() as log, pytest.raises(Exception, match="Constraints violated"):
        torch.export.export(
            Rounding(), (torch.ones(8),), dynamic_shapes=({0: torch.export.Dim("n", min=4, max=9)},)
        )
    assert any(Rounding.forward.__code__ in codes for codes in log.rounding)
