"""How many programs do varied calls take? For torch.compile, with the line that caused each, and for aotpipe.

`recompiles(model)` makes the same calls in each way: those that cover what the Spec lets vary, or the
user's own. Gives a `Recompiles`; its `require(at_most)` raises. The model is as before afterwards.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final, Unpack

from aotpipe.build.chain import Chain
from aotpipe.build.compile_stage import CompileSettings
from aotpipe.build.events import Listener, Recorder
from aotpipe.build.request import ModelOptions, Request
from aotpipe.errors import AotpipeError
from aotpipe.tools.recompiles.results import TORCH_COMPILE, Program, Recompiles, Refused, Way

__all__ = ["DEFAULT_WAYS", "TORCH_COMPILE", "Program", "Recompiles", "Refused", "Way", "recompiles"]

DEFAULT_WAYS: Final = (TORCH_COMPILE, "iree-cpu-host")


def recompiles(
    model_or_spec: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    inputs: Iterable[Any] | str | Path | None = None,
    calls: int | None = None,
    seed: int = 0,
    ways: Sequence[str] = DEFAULT_WAYS,
    dynamic: bool | None = None,
    cache: bool = True,
    on_event: Listener | None = None,
    **options: Unpack[ModelOptions],
) -> Recompiles:
    """Count the programs that a run of varied calls takes.

    `inputs` are the calls, in their order: tuples of args or dicts of kwargs, or a file of them (see
    `calls`); None draws calls, from `seed`, that cover what may vary. `calls` makes so many of those drawn or
    given. `ways` are `torch.compile`, targets, shorthands and globs; `dynamic` is torch.compile's own
    argument. The others are those of `build`: aotpipe's programs are made as they say.

    Raises:
        ModelError: There is no model, or nothing says what it is called with.
    """
    start = time.perf_counter()
    names = [way for way in ways if way != TORCH_COMPILE]
    chain = Chain(
        Request.of(model_or_spec, names, args, kwargs, **options), Recorder(on_event), specialize=False
    )
    chain.request.require_installed()
    with redirect_stdout(io.StringIO()):  # what the model prints is no part of the answer
        from aotpipe.tools.recompiles import calls as sequences
        from aotpipe.tools.recompiles import counting, programs

        canonical = chain.canonical
        failed: AotpipeError | None = None
        try:
            signatures = chain.exported.signatures
        except AotpipeError as error:
            failed = error
            signatures = sequences.signatures_of(canonical)
        if inputs is None:
            given = sequences.planned(canonical, signatures, count=calls, seed=seed)
        elif isinstance(inputs, str | Path):
            given = sequences.read(Path(inputs), canonical, seed)[:calls]
        else:
            given = sequences.given(canonical, inputs)[:calls]
        found: list[Way] = []
        if TORCH_COMPILE in ways:
            found.append(counting.count(canonical, given, dynamic=dynamic))
        if failed is None and names:
            try:
                found += programs.run(chain, given, CompileSettings(cache=cache))
            except AotpipeError as error:
                failed = error
        if failed is not None:
            found += [Way(name=str(target), so_far=(), error=failed) for target in chain.request.targets]
    return Recompiles(
        name=canonical.spec.name,
        calls=tuple(call.case for call in given),
        ways=tuple(found),
        wall_s=time.perf_counter() - start,
    )
