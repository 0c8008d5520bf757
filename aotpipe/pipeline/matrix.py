"""One model over many targets: compile all, several at a time, then run each on its own. Torch-free.

A target that fails does not stop the others: their results go to the store, and a later build finds them.
Programs are compared and timed one after another, once no compiler is running, since it would be timed too.
torch is imported only where a program has to be timed beside eager.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from aotpipe import toolchain
from aotpipe.backends import compiler, dialect, own_flags, process, unrunnable
from aotpipe.errors import AotpipeError, CompileError, ParityError, ProgramCrashed
from aotpipe.events import Recorder, Stage
from aotpipe.pipeline.cache import Cache
from aotpipe.pipeline.source import Ready
from aotpipe.report.codec import latency_from_json, latency_to_json, parity_from_json, parity_to_json
from aotpipe.stages import Compiled, CompileStats, Dialect, Lowered, Validated
from aotpipe.store import Entry, Source, digest
from aotpipe.targets import Target
from aotpipe.validate import Loadable, validate

if TYPE_CHECKING:
    from aotpipe.backends.eager import Eager


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How compilers are run.

    Attributes:
        jobs: Compiles at a time; one per core where None.
        timeout_s, memory_limit_bytes: Of one compile; the compiler's own where None.
    """

    extra_flags: tuple[str, ...] = ()
    jobs: int | None = None
    timeout_s: float | None = None
    memory_limit_bytes: int | None = None


_STAGES: Final[tuple[Stage, ...]] = ("compile", "validate")
Result = Validated | AotpipeError
"""A target's program that passed, or the error that stands in its place."""


def run(
    ready: Ready,
    targets: Sequence[Target],
    *,
    settings: Settings,
    latency: bool,
    cache: Cache,
    recorder: Recorder,
) -> dict[Target, Result]:
    """Compile and validate for every target, in the order of `targets`.

    A program whose numbers are wrong is compiled again, with more cautious flags, where there are such.
    """
    recorder.planned(dict.fromkeys(_STAGES, len(targets)))
    lowered = ready.prepared.lowered
    compiled = compile_all(lowered, targets, settings=settings, cache=cache, recorder=recorder)
    judge = _Judge(ready=ready, latency=latency, cache=cache, recorder=recorder)
    trials = len(targets)

    def result(target: Target, program: Compiled | AotpipeError) -> Result:
        nonlocal trials
        if isinstance(program, AotpipeError):
            return program
        first = judge.validate(program)
        if not isinstance(first, ParityError | ProgramCrashed):
            return first
        for retreat in _suspects(lowered[dialect(target)], target, settings):
            trials += 1
            recorder.planned(dict.fromkeys(_STAGES, trials))
            try:
                careful = _compile(lowered[dialect(target)], target, settings, cache, recorder, retreat)
            except CompileError:
                continue
            second = judge.validate(careful)
            if isinstance(second, Validated):
                note = f"compiled {retreat.name}: with the faster flags {first.message}"
                return replace(second, notes=(note, *second.notes))
        return first

    return {target: result(target, program) for target, program in compiled.items()}


def _suspects(lowered: Lowered, target: Target, settings: Settings) -> Sequence[Any]:
    return compiler(target).suspects(lowered, target, own_flags(target, settings.extra_flags))


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """Validates one program after another, beside one eager model."""

    ready: Ready
    latency: bool
    cache: Cache
    recorder: Recorder

    def validate(self, compiled: Compiled) -> Result:
        """Run a program and compare, or find that this was done before."""
        key = self._key(compiled)
        try:
            with self.recorder.stage("validate", str(compiled.target)) as running:
                found = self.cache.load("validated", key, lambda entry: read_validated(entry, compiled))
                if found is not None:
                    running.cached = True
                    return found
                validated = self._run(compiled)
                self.cache.put("validated", key, lambda: write_validated(validated))
                return validated
        except AotpipeError as error:
            return error

    def _key(self, compiled: Compiled) -> str:
        tools = toolchain.current()
        # A time is one of this host, and so is the claim that a program ran here.
        return digest(
            [compiled.digest, self.ready.prepared.digest, self.latency, tools.digest, tools.host_digest]
        )

    def _run(self, compiled: Compiled) -> Validated:
        prepared = self.ready.prepared
        loadable = Loadable(
            signatures=prepared.signatures,
            weights=prepared.weights,
            initial_state=prepared.initial_state,
            asserts=prepared.asserts,
            parts=prepared.parts,
        )
        if prepared.parts is not None:
            self.ready.canonical()  # marks the model's functions, where its parts came from the store
        if unrunnable(compiled.target, compiled.host_features) or not self.latency:
            return validate(compiled, loadable, prepared.goldens)
        import torch

        loadable = replace(loadable, threads=torch.get_num_threads())
        return validate(compiled, loadable, prepared.goldens, eager=self._eager)

    @cached_property
    def _eager(self) -> Eager:
        from aotpipe.backends.eager import Eager
        from aotpipe.validate.reference import eager_options

        return Eager(self.ready.canonical().entries, **eager_options(self.ready.prepared.signatures))


