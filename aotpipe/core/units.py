"""Numbers in the units that people would choose."""

from __future__ import annotations

import math


def size(size_bytes: int) -> str:
    """Bytes: `512 B`, `17.7 kB`, `91.0 MB`."""
    return _scaled(size_bytes, ("B", "kB", "MB", "GB"))


def count(number: float) -> str:
    """A number of things: `512`, `17.7 k`, `4.1 G`, `2.5 T`."""
    return _scaled(number, ("", "k", "M", "G", "T", "P"))


def _scaled(value: float, units: tuple[str, ...]) -> str:
    if value < 1000:
        return f"{value:.0f} {units[0]}".rstrip()
    power = 1
    while value >= 999.95 * 1000**power and power < len(units) - 1:
        power += 1
    return f"{value / 1000**power:.1f} {units[power]}"


def duration(seconds: float) -> str:
    """Seconds: `49 ns`, `45.2 µs`, `1.30 ms`, `2.5 s`, `3 min 5 s`."""
    if 0 < seconds < 1e-6:
        return f"{seconds * 1e9:.0f} ns"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.2f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def share(ratio: float) -> str:
    """A share of the allowed error: `12%`, `×3.4` beyond all of it, `∞`."""
    if not math.isfinite(ratio):
        return "∞"
    if ratio > 1:
        return f"×{ratio:.3g}"
    percent = 100 * ratio
    return "<1%" if 0 < percent < 1 else f"{percent:.0f}%"
