"""The values inside of an entry point's legal graph: what they must be, and programs that give them.

A `Probes` is made for one recorded call. The reference of a value is that of a build: the graph is run by
torch in the model's dtypes and in float64, and a program may be some times as far from float64 as torch is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from aotpipe.canonicalize.eager_hops import uncompiled
from aotpipe.core.dtypes import Array
from aotpipe.core.signature import DTYPES
from aotpipe.core.stages import Legal, LegalEntry
from aotpipe.errors import SourceLine
from aotpipe.islands.cut import Names
from aotpipe.model.torch_arrays import from_numpy, view_numpy
from aotpipe.passes import hops
from aotpipe.passes.extract import extract, needs
from aotpipe.passes.source_lines import nearest_line
from aotpipe.runtime.goldens import Golden
from aotpipe.validate.eager.modes import CannotWiden, Widen, widened
from aotpipe.validate.inputs import Call
from aotpipe.validate.reference import golden_of

_STATE = "state."
Tensors = Mapping[fx.Node, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Probe:
    """A program that gives some values, and the call with its answers."""

    legal: Legal
    golden: Golden


@dataclass(frozen=True, slots=True)
class _Operands:
    """A call's operands by placeholder: in the model's dtypes, and in float64."""

    plain: Tensors
    wide: Tensors | None


class Probes:
    """Of one call, which is the last of a sequence from a reset.

    Args:
        legal: The model.
        sequence: The calls; what comes before the last is run for the state that it leaves.
    """

    def __init__(self, legal: Legal, sequence: Sequence[Golden]) -> None:
        self._legal = legal
        self._entry = next(each for each in legal.entries if each.name == sequence[-1].entry_point)
        self._call = sequence[-1]
        self._operands = _operands(legal, sequence)
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
        return {name: self._parents(node) for name, node in self._nodes.items()}

    def value_of(self, output: str) -> str | None:
        """The value that an output is; None where it is an input or a weight as it came."""
        signature = self._entry.signature
        names = [spec.name for spec in signature.tensor_outputs]
        results: Any = self._entry.graph.graph.output_node().args[0]
        node = results[names.index(output)]
        return node.name if node.name in self._nodes else None

    def op(self, name: str) -> str:
        """The op that computes a value."""
        return str(_call_of(self._nodes[name]).target)

    def line(self, name: str) -> SourceLine | None:
        """The user's line of a value."""
        return nearest_line(self._nodes[name])

    def program(self, names: Sequence[str]) -> Probe:
        """A program of the whole graph up to some values, which it gives."""
        nodes = [self._nodes[name] for name in names]
        return self._probe(nodes, self._used(nodes), self._operands)

    def alone(self, name: str) -> Probe:
        """A program of one op, on what torch computes for it."""
        node = self._nodes[name]
        call = _call_of(node)
        taken = needs([call] if call is node else [call, node])
        plain = _run(self._entry.graph, self._operands.plain, taken, wide=False)
        # What it is given is what it is given: no better one is known.
        return self._probe(
            [node], taken, _Operands(plain, {key: widened(each) for key, each in plain.items()})
        )

    def _parents(self, node: fx.Node) -> list[str]:
        found: dict[str, None] = {}
        waiting = list(node.all_input_nodes)
        seen = set(waiting)
        for used in waiting:
            if used.name in self._nodes:
                found[used.name] = None
                continue
            more = [each for each in used.all_input_nodes if each not in seen]
            seen.update(more)
            waiting += more
        return list(found)

    def _used(self, nodes: Sequence[fx.Node]) -> list[fx.Node]:
        """The placeholders that values are computed from."""
        seen = set(nodes)
        waiting = list(nodes)
        while waiting:
            more = [used for used in waiting.pop().all_input_nodes if used not in seen]
            seen.update(more)
            waiting += more
        return [node for node in self._placeholders if node in seen]

    def _probe(self, nodes: Sequence[fx.Node], taken: Sequence[fx.Node], operands: _Operands) -> Probe:
        entry = self._extracted(nodes, taken)
        plain = _run(self._entry.graph, operands.plain, nodes, wide=False)
        wide = None
        if operands.wide is not None:
            wide = _wide_or_none(self._entry.graph, operands.wide, nodes)
        call = Call(
            entry_point=entry.name,
            case=self._call.case,
            reset=True,
            inputs={
                spec.name: view_numpy(operands.plain[node])
                for spec, node in zip(entry.signature.tensor_inputs, self._varying(taken), strict=True)
            },
        )
        golden = golden_of(call, _named(plain), None if wide is None else _named(wide), entry.signature)
        weights = {key: self._legal.weights[key] for key in entry.weights}
        return Probe(
            replace(self._legal, entries=(entry,), weights=weights, initial_state={}),
            golden,
        )

    def _varying(self, taken: Sequence[fx.Node]) -> list[fx.Node]:
        return [node for node in taken if node not in self._weights]

    def _extracted(self, nodes: Sequence[fx.Node], taken: Sequence[fx.Node]) -> LegalEntry:
        names = Names(self._entry)
        signature = self._entry.signature
        own = dict(
            zip(
                self._placeholders[len(self._weights) :],
                (
                    *(replace(spec, name=_STATE + spec.name) for spec in signature.state),
                    *signature.tensor_inputs,
                ),
                strict=True,
            )
        )
        weights = [node for node in taken if node in self._weights]
        varying = self._varying(taken)
        inputs = [own.get(node) or names.spec(node.name, node.meta["val"]) for node in varying]
        outputs = [names.spec(node.name, node.meta["val"]) for node in nodes]
        return LegalEntry(
            name=self._entry.name,
            graph=extract(self._entry.graph, [*weights, *varying], nodes),
            weights=tuple(self._weights[node] for node in weights),
            signature=names.signature(inputs, outputs),
            range_constraints=self._entry.range_constraints,
        )


