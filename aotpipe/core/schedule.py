"""What a program does on its device, in its calls and when it is loaded, as IREE's compiler scheduled it.

`Schedule.from_json(each.to_json()) == each`. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Counts of a program: of all its entry points, and of what lays out weights when it is loaded.

    What stands in a loop counts once.

    Attributes:
        dispatches: Places from which kernels are started.
        kernels: Different ones.
        copies, fills: Of buffers, outside of kernels.
        waits: Places where the host waits for the device, to decide a branch or a size.
        allocated_bytes: For results, values between kernels and weights laid out, where sizes are known; what
            a runner keeps for a program to work in, from call to call, is not among them.
    """

    dispatches: int
    kernels: int
    copies: int
    fills: int
    waits: int
    allocated_bytes: int

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave."""
        return cls(**data)

    def to_json(self) -> dict[str, int]:
        """As JSON."""
        return asdict(self)
