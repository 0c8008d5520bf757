"""Which results of a program mathematics leaves open, and where the model reads them.

`vectors(programs)` gives a sentence for each call of `eigh` or `svd` whose vectors something reads: the sign
of each is free, LAPACK's is an accident of its steps, and a program's need not be the same.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, Final

from torch.export import ExportedProgram
from torch.fx import Node

from aotpipe.passes import hops, ops
from aotpipe.passes.source_lines import nearest_line

_VECTORS: Final[Mapping[Any, tuple[int, ...]]] = {
    **dict.fromkeys(ops.overloads("linalg_eigh _linalg_eigh"), (1,)),
    **dict.fromkeys(ops.overloads("linalg_svd _linalg_svd svd"), (0, 2)),
}
"""The places of the vectors among the results of each op."""


def vectors(programs: Iterable[ExportedProgram]) -> list[str]:
    """Say of each line that reads the vectors of a factorization that their signs are free."""
    found: dict[str, None] = {}
    for program in programs:
        for module in hops.walk(program.graph_module):
            for node in module.graph.nodes:
                if node.op == "call_function" and _are_read(node):
                    name = str(node.target).removeprefix("aten.").split(".")[0].split("_")[-1]
                    found[f"{nearest_line(node) or 'the model'} reads the vectors of {name}"] = None
    return [f"{each}: the sign of each is free, and not always LAPACK's" for each in found]


def _are_read(node: Node) -> bool:
    places = _VECTORS.get(node.target, ())
    return any(
        user.target is operator.getitem and user.users and user.args[1] in places for user in node.users
    )
