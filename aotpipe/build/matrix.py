"""One model over many targets: each program that was compiled is run on its own. Torch-free.

A target that fails does not stop the others: their results go to the store, and a later build finds them.
Programs are compared and timed one after another, once no compiler is running, since it would be timed too.
torch is imported only where a program has to be timed beside eager.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from aotpipe.backends import compiler, module_of, own_flags
from aotpipe.build.cache import Cache
from aotpipe.build.chain import Ready
from aotpipe.build.compile_stage import CompileSettings, Compiling
from aotpipe.build.events import Recorder, Stage
from aotpipe.core.serialization import dumps, loads
from aotpipe.core.stages import Compiled, Lowered, Validated
from aotpipe.core.targets import Backend, Target
from aotpipe.errors import AotpipeError, CompileError, ParityError, ProgramCrashed
from aotpipe.runtime import toolchain
from aotpipe.runtime.loading import why_not_runnable
from aotpipe.runtime.store import digest
from aotpipe.runtime.worker import Worker
from aotpipe.validate import Loadable, validate

if TYPE_CHECKING:
    from aotpipe.validate.eager.eager import Eager

# In this time programs come from the store, and no compiler finishes.
_STORE_S: Final = 0.1
_FILE: Final = "validated.json"
STAGES: Final[tuple[Stage, ...]] = ("compile", "validate")
"""Those that run once per target."""
Result = Validated | AotpipeError
"""A target's program that passed, or the error that stands in its place."""


def run(
    ready: Ready, compiling: Compiling, *, latency: bool, cache: Cache, recorder: Recorder
) -> dict[Target, Result]:
    """Wait for the compilers and validate for every target, in their order.

    A program whose numbers are wrong is compiled again, with more cautious flags, where there are such.
    """
    with _started(compiling) as workers:
        judge = _Judge(ready=ready, latency=latency, cache=cache, recorder=recorder, workers=workers)
        return _judged(judge, compiling)


def _judged(judge: _Judge, compiling: Compiling) -> dict[Target, Result]:
    lowered = judge.ready.prepared.lowered
    trials = len(compiling.targets)

    def result(target: Target, program: Compiled | AotpipeError) -> Result:
        nonlocal trials
        if isinstance(program, AotpipeError):
            return program
        first = judge.validate(program)
        if not isinstance(first, ParityError | ProgramCrashed):
            return first
        for fallback in _fallbacks(lowered[module_of(target)], target, compiling.settings):
            trials += 1
            judge.recorder.planned(dict.fromkeys(STAGES, trials))
            try:
                careful = compiling.again(lowered[module_of(target)], target, fallback)
            except CompileError:
                continue
            second = judge.validate(careful)
            if isinstance(second, Validated):
                note = f"compiled {fallback.name}: with the faster flags {first.message}"
                return replace(second, notes=(note, *second.notes))
        return first

    return {target: result(target, program) for target, program in compiling.wait().items()}


@contextmanager
def _started(compiling: Compiling) -> Iterator[dict[Backend, Worker]]:
    """By backend, a worker that imports what it needs while the last compilers run; none if all are done."""
    backends = {target.backend for target in compiling.targets if not why_not_runnable(target)}
    with ExitStack() as stack:
        yield {
            backend: stack.enter_context(Worker(backend=backend))
            for backend in (backends if compiling.is_running(after_s=_STORE_S) else ())
        }


def _fallbacks(lowered: Lowered, target: Target, settings: CompileSettings) -> Sequence[Any]:
    return compiler(target).fallbacks_for_numbers(lowered, target, own_flags(target, settings.extra_flags))


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """Validates one program after another, beside one eager model."""

    ready: Ready
    latency: bool
    cache: Cache
    recorder: Recorder
    workers: dict[Backend, Worker]

    def validate(self, compiled: Compiled) -> Result:
        """Run a program and compare, or find that this was done before."""
        key = self._key(compiled)
        try:
            with self.recorder.stage("validate", str(compiled.target)) as running:
                found = self.cache.load(
                    "validated", key, lambda e: loads(Validated, e.text(_FILE), compiled=compiled)
                )
                if found is not None:
                    running.cached = True
                    return found
                validated = self._run(compiled)
                self.cache.put("validated", key, lambda: {_FILE: dumps(validated)})
                return validated
        except AotpipeError as error:
            return error

    def _key(self, compiled: Compiled) -> str:
        tools = toolchain.current()
        # A time is one of this host, and so is the claim that a program ran here, or could not.
        here = [tools.digest, tools.host_digest, why_not_runnable(compiled.target, compiled.host_features)]
        return digest([compiled.digest, self.ready.prepared.digest, self.latency, *here])

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
        if why_not_runnable(compiled.target, compiled.host_features):
            return validate(compiled, loadable, prepared.goldens)
        worker = self.workers.pop(compiled.target.backend, None)
        if not self.latency:
            return validate(compiled, loadable, prepared.goldens, worker=worker)
        import torch

        loadable = replace(loadable, threads=torch.get_num_threads())
        return validate(compiled, loadable, prepared.goldens, eager=self._eager, worker=worker)

    @cached_property
    def _eager(self) -> Eager:
        from aotpipe.validate.eager.eager import Eager
        from aotpipe.validate.reference import eager_options

        return Eager(self.ready.canonical().entries, **eager_options(self.ready.prepared.signatures))
