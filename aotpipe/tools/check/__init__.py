"""Can this model be one program? All obstacles at once, and what is rewritten, kept and fixed.

`check(model)` runs the model eagerly on its examples and watches it, then runs the stages of a build up to
the compiler. Gives a `Checked`; raises a `ModelError` only where there is no model to look at. The model is
as before afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

from aotpipe.build.request import ModelOptions, Request
from aotpipe.model.source_ranges import Place
from aotpipe.tools.check.diagnostics import SEVERITIES, Checked, Diagnostic, Fix, Rewrite, Step

__all__ = ["SEVERITIES", "Checked", "Diagnostic", "Fix", "Place", "Rewrite", "Step", "check"]


def check(
    model_or_spec: object,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[ModelOptions],
) -> Checked:
    """Find all that keeps a model from becoming one program; the arguments are those of `build`.

    There is no target: the stages are run for IREE, and for XLA too where buckets or a mesh are given.

    Raises:
        ModelError: There is no model, or nothing says what it is called with.
        NoBuckets, MeshError: The buckets, or the mesh, do not fit the model.
    """
    start = time.perf_counter()
    request = Request.of(model_or_spec, (), args, kwargs, **options)
    request.require_installed()
    from aotpipe.tools.check import examine

    return replace(examine.examine(request), wall_s=time.perf_counter() - start)
