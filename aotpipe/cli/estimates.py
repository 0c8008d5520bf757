"""What programs will cost on chips that are not at hand, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aotpipe.cli import text
from aotpipe.core.estimate import Estimate
from aotpipe.core.units import count, duration, share, size

_HEAD = (
    "estimate for",
    "program",
    "flops",
    "in matmuls",
    "moved",
    "flops/B",
    "memory",
    "at least",
    "bound by",
)
_LEGEND = (
    "An estimate: what the compiler counts, over the chip's published peaks; nothing was timed. "
    "`at least` is the roofline: the longer of computing the matmuls and moving the bytes."
)


def table(rows: Iterable[tuple[str, Sequence[Estimate]]]) -> str:
    """The estimates of each target whose chip is known, and what they are; empty where there is none."""
    lines = [_line(target, each) for target, estimates in rows for each in estimates if each.memory_bytes]
    return "\n".join([text.table(_HEAD, lines), _LEGEND]) if lines else ""


def largest(estimates: Iterable[Estimate]) -> list[Estimate]:
    """Of each entry point, the program that takes longest: there is one for each choice of sizes."""
    found: dict[str, Estimate] = {}
    for each in estimates:
        best = found.setdefault(each.entry_point, each)
        if (each.bound_s, each.flops) > (best.bound_s, best.flops):
            found[each.entry_point] = each
    return list(found.values())


def _line(target: str, each: Estimate) -> tuple[str, ...]:
    return (
        target + (f", each of {each.devices}" if each.devices > 1 else ""),
        each.program + (f" (loops of unknown length: {each.loops})" if each.loops else ""),
        count(each.flops),
        each.matmuls_text,
        size(each.traffic_bytes),
        f"{each.intensity:.3g}",
        f"{size(each.peak_bytes)} of {size(each.memory_bytes)} ({share(each.memory_share)})",
        duration(each.bound_s),
        each.bound_by or "–",
    )
