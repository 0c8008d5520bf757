"""A program's estimate: the compiler's counts over what the chip can do.

`estimate(program, figures, chip)` takes what `tool` wrote of a module. A product counts at the rate of the
chip's unit for matrices: float32 in full precision takes six passes of bfloat16 on a TPU, and runs outside of
the tensor cores on a GPU. What is not a product is left out, since no TPU's rate for it is published, and so
are temporaries, which may stay on the chip: the bound is one from below. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aotpipe.backends.xla.estimate.chips import Chip
from aotpipe.core.estimate import Estimate, MatmulWork


def estimate(
    program: Mapping[str, Any], figures: Mapping[str, Any], chip: Chip | None, devices: int = 1
) -> Estimate:
    """What a program will cost, on each of its devices.

    Args:
        program: Its entry point and sizes.
        figures: What was counted of one device: `flops`, `traffic_bytes`, other sizes in bytes, `loops` and
            `matmuls`.
        chip: Where it is to run; None for a CPU.
        devices: How many of them share the program.
    """
    matmuls = tuple(
        MatmulWork(dtype=dtype, precision=precision, flops=flops)
        for dtype, precision, flops in sorted(figures["matmuls"])
    )
    counted = {name: figures[name] for name in COUNTS}
    return Estimate(
        entry_point=program["entry_point"],
        sizes=dict(program["sizes"]),
        devices=devices,
        matmuls=matmuls,
        **counted,
        memory_bytes=chip.memory if chip else 0,
        compute_s=sum(_seconds(each, chip) for each in matmuls) if chip else 0.0,
        memory_s=counted["traffic_bytes"] / chip.bandwidth if chip else 0.0,
    )


COUNTS = (
    "flops",
    "bytes_accessed",
    "traffic_bytes",
    "loops",
    "arguments_bytes",
    "results_bytes",
    "temporaries_bytes",
    "code_bytes",
    "peak_bytes",
)
"""The numbers of `figures`."""


def _seconds(work: MatmulWork, chip: Chip) -> float:
    """At the peak; 0 where the chip's rate is not known, which keeps the bound one from below."""
    rate = chip.rate(work.dtype, work.precision)
    return work.flops / rate if rate else 0.0
