"""Calls of many threads on few runners, each of its own input, while the process forks.

A child refuses to call the parent's runner, loads the bundle itself, calls it, and ends; of XLA, whose locks
a child may have locked for good, it refuses to load. The second kind of
part calls one runner again and again, and looks at the memory of the process.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import default_rng  # before a fork: numpy imports it when it is first used

from tests.trust import models
from tests.trust.models import WIDTH

WANTED = (
    "16 threads, 4 runners, 10,000 unique inputs, forks in between: 0 wrong, 0 hangs; memory grows by "
    "under 1 MB per 100,000 calls"
)
DRIVERS = {
    "local-sync": ("iree-cpu-host", "local-sync"),
    "local-task": ("iree-cpu-host", "local-task"),
    "bytecode": ("iree-vmvx", "local-sync"),
    "xla": ("xla-cpu-host", "auto"),
}
UNITS = [f"threads: {driver}" for driver in (*DRIVERS, "all")] + [f"memory: {driver}" for driver in DRIVERS]
THREADS, RUNNERS, INPUTS, FORKS, CALLS = 16, 4, 10_000, 60, 100_000
_CHILD_S = 60


def run(unit: str, folder: Path) -> dict[str, float]:
    kind, _, driver = unit.partition(": ")
    chosen = [*DRIVERS.values()] if driver == "all" else [DRIVERS[driver]] * RUNNERS
    models.build("scaled", folder / "b", *sorted({target for target, _ in chosen}))
    return _threads(folder / "b", chosen) if kind == "threads" else _memory(folder / "b", *chosen[0])


def judge(counts: Any) -> tuple[str, bool]:
    slope = counts["most_mb_per_call_set"]
    figure = (
        f"{counts['wrong']:.0f} of {counts['calls']:.0f} answers wrong, {counts['errors']:.0f} errors, "
        f"{counts['hung']:.0f} of {counts['forks']:.0f} children hung, {counts['bad']:.0f} of them failed; "
        f"at most {slope:.2f} MB per 100,000 calls"
    )
    bad = counts["wrong"] + counts["errors"] + counts["hung"] + counts["bad"]
    return figure, not bad and counts["calls"] >= INPUTS and slope < 1


def _call(number: int) -> tuple[dict[str, Any], Any]:
    """An input that no other call has, of small integers, so that every order of the sum is exact."""
    draw = default_rng(number)
    x = draw.integers(-50, 50, (4, WIDTH)).astype(np.float32)
    x[0, :2] = number % 1000, number // 1000
    ids = draw.integers(0, WIDTH, WIDTH)
    return {"x": x, "ids": ids}, ids.astype(np.float32) * x + x.sum(-1, keepdims=True)


def _threads(bundle: Path, chosen: list[tuple[str, str]]) -> dict[str, float]:
    import aotpipe

    runners = [aotpipe.load(bundle, target, driver=driver) for target, driver in chosen]
    names = list(chosen)
    numbers = itertools.count()
    counts = dict.fromkeys(("calls", "wrong", "errors", "forks", "hung", "bad"), 0)
    lock = threading.Lock()
    stopped = threading.Event()

    def work(place: int) -> None:
        while True:
            if (number := next(numbers)) >= INPUTS and counts["forks"] >= FORKS:
                return
            inputs, want = _call(number)
            try:
                (found,) = runners[(place + number) % RUNNERS].infer(inputs).values()
                outcome = "calls" if np.array_equal(found, want) else "wrong"
            except Exception as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
                outcome = "errors"
            with lock:
                counts["calls"] += 1
                counts[outcome] += outcome != "calls"

    threads = [threading.Thread(target=work, args=(place,)) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    draw = random.Random(1)
    end = threading.Thread(target=lambda: ([each.join() for each in threads], stopped.set()))
    end.start()
    while not stopped.is_set():
        time.sleep(draw.uniform(0, 0.05))
        place = draw.randrange(RUNNERS)
        counts["forks"] += 1
        if not (child := os.fork()):
            os._exit(_in_child(bundle, runners[place], names[place]))
        status = _waited(child)
        counts["hung"] += status is None
        counts["bad"] += status not in (None, 0)
    end.join()
    return counts


def _waited(child: int) -> int | None:
    """The status of a child that ends; None where it hangs."""
    end = time.monotonic() + _CHILD_S
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _in_child(bundle: Path, runner: Any, chosen: tuple[str, str]) -> int:
    import aotpipe
    from aotpipe.errors import ProgramCrashed

    faulthandler.dump_traceback_later(_CHILD_S / 2)  # where it hangs
    try:
        inputs, want = _call(os.getpid())
        try:
            runner.infer(inputs)
        except ProgramCrashed:
            pass
        else:
            return 3
        runner.close()
        if chosen[0].startswith("xla"):
            try:
                aotpipe.load(bundle, chosen[0], driver=chosen[1])
            except ProgramCrashed:  # XLA's own locks: see aotpipe.runtime.xla.clients
                return 0
            return 6
        with aotpipe.load(bundle, chosen[0], driver=chosen[1]) as own:
            (found,) = own.infer(inputs).values()
        return 0 if np.array_equal(found, want) else 4
    except BaseException as error:
        print(f"child: {type(error).__name__}: {error}", file=sys.stderr)
        return 5


def _memory(bundle: Path, target: str, driver: str) -> dict[str, float]:
    """The growth of this process's memory over calls, after as many that warm it up."""
    import aotpipe

    page_mb = os.sysconf("SC_PAGE_SIZE") / 1e6

    def resident_mb() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page_mb

    calls = CALLS // (10 if target == "iree-vmvx" else 1)
    with aotpipe.load(bundle, target, driver=driver) as runner:
        inputs = [_call(number)[0] for number in range(100)]
        for turn in range(calls):
            runner.infer(inputs[turn % 100])
        before = resident_mb()
        for turn in range(calls):
            runner.infer(inputs[turn % 100])
        grown = resident_mb() - before
    return {"most_mb_per_call_set": grown * CALLS / calls, "timed_calls": calls}
