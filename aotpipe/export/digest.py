"""One SHA-256 over everything in exported programs that can change what is compiled from them.

That is: each graph's text with shapes and dtypes (subgraphs too), the signatures, and the bytes of every
weight and constant, read in place. Paths and lines of the user's source have no part in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram

from aotpipe.export.signatures import canonical_text
from aotpipe.stages import ExportedEntry

_CHUNK_BYTES = 1 << 24


def digest(entries: Iterable[ExportedEntry]) -> str:
    """The digest of all entry points together."""
    total = hashlib.sha256()
    seen: dict[tuple[object, ...], str] = {}
    for entry in entries:
        for line in (entry.name, canonical_text(entry.signature), *_graph_lines(entry.program)):
            total.update(line.encode())
            total.update(b"\n")
        for name, tensor in _tensors(entry.program):
            total.update(f"{name} {_tensor_digest(tensor, seen)}\n".encode())
    return total.hexdigest()


def _graph_lines(program: ExportedProgram) -> Iterator[str]:
    for name, module in program.graph_module.named_modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        yield f"graph {name}"
        for node in module.graph.nodes:
            yield f"{node.format_node()} {_shape(node.meta.get('val'))}"
    yield str(program.graph_signature)
    yield from (f"{symbol} {bounds}" for symbol, bounds in sorted(program.range_constraints.items(), key=str))


def _shape(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{tuple(map(str, value.shape))}"
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(map(_shape, value)) + ")"
    return str(value)


def _tensors(program: ExportedProgram) -> Iterator[tuple[str, torch.Tensor]]:
    yield from sorted(program.state_dict.items())
    for name, value in sorted(program.constants.items()):
        if isinstance(value, torch.Tensor):
            yield name, value


def _tensor_digest(tensor: torch.Tensor, seen: dict[tuple[object, ...], str]) -> str:
    """The digest of dtype, shape and values; a tensor that several entry points share is read once."""
    key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
    if key not in seen or not tensor.data_ptr():
        one = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        # A plain byte view costs nothing where the tensor is contiguous on the CPU, as weights are.
        flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        data: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
        data = memoryview(data)
        for start in range(0, len(data), _CHUNK_BYTES):
            one.update(data[start : start + _CHUNK_BYTES])
        seen[key] = one.hexdigest()
    return seen[key]
