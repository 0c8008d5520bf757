"""Compiles a lowered module with `iree-compile`, in a process of its own under a time and a memory limit.

`compile(lowered, target)` gives a `Compiled` whose bytes depend on the module, the flags, the compiler's
version and, for `host`, this CPU, and on nothing else: not on the folder, the process or the user's paths.
Where the compiler fails or crashes on the fast flags, more cautious ones are tried in the order of
`flags.RETREATS`; the flags and a note of the result say so. Weights are outside of the module.

Raises:
    CompileFailed, CompilerCrashed, CompileTimeout, CompilerOutOfMemory: With the first diagnostic, the op,
        the user's line, and the path of a log where a folder for logs was given.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import re
import shlex
import signal
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from aotpipe import toolchain
from aotpipe.backends import process
from aotpipe.backends.iree import diagnostics, flags, reads, spirv, vmvx
from aotpipe.errors import (
    CompileError,
    CompileFailed,
    CompilerCrashed,
    CompilerOutOfMemory,
    CompileTimeout,
    DiskFull,
    TargetError,
)
from aotpipe.schedule import Schedule
from aotpipe.stages import Compiled, CompileStats, Lowered
from aotpipe.targets import Target

DEFAULT_TIMEOUT_S: Final = 1800.0
_PACKAGE: Final = "iree-base-compiler"
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
class _Attempt:
    flags: tuple[str, ...]
    name: str
    outcome: process.Outcome
    payload: bytes | None
    schedule: Schedule | None


def compile(  # noqa: A001  # the stage's name; nothing here needs the builtin
    lowered: Lowered,
    target: Target,
    *,
    extra_flags: Sequence[str] = (),
    retreat: flags.Retreat | None = None,
    beside: Sequence[Target] = (),
    timeout_s: float = DEFAULT_TIMEOUT_S,
    memory_limit_bytes: int | None = None,
    log_dir: Path | None = None,
) -> Compiled:
    """Compile a module for one target, or for several in one program.

    Args:
        lowered: The module.
        target: What to compile for.
        extra_flags: Flags of `iree-compile` that are passed last.
        retreat: What makes the fast flags more cautious from the start.
        beside: The other targets that the program is for, each of a driver of its own.
        timeout_s: Seconds for all attempts together.
        memory_limit_bytes: Resident bytes of the compiler; four fifths of the machine's where None.
        log_dir: Where a failed compile leaves its log and its module.
    """
    limit = process.default_memory_limit() if memory_limit_bytes is None else memory_limit_bytes
    fast = _fast(lowered, target, extra_flags, retreat, beside)
    key = digest(lowered, target, extra_flags, retreat, beside)
    targets = (target, *beside)
    name = "+".join(map(str, targets))
    given = lowered
    if _is_portable(target, beside):
        lowered = replace(lowered, module=vmvx.portable(lowered.module))
    if lowered.dialect == "torch" and reads.can_be_in_place(targets):
        lowered = replace(lowered, module=reads.in_place(lowered.module))
    attempts: list[_Attempt] = []
    try:
        with tempfile.TemporaryDirectory(prefix="aotpipe-compile-") as folder:
            (Path(folder) / _INPUT).write_bytes(lowered.module)
            _write_linker(Path(folder))
            if spirv.forms(targets) and (mended := _mended(Path(folder), targets, fast, timeout_s, limit)):
                lowered = replace(lowered, module=mended.encode())
                (Path(folder) / _INPUT).write_bytes(lowered.module)
                fast = (*fast, _FROM_INPUT)
            for how, chosen in _plan(fast, attempts):
                left_s = timeout_s - sum(attempt.outcome.wall_s for attempt in attempts)
                attempts.append(_attempt(Path(folder), how, chosen, left_s, limit))
                if attempts[-1].payload is not None:
                    return _compiled(given, target, key, attempts, beside)
            log = _write_log(log_dir, f"iree-compile-{name}-{key}", lowered, attempts)
            raise _error(Path(folder), name, attempts, timeout_s, limit, log)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise DiskFull("no space left for the compiler's files", reason=str(error)) from error


def suspects(lowered: Lowered, target: Target, extra_flags: Sequence[str] = ()) -> tuple[flags.Retreat, ...]:
    """What to compile with, in turn, where the program computes wrong numbers."""
    return flags.suspects(_fast(lowered, target, extra_flags, None))


def shared(compiled: Compiled, lowered: Lowered, extra_flags: Sequence[str] = ()) -> dict[Target, Compiled]:
    """A fat program as that of each of its targets."""
    targets = (compiled.target, *compiled.beside)
    found = {}
    for target in targets:
        beside = tuple(each for each in targets if each != target)
        found[target] = replace(
            compiled,
            target=target,
            beside=beside,
            host_features=_needs(target),
            digest=digest(lowered, target, extra_flags, None, beside),
        )
    return found


def _fast(
    lowered: Lowered,
    target: Target,
    extra_flags: Sequence[str],
    retreat: flags.Retreat | None,
    beside: Sequence[Target] = (),
) -> tuple[str, ...]:
    chosen = flags.choose(lowered.module, lowered.dialect, target, extra_flags, beside)
    return retreat(chosen) if retreat else chosen


def _needs(target: Target) -> tuple[str, ...]:
    return toolchain.host_features() if target.is_host else target.row.features


def _is_portable(target: Target, beside: Sequence[Target]) -> bool:
    return any(each.device == "vmvx" for each in (target, *beside))


def _mended(
    folder: Path, targets: Sequence[Target], chosen: Sequence[str], timeout_s: float, limit: int
) -> str | None:
    """The module after the compiler's first phase, if it is to be changed there."""
    outcome = process.run(
        [str(binary()), _INPUT, "-o", _OUTPUT, *chosen, "--compile-to=input", "--mlir-print-debuginfo"],
        folder=folder,
        timeout_s=timeout_s,
        memory_limit_bytes=limit,
    )
    output = folder / _OUTPUT
    # What is wrong with the module is told of the whole compile.
    done = outcome.ending == "exited" and outcome.code == 0 and output.is_file()
    return spirv.mended(output.read_text(encoding="utf-8"), targets) if done else None


