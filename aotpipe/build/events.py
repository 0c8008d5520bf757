"""The events of a build: stages that start and finish, findings, remarks.

A `Recorder` times stages and hands each event to one listener, from whichever thread it happens in, one at
a time. Torch-free; prints nothing.
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

from aotpipe.core.serialization import ELSEWHERE
from aotpipe.core.stages import Finding
from aotpipe.model import user_code

FrontStage = Literal["load", "canonicalize", "export", "legalize", "lower", "reference", "weights"]
"""Those of a build that all its targets share."""
Stage = Literal[FrontStage, "compile", "validate", "pack", "report", "bench", "write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """How often each stage will run, told before the first of them starts."""

    totals: Mapping[Stage, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStarted:
    """A stage began; `target` is empty for stages that all targets share."""

    stage: Stage
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFinished:
    """A stage ended, and what it took.

    Attributes:
        start_s: Seconds from the start of the build; compilers run beside other stages.
        wall_s: Seconds of wall time.
        peak_rss_bytes: The peak resident set, until the stage ended, of the process that did the work: this
            one, or the compiler.
        size_bytes: The size of what it made: a module, the weights, a program; 0 where that is no bytes.
    """

    stage: Stage
    target: str = ""
    start_s: float = 0.0
    wall_s: float
    peak_rss_bytes: int
    size_bytes: int = 0
    cached: bool = False
    failed: bool = field(default=False, metadata=ELSEWHERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A line about the build itself, such as a cache that cannot be written."""

    message: str


Event = Planned | StageStarted | StageFinished | Finding | Remark
Listener = Callable[[Event], None]


@dataclass(slots=True)
class Running:
    """A stage that runs; the code inside it may say where its result came from, and how large it is."""

    cached: bool = False
    peak_rss_bytes: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class Recorder:
    """Times stages, keeps what finished, and passes every event on."""

    listener: Listener | None = None
    finished: list[StageFinished] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    _begin: float = field(default_factory=time.perf_counter)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @contextmanager
    def stage(self, stage: Stage, target: str = "") -> Iterator[Running]:
        """Time the body as one stage.

        Raises:
            ModelError: The body ran the user's code, and that did what it may not (`model.user_code`).
        """
        self._tell(StageStarted(stage=stage, target=target))
        running = Running()
        failed = True
        start = time.perf_counter()
        try:
            with user_code.contained():
                yield running
            failed = False
        finally:
            done = StageFinished(
                stage=stage,
                target=target,
                start_s=start - self._begin,
                wall_s=time.perf_counter() - start,
                peak_rss_bytes=running.peak_rss_bytes or own_peak_rss_bytes(),
                size_bytes=running.size_bytes,
                cached=running.cached,
                failed=failed,
            )
            with self._lock:
                self.finished.append(done)
            self._tell(done)

    @property
    def by_start(self) -> tuple[StageFinished, ...]:
        """The stages that finished, in the order of their starts."""
        return tuple(sorted(self.finished, key=attrgetter("start_s")))

    def planned(self, totals: Mapping[Stage, int]) -> None:
        """Say how often each stage will run."""
        self._tell(Planned(totals=totals))

    def found(self, findings: Iterable[Finding]) -> None:
        """Pass findings about the user's model on."""
        for finding in findings:
            self._tell(finding)

    def remark(self, message: str) -> None:
        """Say something about the build itself, once."""
        with self._lock:
            if message in self.remarks:
                return
            self.remarks.append(message)
        self._tell(Remark(message=message))

    def _tell(self, event: Event) -> None:
        if self.listener:
            with self._lock:
                self.listener(event)


def own_peak_rss_bytes() -> int:
    """The peak resident set of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux KiB
