"""Compiles a lowered module with `iree-compile`, in a process of its own under a time and a memory limit.

`compile(lowered, target)` gives a `Compiled` whose bytes depend on the module, the flags, the compiler's
version and, for `host`, this CPU, and on nothing else: not on the folder, the process or the user's paths.
Where the compiler fails or crashes on the fast flags, more cautious ones are tried in the order of
`flags.FALLBACKS`, and at last a module without our kernels; the flags and a note of the result say so.
Weights are outside of the module. An error has the first diagnostic, the op, the user's line, and the path
of a log where a folder for logs was given.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Self

from aotpipe.backends.compiling import DEFAULT_TIMEOUT_S, backend_digest, limit_error
from aotpipe.backends.iree.compile import attempts as runs
from aotpipe.backends.iree.compile import flags
from aotpipe.backends.iree.compile.attempts import Attempt, Workplace, diagnose
from aotpipe.backends.iree.fixes.flags import Fallback
from aotpipe.backends.iree.fixes.rewrites import Rewrite, rewritten
from aotpipe.backends.iree.fixes.torch_dialect import host_reads
from aotpipe.backends.iree.kernels import lowering
from aotpipe.core import fixes
from aotpipe.core.stages import Compiled, CompileStats, Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import CompileError, CompileFailed, CompilerCrashed, TargetError
from aotpipe.runtime import process, store, toolchain

_WITHOUT_KERNELS: Final = "without aotpipe's kernels"
_PACKAGE: Final = "iree-base-compiler"
_TORCH_DIALECT: Final = "aotpipe.backends.iree.fixes.torch_dialect"
_INPUT_PHASE: Final = "aotpipe.backends.iree.fixes.input_phase"
_VM_PHASE: Final = "aotpipe.backends.iree.fixes.vm_phase"


def compile(  # noqa: A001  # the stage's name; nothing here needs the builtin
    lowered: Lowered,
    target: Target,
    *,
    extra_flags: Sequence[str] = (),
    fallback: Fallback | None = None,
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
        fallback: What makes the fast flags more cautious from the start.
        beside: The other targets that the program is for, each of a driver of its own.
        timeout_s: Seconds for all attempts together.
        memory_limit_bytes: Resident bytes of the compiler; four fifths of the machine's where None.
        log_dir: Where a failed compile leaves its log and its module.

    Raises:
        CompileFailed, CompilerCrashed: The compiler refused the module, or crashed on it.
        CompileTimeout, CompilerOutOfMemory: The compiler passed its time limit or its memory limit.
        TargetError: The IREE compiler is not installed.
        DiskFull: There is no space left for the compiler's files.
    """
    limit = process.default_memory_limit() if memory_limit_bytes is None else memory_limit_bytes
    fast = _fast(lowered, target, extra_flags, fallback, beside)
    key = digest(lowered, target, extra_flags, fallback, beside)
    targets = (target, *beside)
    name = "+".join(map(str, targets))
    module = given(lowered.module, targets)
    attempts: list[Attempt] = []
    with Workplace.made(module, limit) as place:
        start = _Start.of(place, module, targets, fast, timeout_s)
        for how, chosen in runs.plan(start.flags, attempts):
            attempts.append(start.attempt(place, how, chosen, timeout_s, attempts))
            if attempts[-1].payload is not None:
                return _compiled(lowered, target, key, attempts, beside)
        is_loaded = host_reads.FIX in fixes.active(_TORCH_DIALECT, targets)
        if is_loaded and host_reads.CYCLIC in attempts[0].outcome.stderr:
            left_s = timeout_s - sum(attempt.outcome.wall_s for attempt in attempts)
            with fixes.without(host_reads.FIX):
                return compile(
                    lowered,
                    target,
                    extra_flags=extra_flags,
                    fallback=fallback,
                    beside=beside,
                    timeout_s=left_s,
                    memory_limit_bytes=limit,
                    log_dir=log_dir,
                )
        log = _write_log(log_dir, f"iree-compile-{name}-{key}", module, attempts)
        error = _error(place, name, attempts, timeout_s, log)
        without = given(lowered.module, targets, has_kernels=False)
        if without != module and runs.may_help(attempts[-1]):
            start = _Start.of(place, without, targets, fast, timeout_s)
            attempts.append(start.attempt(place, _WITHOUT_KERNELS, start.flags, timeout_s, attempts))
            if attempts[-1].payload is not None:
                return _compiled(lowered, target, key, attempts, beside)
        raise error


