"""Takes a graph of torch.compile through the stages of a build, to a program that runs in this process.

`build(closed, settings)` gives a `Built`. The first answer is compared with eager's by the law of a build,
in a process of its own, so that a program that crashes or differs is an error and never an answer.

Raises:
    AotpipeError: A stage refused the graph, or its program differs from eager.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from aotpipe.build import front
from aotpipe.build.cache import Cache
from aotpipe.build.compile_stage import CompileSettings, compile_all
from aotpipe.build.events import Recorder
from aotpipe.build.lowering_plan import DEFAULT_FORM
from aotpipe.build.unpacked import unpacked
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Canonical, Compiled, Legal
from aotpipe.errors import AotpipeError, SpecInvalid, TargetError
from aotpipe.model.spec import as_spec
from aotpipe.model.torch_arrays import view_all
from aotpipe.runtime.islands.chain import Parts
from aotpipe.runtime.islands.chain_runner import ChainRunner
from aotpipe.runtime.islands.functions import functions
from aotpipe.runtime.loading import Runner, runtime, why_not_runnable
from aotpipe.tools.torch_compile.graphs import Closed
from aotpipe.tools.torch_compile.settings import Settings
from aotpipe.validate import validate
from aotpipe.validate.inputs import Call

_NAME = "graph"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A program.

    Attributes:
        ratio: The largest share of the allowed error that its first answer used.
        islands: The ops that have no lowering, which are run eagerly between its parts.
    """

    runner: Runner
    signature: Signature
    ratio: float
    islands: tuple[str, ...] = ()


def build(closed: Closed, settings: Settings) -> Built:
    """Build the program of a graph."""
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
def _build(closed: Closed, settings: Settings) -> Built:
    recorder = Recorder()
    spec = as_spec(
        closed.module, args=closed.args, dynamic_shapes=dict(closed.dynamic_shapes) or None, name=_NAME
    )
    canonical = front.canonical(lambda: spec, recorder)
    exported = front.export(canonical, recorder)
    legals = front.legalize(exported, recorder, ("torch",), supported=False)
    legal = legals["torch"]
    parts, lowerable = front.cut(legals)
    lowered = front.lower(canonical, lowerable, recorder, DEFAULT_FORM)
    cache = Cache.open(recorder, enabled=settings.cache)
    try:
        [compiled] = compile_all(
            lowered, [settings.target], settings=CompileSettings(), cache=cache, recorder=recorder
        ).values()
    finally:
        cache.close()
    if isinstance(compiled, AotpipeError):
        raise compiled
    ratio = _verified(canonical, legal, lowerable["torch"], parts, compiled) if settings.verify else 0.0
    return Built(
        runner=_loaded(legal, lowerable["torch"], parts, compiled),
        signature=legal.entries[0].signature,
        ratio=ratio,
        islands=tuple(island.name for island in parts.islands) if parts else (),
    )


def _loaded(legal: Legal, lowerable: Legal, parts: Parts | None, compiled: Compiled) -> Runner:
    [entry] = legal.entries
    state = view_all(legal.initial_state)
    runner = runtime(compiled.target.backend).load(
        compiled.payload,
        signatures={each.name: each.signature for each in lowerable.entries},
        weights=view_all(lowerable.weights),
        initial_state=state if parts is None else {},
        asserts={each.name: each.asserts for each in lowerable.entries},
    )
    if parts is None:
        return runner
    return ChainRunner(
        runner,
        parts,
        signatures={entry.name: entry.signature},
        initial_state=state,
        functions=functions(parts.islands),
    )


def _verified(
    canonical: Canonical, legal: Legal, lowerable: Legal, parts: Parts | None, compiled: Compiled
) -> float:
    """Compare the program with eager on the arguments that came first."""
    from aotpipe.validate.eager.eager import EagerFailed
    from aotpipe.validate.reference import example_inputs, reference

    [entry] = legal.entries
    inputs: Mapping[str, Any] = example_inputs(canonical.entries[0])
    call = Call(entry_point=entry.name, case="the first call", reset=True, inputs=inputs)
    try:
        found = reference(canonical, legal, calls=[call])
    except EagerFailed as error:
        raise SpecInvalid("the graph raises on its first arguments", reason=str(error)) from error
    with unpacked(legal, weights_of=(lowerable,), parts=parts) as loadable:
        parity = validate(compiled, loadable, found.goldens).parity
    return parity.worst.ratio if parity is not None and parity.worst is not None else 0.0
