"""The code of a model, before it is proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A written module.

    Attributes:
        text: Its source.
        class_name: The class in it.
        methods: The method of each entry point.
        state: The names of the buffers that calls change.
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
