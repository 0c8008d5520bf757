"""Runs of `iree-compile`, each in a process of its own under a time and a memory limit, and what it prints.

with Workplace.made(module, limit_bytes) as place:
    for name, chosen in plan(fast, attempts):
        attempts.append(place.attempt(name, chosen, timeout_s))

MLIR prints `place: error: text`, then notes; the place of an op that sits below a library's call is the
library's line, and each caller follows as `place: note: called from`.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Self

from aotpipe.backends.iree.compile import flags
from aotpipe.backends.iree.fixes.flags.c_library_math import LINKER
from aotpipe.backends.iree.fixes.rewrites import Rewrite, rewritten
from aotpipe.core.stages import Schedule
from aotpipe.errors import SourceLine, TargetError
from aotpipe.runtime import process
from aotpipe.runtime.store import workspace

# Relative, so that no path of this machine reaches the module's locations.
_INPUT: Final = "module.mlir"
_VM: Final = "module.vm.mlir"
_OUTPUT: Final = "module.vmfb"
_SCHEDULE: Final = "schedule.json"
FROM_INPUT: Final = "--compile-from=input"
"""The flag for a module that `Workplace.input_phase` gave."""
# Neither changes the program.
_STATISTICS: Final = (
    f"--iree-scheduling-dump-statistics-file={_SCHEDULE}",
    "--iree-scheduling-dump-statistics-format=json",
)
_ERROR: Final = re.compile(r"^(?:.*?: )?error: (?P<text>.*)$", re.MULTILINE)
_PLACE: Final = re.compile(r'(?P<path>(?:/|[A-Za-z]:\\)[^\s:"()\[\]]*\.py)"?:(?P<line>\d+):\d+')
_OP: Final = (
    re.compile(r"legalize operation '(?P<op>[\w.]+)'.*?name = \"(?P<inner>[\w.]+)\""),
    re.compile(r"legalize operation '(?P<op>[\w.]+)'"),
    re.compile(r"'(?P<op>[\w.]+)' op "),
    re.compile(r"custom op '(?P<op>[\w.]+)'"),
)
_PASS: Final = re.compile(r"::(\w+Pass)::runOn|::(?:\(anonymous namespace\)::)?(\w+Pass)::")
_CONVERSION: Final = re.compile(r"\bmlir::torch::(?:\w+::)*(convert\w+|\w+Op)\b")
_REFUSALS: Final = (
    "custom op",
    "expected",
    "iree-compile: Unknown command line argument",
    "redefinition of",
    "unimplemented",
    "use of undeclared",
)
_NO_MEMORY: Final = re.compile(r"out of memory|std::bad_alloc|Cannot allocate memory", re.IGNORECASE)
_TELLING: Final = re.compile(r"LLVM ERROR|Assertion|Unknown command line|terminate called|what\(\):")
_NOISE: Final = re.compile(r"^\s*#\d+ |PLEASE submit|Please report|Stack dump|^\s*\d+\.\s|^\s*$")
# Frames of installed packages are never the user's own line.
_FOREIGN: Final = ("/site-packages/", "/dist-packages/", "/torch/", "<frozen", "<eval_with_key>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """What a failed compile said.

    Attributes:
        text: The first error's text, without its place; the crash's last words where there is no error.
        where: The innermost line that is not of an installed package.
        compiler_pass: The pass or the conversion that a crash happened in, or empty.
    """

    text: str
    op: str = ""
    where: SourceLine | None = None
    compiler_pass: str = ""
    out_of_memory: bool = False

    @property
    def is_input(self) -> bool:
        """Whether the module itself was refused, so that no other flags can help."""
        return self.op.startswith("torch.") or self.text.startswith(_REFUSALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of the compiler.

    Attributes:
        name: Of the fallback that made the flags; empty for the fast ones.
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
        with workspace("compile") as folder:
            place = cls(folder, limit_bytes)
            place.put(module)
            # The package's linker, which is one program with several command lines, is to speak GNU.
            linker, program = place.folder / LINKER, shlex.quote(str(binary().with_name("iree-lld")))
            linker.write_text(f'#!/bin/sh\nexec {program} -flavor gnu "$@"\n')
            linker.chmod(0o755)
            yield place

    def put(self, module: bytes) -> None:
        """Replace the module."""
        (self.folder / _INPUT).write_bytes(module)

    def attempt(
        self, name: str, chosen: tuple[str, ...], timeout_s: float, last: Sequence[Rewrite] = ()
    ) -> Attempt:
        """Compile once, with rewrites of what the compiler makes before it writes the bytecode."""
        # Flags of the user's that end or begin in another phase leave none for the rewrites.
        in_two = bool(last) and not any(
            flag.startswith(("--compile-to", "--compile-from")) for flag in chosen
        )
        outcome, made = self._run([*chosen, *_STATISTICS, *["--compile-to=vm"] * in_two], timeout_s)
        if in_two and made is not None:
            (self.folder / _VM).write_bytes(rewritten(made, last) or made)
            left_s = timeout_s - outcome.wall_s
            rest = [flag for flag in chosen if flag != FROM_INPUT]
            end, made = self._run([*rest, "--compile-from=vm"], left_s, _VM)
            outcome = replace(
                end,
                stderr=outcome.stderr + end.stderr,
                wall_s=outcome.wall_s + end.wall_s,
                peak_rss_bytes=max(outcome.peak_rss_bytes, end.peak_rss_bytes),
            )
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

    def explained(self, failed: Attempt) -> Diagnostic | None:
        """What a failed attempt says of the user's line when it is run again with source locations."""
        outcome, _ = self._run(flags.located(failed.flags), 2 * failed.outcome.wall_s + 10)
        found = diagnose(outcome.stderr)
        return found if found.where else None

    def _run(
        self, chosen: Sequence[str], timeout_s: float, module: str = _INPUT
    ) -> tuple[process.Outcome, bytes | None]:
        output = self.folder / _OUTPUT
        output.unlink(missing_ok=True)
        outcome = process.run(
            [str(binary()), module, "-o", _OUTPUT, *chosen],
            folder=self.folder,
            timeout_s=timeout_s,
            memory_limit_bytes=self.limit_bytes,
        )
        done = outcome.ending == "exited" and outcome.code == 0 and output.is_file()
        return outcome, output.read_bytes() if done else None


