"""Runs of `iree-compile`, each in a process of its own under a time and a memory limit.

with Workplace.made(module, limit_bytes) as place:
for name, chosen in plan(fast, attempts):
attempts.append(place.attempt(name, chosen, timeout_s))
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Self

from aotpipe.backends.iree.compile import diagnostics, flags
from aotpipe.backends.iree.fixes.flags.c_library_math import LINKER
from aotpipe.core.stages import Schedule
from aotpipe.errors import TargetError
from aotpipe.runtime import process

# Relative, so that no path of this machine reaches the module's locations.
_INPUT: Final = "module.mlir"
_OUTPUT: Final = "module.vmfb"
_SCHEDULE: Final = "schedule.json"
_FROM_INPUT: Final = "--compile-from=input"
# Neither changes the program.
_STATISTICS: Final = (
    f"--iree-scheduling-dump-statistics-file={_SCHEDULE}",
    "--iree-scheduling-dump-statistics-format=json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of the compiler.

    Attributes:
        flags: What it was given, but for the statistics.
        name: Of the fallback that made the flags; empty for the fast ones.
        payload: The program; None where it failed.
        schedule: What the program does, where the compiler says it.
    """

    flags: tuple[str, ...]
    name: str
    outcome: process.Outcome
    payload: bytes | None
    schedule: Schedule | None


@dataclass(frozen=True, slots=True)
class Workplace:
    """A folder with a module that is compiled in it, and the compiler's limit of resident bytes."""

    folder: Path
    limit_bytes: int

    @classmethod
    @contextmanager
    def made(cls, module: bytes, limit_bytes: int) -> Iterator[Self]:
        """A folder for as long as the body runs."""
        with tempfile.TemporaryDirectory(prefix="aotpipe-compile-") as folder:
            place = cls(Path(folder), limit_bytes)
            place.put(module)
            _write_linker(place.folder)
            yield place

    def put(self, module: bytes) -> None:
        """Replace the module."""
        (self.folder / _INPUT).write_bytes(module)

    def attempt(self, name: str, chosen: tuple[str, ...], timeout_s: float) -> Attempt:
        """Compile once."""
        outcome, made = self._run([*chosen, *_STATISTICS], timeout_s)
        return Attempt(
            flags=chosen,
            name=name,
            outcome=outcome,
            payload=made,
            schedule=_read_schedule(self.folder / _SCHEDULE) if made is not None else None,
        )

    def input_phase(self, chosen: Sequence[str], timeout_s: float) -> bytes | None:
        """The module after the compiler's first phase; None where it fails, as the whole compile will."""
        _, made = self._run([*chosen, "--compile-to=input", "--mlir-print-debuginfo"], timeout_s)
        return made

    def explained(self, failed: Attempt) -> diagnostics.Diagnostic | None:
        """What a failed attempt says of the user's line when it is run again with source locations."""
        outcome, _ = self._run(flags.located(failed.flags), 2 * failed.outcome.wall_s + 10)
        found = diagnostics.read(outcome.stderr)
        return found if found.where else None

    def _run(self, chosen: Sequence[str], timeout_s: float) -> tuple[process.Outcome, bytes | None]:
        output = self.folder / _OUTPUT
        output.unlink(missing_ok=True)
        outcome = process.run(
            [str(binary()), _INPUT, "-o", _OUTPUT, *chosen],
            folder=self.folder,
            timeout_s=timeout_s,
            memory_limit_bytes=self.limit_bytes,
        )
        done = outcome.ending == "exited" and outcome.code == 0 and output.is_file()
        return outcome, output.read_bytes() if done else None


def from_input(chosen: Sequence[str]) -> tuple[str, ...]:
    """The flags for a module that `Workplace.input_phase` gave."""
    return (*chosen, _FROM_INPUT)


def plan(fast: tuple[str, ...], attempts: Sequence[Attempt]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The fast flags, then each fallback that may help and differs from all before it.

    Args:
        fast: The fast flags.
        attempts: Those made so far, seen anew before each fallback.
    """
    yield "", fast
    for fallback in flags.fallbacks():
        chosen = fallback(fast)
        is_new = all(chosen != attempt.flags for attempt in attempts)
        if is_new and _can_fall_back(attempts[-1]) and re.search(fallback.after, attempts[0].outcome.stderr):
            yield fallback.name, chosen


@cache
def binary() -> Path:
    """The compiler's executable, found without importing its package (which loads 200 MB).

    Raises:
        TargetError: The compiler is not installed.
    """
    try:
        spec = importlib.util.find_spec("iree.compiler")
    except ModuleNotFoundError:
        spec = None
    for root in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(root) / "_mlir_libs" / "iree-compile"
        if path.is_file():
            return path
    raise TargetError("the IREE compiler is not installed", hint="pip install 'aotpipe[build]'")


def _can_fall_back(attempt: Attempt) -> bool:
    """Whether other flags may help: not at a limit, nor where the module itself was refused."""
    ended = attempt.outcome.ending in {"exited", "signalled"}
    return ended and not diagnostics.read(attempt.outcome.stderr).is_input


def _write_linker(folder: Path) -> None:
    """Make the package's linker speak GNU: it is one program with several command lines."""
    linker = folder / LINKER
    linker.write_text(
        f'#!/bin/sh\nexec {shlex.quote(str(binary().with_name("iree-lld")))} -flavor gnu "$@"\n'
    )
    linker.chmod(0o755)


def _read_schedule(path: Path) -> Schedule | None:
    """What the compiler counted; None where a flag of the user's keeps it from counting."""
    try:
        counts = json.loads(path.read_bytes())["stream-aggregate"]
        execution = counts["execution"]
        return Schedule(
            dispatches=execution["dispatch-count"],
            kernels=counts["executable"]["executable-count"],
            copies=execution["copy-count"],
            fills=execution["fill-count"],
            waits=counts["synchronization"]["await-count"],
            allocated_bytes=execution["transient-memory-size"],
        )
    except (OSError, ValueError, KeyError):
        return None
