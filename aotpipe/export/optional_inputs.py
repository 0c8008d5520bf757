"""A program for calls that may lack something, compared with the model on every combination.

First the model is traced once, with flags on what may be missing, so that its own `is None` and `key in
batch` are branches of the graph. Where that is refused, or the program then differs from the model, the
whole model is traced once for each combination of flags, if there are few enough.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

import torch

from aotpipe.canonicalize.inputs import flat_module
from aotpipe.canonicalize.rewrite import staging
from aotpipe.canonicalize.state import lift
from aotpipe.canonicalize.state.slots import StateRefused
from aotpipe.core.stages import CanonicalEntry
from aotpipe.errors import ExportFailed
from aotpipe.export import resized_examples
from aotpipe.model import source

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from aotpipe.export.strategies import Traced

Codes = dict[FunctionType, CodeType]


def traced(entry: CanonicalEntry, trace: Callable[[Codes], Traced]) -> Traced:
    """Trace an entry point whose calls may lack something.

    Raises:
        ExportFailed: Neither way gives the model's answers.
    """
    assert entry.adapter is not None
    structure = entry.adapter.structure
    try:
        found = trace(staging.rewritten_codes(entry.adapter.functions()))
    except (lift.UnknownState, StateRefused):
        raise
    except ExportFailed as error:
        first = error
    else:
        wrong = _disagreeing(entry, found.program)
        if wrong is None:
            return found
        first = _differs(entry, wrong)
    if not 0 < len(structure.parts) <= flat_module.MOST_FLAGS:
        raise first
    with entry.adapter.by_flags():
        try:
            found = trace({})
        except ExportFailed as error:
            raise first from error
    wrong = _disagreeing(entry, found.program)
    if wrong is not None:
        raise first
    return found


def _disagreeing(entry: CanonicalEntry, program: ExportedProgram) -> dict[str, torch.Tensor] | None:
    """The inputs of the first combination on which program and model differ."""
    assert entry.adapter is not None
    return next(
        (
            inputs
            for inputs in flat_module.cases(entry.adapter.structure)
            if not resized_examples.agrees_on(entry, program, ((inputs,), {}))
        ),
        None,
    )


def _differs(entry: CanonicalEntry, inputs: dict[str, torch.Tensor]) -> ExportFailed:
    assert entry.adapter is not None
    structure = entry.adapter.structure
    lacking = ", ".join(part.name for part in structure.parts if not inputs[part.flag])
    return ExportFailed(
        f"without {lacking} the program differs from the model"
        if lacking
        else "the program differs from the model",
        reason="the model decides on what a call has in a way that is not seen in its code",
        hint="ask by name: `key in batch`, `batch.get(key)`, `x is None`",
        where=source.of_definition(structure.call),
    )
