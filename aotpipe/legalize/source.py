"""The user's own source line of a graph node.

`source_line(node)` gives the line that torch recorded for a node, or None where it recorded none; a node of a
control-flow body has that of its call (`control_flow.normalize` hands it down). It never raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotpipe import source
from aotpipe.errors import SourceLine

if TYPE_CHECKING:
    import torch


def source_line(node: torch.fx.Node) -> SourceLine | None:
    """The user's line that a node comes from."""
    return source.from_stack_trace(node.meta.get("stack_trace"))