class _Start(NamedTuple):
    """What is compiled, and how.

    Attributes:
        last: Rewrites of what the compiler makes before it writes the bytecode.
    """

    flags: tuple[str, ...]
    last: list[Rewrite]

    @classmethod
    def of(
        cls,
        place: Workplace,
        module: bytes,
        targets: Sequence[Target],
        fast: tuple[str, ...],
        timeout_s: float,
    ) -> Self:
        """Put a module in its place, or what the compiler's first phase and the workarounds make of it."""
        place.put(module)
        if any(fix.apply.made_of.search(module) for fix in fixes.active(_INPUT_PHASE, targets)):
            first = place.input_phase(fast, timeout_s)
            if first and (changed := _rewritten(first, _INPUT_PHASE, targets)):
                module, fast = changed, (*fast, runs.FROM_INPUT)
                place.put(module)
        last = [fix.apply for fix in fixes.active(_VM_PHASE, targets) if fix.apply.made_of.search(module)]
        return cls(fast, last)

    def attempt(
        self,
        place: Workplace,
        how: str,
        chosen: tuple[str, ...],
        timeout_s: float,
        attempts: Sequence[Attempt],
    ) -> Attempt:
        """Compile in the time that other attempts left."""
        left_s = timeout_s - sum(each.outcome.wall_s for each in attempts)
        return place.attempt(how, chosen, left_s, self.last)


def fallbacks_for_numbers(
    lowered: Lowered, target: Target, extra_flags: Sequence[str] = ()
) -> tuple[Fallback, ...]:
    """What to compile with, in turn, where the program computes wrong numbers."""
    return flags.fallbacks_for_numbers(_fast(lowered, target, extra_flags, None))


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
    fallback: Fallback | None,
    beside: Sequence[Target] = (),
) -> tuple[str, ...]:
    chosen = flags.choose(lowered.module, lowered.dialect, target, extra_flags, beside)
    return fallback(chosen) if fallback else chosen


def _needs(target: Target) -> tuple[str, ...]:
    return toolchain.host_features() if target.is_host else target.row.features


def _rewritten(module: bytes, stage: str, targets: Sequence[Target]) -> bytes | None:
    return rewritten(module, [fix.apply for fix in fixes.active(stage, targets)])


def given(module: bytes, targets: Sequence[Target], *, has_kernels: bool = True) -> bytes:
    """What the compiler is given for a lowered module: our kernels for its targets, and workarounds."""
    # A workaround may be for what the kernels of other targets become.
    rewrite = lowering.rewrite(targets) if has_kernels else lowering.PLAIN
    module = rewritten(module, [rewrite]) or module
    return _rewritten(module, _TORCH_DIALECT, targets) or module


def digest(
    lowered: Lowered,
    target: Target,
    extra_flags: Sequence[str] = (),
    fallback: Fallback | None = None,
    beside: Sequence[Target] = (),
) -> str:
    """SHA-256 of everything that can change `compile`'s payload, known before it runs."""
    targets = (target, *beside)
    key = {
        "module": lowered.digest,
        "target": str(target),
        "flags": _fast(lowered, target, extra_flags, fallback, beside),
        "beside": list(map(str, beside)),
        "toolchain": _versions(),
        "source": backend_digest("iree"),
        "host": toolchain.host_features() if any(each.is_host for each in targets) else [],
    }
    return store.digest(key)


def _compiled(
    lowered: Lowered, target: Target, key: str, attempts: Sequence[Attempt], beside: Sequence[Target]
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
                f"compiled {last.name}: {_before(last)} the compiler "
                f"{_ending(attempt.outcome)} ({diagnose(attempt.outcome.stderr).text})"
                for attempt in attempts[:1]
                if last.name
            ),
        ),
    )


def _before(last: Attempt) -> str:
    return "with them" if last.name == _WITHOUT_KERNELS else "with the faster flags"


def _versions() -> dict[str, str]:
    version = toolchain.version_of(_PACKAGE)
    if version is None:
        raise TargetError("the IREE compiler is not installed", hint="pip install 'aotpipe[build]'")
    return {_PACKAGE: version}


def _error(
    place: Workplace, target: str, attempts: Sequence[Attempt], timeout_s: float, log: str
) -> CompileError:
    """The error of the last attempt that says the most: a limit first, else the first attempt's."""
    last, first = attempts[-1], attempts[0]
    no_memory = diagnose(last.outcome.stderr).out_of_memory
    passed = limit_error(
        "iree-compile", target, last.outcome, timeout_s, place.limit_bytes, log, no_memory=no_memory
    )
    if passed:
        return passed
    found = diagnose(first.outcome.stderr)
    if found.where is None and not found.is_input:
        found = place.explained(first) or found
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


def _ending(outcome: process.Outcome) -> str:
    if outcome.ending == "signalled":
        return f"crashed with {signal.Signals(outcome.code).name}"
    return "failed"


def _write_log(log_dir: Path | None, stem: str, module: bytes, attempts: Sequence[Attempt]) -> str:
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
