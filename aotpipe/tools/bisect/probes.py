"""The values inside of an entry point's legal graph: what they must be, and programs that give them.

A `Probes` is made for one recorded call. The reference of a value is that of a build: the graph is run by
torch in the model's dtypes and in float64, and a program may be some times as far from float64 as torch is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import fx

from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.core.dtypes import Array
from aotpipe.core.signature import DTYPES
from aotpipe.core.stages import Legal, LegalEntry
from aotpipe.islands.cut import Names
from aotpipe.model.torch_arrays import from_numpy, view_numpy
from aotpipe.passes import hops
from aotpipe.passes.extract import dependencies, extract, needs
from aotpipe.passes.source_lines import nearest_line
from aotpipe.runtime.goldens import Golden
from aotpipe.tools.bisect.fault import GraphValue
from aotpipe.validate.eager.modes import CannotWiden, widen, widened
from aotpipe.validate.inputs import Call
from aotpipe.validate.reference import golden_of

_STATE = "state."
Tensors = Mapping[fx.Node, torch.Tensor]
_Operands = tuple[Tensors, Tensors | None]
"""A call's operands by placeholder: in the model's dtypes, and in float64 where that can be."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A program that gives some values, and the call with its answers."""

    legal: Legal
    golden: Golden


class Probes:
    """Of one call, which is the last of a sequence from a reset.

    What comes before the last is run for the state that it leaves.
    """

    def __init__(self, legal: Legal, sequence: Sequence[Golden]) -> None:
        self._legal = legal
        self._entry = next(each for each in legal.entries if each.name == sequence[-1].entry_point)
        self._call = sequence[-1]
        in_float64 = _or_none(lambda: _walk(legal, sequence, wide=True))
        self._operands: _Operands = (_walk(legal, sequence, wide=False), in_float64)
        self._placeholders = hops.placeholders(self._entry.graph)
        self._weights = dict(zip(self._placeholders, self._entry.weights, strict=False))
        self._nodes = {node.name: node for node in self._entry.graph.graph.nodes if _is_value(node)}

    @property
    def order(self) -> tuple[str, ...]:
        """The values by name, each after what it is computed from."""
        return tuple(self._nodes)

    @property
    def parents(self) -> dict[str, list[str]]:
        """What each value is computed from: other values, through tuples and sizes."""
        found = {}
        for name, node in self._nodes.items():
            between = dependencies(node.all_input_nodes, lambda used: not _is_value(used))
            inputs = {used for each in (node, *between) for used in each.all_input_nodes}
            found[name] = sorted(used.name for used in inputs if _is_value(used))
        return found

    def value_of(self, output: str) -> str | None:
        """The value that an output is; None where it is an input or a weight as it came."""
        signature = self._entry.signature
        names = [spec.name for spec in signature.tensor_outputs]
        node = hops.output_values(self._entry.graph)[names.index(output)]
        return node.name if node.name in self._nodes else None

    def place(self, name: str) -> GraphValue:
        """A value with the op that computes it and the user's line."""
        node = self._nodes[name]
        return GraphValue(name, str(_call_of(node).target), nearest_line(node))

    def program(self, names: Sequence[str]) -> Probe:
        """A program of the whole graph up to some values, which it gives."""
        nodes = [self._nodes[name] for name in names]
        used = dependencies(nodes)
        return self._probe(nodes, [node for node in self._placeholders if node in used], self._operands)

    def alone(self, name: str) -> Probe:
        """A program of one op, on what torch computes for it."""
        node = self._nodes[name]
        call = _call_of(node)
        taken = needs([call] if call is node else [call, node])
        plain = _run(self._entry.graph, self._operands[0], taken, wide=False)
        # The op is judged on these operands: no more exact ones are known.
        wide = {key: widened(each) for key, each in plain.items()}
        return self._probe([node], taken, (plain, wide))

    def _probe(self, nodes: Sequence[fx.Node], taken: Sequence[fx.Node], operands: _Operands) -> Probe:
        names = Names(self._entry)
        state = (replace(spec, name=_STATE + spec.name) for spec in self._entry.signature.state)
        specs = (*state, *self._entry.signature.tensor_inputs)
        own = dict(zip(self._placeholders[len(self._weights) :], specs, strict=True))
        weights = [node for node in taken if node in self._weights]
        varying = [node for node in taken if node not in self._weights]
        inputs = [own.get(node) or names.spec(node.name, node.meta["val"]) for node in varying]
        outputs = [names.spec(node.name, node.meta["val"]) for node in nodes]
        entry = LegalEntry(
            name=self._entry.name,
            graph=extract(self._entry.graph, [*weights, *varying], nodes),
            weights=tuple(self._weights[node] for node in weights),
            signature=names.signature(inputs, outputs),
            range_constraints=self._entry.range_constraints,
        )
        given, in_float64 = operands
        plain = _run(self._entry.graph, given, nodes, wide=False)
        wide = None
        if in_float64 is not None:
            wide = _or_none(lambda: _run(self._entry.graph, in_float64, nodes, wide=True))
        call = Call(
            entry_point=entry.name,
            case=self._call.case,
            reset=True,
            inputs={spec.name: view_numpy(given[node]) for spec, node in zip(inputs, varying, strict=True)},
        )
        golden = golden_of(call, _named(plain), None if wide is None else _named(wide), entry.signature)
        legal = replace(
            self._legal,
            entries=(entry,),
            weights={key: self._legal.weights[key] for key in entry.weights},
            initial_state={},
        )
        return Probe(legal, golden)


