"""From a Canonical to torch.export's programs, one per entry point, each with its Signature.

Takes a `Canonical`, gives an `Exported`. Raises `ExportFailed` with the user's line, torch's reason and a
fix, and `StaticDim` where a size that was asked to vary is a constant. The model stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch.export.graph_signature import TensorArgument

from aotpipe.canonicalize.state.slots import State
from aotpipe.canonicalize.trace import decisions
from aotpipe.core.signature import Constant, guard_holds
from aotpipe.core.stages import Canonical, CanonicalEntry, Exported, ExportedEntry, Finding
from aotpipe.errors import ExportFailed
from aotpipe.export import auto_dims, diagnosis, resized_examples, signatures, specializations, strategies

_AUTO_ROUNDS = 3


def export(canonical: Canonical, *, specialize: bool = True) -> Exported:
    """Export every entry point.

    Args:
        canonical: The model.
        specialize: Whether an entry point that decides on its sizes may become several programs, each of
            which is an entry point of the result's `canonical`.

    Returns:
        The programs over one set of weights; `findings` holds the canonical's and the export's own. What the
        traces of these programs decided is kept (`canonicalize.trace.decisions.recorded`).

    Raises:
        ExportFailed: torch.export refused an entry point.
        StaticDim: A Dim became a constant.
    """
    state = canonical.entries[0].state
    while True:
        known = state
        pairs: list[tuple[CanonicalEntry, ExportedEntry]] = []
        findings = list(canonical.findings)
        with decisions.recorded() as decided:
            for entry in canonical.entries:
                try:
                    fixes = len(canonical.entries) == 1  # another entry point may write the buffer
                    made, found, state = _export_entry(replace(entry, state=state, fixes_buffers=fixes))
                    pairs.append((entry, made))
                except ExportFailed as refused:
                    if not specialize or not diagnosis.is_refused_for_sizes(refused):
                        raise
                    more, found, state = _specialized(replace(entry, state=state), refused)
                    pairs += more
                findings += found
        # State that one entry point is found to keep is state of the others too.
        if state is known or len(pairs) == 1:
            break
    decisions.keep(decided)
    entries, exported = zip(*pairs, strict=True)
    if len(entries) > len(canonical.entries):
        canonical = replace(canonical, entries=entries)
    return Exported(canonical=canonical, entries=exported, findings=(*findings, *_kept(state)))


def _specialized(
    entry: CanonicalEntry, refused: ExportFailed
) -> tuple[list[tuple[CanonicalEntry, ExportedEntry]], list[Finding], State | None]:
    """Export programs for parts of the sizes, until each size has one that the model takes.

    Raises `refused` where that does not succeed.
    """
    every = specializations.sizes_of(entry)
    left: Sequence[Mapping[str, int]] = every
    state = entry.state
    raising = specializations.Raising(entry)
    pairs: list[tuple[CanonicalEntry, ExportedEntry]] = []
    findings: list[Finding] = []
    sizes: Mapping[str, int] = resized_examples.values(entry)
    while left:
        if pairs:
            answering, left = raising.next_sizes(left)
            if answering is None:
                break
            sizes = answering
            if specializations.is_hopeless(len(pairs), len(left), len(every)):
                refused.hint = specializations.with_fewer_sizes(
                    refused.hint, len(pairs), len(left), len(every)
                )
                raise refused
        one = replace(specializations.at(entry, sizes, len(pairs)), state=state)
        try:
            made, found, state = _export_entry(one)
            signature = specializations.guarded(one, made.program, made.signature, every)
        except (ExportFailed, specializations.Unsupported) as error:
            if isinstance(error, ExportFailed) and not pairs and refused.of_sizes and not error.of_sizes:
                # A loop that was refused for all sizes has been written out, and this is left.
                raise error from refused
            raise refused from error
        pairs.append((one, _of_one_size(one, replace(made, signature=signature), every)))
        # A program of other sizes has mostly the same to say.
        said = {(each.code, each.message) for each in findings}
        findings += [each for each in found if (each.code, each.message) not in said]
        before, left = left, [each for each in left if not specializations.takes(one, signature, each)]
        if len(left) == len(before) and pairs[1:]:
            raise refused
    if raising.said:
        if specializations.is_fixed(entry, [made.signature for _, made in pairs]):
            raise refused
        pairs = [_of_multiples(*pair, every) for pair in pairs]
    taken = ((one.name, (*made.signature.symbols, *made.signature.guards)) for one, made in pairs)
    sizes_of_each = "; ".join(f"{name}: {', '.join(map(str, each)) or 'one size'}" for name, each in taken)
    if raising.said:
        message = f"{raising.said}\na call of such sizes is refused before it runs; taken are {sizes_of_each}"
        hint = refused.hint or "narrow the Dims to the sizes that the model takes"
        where = raising.where or refused.where
        findings.append(entry.finding("sizes-without-program", message, hint=hint, where=where, warns=True))
    if pairs[1:]:
        message = f"{entry.name} decides on its sizes, and has {len(pairs)} programs, each for some of them: "
        hint = "narrow the Dims to sizes of which the model decides alike to have fewer"
        where = refused.where
        findings.append(
            entry.finding("size-specializations", message + sizes_of_each, hint=hint, where=where)
        )
    return pairs, findings, state


def _of_one_size(
    entry: CanonicalEntry, made: ExportedEntry, every: Sequence[Mapping[str, int]]
) -> ExportedEntry:
    """The same program with a number for each Dim of which it takes one size alone; else the given one.

    torch calls such a size a symbol in some shapes and a number in others, which the compilers take for two.
    """
    numbers = {symbol.name for symbol in made.signature.symbols if symbol.min == symbol.max}
    dims = specializations.without(entry, numbers)
    if dims == entry.dims:
        return made
    fixed = replace(entry, dims=dims)
    try:
        again, _, _ = _export_entry(fixed)
        guards = specializations.guarded(fixed, again.program, again.signature, every).guards
    except (ExportFailed, specializations.Unsupported):
        return made
    taken = [sizes for sizes in every if specializations.takes(entry, made.signature, sizes)]
    if not all(guard_holds(guard, sizes) for guard in guards for sizes in taken):
        return made
    return replace(again, signature=made.signature)


def _of_multiples(
    entry: CanonicalEntry, made: ExportedEntry, every: Sequence[Mapping[str, int]]
) -> tuple[CanonicalEntry, ExportedEntry]:
    """The same program with its sizes as multiples, where all it takes are such; else the given one.

    torch sees that `8 * n` is divided by 8. Of an `h` of which that is a guard, it keeps sizes such as
    `h // (h // 8)`, which the compilers cannot follow.
    """
    dims = specializations.multiples(entry, made.signature, every)
    if dims is None:
        return entry, made
    try:
        again, _, _ = _export_entry(replace(entry, dims=dims, guarded=False))
    except ExportFailed:
        return entry, made
    found = signatures.signature(entry, again.program, {})
    found = replace(
        found,
        symbols=specializations.widened(entry, made.signature, dims),
        guards=specializations.divisors(entry, dims),
        specializes=entry.specializes,
    )
    return entry, replace(again, signature=found)


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
    auto_dims.write_constants(traced.program)
    found = signatures.signature(entry, traced.program, resolved.ranges)
    found = replace(found, kept_on_raise=tuple(sorted(traced.kept)))
    if not entry.guarded:
        specializations.require_no_comparison(entry, traced.program, found, traced.log)
    decisions.keep(traced.decided)
    exported = ExportedEntry(name=entry.name, program=traced.program, signature=found)
    findings += [*traced.findings, *_unused(entry, exported), *_integer_outputs(entry, exported)]
    return exported, findings, traced.state or entry.state


def _unused(entry: CanonicalEntry, exported: ExportedEntry) -> Iterator[Finding]:
    outputs = {
        spec.arg.name for spec in exported.program.graph_signature.output_specs if hasattr(spec.arg, "name")
    }
    for name, node in signatures.input_nodes(entry, exported.program).items():
        if isinstance(node.meta["val"], torch.Tensor) and not node.users and node.name not in outputs:
            message, hint = f"nothing reads the input {name!r}", "leave it out of the example inputs"
            yield entry.finding("unused-input", message, hint=hint, warns=True)


def _integer_outputs(entry: CanonicalEntry, exported: ExportedEntry) -> Iterator[Finding]:
    arguments = signatures.output_arguments(entry, exported.program)
    for output, argument in zip(exported.signature.outputs, arguments.values(), strict=True):
        if isinstance(output, Constant):
            if output.value is None:
                continue
            kind = f"constant, {output.value!r}"
        elif isinstance(argument, TensorArgument):
            continue
        else:
            kind = "number, computed in each call"
        yield entry.finding("integer-output", f"the output {output.name!r} is a {kind}")