def compile_all(
    lowered: Mapping[Dialect, Lowered],
    targets: Sequence[Target],
    *,
    settings: Settings,
    cache: Cache,
    recorder: Recorder,
) -> dict[Target, Compiled | AotpipeError]:
    """Compile for every target; an error stands in a failed one's place.

    Raises:
        KeyboardInterrupt: After every compiler was killed.
    """
    workers = min(settings.jobs or os.cpu_count() or 1, len(targets))
    stop, idle = threading.Event(), threading.Semaphore(workers)

    def work(target: Target) -> Compiled:
        with idle, process.stop_with(stop):
            return _compile(lowered[dialect(target)], target, settings, cache, recorder)

    with ThreadPoolExecutor(workers, thread_name_prefix="compile") as pool:
        try:
            # A signal may come while the first compile runs and the last is not yet handed over.
            futures = {target: pool.submit(work, target) for target in targets}
            wait(futures.values())
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            # Of a thread that it was just starting, the pool does not know.
            for _ in range(workers):
                idle.acquire()
            idle.release(workers)
            raise
    return {target: _outcome(future) for target, future in futures.items()}


def _outcome(future: Future[Compiled]) -> Compiled | AotpipeError:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, AotpipeError):
        return error
    raise error


def _compile(
    lowered: Lowered,
    target: Target,
    settings: Settings,
    cache: Cache,
    recorder: Recorder,
    retreat: Any = None,
) -> Compiled:
    tool, flags = compiler(target), own_flags(target, settings.extra_flags)
    with recorder.stage("compile", str(target)) as running:
        key = tool.digest(lowered, target, flags, retreat)
        found = cache.load("compiled", key, lambda entry: read_compiled(entry, target))
        if found is not None:
            running.cached = True
            return found
        limits: dict[str, Any] = {"memory_limit_bytes": settings.memory_limit_bytes}
        if settings.timeout_s is not None:
            limits["timeout_s"] = settings.timeout_s
        compiled = tool.compile(
            lowered,
            target,
            extra_flags=flags,
            retreat=retreat,
            log_dir=cache.logs,
            **limits,
        )
        running.peak_rss_bytes = compiled.stats.peak_rss_bytes
        cache.put("compiled", key, lambda: write_compiled(compiled))
        return compiled


def write_compiled(compiled: Compiled) -> Mapping[str, Source]:
    """The files of a store entry that hold a program."""
    index = {
        "flags": list(compiled.flags),
        "toolchain": dict(compiled.toolchain),
        "host_features": list(compiled.host_features),
        "digest": compiled.digest,
        "wall_s": compiled.stats.wall_s,
        "peak_rss_bytes": compiled.stats.peak_rss_bytes,
        "notes": list(compiled.notes),
    }
    return {"program": compiled.payload, "compiled.json": json.dumps(index).encode()}


def read_compiled(entry: Entry, target: Target) -> Compiled:
    """Read what `write_compiled` gave."""
    index = json.loads(entry.text("compiled.json"))
    return Compiled(
        target=target,
        payload=entry.read("program"),
        flags=tuple(index["flags"]),
        toolchain=index["toolchain"],
        host_features=tuple(index["host_features"]),
        digest=index["digest"],
        stats=CompileStats(wall_s=index["wall_s"], peak_rss_bytes=index["peak_rss_bytes"]),
        notes=tuple(index["notes"]),
    )


def write_validated(validated: Validated) -> Mapping[str, Source]:
    """The files of a store entry that hold what was seen of a program, which has an entry of its own."""
    index = {
        "status": validated.status,
        "reason": validated.reason,
        "parity": validated.parity and parity_to_json(validated.parity),
        "latency": [latency_to_json(latency) for latency in validated.latency],
        "notes": list(validated.notes),
    }
    return {"validated.json": json.dumps(index).encode()}


def read_validated(entry: Entry, compiled: Compiled) -> Validated:
    """Read what `write_validated` gave."""
    index = json.loads(entry.text("validated.json"))
    return Validated(
        compiled=compiled,
        status=index["status"],
        reason=index["reason"],
        parity=parity_from_json(index["parity"]) if index["parity"] else None,
        latency=tuple(map(latency_from_json, index["latency"])),
        notes=tuple(index["notes"]),
    )
