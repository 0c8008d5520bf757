"""The user's own source line of a graph node.

`source_line(node)` takes an fx node and gives the innermost frame of its recorded stack trace that lies
outside installed packages and generated code, or None where there is no such frame. It never raises.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotpipe.errors import SourceLine

if TYPE_CHECKING:
    import torch

_FRAME: Final = re.compile(r'^\s*File "(?P<path>.+)", line (?P<line>\d+)(?:, in |$)', re.MULTILINE)
_PACKAGE_FOLDERS: Final = ("site-packages", "dist-packages")
_STDLIB: Final = Path(sysconfig.get_path("stdlib"))
_OWN: Final = Path(__file__).resolve().parents[1]


def source_line(node: torch.fx.Node) -> SourceLine | None:
    """The user's line that a node comes from, None where torch recorded none."""
    return source_line_of(node.meta.get("stack_trace"))


def source_line_of(stack_trace: str | None) -> SourceLine | None:
    """The innermost line of the user in a stack trace as Python prints it (outermost frame first)."""
    lines = [line for line in _frames(stack_trace or "") if _is_users(line.path)]
    return lines[-1] if lines else None


def _frames(stack_trace: str) -> Iterator[SourceLine]:
    for found in _FRAME.finditer(stack_trace):
        yield SourceLine(found["path"], int(found["line"]))


def _is_users(path: str) -> bool:
    # torch's own generated modules appear as `<eval_with_key>.7`, `<string>`.
    if path.startswith("<"):
        return False
    place = Path(path)
    if any(part in _PACKAGE_FOLDERS for part in place.parts):
        return False
    return not (place.is_relative_to(_STDLIB) or place.is_relative_to(_OWN))