def _or_none(run: Callable[[], Tensors]) -> Tensors | None:
    """What a run in float64 gives; None where an op has no form in float64."""
    try:
        return run()
    except (CannotWiden, RuntimeError, TypeError):
        return None


def _walk(legal: Legal, sequence: Sequence[Golden], *, wide: bool) -> Tensors:
    form = widened if wide else (lambda tensor: tensor)
    entries = {entry.name: entry for entry in legal.entries}
    state = {name: form(tensor) for name, tensor in legal.initial_state.items()}
    operands: dict[fx.Node, torch.Tensor] = {}
    for number, call in enumerate(sequence, 1):
        entry = entries[call.entry_point]
        signature = entry.signature
        given = [
            *(form(legal.weights[key]) for key in entry.weights),
            *(state[spec.name] for spec in signature.state),
            *(form(from_numpy(call.inputs[spec.name])) for spec in signature.tensor_inputs),
        ]
        operands = dict(zip(hops.placeholders(entry.graph), given, strict=True))
        if number == len(sequence):
            break
        outputs = len(signature.tensor_outputs)
        after = hops.output_values(entry.graph)[outputs : outputs + len(signature.state)]
        found = _run(entry.graph, operands, after, wide=wide)
        state |= {spec.name: found[node].clone() for spec, node in zip(signature.state, after, strict=True)}
    return operands


def _run(owner: fx.GraphModule, operands: Tensors, wanted: Sequence[fx.Node], *, wide: bool) -> Tensors:
    """The values of some nodes, by torch, from those of others."""
    module = extract(owner, list(operands), wanted)
    with torch.no_grad(), uncompiled(), widen() if wide else nullcontext():
        results = fx.Interpreter(module).run(*operands.values())
    return dict(zip(wanted, results, strict=True))


def _named(values: Tensors) -> dict[str, Array]:
    return {node.name: view_numpy(tensor) for node, tensor in values.items()}


def _is_value(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return (
        node.op == "call_function"
        and isinstance(value, torch.Tensor)
        and str(value.dtype).removeprefix("torch.") in DTYPES
    )


def _call_of(node: fx.Node) -> fx.Node:
    """The op of a value: of a part of a tuple, what gives the tuple."""
    whole = node.all_input_nodes[0] if node.all_input_nodes else node
    return whole if isinstance(whole.meta.get("val"), list | tuple) else node
