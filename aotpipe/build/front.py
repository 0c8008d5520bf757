"""The stages that need torch: from what a user names to a `Prepared`.

torch is imported here and nowhere before, so that a model that has not changed costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from aotpipe.build import requirements
from aotpipe.build.events import Recorder
from aotpipe.build.file_reads import ignore_this_thread
from aotpipe.build.lowering_plan import DEFAULT_FORM, Form
from aotpipe.build.prepared import OnLowered, Prepared, digest_of, ignore_lowered, write_weights
from aotpipe.core.dtypes import Array
from aotpipe.core.precision import Precision
from aotpipe.core.stages import Finding
from aotpipe.core.targets import Backend
from aotpipe.errors import LowerFailed, SpecInvalid
from aotpipe.islands.sites import recording
from aotpipe.model.garbage_collector import import_torch, rarer_collections
from aotpipe.runtime import goldens as goldens_file
from aotpipe.runtime.islands import Island, Parts

if TYPE_CHECKING:
    import torch

    from aotpipe.core.stages import Canonical, Dialect, Exported, Legal, Lowered
    from aotpipe.model.spec import Spec
    from aotpipe.validate.reference import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """A prepared model, and the model itself for what is timed beside it."""

    prepared: Prepared
    canonical: Canonical


def canonical(load: Callable[[], Spec], recorder: Recorder, form: Form = DEFAULT_FORM) -> Canonical:
    """Load a model and make it ready for export."""
    requirements.require(form.backends)
    with recorder.stage("load"):
        import_torch()  # counted here, and not in the first stage that happens to need it
        spec = load()
    with recorder.stage("canonicalize"):
        from aotpipe.canonicalize import canonicalize

        return canonicalize(spec)


def export(model: Canonical, recorder: Recorder) -> Exported:
    """Export a model, and tell what was found on the way."""
    with recorder.stage("export"):
        from aotpipe.export import export

        exported = export(model)
    for finding in exported.findings:
        recorder.found(finding)
    return exported


def narrowed(exported: Exported, precision: Precision | None) -> Exported:
    """The same programs, of which a policy decides what is computed in fewer bits."""
    if precision is None:
        return exported
    from aotpipe.passes.precision import lower

    finding = Finding(severity="note", code="precision", message=f"computed in {precision}")
    return replace(lower(exported, precision), findings=(*exported.findings, finding))


def legalize(
    exported: Exported, recorder: Recorder, dialects: Sequence[Dialect], *, supported: bool = True
) -> dict[Dialect, Legal]:
    """Legalize a model for each dialect; ops without a lowering are left in it unless `supported`."""
    with recorder.stage("legalize"):
        from aotpipe.backends import legalization
        from aotpipe.passes import legalize

        return {
            dialect: legalize(exported, legalization(dialect), supported=supported) for dialect in dialects
        }


def lower(
    model: Canonical, legal: Mapping[Dialect, Legal], recorder: Recorder, form: Form
) -> dict[Backend, Lowered]:
    """Lower a legal model for each compiler."""
    with recorder.stage("lower") as running:
        lowered = {
            backend: _lower(backend, model, legal[dialect], form)
            for backend, dialect in form.backends.items()
        }
        running.size_bytes = sum(len(each.module) for each in lowered.values())
        return lowered


def _lower(backend: Backend, model: Canonical, legal: Legal, form: Form) -> Lowered:
    match backend:
        case "iree":
            return lower_for_iree(legal)
        case "xla":
            from aotpipe.backends.xla import lowering
            from aotpipe.validate.reference import example_sizes

            signatures = {entry.name: entry.signature for entry in legal.entries}
            examples = example_sizes(model, signatures)
            return lowering.lower(legal, form.buckets, examples=examples, mesh=form.mesh, rules=form.rules)
        case _:
            assert_never(backend)


def lower_for_iree(legal: Legal) -> Lowered:
    """Lower a model for IREE, from the dialect that it is legal in."""
    match legal.dialect:
        case "torch":
            from aotpipe.backends.iree.lower import importer

            return importer.lower(legal)
        case "stablehlo":
            from aotpipe.backends.iree.lower import stablehlo

            return stablehlo.lower(legal)
        case _:
            assert_never(legal.dialect)


def prepare(
    load: Callable[[], Spec],
    recorder: Recorder,
    folder: Path,
    form: Form = DEFAULT_FORM,
    on_lowered: OnLowered = ignore_lowered,
) -> Front:
    """Run every stage up to the lowered module, and eager on the calls that programs are judged on.

    The file of the weights is written to `folder`. `on_lowered` is told of the modules as soon as they are
    there.

    Raises:
        ModelError, ExportFailed, UnsupportedOps, LowerFailed
    """
    with rarer_collections(), recording() if form.islands else nullcontext():
        model = canonical(load, recorder, form)
        if form.islands:
            _discover(model)
        exported = narrowed(export(model, recorder), form.precision)
        legals = joined(legalize(exported, recorder, form.dialects, supported=not form.islands))
    legal = next(iter(legals.values()))
    parts, lowerable = cut(legals) if form.islands else (None, legals)
    islands = tuple(map(_finding, parts.islands)) if parts else ()
    for finding in islands:
        recorder.found(finding)
    plans = _planned(legal, form)
    for finding in plans:
        recorder.found(finding)
    from aotpipe.model.torch_arrays import view_all
    from aotpipe.passes.digest import digest

    state = view_all(legal.initial_state)
    weights = view_all({key: value for each in lowerable.values() for key, value in each.weights.items()})
    # Hashing and writing leave the interpreter to the rest, eager among it, which puts other data into the
    # model's tensors meanwhile: the arrays are views of what these hold now.
    with ThreadPoolExecutor(1, thread_name_prefix="weights", initializer=ignore_this_thread) as beside:
        writing = beside.submit(_write_weights, weights, state, folder, recorder)
        with rarer_collections():
            lowered = lower(model, lowerable, recorder, form)
        with _threads_beside(on_lowered(lowered)):
            found = reference(model, legal, recorder, form)
        weights_path, weights_sha256 = writing.result()
    digests = [digest(each, weights_sha256) for each in lowerable.values()]
    prepared = Prepared(
        name=legal.name,
        lowered=lowered,
        signatures={entry.name: entry.signature for entry in legal.entries},
        asserts={entry.name: entry.asserts for entry in legal.entries},
        weights=weights_path,
        weights_sha256=weights_sha256,
        initial_state=state,
        goldens=found.goldens,
        parts=parts,
        findings=(*exported.findings, *islands, *plans, *found.findings),
        digest=digest_of(digests, lowered, goldens_file.dumps(found.goldens)),
    )
    return Front(prepared=prepared, canonical=model)


@contextmanager
def _threads_beside(busy: int) -> Iterator[None]:
    """Leave so many cores to others: threads of OpenMP that wait for one that cannot run burn its time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(before, (os.cpu_count() or 1) - busy)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _write_weights(
    weights: Mapping[str, Array], state: Mapping[str, Array], folder: Path, recorder: Recorder
) -> tuple[Path, str]:
    with recorder.stage("weights") as running:
        path, sha256 = write_weights(weights, state, folder)
        running.size_bytes = path.stat().st_size
    return path, sha256


