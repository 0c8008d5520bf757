"""Scans of small tensors that one dispatch computes from the first trip to the last (`kernels.recurrence`).

As a loop on the host, each trip of a recurrent layer has several dispatches, which take longer to start than
to run (IREE 3.13, AVX-512, one thread: an LSTM of 128 features 2.1 ms for 100 time steps of two layers, and
0.5 ms so). The op that is put behind a scan has its results, which are read where a target has no kernel.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.backends.iree.lower.liveness import live_carries, used_results
from aotpipe.backends.iree.tuning.recurrence_trips import trip
from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops
from aotpipe.passes.emit import Emitter
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_SCAN: Final = torch.ops.higher_order.scan
_LIBRARY: Final[Any] = torch.library.Library("aotpipe", "FRAGMENT")
_LIBRARY.define(
    "recurrence(Tensor[] results, Tensor[] carries, Tensor[] rows, Tensor[] vectors, Tensor[] matrices, "
    "str steps) -> Tensor[]"
)


def _run(results: Sequence[torch.Tensor], *_: object) -> list[torch.Tensor]:
    """The results of a scan, which a kernel may compute of the other operands instead."""
    return [result.clone() for result in results]


_LIBRARY.impl("recurrence", _run, "CompositeExplicitAutograd")
torch.library.register_fake("aotpipe::recurrence", _run, lib=_LIBRARY)
OP: Final[Any] = torch.ops.aotpipe.recurrence.default


def take(entry: LegalEntry) -> None:
    """Say behind each scan of an entry point that a kernel may compute it, and how."""
    for graph in list(hops.walk(entry.graph)):
        found = graph.graph.find_nodes(op="call_function", target=_SCAN)
        changed = [_taken(graph, node) for node in found]
        if any(changed):
            graph.recompile()


def is_taken(scan: Node) -> bool:
    """Whether a kernel may compute a scan."""
    flat = [view for result in scan.users for view in result.users]
    return any(user.target is OP for view in flat for user in view.users)


def _taken(graph: GraphModule, node: Node) -> bool:
    call = hops.call_of(node)
    used = used_results(node, set(graph.graph.nodes))
    (body,) = call.subgraphs
    starts, rows, shared = map(call.operands, call.layout.operands)
    live = sorted(live_carries(None, body, range(len(starts)), used))
    outputs = sorted(place for place in used if place >= len(starts))
    found = trip(body, (len(starts), len(rows)), live, outputs)
    if found is None:
        return False
    given = dict(zip(hops.placeholders(body), (*starts, *rows, *shared), strict=True))
    read = call.results
    emit = Emitter(graph, node.next)
    length = _size(emit, rows[0], 0)
    batch = _size(emit, starts[0], 0) if found.has_batch else 1
    results = [emit(operator.getitem, node, place) for place in (*live, *outputs)]
    befores = [[batch]] * len(live) + [[length, batch]] * len(outputs)
    computed = emit(
        OP,
        [_flat(emit, result, before) for result, before in zip(results, befores, strict=True)],
        [_flat(emit, starts[place], [batch]) for place in live],
        [_flat(emit, given[row], [length, batch]) for row in found.rows],
        [_flat(emit, given[vector], []) for vector in found.vectors],
        [_matrix(emit, given[matrix], is_turned) for matrix, is_turned in found.matrices],
        str(found.recurrence),
    )
    for at, (result, before) in enumerate(zip(results, befores, strict=True)):
        flat = emit(operator.getitem, computed, at)
        # The batch of a value that has none is 1.
        known = before if found.has_batch else before[:-1]
        sizes = [*known, *value_of(result).shape[len(known) :]]
        whole = emit(_ATEN.view.default, flat, sizes)
        for own in read:
            if own.args[1] == result.args[1]:
                own.replace_all_uses_with(whole)
    for own in read:
        graph.graph.erase_node(own)
    return True


def _size(emit: Emitter, node: Any, dim: int) -> Any:
    size = value_of(node).shape[dim]
    return size if isinstance(size, int) else emit(_ATEN.sym_size.int, node, dim)


def _flat(emit: Emitter, node: Any, before: list[Any]) -> Node:
    """A value with the length and the batch apart from the numbers of one sequence, if it has them."""
    value = value_of(node)
    own = [size for size in value.shape if isinstance(size, int)]
    known = [size for size in before if isinstance(size, int)]
    sizes = [*before, prod(own) // prod(known)]
    return emit(_ATEN.view.default, node if value.is_contiguous() else emit.contiguous(node), sizes)


def _matrix(emit: Emitter, node: Any, is_turned: bool) -> Node:
    return emit(_ATEN.permute.default, node, [1, 0]) if is_turned else node