def digest(
    lowered: Lowered,
    target: Target,
    extra_flags: Sequence[str] = (),
    retreat: flags.Retreat | None = None,
    beside: Sequence[Target] = (),
) -> str:
    """SHA-256 of everything that can change `compile`'s payload, known before it runs."""
    targets = (target, *beside)
    key: dict[str, object] = {
        "module": lowered.digest,
        "target": str(target),
        "flags": _fast(lowered, target, extra_flags, retreat, beside),
        "retreats": [repr(retreat) for retreat in flags.RETREATS],
        "reads": "in place" if reads.can_be_in_place(targets) else "copies",
        "toolchain": _versions(),
        "host": toolchain.host_features() if any(each.is_host for each in targets) else [],
    }
    if _is_portable(target, beside):
        key["form"] = vmvx.FORM
    if forms := spirv.forms(targets):
        key["input"] = forms
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


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


def _plan(fast: tuple[str, ...], attempts: Sequence[_Attempt]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The fast flags, then each retreat that may help and differs from all before it.

    Args:
        fast: The fast flags.
        attempts: Those made so far, seen anew before each retreat.
    """
    yield "", fast
    for retreat in flags.RETREATS:
        chosen = retreat(fast)
        is_new = all(chosen != attempt.flags for attempt in attempts)
        if is_new and _can_retreat(attempts[-1]) and re.search(retreat.after, attempts[0].outcome.stderr):
            yield retreat.name, chosen


def _write_linker(folder: Path) -> None:
    """Make the package's linker speak GNU: it is one program with several command lines."""
    linker = folder / flags.LINKER
    linker.write_text(
        f'#!/bin/sh\nexec {shlex.quote(str(binary().with_name("iree-lld")))} -flavor gnu "$@"\n'
    )
    linker.chmod(0o755)


def _attempt(folder: Path, name: str, chosen: tuple[str, ...], timeout_s: float, limit: int) -> _Attempt:
    output = folder / _OUTPUT
    output.unlink(missing_ok=True)
    outcome = process.run(
        [str(binary()), _INPUT, "-o", _OUTPUT, *chosen, *_STATISTICS],
        folder=folder,
        timeout_s=timeout_s,
        memory_limit_bytes=limit,
    )
    done = outcome.ending == "exited" and outcome.code == 0 and output.is_file()
    return _Attempt(
        flags=chosen,
        name=name,
        outcome=outcome,
        payload=output.read_bytes() if done else None,
        schedule=_read_schedule(folder / _SCHEDULE) if done else None,
    )


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


def _can_retreat(attempt: _Attempt) -> bool:
    """Whether other flags may help: not at a limit, nor where the module itself was refused."""
    ended = attempt.outcome.ending in {"exited", "signalled"}
    return ended and not diagnostics.read(attempt.outcome.stderr).is_input


def _compiled(
    lowered: Lowered, target: Target, key: str, attempts: Sequence[_Attempt], beside: Sequence[Target]
) -> Compiled:
    last = attempts[-1]
    assert last.payload is not None
    return Compiled(
        target=target,
        payload=last.payload,
        dialect=lowered.dialect,
        flags=last.flags,
        toolchain=_versions(),
        host_features=_needs(target),
        digest=key,
        beside=tuple(beside),
        schedule=last.schedule,
        stats=CompileStats(
            wall_s=sum(attempt.outcome.wall_s for attempt in attempts),
            peak_rss_bytes=max(attempt.outcome.peak_rss_bytes for attempt in attempts),
        ),
        notes=(
            *flags.remarks(lowered.module, (target, *beside)),
            *(
                f"compiled {last.name}: with the faster flags the compiler "
                f"{_ending(attempt.outcome)} ({diagnostics.read(attempt.outcome.stderr).text})"
                for attempt in attempts[:1]
                if last.name
            ),
        ),
    )


def _versions() -> dict[str, str]:
    version = toolchain.version_of(_PACKAGE)
    if version is None:
        raise TargetError("the IREE compiler is not installed", hint="pip install 'aotpipe[build]'")
    return {_PACKAGE: version}


def _ending(outcome: process.Outcome) -> str:
    if outcome.ending == "signalled":
        return f"crashed with {signal.Signals(outcome.code).name}"
    return "failed"


def _error(
    folder: Path,
    target: str,
    attempts: Sequence[_Attempt],
    timeout_s: float,
    limit: int,
    log: str,
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
            f"iree-compile passed its memory limit of {limit / 2**30:.1f} GiB for {target}",
            reason=f"its resident set had grown to {last.outcome.peak_rss_bytes / 2**30:.1f} GiB",
            hint="give it more memory, or a smaller model",
            log=log,
        )
    if found.where is None and not found.is_input:
        found = _explain(folder, first, limit) or found
    if first.outcome.ending == "signalled":
        inside = f" in {found.compiler_pass}" if found.compiler_pass else ""
        return CompilerCrashed(
            f"iree-compile {_ending(first.outcome)}{inside} for {target}",
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


def _killed_for_memory(attempt: _Attempt) -> bool:
    """Whether the kernel killed it (nobody else sends SIGKILL) or it could not allocate."""
    outcome = attempt.outcome
    killed = outcome.ending == "signalled" and outcome.code == signal.SIGKILL
    return killed or diagnostics.read(outcome.stderr).out_of_memory


def _explain(folder: Path, first: _Attempt, limit: int) -> diagnostics.Diagnostic | None:
    """Run the failed attempt again with source locations, to learn the user's line."""
    outcome = process.run(
        [str(binary()), _INPUT, "-o", _OUTPUT, *flags.located(first.flags)],
        folder=folder,
        timeout_s=2 * first.outcome.wall_s + 10,
        memory_limit_bytes=limit,
    )
    found = diagnostics.read(outcome.stderr)
    return found if found.where else None


def _write_log(log_dir: Path | None, stem: str, lowered: Lowered, attempts: Sequence[_Attempt]) -> str:
    """Leave every attempt's command and output, and the module that reproduces it; the log's path."""
    if log_dir is None:
        return ""
    log_dir.mkdir(parents=True, exist_ok=True)
    (log_dir / f"{stem}.mlir").write_bytes(lowered.module)
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
