"""The stages that need torch, one function each; `chain` knows their order.

torch is imported here and nowhere before, so that a model that has not changed costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from aotpipe.backends import ModuleKey, Ruleset
from aotpipe.build import requirements
from aotpipe.build.events import Recorder
from aotpipe.build.request import Request
from aotpipe.core.precision import Precision
from aotpipe.core.stages import Finding
from aotpipe.core.targets import Backend
from aotpipe.errors import LowerFailed, SpecInvalid
from aotpipe.model.garbage_collector import import_torch
from aotpipe.runtime.islands.chain import Island, Parts

if TYPE_CHECKING:
    import torch

    from aotpipe.core.stages import Canonical, Exported, Legal, Lowered
    from aotpipe.validate.inputs import Call
    from aotpipe.validate.reference import Reference


def canonical(request: Request, recorder: Recorder) -> Canonical:
    """Load a model and make it ready for export.

    Raises:
        TargetError: A package that building needs is not installed.
        ModelError: There is no model, or it cannot be used as it is.
    """
    requirements.require(request.backends)
    with recorder.stage("load"):
        import_torch()  # counted here, and not in the first stage that happens to need it
        spec = request.load()
    with recorder.stage("canonicalize"):
        from aotpipe.canonicalize import canonicalize

        return canonicalize(spec)


def discover(model: Canonical) -> None:
    """Learn how the sizes of what a model's islands give go with those of its inputs."""
    from aotpipe.islands.discovery import discover

    discover(model)


def export(model: Canonical, recorder: Recorder) -> Exported:
    """Export a model, and tell what was found on the way.

    Raises:
        ExportFailed, StaticDim: It cannot be one graph for all that may vary.
    """
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
    exported: Exported, recorder: Recorder, request: Request, rulesets: Sequence[Ruleset] = ()
) -> dict[Ruleset, Legal]:
    """Legalize a model by each set of rules; ops without a lowering are left where islands are allowed.

    Args:
        exported: The model.
        recorder: Told of the stage.
        request: Names the rules, and allows islands.
        rulesets: Those that are applied in place of the request's.

    Raises:
        UnsupportedOps: Ops have no lowering, and no islands are allowed.
        LowerFailed: A fault of aotpipe.
    """
    with recorder.stage("legalize"):
        from aotpipe.backends import legalization
        from aotpipe.passes import legalize

        supported = not request.islands
        return _joined(
            {
                each: legalize(exported, legalization(each), supported=supported)
                for each in rulesets or request.rulesets
            }
        )


def lower(
    model: Canonical, legal: Mapping[Ruleset, Legal], recorder: Recorder, request: Request
) -> dict[ModuleKey, Lowered]:
    """Lower a legal model for each compiler.

    Raises:
        LowerFailed, UnsupportedOps: It has no form that the compiler takes.
        NoBuckets, MeshError: The buckets, or the mesh, do not fit the model.
    """
    with recorder.stage("lower") as running:
        made: dict[tuple[Backend, Ruleset], Lowered] = {}
        lowered: dict[ModuleKey, Lowered] = {}
        for module, rules in request.modules.items():
            # One module serves all of IREE's devices where they follow the same rules.
            backend: Backend = "xla" if module == "xla" else "iree"
            if (backend, rules) not in made:
                made[backend, rules] = _lower(backend, model, legal[rules], request)
            lowered[module] = made[backend, rules]
        running.size_bytes = sum(len(each.module) for each in lowered.values())
        return lowered


def _lower(backend: Backend, model: Canonical, legal: Legal, request: Request) -> Lowered:
    match backend:
        case "iree":
            return lower_for_iree(legal)
        case "xla":
            from aotpipe.backends.xla import lowering
            from aotpipe.validate.reference import example_sizes

            signatures = {entry.name: entry.signature for entry in legal.entries}
            return lowering.lower(
                legal,
                request.buckets,
                examples=example_sizes(model, signatures),
                mesh=request.mesh,
                rules=request.rules,
            )
        case _:
            assert_never(backend)


def lower_for_iree(legal: Legal) -> Lowered:
    """Lower a model for IREE, from the dialect that it is legal in.

    Raises:
        LowerFailed, UnsupportedOps: It has no form that the compiler takes.
    """
    match legal.dialect:
        case "torch":
            from aotpipe.backends.iree.lower import importer

            return importer.lower(legal)
        case "stablehlo":
            from aotpipe.backends.iree.lower import stablehlo

            return stablehlo.lower(legal)
        case _:
            assert_never(legal.dialect)


