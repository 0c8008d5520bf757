"""How a program is spread over several devices, and what these send each other.

`Partition.from_json(each.to_json()) == each`. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A program on a mesh.

    Attributes:
        mesh: Its axes, as `data=2,model=2`.
        devices: How many there are.
        splits: How the arrays are split that are not whole on every device, by name, as `(model, None)`.
        collectives: By kind, the instructions of the compiled program by which devices exchange data; of all
            its entry points and sizes together. One in the body of a loop counts once.
    """

    mesh: str
    devices: int
    splits: Mapping[str, str] = field(default_factory=dict)
    collectives: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        sent = ", ".join(f"{count} {kind}" for kind, count in self.collectives.items())
        count = len(self.splits)
        split = "1 array is split" if count == 1 else f"{count} arrays are split"
        return f"{self.devices} devices ({self.mesh}), {split}; {sent or 'no collectives'}"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave."""
        return cls(**data)

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)
