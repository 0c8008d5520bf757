"""What is written of a model: a module of Python, and the tensors that lie beside it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def unified_diff(before: str, after: str, old: str, new: str) -> str:
    """A unified diff of two texts; `old` and `new` are what they are called in it."""
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), old, new)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A written module.

    Attributes:
        state: The buffers that calls change; `reset()` makes them what they were.
        tensors: What goes into a file of tensors beside it, by name.
        attributes: Of edited source, the attributes that became buffers, by path, with their dtypes.
        is_edited: Whether it is the model's own source, edited, so that its classes take what they took.
    """

    text: str
    class_name: str
    methods: Mapping[str, str]
    state: tuple[str, ...]
    tensors: Mapping[str, torch.Tensor]
    is_edited: bool = False
    attributes: Mapping[str, torch.dtype] = field(default_factory=dict)

    def write(self, path: Path, tensors: Path) -> None:
        """Write the source to one file, and the tensors, where there are any, to another."""
        path.write_text(self.text, encoding="utf-8")
        if self.tensors:
            import torch

            torch.save(dict(self.tensors), tensors)