def planned_sizes(legal: Legal, request: Request) -> tuple[Finding, ...]:
    """The sizes that were planned for XLA's programs.

    Raises:
        NoBuckets: They do not fit the Dim.
    """
    from aotpipe.backends.xla.lowering import ladders
    from aotpipe.runtime.xla import buckets

    signatures = {entry.name: entry.signature for entry in legal.entries}
    found = ladders(signatures, request.buckets)
    symbols = {symbol.name: symbol for signature in signatures.values() for symbol in signature.symbols}
    return tuple(
        Finding(severity="note", code="bucket-plan", message=buckets.described(symbols[name], ladder))
        for name, ladder in found.items()
        if ladder.planned
    )


def island_finding(island: Island) -> Finding:
    """What is told of a part that stays Python."""
    return Finding(
        severity="note",
        code="eager-island",
        message=f"`{island.name}` stays Python: {island.reason}",
        where=island.where,
    )


def cut(legals: Mapping[Ruleset, Legal]) -> tuple[Parts | None, dict[Ruleset, Legal]]:
    """Cut a model at its islands; there are no parts where it has none.

    Raises:
        UnsupportedOps: It is nothing but islands.
    """
    from aotpipe.backends import legalization
    from aotpipe.islands.cut import cut
    from aotpipe.passes.unsupported import refusal

    [(name, legal)] = legals.items()
    rules = legalization(name)
    found = cut(legal, lambda node: refusal(node, rules))
    if not found.parts.islands:
        return None, dict(legals)
    return found.parts, {name: found.legal}


def _joined(legals: Mapping[Ruleset, Legal]) -> dict[Ruleset, Legal]:
    """The same model by several sets of rules over one set of weights.

    A value that was computed at build time may be another one under the same name: it gets one of its own.

    Raises:
        LowerFailed: They are not the same model.
    """
    first, *others = legals.items()
    weights = dict(first[1].weights)
    result = dict([first])
    for name, legal in others:
        names = {
            key: key if key not in weights or _is_same(weights[key], tensor) else f"{name}.{key}"
            for key, tensor in legal.weights.items()
        }
        entries = tuple(
            replace(entry, weights=tuple(names[key] for key in entry.weights)) for entry in legal.entries
        )
        for entry, other in zip(entries, first[1].entries, strict=True):
            if entry.signature != other.signature:
                raise LowerFailed(f"the programs for {first[0]} and {name} disagree on {entry.name!r}")
        renamed = {names[key]: tensor for key, tensor in legal.weights.items()}
        weights.update(renamed)
        result[name] = replace(legal, entries=entries, weights=renamed)
    return result


def _is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left is right or left.data_ptr() == right.data_ptr() != 0:
        return left.dtype == right.dtype and left.shape == right.shape
    return left.dtype == right.dtype and left.shape == right.shape and bool((left == right).all())


def reference(
    model: Canonical,
    legal: Legal,
    recorder: Recorder,
    request: Request,
    calls: Sequence[Call] | None = None,
) -> Reference:
    """Run eager on the calls that programs are judged on, and tell what was found on the way.

    Args:
        model: The model.
        legal: What the programs are made of.
        recorder: Told of the stage.
        request: Its buckets are tried at their edges; its precision is the programs'.
        calls: These in place of planned ones.

    Raises:
        SpecInvalid: The model raises on its own example inputs.
    """
    with recorder.stage("reference"):
        from aotpipe.validate.eager.eager import EagerFailed
        from aotpipe.validate.reference import reference

        try:
            found = reference(
                model, legal, _bucket_edges(legal, request), calls=calls, policy=request.precision
            )
        except EagerFailed as error:
            raise SpecInvalid(
                f"the model {legal.name!r} raises on its own example inputs",
                reason=str(error),
                hint="give example inputs that the model takes",
            ) from error
    for finding in found.findings:
        recorder.found(finding)
    return found


def _bucket_edges(legal: Legal, request: Request) -> dict[str, list[int]]:
    """The sizes at which programs with buckets may differ from each other."""
    if not request.buckets:
        return {}
    from aotpipe.backends.xla.lowering import ladders

    signatures = {entry.name: entry.signature for entry in legal.entries}
    least = {symbol.name: symbol.min for each in signatures.values() for symbol in each.symbols}
    return {name: ladder.edges(least[name]) for name, ladder in ladders(signatures, request.buckets).items()}
