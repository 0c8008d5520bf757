"""Takes a graph of torch.compile through the stages of a build, to a program that runs in this process.

`build(closed, settings)` gives a `Built`. The first answer is compared with eager's by the law of a build,
in a process of its own, so that a program that crashes or differs is an error and never an answer.

Raises:
    AotpipeError: A stage refused the graph, or its program differs from eager.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch

from aotpipe.build.cache import Cache
from aotpipe.build.chain import Chain
from aotpipe.build.compile_stage import CompileSettings
from aotpipe.build.events import Recorder
from aotpipe.build.request import Request
from aotpipe.core.signature import Signature
from aotpipe.core.stages import Compiled
from aotpipe.errors import AotpipeError, TargetError
from aotpipe.runtime.islands.chain_runner import load_parts
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
def _build(closed: Closed, settings: Settings) -> Built:
    recorder = Recorder()
    options = settings.model_options
    options["name"], options["dynamic_shapes"] = _NAME, dict(closed.dynamic_shapes) or None
    chain = Chain(Request.of(closed.module, [str(settings.target)], closed.args, **options), recorder)
    cache = Cache.open(recorder, enabled=settings.cache)
    try:
        [compiled] = chain.compiled(CompileSettings(), cache).values()
    finally:
        cache.close()
    if isinstance(compiled, AotpipeError):
        raise compiled
    ratio = _verified(chain, compiled) if settings.verify else 0.0
    return Built(
        runner=_loaded(chain, compiled),
        signature=chain.legal.entries[0].signature,
        ratio=ratio,
        islands=tuple(island.name for island in chain.parts.islands) if chain.parts else (),
    )


def _loaded(chain: Chain, compiled: Compiled) -> Runner:
    [lowerable] = chain.lowerable.values()
    [entry] = (chain.legal if chain.parts else lowerable).entries
    weights, state = chain.arrays()
    return load_parts(
        partial(runtime(compiled.target.backend).load, compiled.payload, weights=weights),
        chain.parts,
        signatures={entry.name: entry.signature},
        initial_state=state,
        asserts={entry.name: entry.asserts},
    )


def _verified(chain: Chain, compiled: Compiled) -> float:
    """Compare the program with eager on the arguments that came first.

    Raises:
        SpecInvalid: The graph raises on its first arguments.
        ParityError: The program differs.
    """
    from aotpipe.validate.reference import example_inputs

    [entry] = chain.canonical.entries
    call = Call(entry_point=entry.name, case="the first call", reset=True, inputs=example_inputs(entry))
    found = chain.reference([call])
    with chain.loadable() as loadable:
        parity = validate(compiled, loadable, found.goldens).parity
    return parity.worst.ratio if parity is not None and parity.worst is not None else 0.0
