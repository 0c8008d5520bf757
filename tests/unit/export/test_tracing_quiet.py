"""torch's talk is held back unless it is asked for."""

from __future__ import annotations

import logging
import sys
import warnings

import pytest

from aotpipe.export.tracing import quiet


def speak() -> None:
    logging.getLogger("torch._guards").error("a traceback")
    print("a graph", file=sys.stderr)
    warnings.warn("an internal", stacklevel=1)


def test_nothing_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    handlers = [h for name in logging.root.manager.loggerDict for h in logging.getLogger(name).handlers]
    before = [(h.level, list(h.filters)) for h in handlers]
    with quiet():
        speak()
    captured = capfd.readouterr()
    assert not captured.out + captured.err
    assert [(h.level, list(h.filters)) for h in handlers] == before


def test_torch_logs_is_obeyed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TORCH_LOGS", "dynamic")
    with quiet(), pytest.warns(UserWarning, match="an internal"):
        speak()
    assert "a graph" in capsys.readouterr().err