def _operands(legal: Legal, sequence: Sequence[Golden]) -> _Operands:
    """The operands of the last call, after those before it."""
    plain = _walk(legal, sequence, wide=False)
    try:
        return _Operands(plain, _walk(legal, sequence, wide=True))
    except (CannotWiden, RuntimeError, TypeError):
        return _Operands(plain, None)


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
        results: Any = entry.graph.graph.output_node().args[0]
        outputs = len(signature.tensor_outputs)
        after = results[outputs : outputs + len(signature.state)]
        found = _run(entry.graph, operands, after, wide=wide)
        state |= {spec.name: found[node].clone() for spec, node in zip(signature.state, after, strict=True)}
    return operands


class _Keeping(fx.Interpreter):
    """Runs a graph from some of its values, and keeps others."""

    def __init__(self, module: fx.GraphModule, wanted: Sequence[fx.Node]) -> None:
        super().__init__(module)
        self.wanted = set(wanted)
        self.kept: dict[fx.Node, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n in self.wanted:
            self.kept[n] = value
        return value


def _run(owner: fx.GraphModule, operands: Tensors, wanted: Sequence[fx.Node], *, wide: bool) -> Tensors:
    """The values of some nodes, by torch, from those of others."""
    taken = list(operands)
    module = extract(owner, taken, wanted)
    copies = dict(zip(wanted, module.graph.output_node().args[0], strict=True))  # type: ignore[arg-type]
    runner = _Keeping(module, list(copies.values()))
    with torch.no_grad(), uncompiled(), Widen() if wide else nullcontext():
        runner.run(*operands.values())
    return {node: runner.kept[copy] for node, copy in copies.items()}


def _wide_or_none(owner: fx.GraphModule, operands: Tensors, wanted: Sequence[fx.Node]) -> Tensors | None:
    try:
        return _run(owner, operands, wanted, wide=True)
    except (CannotWiden, RuntimeError, TypeError):
        return None


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
