"""Which placeholder of an exported program is which input, and which output is which.

torch.export keeps the flattening order of `(args, kwargs)` and of the result; constants have placeholders
too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from aotpipe.core.stages import CanonicalEntry
from aotpipe.errors import ExportFailed


def input_nodes(entry: CanonicalEntry, program: ExportedProgram) -> dict[str, torch.fx.Node]:
    """The placeholder of each input, by the input's name, in order.

    Raises:
        ExportFailed: torch.export flattened the inputs otherwise.
    """
    specs = program.graph_signature.input_specs
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    users = [
        node for node, spec in zip(placeholders, specs, strict=True) if spec.kind is InputKind.USER_INPUT
    ]
    if len(users) != len(entry.input_names):
        raise ExportFailed(
            f"torch.export gave {entry.name} {len(users)} inputs in place of {len(entry.input_names)}",
            hint="report this model: it is a fault of aotpipe",
        )
    return dict(zip(entry.input_names, users, strict=True))


def input_values(entry: CanonicalEntry, program: ExportedProgram) -> dict[str, Any]:
    """The fake tensor, symbolic number or constant of each input, by name."""
    return {name: node.meta["val"] for name, node in input_nodes(entry, program).items()}


def output_arguments(entry: CanonicalEntry, program: ExportedProgram) -> dict[str, Any]:
    """The argument (a tensor, a symbolic number, a constant) of each output, by name, in order.

    Raises:
        ExportFailed: The traced result is another structure than the eager one.
    """
    specs = [s for s in program.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    if len(specs) != len(entry.output_names):
        raise ExportFailed(
            f"{entry.name} gives {len(specs)} outputs in torch.export, {len(entry.output_names)} in eager",
            hint="let the model return the same structure in every call",
        )
    return {name: spec.arg for name, spec in zip(entry.output_names, specs, strict=True)}
