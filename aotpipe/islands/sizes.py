"""The sizes of values between the steps of a chain, under one name each.

A size that the entry point's signature names keeps that name; what else varies gets one of its own. Gives
the specs of values, and the signature of a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from aotpipe.core.signature import Dim, Signature, Symbol, TensorSpec, dim_symbols
from aotpipe.core.stages import LegalEntry
from aotpipe.export import symbols
from aotpipe.passes import hops


class Names:
    """The names of one entry point's sizes."""

    def __init__(self, entry: LegalEntry) -> None:
        self._known = {symbol.name: symbol for symbol in entry.signature.symbols}
        self._ranges = entry.range_constraints
        self._names: dict[sympy.Symbol, str] = {}
        specs = entry.signature.tensor_inputs
        placeholders = hops.placeholders(entry.graph)
        for spec, node in zip(specs, placeholders[len(placeholders) - len(specs) :], strict=True):
            shape: Sequence[Any] = node.meta["val"].shape
            for dim, size in zip(spec.dims, shape, strict=True):
                # Only a size that is a symbol on both sides says which it is.
                if isinstance(size, torch.SymInt) and dim in self._known and size.node.expr.is_Symbol:
                    self._names[size.node.expr] = str(dim)

    def spec(self, name: str, value: torch.Tensor) -> TensorSpec:
        """Describe a value by a tensor spec."""
        dtype = str(value.dtype).removeprefix("torch.")
        shape: Sequence[Any] = value.shape
        return TensorSpec(name, dtype, tuple(self._dim(size, f"{name}_{n}") for n, size in enumerate(shape)))

    def _dim(self, size: Any, fallback: str) -> Dim:
        if not isinstance(size, torch.SymInt):
            return int(size)
        expr = size.node.expr
        for symbol in sorted(expr.free_symbols - self._names.keys(), key=str):
            self._names[symbol] = self._declare(str(symbol), self._ranges.get(symbol))
        try:
            return symbols.expression(expr, self._names)
        except symbols.Unprintable:
            return self._declare(fallback, None)

    def _declare(self, text: str, found: Any) -> str:
        name = symbols.identifier(text, self._known)
        low, high = (0, None) if found is None else symbols.bounds(found)
        self._known[name] = Symbol(name, low, high)
        return name

    def signature(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Signature:
        """A segment's: a size that follows from others counts only where these are among its inputs."""
        alone = {dim for spec in inputs for dim in spec.dims if dim in self._known}
        free: dict[Dim, str] = {}

        def own(spec: TensorSpec) -> TensorSpec:
            dims: list[Dim] = []
            for dim in spec.dims:
                if isinstance(dim, str) and not dim_symbols(dim) <= alone:
                    dim = free.setdefault(dim, self._declare(f"{spec.name}_{len(dims)}", None))
                dims.append(dim)
            return TensorSpec(spec.name, spec.dtype, tuple(dims), spec.value_range)

        taken, given = tuple(map(own, inputs)), tuple(map(own, outputs))
        used = {name for spec in (*taken, *given) for dim in spec.dims for name in dim_symbols(dim)}
        return Signature(
            inputs=taken,
            outputs=given,
            symbols=tuple(symbol for name, symbol in self._known.items() if name in used),
        )
