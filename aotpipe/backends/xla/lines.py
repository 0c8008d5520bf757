"""Which of a module's ops came from which line of the user's: jax keeps a name beside each op, which tells.

lines = Lines()
with lines.of(node):        # while the node's lowering is traced
    ...
lines.find(name)            # the line of the node, by the name that jax gave to one of its ops
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Any, Final

import jax
from torch.fx import Node

from aotpipe.errors import SourceLine
from aotpipe.passes.source_lines import nearest_line

_MARK: Final = re.compile(r"aot(\d+)(?=[/:\"]|$)")


class Lines:
    """The lines of the nodes that were lowered, each under a mark of its own."""

    def __init__(self) -> None:
        self._lines: list[SourceLine | None] = []

    def of(self, node: Node) -> AbstractContextManager[Any]:
        """Mark what is traced while the context lasts as a node's."""
        self._lines.append(nearest_line(node))
        return jax.named_scope(f"aot{len(self._lines) - 1}")

    def find(self, name: str) -> SourceLine | None:
        """The line of the innermost node in an op's name that has one."""
        for mark in reversed(_MARK.findall(name)):
            found = self._lines[int(mark)]
            if found is not None:
                return found
        return None
