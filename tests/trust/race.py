"""Somebody else writes to the arrays of a call while they are checked and used, on each driver.

Every element of a row of the table is the row's number. The writer turns one index of many between a row of
the table and numbers far outside of it, so that a call is refused, or gives rows that are those of its old or
its new indices. A second model has no declared range: there the program's own guard looks at the indices.
A third call has an array whose shape the writer changes.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.trust import models
from tests.trust.models import ROWS

WANTED = "60 s on each driver: 0 foreign rows, 0 signals"
DRIVERS = {
    "local-sync": ("iree-cpu-host", "local-sync"),
    "local-task": ("iree-cpu-host", "local-task"),
    "bytecode": ("iree-vmvx", "local-sync"),
    "xla": ("xla-cpu-host", "auto"),
}
UNITS = [f"{driver}: {kind}" for kind in ("declared", "guarded", "reshaped") for driver in DRIVERS]
WIDTH, COUNT = 16, 4096
SECONDS = 60.0
_WRITER = """
import sys, time
import numpy as np

ids = np.memmap(sys.argv[1], np.int64, "r+").view(np.ndarray)
before = ids.copy()
places = [7, ids.size // 2, ids.size - 1]
outside = [10**6, -(10**6), 2**31 - 1, -1001, 2**40]
turn = 0
while True:
    turn += 1
    ids[places] = outside[turn % len(outside)]
    ids[places] = before[places]
    if turn % 8 == 0:
        end = time.perf_counter() + 5e-5
        while time.perf_counter() < end:
            pass
"""


def run(unit: str, folder: Path, *, seconds: float | None = None) -> dict[str, float]:
    driver, _, kind = unit.partition(": ")
    target, name = DRIVERS[driver]
    runner = _runner(folder, target, name, kind)
    call = _reshaped if kind == "reshaped" else _raced
    return call(runner, folder, SECONDS if seconds is None else seconds)


def judge(counts: Any) -> tuple[str, bool]:
    figure = (
        f"{counts['foreign']:.0f} foreign rows of {counts['rows']:.0f}, 0 signals: "
        f"{counts['calls']:.0f} calls answered, {counts['refused']:.0f} refused"
    )
    return figure, not counts["foreign"] and counts["calls"] > 0 and counts["refused"] > 0


def _runner(folder: Path, target: str, driver: str, kind: str) -> Any:
    import aotpipe

    return aotpipe.load(models.build(kind, folder / "b", target), target, driver=driver)


def _raced(runner: Any, folder: Path, seconds: float) -> dict[str, float]:
    from aotpipe.errors import AssertionViolated, InputValue

    # Another process writes to the same memory, so that no lock of this interpreter orders it with a call.
    path = folder / "ids"
    (np.arange(COUNT, dtype=np.int64) % ROWS).tofile(path)
    ids = np.memmap(path, np.int64, "r+").view(np.ndarray)  # from a page's begin: XLA takes it as it lies
    before = ids.copy()
    counts = {"calls": 0, "refused": 0, "rows": 0, "foreign": 0}
    want = np.broadcast_to(before[:, None].astype(np.float32), (COUNT, WIDTH))
    writer = subprocess.Popen([sys.executable, "-P", "-c", _WRITER, str(path)])
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            try:
                (found,) = runner.infer({"ids": ids}).values()
            except (AssertionViolated, InputValue):
                counts["refused"] += 1
                continue
            counts["calls"] += 1
            counts["rows"] += len(found)
            # The numbers that are written are no rows, so that an answer is of the old ones alone.
            counts["foreign"] += int((found != want).any(axis=1).sum())
    finally:
        assert writer.poll() is None, "the writer ended"
        writer.kill()
        writer.wait()
    return counts


def _reshaped(runner: Any, _: Path, seconds: float) -> dict[str, float]:
    """The writer changes an array's shape in place: the call is refused, or takes one of the two shapes."""
    from aotpipe.errors import InputShape, OutsideBuckets, ProgramCrashed

    counts = {"calls": 0, "refused": 0, "rows": 0, "foreign": 0}
    a, b = np.ones((64, 16), np.float32), np.ones((16, 8), np.float32)
    stop = threading.Event()
    sys.setswitchinterval(1e-6)  # so that the writer's turns fall into all places of a call

    def write() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The interpreter changes threads where a loop begins anew.
            for shape in itertools.cycle([(64, 16), (256, 4), (64, 16), (16, 64)]):
                a.shape = shape
                if stop.is_set():
                    return

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            try:
                (found,) = runner.infer({"a": a, "b": b}).values()
            except (InputShape, OutsideBuckets, ProgramCrashed):
                counts["refused"] += 1
                continue
            counts["calls"] += 1
            counts["rows"] += len(found)
            counts["foreign"] += int(found.shape != (64, 8) or (found != 16).any())
    finally:
        stop.set()
        writer.join()
    return counts
