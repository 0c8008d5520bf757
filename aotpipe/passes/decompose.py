"""Decomposes an exported program into a backend's ops.

`decompose(entry, rules)` gives a functional ExportedProgram; the entry's own is left as it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch.export import ExportedProgram

# torch.export itself has no option for it.
from torch.export._remove_effect_tokens_pass import _remove_effect_tokens
from torch.export.graph_signature import InputKind

# Nobody calls the intermediate graphs of a trace, whose Python code would be written six times.
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental import _config as symbolic_config  # no public switch for backed_size_oblivious

from aotpipe.canonicalize.trace import runtime_asserts
from aotpipe.core.stages import ExportedEntry
from aotpipe.errors import AotpipeError, UnsupportedOps
from aotpipe.model import source
from aotpipe.passes import (
    alias_copies,
    constants,
    decompositions,
    equal_bags,
    hops,
    integer_division,
    joined_sizes,
    prims,
    repeated_calls,
    wrapper_ops,
)
from aotpipe.passes.decompositions import indexing
from aotpipe.passes.decompositions.entries import either
from aotpipe.passes.rules import LegalizationRules


def decompose(entry: ExportedEntry, rules: LegalizationRules) -> ExportedProgram:
    """Give an entry point's program over the backend's ops, without writes to operands.

    Raises:
        UnsupportedOps: torch itself cannot decompose the program.
    """
    table: dict[Any, Callable[..., Any]] = dict(rules.decompositions())
    table |= {op: either(first, table.get(op)) for op, first in indexing.MASKS.items()}
    try:
        with (
            warnings.catch_warnings(),
            runtime_asserts.isolated_paths(),
            _use_lazy_graph_module(should_use=True),
            # The program is not to depend on the example's sizes, of which a part of an input may be 1 long.
            symbolic_config.patch(backed_size_oblivious=True),  # type: ignore[attr-defined]
        ):
            # torch's tracing warns of its own deprecated calls.
            warnings.simplefilter("ignore")
            program = equal_bags.sum_rows(prims.as_aten(wrapper_ops.inline(entry.program)))
            program = constants.lift(alias_copies.separate(program))
            program = integer_division.guard(joined_sizes.check(program))
            try:
                decomposed = _decomposed(program, table)
            except ValueError:
                # The strides of a decomposition may not allow a view: then reshapes succeed.
                decomposed = decompositions.decompose(alias_copies.relax(program), table)
            if any(spec.kind is InputKind.TOKEN for spec in decomposed.graph_signature.input_specs):
                # torch orders ops that have an effect by tokens, which are no tensors.
                decomposed = _remove_effect_tokens(decomposed)
            module = decomposed.graph_module
            changed = [run(body) for run in rules.program_passes for body in list(hops.walk(module))]
            return hops.with_graph(decomposed, module) if any(changed) else decomposed
    except AotpipeError:
        raise
    except Exception as error:
        raise UnsupportedOps(
            f"torch cannot decompose {entry.name}",
            reason=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error) else "",
            where=source.from_exception(error),
        ) from error


def _decomposed(program: ExportedProgram, table: dict[Any, Callable[..., Any]]) -> ExportedProgram:
    found: ExportedProgram | None = None
    # A call that is refused here may be one that torch never decomposes, so torch decides.
    with suppress(Exception):
        found = repeated_calls.decompose(program, table)
    return decompositions.decompose(program, table) if found is None else found
