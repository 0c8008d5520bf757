"""What a program will cost on a chip that is not at hand: the compiler's counts, the chip's published peaks.

Nothing here was timed, and every text that shows it says "estimate".
Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from aotpipe.core.serialization import Serializable
from aotpipe.core.units import share

Side = Literal["compute", "memory", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulWork:
    """Products of matrices and convolutions of one kind, as the model asks for them.

    Attributes:
        dtype: Of the operands.
        precision: XLA's: `default`, `high` or `highest`.
        flops: Multiplications and additions.
    """

    dtype: str
    precision: str
    flops: int

    def __str__(self) -> str:
        # The precision decides about float32 alone.
        return f"{self.dtype} ({self.precision})" if self.dtype == "float32" else self.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Serializable):
    """One program on one chip; a count that the compiler does not give is 0.

    Attributes:
        entry_point, sizes: Which program: there is one for each choice of sizes.
        devices: How many chips, or parts of chips, share the program. All other numbers are those of one of
            them; the time in which they exchange data is not counted.
        flops: The number that the compiler counts in the program that it made.
        bytes_accessed: The compiler's count of the operands and results of each op, also of those that stay
            on the chip.
        traffic_bytes: The least that has to go through the chip's memory: the parts of arguments that are
            read, and results; temporaries may stay on the chip.
        matmuls: The matrix products, by dtype and precision.
        loops: How many loops are counted as one trip, since the number of their trips depends on data.
        arguments_bytes: The size of weights, state and inputs.
        results_bytes: The size of outputs and the next state.
        temporaries_bytes: The size of the temporaries of a call.
        code_bytes: The size of the program itself on the chip.
        peak_bytes: The most that is in the chip's memory at a time.
        memory_bytes: The size of the chip's memory; 0 where no chip is known.
        compute_s: Seconds that the chip needs for the matmuls alone at its peak rate.
        memory_s: Seconds that it needs to move `traffic_bytes`.
    """

    derived: ClassVar = ("intensity", "bound_s", "bound_by", "matmul_shares")

    entry_point: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    devices: int = 1
    flops: int = 0
    bytes_accessed: int = 0
    traffic_bytes: int = 0
    matmuls: tuple[MatmulWork, ...] = ()
    loops: int = 0
    arguments_bytes: int = 0
    results_bytes: int = 0
    temporaries_bytes: int = 0
    code_bytes: int = 0
    peak_bytes: int = 0
    memory_bytes: int = 0
    compute_s: float = 0.0
    memory_s: float = 0.0

    @property
    def program(self) -> str:
        """The entry point and the sizes, for people."""
        return " ".join([self.entry_point, *(f"{name}={size}" for name, size in sorted(self.sizes.items()))])

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: flops for each byte of traffic; 0 where no byte is counted."""
        return self.flops / self.traffic_bytes if self.traffic_bytes else 0.0

    @property
    def memory_share(self) -> float:
        """The share of the chip's memory that is taken at the peak; 0 where no chip is known."""
        return self.peak_bytes / self.memory_bytes if self.memory_bytes else 0.0

    @property
    def bound_s(self) -> float:
        """The roofline: seconds that a call takes at least, where all overlaps; 0 where no chip is known."""
        return max(self.compute_s, self.memory_s)

    @property
    def bound_by(self) -> Side:
        """The side of the roofline that takes longer."""
        if not self.bound_s:
            return ""
        return "compute" if self.compute_s > self.memory_s else "memory"

    @property
    def matmul_shares(self) -> dict[str, float]:
        """Of the flops of matmuls, the share of each dtype."""
        total = sum(each.flops for each in self.matmuls)
        shares: dict[str, float] = {}
        for each in self.matmuls if total else ():
            shares[each.dtype] = shares.get(each.dtype, 0.0) + each.flops / total
        return shares

    @property
    def matmuls_text(self) -> str:
        """The shares of the flops of matmuls, for people: `100% float32 (highest)`."""
        total = sum(each.flops for each in self.matmuls)
        ordered = sorted(self.matmuls, key=lambda each: -each.flops)
        return ", ".join(f"{share(each.flops / total)} {each}" for each in ordered) or "–"
