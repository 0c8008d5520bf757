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
from typing import TYPE_CHECKING, Any, Final

from aotpipe.build.events import Listener, Recorder
from aotpipe.core.targets import expand
from aotpipe.errors import AotpipeError
from aotpipe.runtime.xla.buckets import Declared
from aotpipe.tools.recompiles.results import TORCH_COMPILE, Program, Recompiles, Refused, Way

if TYPE_CHECKING:
    from aotpipe.model.spec import EntryPoint

__all__ = ["DEFAULT_WAYS", "TORCH_COMPILE", "Program", "Recompiles", "Refused", "Way", "recompiles"]

DEFAULT_WAYS: Final = (TORCH_COMPILE, "iree-cpu-host")


def recompiles(
    model_or_spec: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    value_ranges: Mapping[str, tuple[float, float]] | None = None,
    entry_points: Mapping[str, EntryPoint] | None = None,
    name: str | None = None,
    inputs: Iterable[Any] | str | Path | None = None,
    calls: int | None = None,
    seed: int = 0,
    ways: Sequence[str] = DEFAULT_WAYS,
    dynamic: bool | None = None,
    buckets: Mapping[str, Declared] | None = None,
    cache: bool = True,
    on_event: Listener | None = None,
) -> Recompiles:
    """Count the programs that a run of varied calls takes.

    Args:
        model_or_spec: The model; this and the next six are those of `build`.
        args: Example inputs.
        kwargs: Example inputs passed by name.
        dynamic_shapes: What may vary.
        value_ranges: What values may be passed.
        entry_points: Several ways to call the model.
        name: Names the result.
        inputs: The calls, in their order: tuples of args or dicts of kwargs, or a file of them (see `files`).
            None draws calls that cover what may vary.
        calls: Makes so many: of those drawn, or of those given.
        seed: What calls are drawn from.
        ways: `torch.compile`, targets, shorthands and globs.
        dynamic: torch.compile's own argument.
        buckets: By Dim, the sizes that XLA programs are built for.
        cache: Keep programs, and use those of earlier builds.
        on_event: Told what happens while it happens.

    Raises:
        ModelError: There is no model, or nothing says what it is called with.
    """
    from aotpipe.build import front, requirements
    from aotpipe.build.lowering_plan import DEFAULT_FORM, Form
    from aotpipe.build.source import Model

    start = time.perf_counter()
    names = [way for way in ways if way != TORCH_COMPILE]
    targets = expand(names) if names else ()
    requirements.require((Form.of(targets, buckets) if targets else DEFAULT_FORM).backends)
    overrides = {
        "args": args,
        "kwargs": kwargs,
        "dynamic_shapes": dynamic_shapes,
        "value_ranges": value_ranges,
        "entry_points": entry_points,
        "name": name,
    }
    recorder = Recorder(on_event)
    with redirect_stdout(io.StringIO()):  # what the model prints is no part of the answer
        from aotpipe.build.cache import Cache
        from aotpipe.tools.recompiles import calls as sequences
        from aotpipe.tools.recompiles import counting, files, programs

        canonical = front.canonical(Model(given=model_or_spec, overrides=overrides).load, recorder)
        failed: AotpipeError | None = None
        exported = None
        try:
            exported = front.export(canonical, recorder)
            signatures = {entry.name: entry.signature for entry in exported.entries}
        except AotpipeError as error:
            failed = error
            signatures = sequences.signatures_of(canonical)
        if inputs is None:
            given = sequences.planned(canonical, signatures, count=calls, seed=seed)
        elif isinstance(inputs, str | Path):
            given = files.read(Path(inputs), canonical, seed)[:calls]
        else:
            given = sequences.given(canonical, inputs)[:calls]
        found: list[Way] = []
        if TORCH_COMPILE in ways:
            found.append(counting.count(canonical, given, dynamic=dynamic))
        if exported is not None and targets:
            kept = Cache.open(recorder, enabled=cache)
            try:
                found += programs.run(
                    canonical, exported, given, targets, recorder=recorder, cache=kept, buckets=buckets
                )
            except AotpipeError as error:
                failed = error
            finally:
                kept.close()
        if failed is not None:
            found += [Way(name=str(target), so_far=(), error=failed) for target in targets]
    return Recompiles(
        name=canonical.spec.name,
        calls=tuple(call.case for call in given),
        ways=tuple(found),
        wall_s=time.perf_counter() - start,
    )
