"""From a Canonical to torch.export's programs, one per entry point, each with its Signature.

Takes a `Canonical`, gives an `Exported`. Raises `ExportFailed` with the user's line, torch's reason and a
fix, and `StaticDim` where a size that was asked to vary is a constant. The model stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from aotpipe.canonicalize.state.slots import State
from aotpipe.core.signature import TensorSpec
from aotpipe.core.stages import Canonical, CanonicalEntry, Exported, ExportedEntry, Finding
from aotpipe.export import auto_dims, signatures, strategies

_AUTO_ROUNDS = 3


def export(canonical: Canonical) -> Exported:
    """Export every entry point.

    Returns:
        The programs over one set of weights; `findings` holds the canonical's and the export's own.

    Raises:
        ExportFailed: torch.export refused an entry point.
        StaticDim: A Dim became a constant.
    """
    state = canonical.entries[0].state
    while True:
        known = state
        entries: list[ExportedEntry] = []
        findings = list(canonical.findings)
        for entry in canonical.entries:
            exported, found, state = _export_entry(replace(entry, state=state))
            entries.append(exported)
            findings += found
        # State that one entry point is found to keep is state of the others too.
        if state is known or len(entries) == 1:
            break
    return Exported(canonical=canonical, entries=tuple(entries), findings=(*findings, *_kept(state)))


def _kept(state: State | None) -> Iterator[Finding]:
    """Tell which values, beside the model's buffers, became state."""
    if state is None or not state.roots:
        return
    names = ", ".join(dict.fromkeys(root.path for root in state.roots if not root.is_buffer))
    phases = len(state.phases())
    yield Finding(
        severity="note",
        code="state-in-python",
        message=f"kept from call to call: {names}"
        + (f"; it takes {phases} forms, each of which has its own part of the program" if phases > 1 else ""),
    )


def _export_entry(entry: CanonicalEntry) -> tuple[ExportedEntry, list[Finding], State | None]:
    """Export until every AUTO size is a plain range, a multiple or a constant."""
    findings: list[Finding] = []
    for left in reversed(range(_AUTO_ROUNDS)):
        traced = strategies.trace(entry)
        resolved = auto_dims.resolve(entry, traced)
        findings += resolved.findings
        is_settled = not resolved.again
        dims = resolved.dims if is_settled or left > 1 else auto_dims.without_auto(resolved.dims)
        entry = replace(entry, dims=dims)
        if is_settled:
            break
    else:
        raise AssertionError("without AUTO there is nothing left to settle")
    found = signatures.signature(entry, traced.program, resolved.ranges)
    exported = ExportedEntry(name=entry.name, program=traced.program, signature=found)
    findings += [*traced.findings, *_unused(entry, exported), *_integer_outputs(entry, exported)]
    return exported, findings, traced.state or entry.state


def _unused(entry: CanonicalEntry, exported: ExportedEntry) -> Iterator[Finding]:
    outputs = {
        spec.arg.name for spec in exported.program.graph_signature.output_specs if hasattr(spec.arg, "name")
    }
    for name, node in signatures.input_nodes(entry, exported.program).items():
        if isinstance(node.meta["val"], torch.Tensor) and not node.users and node.name not in outputs:
            yield Finding(
                severity="warning",
                code="unused-input",
                message=f"nothing reads the input {name!r}",
                hint="leave it out of the example inputs",
                entry_point=entry.name,
            )


def _integer_outputs(entry: CanonicalEntry, exported: ExportedEntry) -> Iterator[Finding]:
    arguments = signatures.output_arguments(entry, exported.program)
    for output, argument in zip(exported.signature.outputs, arguments.values(), strict=True):
        if isinstance(output, TensorSpec) and not isinstance(
            argument, torch.export.graph_signature.TensorArgument
        ):
            kind = "number, computed in each call"
        elif not isinstance(output, TensorSpec) and output.value is not None:
            kind = f"constant, {output.value!r}"
        else:
            continue
        yield Finding(
            severity="note",
            code="integer-output",
            message=f"the output {output.name!r} is a {kind}",
            entry_point=exported.name,
        )
