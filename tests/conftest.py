"""What all tests share: one store a run, fixed random numbers, no network, and tables at its end."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

# Before any test imports transformers: its weights and configs come from installed packages or not at all.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

# How long an example takes says more of the machine's other work than of the code, so there is no deadline.
settings.register_profile("quick", deadline=None, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=500, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

ROOT = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run the files, and the tests of each, shuffled"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--shuffle")
    if seed is not None:
        # The tests of a file stay together, so that its fixtures are made once.
        files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
        numbers = random.Random(seed)
        numbers.shuffle(files)
        for tests in files:
            numbers.shuffle(tests)
        items[:] = [test for tests in files for test in tests]


def pytest_collection_finish() -> None:
    """Keep the bytecode of the tests, but of nothing that they import; collect garbage more rarely.

    A model that a test writes twice within a second has one modification time, and Python would take the
    bytecode of the first for the second.
    """
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    # Collections that walk all of torch's objects, again and again, took a tenth of the time of the tests.
    gc.freeze()
    gc.set_threshold(10_000, *gc.get_threshold()[1:])


def pytest_unconfigure() -> None:
    """Let the last collection find what the bindings of IREE hold; they tell of each object that is left."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _run_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let builds and the tests' own compiles keep what they made for this run, in all of its workers."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTPIPE_CACHE", str(folder / "store"))
        patch.setenv("AOTPIPE_TEST_PROGRAMS", str(folder / "programs"))
        yield


@pytest.fixture
def own_cache() -> None:
    """Gives a test a store of its own: it counts on what the store lacks."""


@pytest.fixture(autouse=True)
def _own_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test that patches the product neither reads the shared store nor leaves its results there."""
    with pytest.MonkeyPatch.context() as patch:
        if {"own_cache", "monkeypatch"} & set(request.fixturenames):
            patch.setenv("AOTPIPE_CACHE", str(tmp_path_factory.mktemp("store")))
        yield


@pytest.fixture(autouse=True)
def _fixed_random_numbers() -> None:
    """A test draws the same numbers whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


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
