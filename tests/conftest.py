"""What all tests share: a cache of their own, no network, and tables at the end of the run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Before any test imports transformers: its weights and configs come from installed packages or not at all.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

# How long an example takes says more of the machine's other work than of the code.
settings.register_profile("aotpipe", deadline=None)
settings.load_profile("aotpipe")

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads what another run cached, nor leaves anything in the user's cache."""
    monkeypatch.setenv("AOTPIPE_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def ctrl_c_is_heeded() -> Iterator[None]:
    """A shell that starts the tests in the background has them ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def print_table(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Show a text after the run; unlike print, it is seen when the test passes, also under xdist."""
    return lambda text: record_property("table", text)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "table" and getattr(report, "when", "") == "call":
                    terminalreporter.write_sep("-", report.nodeid)
                    terminalreporter.write_line(value)
