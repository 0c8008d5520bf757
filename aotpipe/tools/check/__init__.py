"""Can this model be one program? All obstacles at once, and what is rewritten, kept and fixed.

`check(model)` runs the model eagerly on its examples and watches it, then runs the stages of a build up to
the compiler. Gives a `Checked`; raises a `ModelError` only where there is no model to look at. The model is
as before afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aotpipe.tools.check.diagnostics import SEVERITIES, Checked, Diagnostic, Fix, Rewrite, Step
from aotpipe.tools.check.source_ranges import Place

if TYPE_CHECKING:
    from aotpipe.model.spec import EntryPoint

__all__ = ["SEVERITIES", "Checked", "Diagnostic", "Fix", "Place", "Rewrite", "Step", "check"]


def check(
    model_or_spec: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    value_ranges: Mapping[str, tuple[float, float]] | None = None,
    examples: Sequence[Any] = (),
    optional: Sequence[str] = (),
    tensorize: Sequence[str] = (),
    entry_points: Mapping[str, EntryPoint] | None = None,
    name: str | None = None,
) -> Checked:
    """Find all that keeps a model from becoming one program; the arguments are those of `build`.

    Raises:
        ModelError: There is no model, or nothing says what it is called with.
    """
    from aotpipe.build import requirements
    from aotpipe.build.source import Model
    from aotpipe.tools.check import examine

    start = time.perf_counter()
    requirements.require()
    overrides = {
        "args": args,
        "kwargs": kwargs,
        "dynamic_shapes": dynamic_shapes,
        "value_ranges": value_ranges,
        "examples": examples,
        "optional": tuple(optional),
        "tensorize": tuple(tensorize),
        "entry_points": entry_points,
        "name": name,
    }
    spec = Model(given=model_or_spec, overrides=overrides).load()
    return replace(examine.examine(spec), wall_s=time.perf_counter() - start)
