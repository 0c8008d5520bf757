"""What is said of a compile that failed: a typed error with the user's line, and a log that reproduces it."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

from aotpipe.backends.iree.compile import diagnostics
from aotpipe.backends.iree.compile.attempts import Attempt, Workplace
from aotpipe.errors import CompileError, CompileFailed, CompilerCrashed, CompilerOutOfMemory, CompileTimeout
from aotpipe.runtime import process


def error(
    place: Workplace, target: str, attempts: Sequence[Attempt], timeout_s: float, log: str
) -> CompileError:
    """The error of the last attempt that says the most: a limit first, else the first attempt's."""
    last, first = attempts[-1], attempts[0]
    found = diagnostics.read(first.outcome.stderr)
    if last.outcome.ending == "timeout":
        return CompileTimeout(
            f"iree-compile passed its limit of {timeout_s:g} s for {target}",
            hint="give it more time, or a smaller model",
            log=log,
        )
    if last.outcome.ending == "memory" or _killed_for_memory(last):
        return CompilerOutOfMemory(
            f"iree-compile passed its memory limit of {place.limit_bytes / 2**30:.1f} GiB for {target}",
            reason=f"its resident set had grown to {last.outcome.peak_rss_bytes / 2**30:.1f} GiB",
            hint="give it more memory, or a smaller model",
            log=log,
        )
    if found.where is None and not found.is_input:
        found = place.explained(first) or found
    if first.outcome.ending == "signalled":
        inside = f" in {found.compiler_pass}" if found.compiler_pass else ""
        return CompilerCrashed(
            f"iree-compile {ending(first.outcome)}{inside} for {target}",
            reason=found.text,
            where=found.where,
            hint="the module beside the log reproduces it; a smaller part of the model may show the op",
            log=log,
        )
    return CompileFailed(
        f"iree-compile refused {f'`{found.op}`' if found.op else 'the module'} for {target}",
        reason=found.text,
        where=found.where,
        hint="write this line of the model with other ops" if found.where else "",
        log=log,
    )


def ending(outcome: process.Outcome) -> str:
    """How a run ended that gave no program."""
    if outcome.ending == "signalled":
        return f"crashed with {signal.Signals(outcome.code).name}"
    return "failed"


def write_log(log_dir: Path | None, stem: str, module: bytes, attempts: Sequence[Attempt]) -> str:
    """Leave every attempt's command and output, and the module that reproduces it; the log's path."""
    if log_dir is None:
        return ""
    log_dir.mkdir(parents=True, exist_ok=True)
    (log_dir / f"{stem}.mlir").write_bytes(module)
    text = []
    for attempt in attempts:
        command = shlex.join(["iree-compile", f"{stem}.mlir", *attempt.flags])
        outcome = attempt.outcome
        text.append(
            f"$ {command}\n{outcome.stderr}[{outcome.ending} {outcome.code}, {outcome.wall_s:.1f} s]\n"
        )
    path = log_dir / f"{stem}.log"
    path.write_text("\n".join(text), encoding="utf-8")
    return str(path)


def _killed_for_memory(attempt: Attempt) -> bool:
    """Whether the kernel killed it (nobody else sends SIGKILL) or it could not allocate."""
    outcome = attempt.outcome
    killed = outcome.ending == "signalled" and outcome.code == signal.SIGKILL
    return killed or diagnostics.read(outcome.stderr).out_of_memory
