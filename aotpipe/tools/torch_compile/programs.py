"""A graph's program: built at the first call by the stages of a build, then called in this process.

`Program(graph, settings, counter)` is what torch.compile calls in place of the graph. The first answer is
compared with eager's by the law of a build, in a process of its own, so that a program that crashes or
differs is an error and never an answer. Where a stage refuses the graph, the program's answer differs from
eager's, or a call does not fit, the graph is run eagerly and that is counted, or raised as the typed error
that it is where the settings say so.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, Literal, Self, get_args
from weakref import WeakSet

import numpy as np
import torch
from torch import fx

from aotpipe.build.chain import Chain
from aotpipe.build.compile_stage import CompileSettings, program_of
from aotpipe.build.events import Recorder
from aotpipe.build.request import ModelOptions, Request
from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Constant, Signature
from aotpipe.core.stages import Compiled
from aotpipe.core.targets import Target, expand
from aotpipe.errors import AotpipeError, InputError, SpecInvalid, TargetError
from aotpipe.model.torch_arrays import from_numpy, view_numpy
from aotpipe.runtime.islands.chain_runner import load_parts
from aotpipe.runtime.loading import Runner, runtime, why_not_runnable
from aotpipe.tools.torch_compile import graphs
from aotpipe.tools.torch_compile.results import Graph
from aotpipe.validate import validate
from aotpipe.validate.inputs import Call
from aotpipe.validate.reference import example_inputs

Fallback = Literal["eager", "error"]
_FALLBACKS: Final = get_args(Fallback)
_NAME: Final = "graph"
_MOST_BUILDS: Final = 8
_CHANGES: Final = 2
"""A weight that was written this often becomes an argument."""
_ALIVE: Final[WeakSet[Program]] = WeakSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How graphs are compiled.

    Attributes:
        target: An IREE target that runs on this host.
        fallback: What happens to a graph that has no program: it runs `eager`, or its `error` is raised.
        verify: Whether the first answer of each program is compared with eager's.
        cache: Whether programs are kept for the next process.
        dtype, keep_float32, dialect: As `build` takes them. With a dtype, or the dialect stablehlo, a graph
            with an op that has no lowering has no program: no part of it can be run eagerly.
    """

    target: Target
    fallback: Fallback = "eager"
    verify: bool = True
    cache: bool = True
    dtype: str | None = None
    keep_float32: Sequence[str] = ()
    dialect: str | None = None

    @property
    def model_options(self) -> ModelOptions:
        """What the request for a graph's program has."""
        is_whole = bool(self.dtype) or self.dialect == "stablehlo"
        return {
            "dtype": self.dtype,
            "keep_float32": self.keep_float32,
            "dialect": self.dialect,
            "allow_islands": not is_whole,
        }

    @classmethod
    def of(cls, options: Mapping[str, Any] | None = None, mode: str | None = None) -> Self:
        """Read what a user passes.

        Raises:
            SpecInvalid: An option that there is not, or a value that it does not take.
            TargetError: The dialect is none of IREE's.
            UnknownTarget: No target of that name.
        """
        given = dict(options or {})
        known = [field.name for field in fields(cls)]
        unknown = sorted(given.keys() - set(known))
        if unknown:
            raise SpecInvalid(
                f"the backend has no option {unknown[0]!r}", hint=f"the options are {', '.join(known)}"
            )
        if mode not in (None, "default"):
            raise SpecInvalid(f"the backend has no mode {mode!r}", hint="leave it out")
        if given.get("fallback", "eager") not in _FALLBACKS:
            raise SpecInvalid(
                f"the option fallback is {given['fallback']!r}", hint=f"give one of {', '.join(_FALLBACKS)}"
            )
        targets = expand([str(given.pop("target", "iree-cpu-host"))])
        if len(targets) != 1 or targets[0].backend != "iree":
            raise SpecInvalid("the option target takes one IREE target", hint="such as iree-cpu-host")
        settings = cls(target=targets[0], **given)
        Request.of(None, [str(settings.target)], **settings.model_options)
        return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A program that is loaded, its signature, and what its first answer showed.

    Attributes:
        ratio: The largest share of the allowed error that its first answer used.
        islands: The ops that have no lowering, which are run eagerly between its parts.
    """

    runner: Runner
    signature: Signature
    ratio: float
    islands: tuple[str, ...] = ()


def build(closed: graphs.Closed, settings: Settings) -> Built:
    """Build the program of a graph.

    Raises:
        AotpipeError: A stage refused the graph, or its program differs from eager.
    """
    if reason := why_not_runnable(settings.target):
        raise TargetError(f"{settings.target} cannot run here: {reason}", hint="give another target")
    try:
        # torch.compile calls graphs below autograd, where nothing can be traced: dispatch is a thread's own.
        with ThreadPoolExecutor(1, thread_name_prefix="aotpipe-graph") as thread:
            return thread.submit(_build, closed, settings).result()
    except AotpipeError:
        raise
    except Exception as error:
        # torch.compile would report it as a fault of its own; the graph can still be run eagerly.
        line = str(error).partition("\n")[0]
        raise AotpipeError(f"a fault of aotpipe's own: {type(error).__name__}: {line}") from error


@torch.no_grad()
def _build(closed: graphs.Closed, settings: Settings) -> Built:
    options = settings.model_options
    options["name"], options["dynamic_shapes"] = _NAME, dict(closed.dynamic_shapes) or None
    request = Request.of(closed.module, [str(settings.target)], closed.args, **options)
    chain = Chain(request, Recorder(), specialize=False)
    [compiled] = map(program_of, chain.compiled(CompileSettings(cache=settings.cache)).values())
    ratio = _verified(chain, compiled) if settings.verify else 0.0
    return Built(
        runner=_loaded(chain, compiled),
        signature=chain.legal.entries[0].signature,
        ratio=ratio,
        islands=chain.island_names,
    )


def _loaded(chain: Chain, compiled: Compiled) -> Runner:
    [entry] = chain.legal.entries
    weights, state = chain.arrays()
    return load_parts(
        partial(runtime(compiled.target.backend).load, compiled.payload, weights=weights),
        chain.parts,
        signatures={entry.name: entry.signature},
        initial_state=state,
        asserts={entry.name: entry.asserts},
        allowed=chain.island_names,
    )


def _verified(chain: Chain, compiled: Compiled) -> float:
    """Compare the program with eager on the arguments that came first; the share of the allowed error."""
    [entry] = chain.canonical.entries
    call = Call(entry_point=entry.name, case="the first call", reset=True, inputs=example_inputs(entry))
    found = chain.reference([call])
    with chain.loadable() as loadable:
        parity = validate(compiled, loadable, found.goldens).parity
    return parity.worst.ratio if parity is not None and parity.worst is not None else 0.0


@dataclass(frozen=True, slots=True)
class _Current:
    """A program with its module; of each weight the address, and how often it had been written."""

    built: Built
    closed: graphs.Closed
    versions: tuple[tuple[int, int], ...]


class Program:
    """Runs a graph: by its program, or eagerly, as one that `failed` always does."""

    def __init__(
        self, graph: fx.GraphModule, settings: Settings, counter: Graph, failed: AotpipeError | None = None
    ) -> None:
        self._graph = graph
        self._settings = settings
        self._counter = counter
        self._arguments = graphs.arguments(graph)
        self._lock = threading.Lock()
        self._current: _Current | None = None
        self._failed = failed
        if failed is not None:
            counter.fell_back(failed.message, failed.hint)
        self._builds = 0
        self._changes: Counter[int] = Counter()
        self._layouts: tuple[graphs.Layout, ...] = ()
        _ALIVE.add(self)

    def __call__(self, *args: Any) -> Any:
        """The flat results for flat arguments."""
        try:
            answer = self._run(self._ready(args), args)
        except AotpipeError as error:
            if self._settings.fallback == "error":
                raise
            self._counter.eager[error.message] += 1
            return self._graph(*args)
        self._counter.calls += 1
        return answer

    def close(self) -> None:
        """Free the program; a later call builds it again."""
        with self._lock:
            if self._current is not None:
                self._current.built.runner.close()
                self._current = None

    def _ready(self, args: Sequence[Any]) -> _Current:
        with self._lock:
            if self._failed is not None:
                raise self._failed
            current = self._current
            if current is not None:
                now = _versions(current.closed, args)
                if current.versions == now:
                    return current
                # What was computed of a weight at the build is wrong where it was written, or is another one.
                pairs = zip(current.closed.weights, current.versions, now, strict=True)
                for index, before, after in pairs:
                    if before != after:
                        # A buffer that was written is state; a weight may have been loaded, once.
                        is_weight = isinstance(args[index], torch.nn.Parameter)
                        self._changes[index] += 1 if is_weight else _CHANGES
                current.built.runner.close()
            current = self._current = self._build(args)
            return current

    def _build(self, args: Sequence[Any]) -> _Current:
        start = time.perf_counter()
        self._builds += 1
        try:
            self._require_possible(args)
            self._layouts = graphs.layouts(self._graph)
            written = {index for index, count in self._changes.items() if count >= _CHANGES}
            closed = graphs.closed(self._graph, self._arguments, args, written)
            built = build(closed, self._settings)
        except AotpipeError as error:
            self._failed = error
            self._counter.fell_back(error.message, error.hint)
            raise
        self._counter.compiled(
            compile_s=time.perf_counter() - start, ratio=built.ratio, islands=built.islands
        )
        return _Current(built, closed, _versions(closed, args))

    def _require_possible(self, args: Sequence[Any]) -> None:
        away = next((each for each in args if isinstance(each, torch.Tensor) and not each.is_cpu), None)
        if away is not None:
            raise TargetError(
                f"an argument is on {away.device}, and {self._settings.target} runs on the CPU",
                hint="move the model and its inputs to the CPU",
            )
        if self._builds > _MOST_BUILDS:
            raise AotpipeError(
                "its weights are written between calls",
                hint="make what changes a buffer or an argument: weights are part of the program",
            )

    def _run(self, current: _Current, args: Sequence[Any]) -> list[Any]:
        given = {self._arguments[index].name: args[index] for index in current.closed.taken}
        arrays: dict[str, Array] = {}
        for leaf in current.built.signature.inputs:
            if not isinstance(leaf, Constant):
                value = given[leaf.name]
                # A tensor's memory is not copied.
                is_tensor = isinstance(value, torch.Tensor)
                arrays[leaf.name] = view_numpy(value) if is_tensor else np.asarray(value)
            elif leaf.name in given and given[leaf.name] != leaf.value:
                raise InputError(f"the program has {leaf.name!r} fixed at {leaf.value!r}")
        answer = current.built.runner.infer(arrays)
        results = [
            leaf.value if isinstance(leaf, Constant) else from_numpy(answer[leaf.name])
            for leaf in current.built.signature.outputs
        ]
        return graphs.placed(self._layouts, results)


@atexit.register
def _close_all() -> None:
    """Torch keeps graphs until the process is gone, which is too late for what the runtime holds."""
    for program in list(_ALIVE):
        program.close()


def _versions(closed: graphs.Closed, args: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """The address of each weight, and how often it was written."""
    return tuple((args[index].data_ptr(), args[index]._version) for index in closed.weights)  # noqa: SLF001
