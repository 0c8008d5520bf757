"""An entry point whose calls differ in what they have: the module of the one form, and what it gives.

`entry(model, name, entry)` unites the examples, runs the model on each combination of what may be there,
and gives a `CanonicalEntry` over the flat form; None where every call has everything and no number varies.
Raises `SpecInvalid` where an example does not fit, and where the model raises on one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import nn

from aotpipe.canonicalize import example_call, modules
from aotpipe.canonicalize.inputs import dynamic_shapes, flat_module, pytrees
from aotpipe.canonicalize.inputs.structure import Structure, unite
from aotpipe.core.stages import CanonicalEntry, Finding
from aotpipe.errors import SpecInvalid
from aotpipe.model import source
from aotpipe.model.object_graph import Root
from aotpipe.model.spec import EntryPoint
from aotpipe.runtime.call_structure import presence_cases

MOST_CASES: Final = 16
"""The most combinations of flags that are all tried; of more flags the telling ones are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapted:
    """What `entry` finds."""

    canonical: CanonicalEntry
    leaves: list[dynamic_shapes.Leaf]
    changed: list[Root]
    findings: list[Finding]


def entry(model: nn.Module, name: str, given: EntryPoint) -> Adapted | None:
    """The entry point in one form for all its calls."""
    # The very method: what a view of the model holds would be the form itself, while that is traced.
    call = getattr(model, given.method)
    for example in given.examples:
        pytrees.check_call(call, example.args, example.kwargs, given.method)
        pytrees.register((example.args, example.kwargs))
    calls = [(given.args, given.kwargs), *((each.args, each.kwargs) for each in given.examples)]
    structure = unite(call, model, calls, given.optional, given.tensorize)
    if structure.is_plain:
        return None
    flat_module.require_unhooked(model)
    inputs = structure.example()
    leaves: list[dynamic_shapes.Leaf] = [
        (leaf.path, leaf.value) for leaf in structure.leaves if leaf.kind == "tensor"
    ]
    tensors = [leaf.name for leaf in structure.leaves if leaf.kind == "tensor"]
    dims = dynamic_shapes.resolve(given, leaves, tensors)
    made = flat_module.Adapter(structure, calls[0])
    module = modules.view_of(model, made.forward())
    results, changed, findings = _results(module, structure, f"{type(model).__name__}.{given.method}", name)
    for result in results:
        pytrees.register(result)
        pytrees.check_outputs(result, call)
    made.outputs = flat_module.Outputs.of(results)
    canonical = CanonicalEntry(
        name=name,
        entry=replace(given, args=(inputs,), kwargs={}, examples=(), optional=(), tensorize=()),
        module=module,
        input_names=tuple(inputs),
        constants=structure.constants,
        output_names=made.outputs.all_names,
        dims=dims,
        adapter=made,
    )
    named: list[dynamic_shapes.Leaf] = [((each,), value) for each, value in inputs.items()]
    return Adapted(canonical=canonical, leaves=named, changed=changed, findings=findings)


def cases(structure: Structure) -> Iterator[dict[str, torch.Tensor]]:
    """The example with each combination of flags."""
    example = structure.example()
    for case in presence_cases(structure.presences(), MOST_CASES):
        yield {**example, **{flag: torch.tensor(there) for flag, there in case.items()}}


def _results(
    module: nn.Module, structure: Structure, called: str, name: str
) -> tuple[list[Any], list[Root], list[Finding]]:
    """What the model gives to each combination, and what it was seen to change."""
    results: list[Any] = []
    changed: dict[tuple[int, str], Root] = {}
    refused: list[str] = []
    for number, inputs in enumerate(cases(structure)):
        try:
            result, roots = example_call.observed(module, (inputs,), {}, called)
        except SpecInvalid as error:
            if number == 0:
                raise
            refused.append(f"without {_lacking(structure, inputs)}: {type(error.__cause__).__name__}")
            continue
        results.append(result)
        changed |= {root.identity: root for root in roots}
    findings = [
        Finding(
            severity="note",
            code="call-refused",
            message=f"the model raises {why}; the program refuses such a call too",
            where=source.of_definition(structure.call),
            entry_point=name,
        )
        for why in refused
    ]
    return results, list(changed.values()), findings


def _lacking(structure: Structure, inputs: dict[str, torch.Tensor]) -> str:
    return ", ".join(part.name for part in structure.parts if not inputs[part.flag])