def _planned(legal: Legal, form: Form) -> tuple[Finding, ...]:
    """The sizes that were planned for XLA's programs."""
    from aotpipe.backends.xla.lowering import ladders
    from aotpipe.runtime.xla import buckets

    signatures = {entry.name: entry.signature for entry in legal.entries}
    found = ladders(signatures, form.buckets)
    symbols = {symbol.name: symbol for signature in signatures.values() for symbol in signature.symbols}
    return tuple(
        Finding(severity="note", code="bucket-plan", message=buckets.described(symbols[name], ladder))
        for name, ladder in found.items()
        if ladder.planned
    )


def _discover(model: Canonical) -> None:
    from aotpipe.islands.discovery import discover

    discover(model)


def _finding(island: Island) -> Finding:
    return Finding(
        severity="note",
        code="eager-island",
        message=f"`{island.name}` stays Python: {island.reason}",
        where=island.where,
    )


def cut(legals: Mapping[Dialect, Legal]) -> tuple[Parts | None, dict[Dialect, Legal]]:
    """Cut a model at its islands; there are no parts where it has none."""
    from aotpipe.backends import legalization
    from aotpipe.islands.cut import cut
    from aotpipe.passes.unsupported import refusal

    [(dialect, legal)] = legals.items()
    rules = legalization(dialect)
    found = cut(legal, lambda node: refusal(node, rules))
    if not found.parts.islands:
        return None, dict(legals)
    return found.parts, {dialect: found.legal}


def joined(legals: Mapping[Dialect, Legal]) -> dict[Dialect, Legal]:
    """The same model in several dialects over one set of weights.

    A value that was computed at build time may be another one under the same name: it gets one of its own.

    Raises:
        LowerFailed: They are not the same model.
    """
    first, *others = legals.items()
    weights = dict(first[1].weights)
    result = dict([first])
    for dialect, legal in others:
        names = {
            key: key if key not in weights or _is_same(weights[key], tensor) else f"{dialect}.{key}"
            for key, tensor in legal.weights.items()
        }
        entries = tuple(
            replace(entry, weights=tuple(names[key] for key in entry.weights)) for entry in legal.entries
        )
        for entry, other in zip(entries, first[1].entries, strict=True):
            if entry.signature != other.signature:
                raise LowerFailed(f"the dialects {first[0]} and {dialect} disagree on {entry.name!r}")
        renamed = {names[key]: tensor for key, tensor in legal.weights.items()}
        weights.update(renamed)
        result[dialect] = replace(legal, entries=entries, weights=renamed)
    return result


def _is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left is right or left.data_ptr() == right.data_ptr() != 0:
        return left.dtype == right.dtype and left.shape == right.shape
    return left.dtype == right.dtype and left.shape == right.shape and bool((left == right).all())


def reference(model: Canonical, legal: Legal, recorder: Recorder, form: Form = DEFAULT_FORM) -> Reference:
    """Run eager on the calls that programs are judged on, and tell what was found on the way.

    Raises:
        SpecInvalid: The model raises on its own example inputs.
    """
    with recorder.stage("reference"):
        from aotpipe.validate.eager.eager import EagerFailed
        from aotpipe.validate.reference import reference

        try:
            found = reference(model, legal, _tried(legal, form), policy=form.precision)
        except EagerFailed as error:
            raise SpecInvalid(
                f"the model {legal.name!r} raises on its own example inputs",
                reason=str(error),
                hint="give example inputs that the model takes",
            ) from error
    for finding in found.findings:
        recorder.found(finding)
    return found


def _tried(legal: Legal, form: Form) -> dict[str, list[int]]:
    """The sizes at which programs with buckets may differ from each other."""
    if not form.buckets:
        return {}
    from aotpipe.backends.xla.lowering import ladders

    signatures = {entry.name: entry.signature for entry in legal.entries}
    least = {symbol.name: symbol.min for each in signatures.values() for symbol in each.symbols}
    return {name: ladder.edges(least[name]) for name, ladder in ladders(signatures, form.buckets).items()}
