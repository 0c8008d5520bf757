"""From a Spec to a model that torch.export can take: built once, in eval mode, inputs and outputs named.

Takes a `Spec`, gives a `Canonical`. Raises `ModelImportFailed` when the build raises, `TrainMode`, and
`SpecInvalid` when the Spec contradicts itself or the model. Classes of nested inputs and outputs become known
to torch on the way; the model itself is left as it was.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from aotpipe.canonicalize import example_call, modules, own_generator, specialization
from aotpipe.canonicalize.inputs import dynamic_shapes, flat_module, pytrees
from aotpipe.canonicalize.state import discovery
from aotpipe.canonicalize.values import tensor_subclasses
from aotpipe.core.stages import Canonical, CanonicalEntry, Finding
from aotpipe.errors import AotpipeError, ModelImportFailed, SpecInvalid
from aotpipe.model import source, torch_arrays
from aotpipe.model.object_graph import Root
from aotpipe.model.spec import EntryPoint, Spec


def canonicalize(spec: Spec) -> Canonical:
    """Build the model and name what goes in and out of each entry point.

    Raises:
        ExportFailed: The model keeps or changes what no program can (see `discovery.telling`).
        ModelImportFailed: The build raised.
        SpecInvalid: The Spec contradicts itself, the model's method, or the example inputs.
        TrainMode: The model computes something else in eval mode.
    """
    model = _build(spec)
    tensor_subclasses.require_own_elements(model)
    findings = modules.check_eval_mode(model, may_draw=spec.random is not None)
    entries = []
    roots: list[Root] = []
    outside = discovery.Untouched(model)
    for name, given in spec.entry_points.items():
        entry = own_generator.seeded(given, spec.seed) if spec.random == "input" else given
        canonical, changed, found = _entry(model, name, entry)
        entries.append(canonical)
        roots += changed
        findings += found
    for index, canonical in enumerate(entries):
        errors = outside.refusals(canonical)
        for error in errors:
            discovery.refuse(error)
        entries[index] = replace(canonical, refused=frozenset(error.message for error in errors))
    if roots:
        state, found = discovery.find(model, entries, roots)
        entries = [replace(entry, state=state) for entry in entries]
        findings += found
    return Canonical(spec=spec, model=model, entries=tuple(entries), findings=tuple(findings))


def _build(spec: Spec) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        try:
            model = spec.build()
        except AotpipeError:
            raise
        except Exception as error:
            raise ModelImportFailed(
                f"building {spec.name!r} raised {type(error).__name__}",
                reason=str(error),
                hint="call the build function in plain Python until it works",
                where=source.from_exception(error) or source.of_definition(spec.build),
            ) from error
    if not callable(model):
        raise SpecInvalid(
            f"build gave a {type(model).__name__}, not a model",
            hint="return an nn.Module or a function of tensors",
            where=source.of_definition(spec.build),
        )
    made = modules.as_module(model)
    scripted = [path for path, part in made.named_modules() if isinstance(part, torch.jit.ScriptModule)]
    if scripted:
        raise SpecInvalid(
            f"TorchScript is no Python that can be traced: {scripted[0] or spec.name}",
            hint="give the nn.Module that was scripted, with the weights of the scripted one "
            "(load_state_dict(scripted.state_dict()))",
            where=source.of_definition(spec.build),
        )
    if spec.random is None:
        return made
    methods = {entry.method for entry in spec.entry_points.values()}
    return own_generator.drawing(made, methods, spec.random, spec.seed)


def _entry(
    model: nn.Module, name: str, entry: EntryPoint
) -> tuple[CanonicalEntry, list[Root], list[Finding]]:
    call = getattr(modules.entry_module(model, entry.method), "forward")  # noqa: B009 set on the class at run time
    pytrees.check_call(call, entry.args, entry.kwargs, entry.method)
    pytrees.register((entry.args, dict(entry.kwargs)))
    if entry.examples or entry.optional or entry.tensorize:
        found = flat_module.entry(model, name, entry)
        if found is not None:
            canonical, changed, refused = found
            _check_value_ranges(entry, canonical.entry.args[0])
            return canonical, changed, [*specialization.findings(canonical), *refused]
    count = len(entry.args)
    entry, bound = _without_foreign(entry, call)
    positional = pytrees.positional_names(call, count)
    bound_names = {".".join(positional[k]) if isinstance(k, int) else k: v for k, v in bound.items()}
    module = modules.entry_module(model, entry.method, bound)
    leaves = pytrees.input_leaves(module.forward, entry.args, entry.kwargs)
    input_names = pytrees.unique(".".join(path) for path, _ in leaves)
    dims = dynamic_shapes.resolve(entry, leaves, input_names)
    if dims:
        module = modules.entry_module(model, entry.method, bound, entry.kwargs)
    constants: dict[str, object] = {
        input_name: leaf
        for (_, leaf), input_name in zip(leaves, input_names, strict=True)
        if not isinstance(leaf, torch.Tensor) and input_name not in dims
    } | bound_names
    _check_value_ranges(entry, dict(zip(input_names, (leaf for _, leaf in leaves), strict=True)))
    called = f"{type(model).__name__}.{entry.method}"
    result, changed = example_call.observed(module, entry.args, entry.kwargs, called)
    pytrees.check_outputs(result, call)
    canonical = CanonicalEntry(
        name=name,
        entry=entry,
        module=module,
        input_names=input_names,
        constants=constants,
        output_names=pytrees.output_names(result),
        dims=dims,
    )
    return canonical, changed, list(specialization.findings(canonical))


def _without_foreign(entry: EntryPoint, call: Callable[..., Any]) -> tuple[EntryPoint, dict[int | str, Any]]:
    """Take out whole arguments that torch.export cannot take (a dtype, a config): they are bound instead."""
    bound: dict[int | str, Any] = {}
    arguments: list[tuple[int | str, Any]] = [*enumerate(entry.args), *entry.kwargs.items()]
    for key, value in arguments:
        foreign = pytrees.unsupported(value)
        if not foreign:
            continue
        if any(isinstance(leaf, torch.Tensor) for _, leaf in pytrees.leaves(value)):
            path, leaf = foreign[0]
            raise SpecInvalid(
                f"the input {key}.{pytrees.dotted(path)} is a {type(leaf).__name__}",
                hint="pass it as an argument of its own, or make it part of the model",
                where=source.of_definition(call),
            )
        bound[key] = value
    if not bound:
        return entry, bound
    args = tuple(value for index, value in enumerate(entry.args) if index not in bound)
    kwargs = {key: value for key, value in entry.kwargs.items() if key not in bound}
    return replace(entry, args=args, kwargs=kwargs), bound


def _check_value_ranges(entry: EntryPoint, inputs: Mapping[str, object]) -> None:
    tensors = {name: leaf for name, leaf in inputs.items() if isinstance(leaf, torch.Tensor)}
    for name, (low, high) in entry.value_ranges.items():
        leaf = tensors.get(name)
        if leaf is None:
            close = difflib.get_close_matches(name, list(tensors), n=1, cutoff=0.5)
            raise SpecInvalid(
                f"value_ranges names {name!r}, which is no tensor input",
                hint=f"did you mean {close[0]!r}?" if close else f"the inputs are {', '.join(tensors)}",
            )
        if leaf.is_complex() or leaf.dtype is torch.bool:
            raise SpecInvalid(f"value_ranges gives {name!r} a range, but it is {leaf.dtype}")
        least, greatest = torch_arrays.extremes(leaf) if leaf.numel() else (low, high)
        if not (low <= least and greatest <= high):
            raise SpecInvalid(
                f"the example {name!r} holds values from {least} to {greatest}, "
                f"outside its range {low}..{high}",
                hint="give another example or another range",
            )
