"""One SHA-256 over a legal program: graphs, signatures, and the file of its weights and initial state.

The text of a graph names its nodes by number and its symbols by first use, and leaves out paths, lines and
memory addresses, so that the same model gives the same digest in any process and from any folder.
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.core.stages import Legal, LegalEntry
from aotpipe.passes import ops

_SYMBOL: Final = re.compile(r"\b(?:zuf|zf|[su])\d+\b")


def digest(legal: Legal, held: str) -> str:
    """The digest of a whole legal program.

    `held` is the SHA-256 of the file of its weights and initial state, which are large: one hash is enough.
    """
    total = hashlib.sha256()
    lines = (line for entry in legal.entries for line in _entry_lines(entry))
    for line in (legal.name, legal.dialect, *lines):
        total.update(line.encode())
        total.update(b"\n")
    total.update(held.encode())
    return total.hexdigest()


def _entry_lines(entry: LegalEntry) -> Iterator[str]:
    yield entry.name
    yield json.dumps(entry.signature.to_json(), sort_keys=True)
    yield from entry.weights
    yield from entry.asserts
    symbols: dict[str, str] = {}
    ranges = [f"{symbol} in {bounds}" for symbol, bounds in entry.range_constraints.items()]
    lines = [*_graph_lines(entry.graph), *sorted(ranges)]
    for line in lines:
        yield _SYMBOL.sub(lambda found: symbols.setdefault(found[0], f"${len(symbols)}"), line)


def _graph_lines(module: GraphModule) -> Iterator[str]:
    numbers: dict[Node, str] = {}

    def shown(argument: Any) -> str:
        if isinstance(argument, Node):
            return numbers[argument]
        if isinstance(argument, list | tuple):
            return f"({', '.join(map(shown, argument))})"
        if isinstance(argument, dict):
            return f"{{{', '.join(f'{key}: {shown(value)}' for key, value in sorted(argument.items()))}}}"
        return repr(argument)

    for number, node in enumerate(module.graph.nodes):
        numbers[node] = f"%{number}"
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(module)
            if isinstance(value, GraphModule):
                yield f"%{number} graph"
                yield from (f"  {line}" for line in _graph_lines(value))
            elif isinstance(value, torch.Tensor):
                yield f"%{number} tensor {_tensor_digest(value)}"
            continue
        target = "" if node.op in ("placeholder", "output") else _target(node.target)
        arguments = "" if node.op == "placeholder" else f"{shown(node.args)} {shown(node.kwargs)}"
        yield f"%{number} {node.op} {target} {arguments} {_kind(node.meta.get('val'))}"


def _target(target: object) -> str:
    if isinstance(target, ops.OpOverload | ops.HigherOrderOperator):
        return str(target)
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"


def _kind(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_kind, value))})"
    return str(value)


def _tensor_digest(tensor: torch.Tensor) -> str:
    one = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.numel():
        one.update(flat.view(torch.uint8).numpy().data)
    return one.hexdigest()
