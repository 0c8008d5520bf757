"""The compilers of a build: one per target, several at a time, beside what the build does meanwhile.

    with Compiling(targets, settings=..., cache=...) as compiling:
        ...                              # everything that needs torch; once there is a module:
        compiling.start(lowered)
        ...                              # eager's answers, the weights, the store: no compiler waits for them
        programs = compiling.wait()

A compiler takes the lowered module and nothing else of a model. A target that fails does not stop the others:
their programs go to the store, and a later build finds them. Torch-free.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, Self

from aotpipe.backends import ModuleKey, compiler, module_of, own_flags
from aotpipe.backends.iree.compile import compiler as iree
from aotpipe.backends.iree.compile.flags import fat_groups
from aotpipe.build.cache import Cache
from aotpipe.build.file_reads import ignore_this_thread
from aotpipe.core.serialization import dumps, loads
from aotpipe.core.stages import Compiled, Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, CompileError
from aotpipe.runtime import process
from aotpipe.runtime.store import Entry

Engine = Literal["local", "ray"]

_PROGRAM: Final = "program"
_INDEX: Final = "compiled.json"
_HEED_SIGNALS_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileSettings:
    """How compilers are run.

    Attributes:
        fat: Whether several targets share a program, where that is possible (`backends.iree.compile.flags`).
        jobs: Compiles at a time; one per core where None, or all of them where Ray runs them.
        engine: What runs them: this host, or `ray`, tasks on the hosts of a cluster. A program for the CPU of
            this host is compiled here.
        timeout_s, memory_limit_bytes: Of one compile; the compiler's own where None.
        cache: Whether programs are kept in the store, and those of earlier builds are used.
    """

    extra_flags: tuple[str, ...] = ()
    fat: bool = False
    jobs: int | None = None
    engine: Engine = "local"
    timeout_s: float | None = None
    memory_limit_bytes: int | None = None
    cache: bool = True

    def groups(self, targets: Sequence[Target]) -> tuple[tuple[Target, ...], ...]:
        """Which targets are compiled together.

        Raises:
            TargetError: A fat program is asked for, and there is nothing to join.
        """
        return fat_groups(targets) if self.fat else tuple((target,) for target in targets)


class Compiling:
    """The compilers of a build; where the body of `with` raises, all are killed; none is left when it ends.

    Programs of earlier builds lie in `cache`, whose recorder is told of each compile.
    """

    def __init__(self, targets: Sequence[Target], *, settings: CompileSettings, cache: Cache) -> None:
        self.targets = tuple(targets)
        self.settings = settings
        self.cache = cache
        at_a_time = len(targets) if settings.engine == "ray" else os.cpu_count() or 1
        self._workers = min(settings.jobs or at_a_time, len(targets))
        self._stop, self._idle = threading.Event(), threading.Semaphore(self._workers)
        self._pool = ThreadPoolExecutor(
            self._workers, thread_name_prefix="compile", initializer=ignore_this_thread
        )
        self._futures: dict[Target, Future[Mapping[Target, Compiled | AotpipeError]]] = {}

    def start(self, lowered: Mapping[ModuleKey, Lowered]) -> int:
        """Begin to compile; returns at once, with the number of compilers at a time."""
        assert not self._futures, "started twice"
        for group in self.settings.groups(self.targets):
            # A signal may come while the first compile runs and the last is not yet handed over.
            future = self._pool.submit(self._work, lowered[module_of(group[0])], group)
            self._futures.update(dict.fromkeys(group, future))
        return self._workers

    def is_running(self, after_s: float = 0.0) -> bool:
        """Whether a compiler is at work, or still is after some seconds."""
        return bool(wait(self._futures.values(), after_s).not_done)

    def wait(self) -> dict[Target, Compiled | AotpipeError]:
        """The program of every target, in their order; an error stands in a failed one's place."""
        # A signal that comes just before Python waits for a lock is heeded only once the wait is over.
        while self.is_running(_HEED_SIGNALS_S):
            pass
        programs: dict[Target, Compiled | AotpipeError] = {}
        for target in self.targets:
            try:
                programs[target] = self._futures[target].result()[target]
            except AotpipeError as error:
                programs[target] = error
        return programs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is None:
            self._pool.shutdown()
            return
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        # Of a thread that it was just starting, the pool does not know.
        for _ in range(self._workers):
            self._idle.acquire()
        self._idle.release(self._workers)

    def _work(self, lowered: Lowered, group: tuple[Target, ...]) -> Mapping[Target, Compiled | AotpipeError]:
        target, *beside = group
        with self._idle, process.stop_with(self._stop):
            if not beside:
                return {target: self.compile(lowered, target)}
            try:
                joint = self.compile(lowered, target, beside=tuple(beside))
            except CompileError as error:
                return {each: self._apart(lowered, each, error) for each in group}
            return iree.shared(joint, lowered, own_flags(target, self.settings.extra_flags))

    def _apart(self, lowered: Lowered, target: Target, error: CompileError) -> Compiled | AotpipeError:
        """A program of its own for a target, after the compiler took none for all together."""
        try:
            compiled = self.compile(lowered, target)
        except AotpipeError as own:
            return own
        note = f"a program of its own, since there is none for all devices: {error.message}"
        return replace(compiled, notes=(*compiled.notes, note))

    def compile(
        self, lowered: Lowered, target: Target, fallback: Any = None, beside: tuple[Target, ...] = ()
    ) -> Compiled:
        """Compile for a target in this thread, or take the program from the store.

        `fallback` are more cautious flags, of the compiler's `fallbacks_for_numbers`; `beside` are the
        targets that share the program.

        Raises:
            CompileError
        """

        def read(entry: Entry) -> Compiled:
            elsewhere = {"target": target, "beside": beside, "payload": entry.read(_PROGRAM)}
            return loads(Compiled, entry.text(_INDEX), **elsewhere)

        tool, flags = compiler(target), own_flags(target, self.settings.extra_flags)
        # XLA's compiler takes no such argument.
        more: dict[str, Any] = {"beside": beside} if beside else {}
        with self.cache.recorder.stage("compile", "+".join(map(str, (target, *beside)))) as running:
            key = tool.digest(lowered, target, flags, fallback, **more)
            if (found := self.cache.load("compiled", key, read)) is not None:
                running.cached, running.size_bytes = True, len(found.payload)
                return found
            more["memory_limit_bytes"] = self.settings.memory_limit_bytes
            if self.settings.timeout_s is not None:
                more["timeout_s"] = self.settings.timeout_s
            run = tool.compile
            if self.settings.engine == "ray" and not any(each.is_host for each in (target, *beside)):
                run = partial(_ray_tasks().compile, stop=self._stop)
            compiled = run(
                lowered, target, extra_flags=flags, fallback=fallback, log_dir=self.cache.logs, **more
            )
            running.peak_rss_bytes = compiled.stats.peak_rss_bytes
            running.size_bytes = len(compiled.payload)
            self.cache.put("compiled", key, lambda: {_PROGRAM: compiled.payload, _INDEX: dumps(compiled)})
            return compiled


def _ray_tasks() -> Any:
    try:
        from aotpipe.build import ray_tasks
    except ModuleNotFoundError as error:
        raise CompileError(f"{error.name} is not installed", hint="pip install 'aotpipe[ray]'") from error
    return ray_tasks


def program_of(result: Compiled | AotpipeError) -> Compiled:
    """The program of a target, or raise the error that stands in its place."""
    if isinstance(result, AotpipeError):
        raise result
    return result


def compile_all(
    lowered: Mapping[ModuleKey, Lowered],
    targets: Sequence[Target],
    *,
    settings: CompileSettings,
    cache: Cache,
) -> dict[Target, Compiled | AotpipeError]:
    """Compile for every target and wait; an error stands in a failed one's place.

    Raises:
        KeyboardInterrupt: After every compiler was killed.
    """
    with Compiling(targets, settings=settings, cache=cache) as compiling:
        compiling.start(lowered)
        return compiling.wait()