def plan(fast: tuple[str, ...], attempts: Sequence[Attempt]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The fast flags, then each fallback that may help and differs from all before it.

    `attempts`, those made so far, are seen anew before each fallback.
    """
    yield "", fast
    for fallback in flags.fallbacks():
        if not may_help(attempts[-1]):
            return
        chosen = fallback(fast)
        is_new = all(chosen != attempt.flags for attempt in attempts)
        if is_new and re.search(fallback.after, attempts[0].outcome.stderr):
            yield fallback.name, chosen


def may_help(failed: Attempt) -> bool:
    """Whether another attempt may succeed: not at a limit, nor where the module itself was refused."""
    is_limit = failed.outcome.ending not in {"exited", "signalled"}
    return not (is_limit or diagnose(failed.outcome.stderr).is_input)


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


def diagnose(stderr: str) -> Diagnostic:
    """Read what a failed compile printed: the first diagnostic, its op, the user's own line."""
    error = _ERROR.search(stderr)
    found_pass = _CONVERSION.search(stderr) or _PASS.search(stderr)
    return Diagnostic(
        text=_first_sentence(error["text"]) if error else _last_words(stderr),
        op=_op(error["text"]) if error else "",
        where=_where(stderr[error.start() :]) if error else None,
        compiler_pass=next(filter(None, found_pass.groups())) if found_pass else "",
        out_of_memory=bool(_NO_MEMORY.search(stderr)),
    )


def _op(text: str) -> str:
    found = next(filter(None, (pattern.search(text) for pattern in _OP)), None)
    return (found.groupdict().get("inner") or found["op"]) if found else ""


def _where(text: str) -> SourceLine | None:
    own = (found for found in _PLACE.finditer(text) if not any(part in found["path"] for part in _FOREIGN))
    return next((SourceLine(found["path"], int(found["line"])) for found in own), None)


def _first_sentence(text: str, limit: int = 300) -> str:
    """The text up to the op that MLIR prints whole behind it."""
    head = re.split(r": %\d|: \"", text, maxsplit=1)[0]
    return head if len(head) <= limit else head[:limit] + " ..."


def _last_words(stderr: str) -> str:
    """The line that tells most where there is no diagnostic, such as LLVM's fatal error."""
    lines = [line.strip() for line in stderr.splitlines() if not _NOISE.search(line)]
    telling = [line for line in lines if _TELLING.search(line)]
    return (telling[0] if telling else lines[-1] if lines else "no diagnostic came before")[:300]
