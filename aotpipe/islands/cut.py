"""Cuts a legal program at its islands: the parts between them become entry points of their own.

`cut(legal)` gives a `Cut`: a Legal whose entries are the segments, and a Chain for each entry point that says
in which order they and the islands run. An island is a marked function, or an op without a lowering. State
is a value of the chain, and no segment has any.

Raises:
    UnsupportedOps: An island lies within a branch or a loop of the graph, or gives what cannot pass between.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch import fx

from aotpipe.core.signature import DTYPES, Dim, Signature, TensorSpec, dim_symbols
from aotpipe.core.stages import Legal, LegalEntry
from aotpipe.errors import UnsupportedOps
from aotpipe.export.symbols import SymbolNames
from aotpipe.islands import sites
from aotpipe.islands.tracing import OP
from aotpipe.passes import hops, scalars
from aotpipe.passes.emit import Emitter
from aotpipe.passes.extract import extract, is_number, needs
from aotpipe.passes.source_lines import nearest_line
from aotpipe.runtime.islands.chain import Chain, Island, Kind, Parts, Segment, Step, pack

Refusal = Callable[[fx.Node], str]


@dataclass(frozen=True, slots=True)
class Cut:
    """A model in parts, and the Legal that holds its segments."""

    legal: Legal
    parts: Parts


def cut(legal: Legal, refusal: Refusal) -> Cut:
    """Cut every entry point.

    `refusal` says why an op has no lowering; it is empty where it has one.

    Raises:
        UnsupportedOps: Nothing is left for a program, or an island cannot be cut out.
    """
    cutters = {entry.name: _Cutter(entry, refusal) for entry in legal.entries}
    segments = [segment for cutter in cutters.values() for segment in cutter.segments]
    if not segments:
        raise UnsupportedOps(
            f"{legal.name} is nothing but islands, and nothing is left for a program", hint="call it as it is"
        )
    used = dict.fromkeys(key for segment in segments for key in segment.weights)
    weights = {key: legal.weights[key] for key in used}
    return Cut(
        legal=replace(legal, entries=tuple(segments), weights=weights, initial_state={}),
        parts=Parts(
            signatures={segment.name: segment.signature for segment in segments},
            asserts={segment.name: segment.asserts for segment in segments},
            chains={name: cutter.chain for name, cutter in cutters.items()},
        ),
    )


class _Cutter:
    def __init__(self, entry: LegalEntry, refusal: Refusal) -> None:
        self._entry = entry
        self._refusal = refusal
        self._graph = entry.graph.graph
        self._names = Names(entry)
        self.segments: list[LegalEntry] = []
        self._require_top_level()
        placeholders = hops.placeholders(entry.graph)
        count, states = len(entry.weights), len(entry.signature.state)
        self._weights = dict(zip(placeholders[:count], entry.weights, strict=True))
        self._states = placeholders[count : count + states]
        self._inputs = placeholders[count + states :]
        self._islands = {node: self._island(node) for node in list(self._graph.nodes) if self._reason(node)}
        self._part_of: dict[fx.Node, int] = {}
        self._parts = self._divide()
        self.chain = self._chain()

    def _reason(self, node: fx.Node) -> str:
        if node.op != "call_function":
            return ""
        if node.target is OP:
            return _site(node).mark.reason
        return self._refusal(node)

    def _require_top_level(self) -> None:
        for module in hops.walk(self._entry.graph):
            for node in module.graph.nodes if module is not self._entry.graph else ():
                if reason := self._reason(node):
                    raise UnsupportedOps(
                        f"{_name(node)} is called within a branch or a loop, where no program can be cut",
                        reason=reason,
                        hint="call it before or after, on both paths, and choose by torch.where",
                        where=nearest_line(node),
                    )

    def _island(self, node: fx.Node) -> tuple[Island, tuple[fx.Node, ...]]:
        if node.target is OP:
            site = _site(node)
            name, arguments, objects = site.mark.name, site.arguments, site.objects
            assert site.result is not None
            result = site.result
            taken: Sequence[Any] = node.args[0]  # type: ignore[assignment]  # as the op's schema has it
        else:
            packed = pack([list(node.args), dict(node.kwargs)], _kind)
            name, arguments, objects = str(node.target), packed.template, tuple(packed.objects)
            result = pack(node.meta["val"], sites.kind_of).template
            emit = Emitter(self._entry.graph, node)
            taken = [
                leaf if kind == "tensor" else scalars.as_tensor(emit, leaf)
                for leaf, kind in zip(packed.leaves, packed.kinds, strict=True)
            ]
        if objects:
            raise UnsupportedOps(
                f"{name} takes a {type(objects[0]).__name__}, which is neither a tensor nor a plain value",
                hint="mark a function that takes tensors, numbers and texts",
                where=nearest_line(node),
            )
        island = Island(
            name=name,
            kind="function" if node.target is OP else "op",
            where=nearest_line(node),
            reason=self._reason(node),
            arrays=_site(node).mark.arrays if node.target is OP else "torch",
            arguments=arguments,
            result=result,
            inputs=tuple(self._value(each) for each in taken),
            outputs=tuple(self._names.spec(given, value) for given, value in _given(node)),
        )
        away = next((spec for spec in island.outputs if spec.dtype not in DTYPES), None)
        if away is not None:
            raise UnsupportedOps(
                f"{island.name} gives {away.dtype}, which no target has",
                hint="cast it within the island",
                where=nearest_line(node),
            )
        return island, tuple(taken)

    def _value(self, node: fx.Node) -> str:
        match node.args:
            case (fx.Node() as whole, part) if node.target is operator.getitem and self._reason(whole):
                return f"{whole.name}.{part}"
        return node.name

    def _divide(self) -> list[list[fx.Node]]:
        """Give each node that computes to the part between the islands before and after it."""
        parts: list[list[fx.Node]] = [[]]
        for node in self._graph.nodes:
            if node in self._islands:
                parts.append([])
            elif node.op == "call_function" and not is_number(node):
                # A part of a result stays beside the whole: no value of a chain is a tuple.
                whole = node.args[0] if node.target is operator.getitem else node
                if whole in self._islands:
                    continue
                place = self._part_of.get(whole, len(parts) - 1)
                self._part_of[node] = place
                parts[place].append(node)
        return parts

    def _chain(self) -> Chain:
        results: Any = self._entry.graph.graph.output_node().args[0]
        assert isinstance(results, tuple)
        signature = self._entry.signature
        outputs, states = len(signature.tensor_outputs), len(signature.state)
        checks = results[outputs + states :]
        wanted = self._wanted(results)
        steps: list[Step] = []
        calls = iter(island for island, _ in self._islands.values())
        for place, part in enumerate(self._parts):
            if place:
                steps.append(next(calls))
            asserts = {
                node: message
                for node, message in zip(checks, self._entry.asserts, strict=True)
                if self._part_of.get(node) == place
            }
            given = [node for node in part if node in wanted]
            if given or asserts:
                steps.append(self._segment(part, given, asserts))
        if len(self._entry.asserts) != sum(len(segment.asserts) for segment in self.segments):
            raise UnsupportedOps(f"an assert of {self._entry.name} is on what an island gives")
        return Chain(
            steps=tuple(steps),
            inputs={
                spec.name: node.name for spec, node in zip(signature.tensor_inputs, self._inputs, strict=True)
            },
            outputs={
                spec.name: self._value(node)
                for spec, node in zip(signature.tensor_outputs, results[:outputs], strict=True)
            },
            state={
                spec.name: (node.name, self._value(after))
                for spec, node, after in zip(
                    signature.state, self._states, results[outputs : outputs + states], strict=True
                )
            },
        )

    def _wanted(self, results: Sequence[Any]) -> set[fx.Node]:
        """The nodes whose values leave their part."""
        found = set(results[: len(results) - len(self._entry.asserts)])
        for part in self._parts:
            found.update(needs(part))
        for _, taken in self._islands.values():
            found |= set(taken)
        return found

    def _segment(
        self, part: Sequence[fx.Node], given: Sequence[fx.Node], asserts: Mapping[fx.Node, str]
    ) -> Segment:
        name = f"{self._entry.name}_{len(self.segments)}"
        needed = needs(part)
        weights = {node: self._weights[node] for node in needed if node in self._weights}
        taken = [node for node in needed if node not in self._weights]
        module = extract(self._entry.graph, [*weights, *taken], [*given, *asserts], part)
        inputs = [self._names.spec(self._value(node), node.meta["val"]) for node in taken]
        outputs = [self._names.spec(self._value(node), node.meta["val"]) for node in given]
        self.segments.append(
            LegalEntry(
                name=name,
                graph=module,
                weights=tuple(weights.values()),
                signature=self._names.signature(inputs, outputs),
                range_constraints=self._entry.range_constraints,
                asserts=tuple(asserts.values()),
            )
        )
        return Segment(
            entry_point=name,
            inputs=tuple(spec.name for spec in inputs),
            outputs=tuple(spec.name for spec in outputs),
        )


def _site(node: fx.Node) -> sites.Site:
    return sites.SITES[str(node.args[1])]


def _name(node: fx.Node) -> str:
    return _site(node).mark.name if node.target is OP else str(node.target)


def _kind(leaf: Any) -> Kind | None:
    if not isinstance(leaf, fx.Node):
        return None
    return sites.kind_of(leaf.meta["val"]) or "int"  # of a truth value


def _given(node: fx.Node) -> list[tuple[str, torch.Tensor]]:
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return [(node.name, value)]
    return [(f"{node.name}.{index}", each) for index, each in enumerate(value)]


class Names:
    """The names of the sizes of one entry point's values.

    A size that the entry point's signature names keeps that name; what else varies gets one of its own.
    """

    def __init__(self, entry: LegalEntry) -> None:
        self._symbols = SymbolNames(entry.range_constraints)
        self._symbols.known |= {symbol.name: symbol for symbol in entry.signature.symbols}
        specs = entry.signature.tensor_inputs
        placeholders = hops.placeholders(entry.graph)
        for spec, node in zip(specs, placeholders[len(placeholders) - len(specs) :], strict=True):
            shape: Sequence[Any] = node.meta["val"].shape
            for dim, size in zip(spec.dims, shape, strict=True):
                # Only a size that is a symbol on both sides says which it is.
                if isinstance(size, torch.SymInt) and dim in self._symbols.known and size.node.expr.is_Symbol:
                    self._symbols.replaced[size.node.expr] = sympy.Symbol(str(dim), integer=True)

    def spec(self, name: str, value: torch.Tensor) -> TensorSpec:
        """Describe a value by a tensor spec."""
        return self._symbols.spec(name, value)

    def signature(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Signature:
        """A segment's: a size that follows from others counts only where these are among its inputs."""
        known, declare = self._symbols.known, self._symbols.declare
        alone = {dim for spec in inputs for dim in spec.dims if dim in known}
        free: dict[Dim, str] = {}

        def own(spec: TensorSpec) -> TensorSpec:
            dims: list[Dim] = []
            for dim in spec.dims:
                if isinstance(dim, str) and not dim_symbols(dim) <= alone:
                    name = self._symbols.free(f"{spec.name}_{len(dims)}")
                    dim = free.setdefault(dim, str(declare(name, 0, None)))
                dims.append(dim)
            return TensorSpec(spec.name, spec.dtype, tuple(dims), spec.value_range)

        taken, given = tuple(map(own, inputs)), tuple(map(own, outputs))
        used = {name for spec in (*taken, *given) for dim in spec.dims for name in dim_symbols(dim)}
        return Signature(
            inputs=taken,
            outputs=given,
            symbols=tuple(symbol for name, symbol in known.items() if name in used),
        )
