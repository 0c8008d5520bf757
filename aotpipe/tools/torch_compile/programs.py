"""A graph's program: built at the first call, then called.

`Program(graph, settings, counter)` is what torch.compile calls in place of the graph. Where a stage refuses
the graph, the program's answer differs from eager's, or a call does not fit, the graph is run eagerly and
that is counted, or raised as the typed error that it is where the settings say so.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

import torch
from torch import fx

from aotpipe.core.dtypes import Array
from aotpipe.core.signature import Constant
from aotpipe.errors import AotpipeError, InputError, TargetError
from aotpipe.model.torch_arrays import from_numpy, to_numpy, view_numpy
from aotpipe.tools.torch_compile import build, graphs, layouts
from aotpipe.tools.torch_compile.build import Built
from aotpipe.tools.torch_compile.results import GraphCounter
from aotpipe.tools.torch_compile.settings import Settings

Versions = tuple[tuple[int, int], ...]


_MOST_BUILDS: Final = 8
_CHANGES: Final = 2
"""A weight that was written as often is an argument from then on."""
_ALIVE: Final[WeakSet[Program]] = WeakSet()


@dataclass(frozen=True, slots=True)
class _Current:
    """A program, the arguments that it is for, and its weights as they were."""

    built: Built
    closed: graphs.Closed
    versions: Versions


class Program:
    """Runs a graph: by its program, or eagerly."""

    def __init__(self, graph: fx.GraphModule, settings: Settings, counter: GraphCounter) -> None:
        self._graph = graph
        self._settings = settings
        self._counter = counter
        self._arguments = graphs.arguments(graph)
        self._lock = threading.Lock()
        self._current: _Current | None = None
        self._failed: AotpipeError | None = None
        self._builds = 0
        self._changes: Counter[int] = Counter()
        self._layouts: tuple[layouts.Layout, ...] = ()
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
            self._layouts = layouts.layouts(self._graph)
            written = {index for index, count in self._changes.items() if count >= _CHANGES}
            closed = graphs.closed(self._graph, self._arguments, args, written)
            built = build.build(closed, self._settings)
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
                arrays[leaf.name] = _array(given[leaf.name])
            elif leaf.name in given and given[leaf.name] != leaf.value:
                raise InputError(f"the program has {leaf.name!r} fixed at {leaf.value!r}")
        answer = current.built.runner.infer(arrays)
        results = [
            leaf.value if isinstance(leaf, Constant) else from_numpy(answer[leaf.name])
            for leaf in current.built.signature.outputs
        ]
        return layouts.placed(self._layouts, results)


@atexit.register
def _close_all() -> None:
    """Torch keeps graphs until the process is gone, which is too late for what the runtime holds."""
    for program in list(_ALIVE):
        program.close()


def _array(value: Any) -> Array:
    """An argument as an array; a tensor's memory is not copied."""
    array = view_numpy(value) if isinstance(value, torch.Tensor) else to_numpy(value)
    assert array is not None, "a graph takes tensors and numbers"
    return array


def _versions(closed: graphs.Closed, args: Sequence[Any]) -> Versions:
    """Whose memory the weights are, and how often each was written."""
    return tuple((args[index].data_ptr(), args[index]._version) for index in closed.weights)  # noqa: SLF001
