"""The user's own source line of a graph node.

`source_line(node)` gives the line that torch recorded for a node, or None where it recorded none; a node of a
control-flow body has that of its call (`control_flow.normalize` hands it down). `nearest_line` looks on
through what a node is computed from. Neither ever raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aotpipe.errors import SourceLine
from aotpipe.model import source

if TYPE_CHECKING:
    import torch

_DEFERRED: Final = 'File "torch/fx/passes/runtime_assert.py"'


def source_line(node: torch.fx.Node) -> SourceLine | None:
    """The user's line that a node comes from."""
    trace = node.meta.get("stack_trace")
    # torch gives its own deferred checks this made-up frame.
    return None if trace and _DEFERRED in trace else source.from_stack_trace(trace)


def nearest_line(node: torch.fx.Node) -> SourceLine | None:
    """The user's line of a node, else that of the nearest node that it is computed from."""
    seen = {node}
    level = [node]
    while level:
        if found := next(filter(None, map(source_line, level)), None):
            return found
        level = [used for each in level for used in each.all_input_nodes if used not in seen]
        seen.update(level)
    return None
