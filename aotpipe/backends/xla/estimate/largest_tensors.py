"""The largest tensors of a program: its arguments and what it computes on the way, with the user's lines.

`largest(entry, sizes)` explains a program that does not fit into a chip's memory: a compiler may never make
some of the tensors, and says nothing of lines. `arguments_bytes` is what no program can do without.
`remarks(entry)` says what a platform's compiler does at great cost.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import torch
from torch._ops import OpOverload
from torch.fx import Node

from aotpipe.backends.xla.values import Out, Sizes, UnknownSize
from aotpipe.core.stages import LegalEntry
from aotpipe.errors import Buffer
from aotpipe.passes import hops, ops
from aotpipe.passes.source_lines import nearest_line

SHOWN: Final = 8
_PRODUCTS: Final = ops.overloads("mm bmm mv dot addmm baddbmm addmv convolution")


def largest(entry: LegalEntry, sizes: Sizes) -> tuple[Buffer, ...]:
    """The largest tensors, the largest first."""
    found = heapq.nlargest(
        SHOWN, [*_arguments(entry, sizes), *_computed(entry, sizes)], key=lambda pair: pair[0].size_bytes
    )
    return tuple(replace(buffer, where=nearest_line(node) if node else None) for buffer, node in found)


def arguments_bytes(entry: LegalEntry, sizes: Sizes) -> int:
    """Bytes of the weights, the state and the inputs."""
    return sum(buffer.size_bytes for buffer, _ in _arguments(entry, sizes))


def remarks(entry: LegalEntry) -> dict[str, str]:
    """By device, what its compiler does at great cost, with the first of the user's lines."""
    for graph in hops.walk(entry.graph):
        for node in graph.graph.nodes:
            if node.target in _PRODUCTS and node.meta["val"].dtype in (torch.float64, torch.complex128):
                where = nearest_line(node)
                place = f", first at {where}" if where else ""
                return {
                    "tpu": f"a TPU has no float64: its products are emulated, at many times the work{place}"
                }
    return {}


def _arguments(entry: LegalEntry, sizes: Sizes) -> Iterator[tuple[Buffer, None]]:
    named = [
        *(("weight", name) for name in entry.weights),
        *(("state", spec.name) for spec in entry.signature.state),
        *(("input", spec.name) for spec in entry.signature.tensor_inputs),
    ]
    for (kind, name), node in zip(named, hops.placeholders(entry.graph), strict=True):
        yield Buffer(kind, name, _bytes(sizes.out(node.meta["val"]))), None


def _computed(entry: LegalEntry, sizes: Sizes) -> Iterator[tuple[Buffer, Node]]:
    for graph in hops.walk(entry.graph):
        for node in graph.graph.nodes:
            # A view takes no room of its own.
            if not isinstance(node.target, OpOverload) or node.target.is_view:
                continue
            for out in _outs(node, sizes):
                shape = ", ".join(map(str, out.shape))
                yield Buffer("result", f"{out.dtype.name}[{shape}] of {node.target}", _bytes(out)), node


def _outs(node: Node, sizes: Sizes) -> list[Out]:
    try:
        return list(map(sizes.out, ops.tensors(node)))
    except UnknownSize:
        return []


def _bytes(out: Out) -> int:
    return math.prod(out.shape) * out.dtype.itemsize
