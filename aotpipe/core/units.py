"""Numbers in the units that people would choose."""

from __future__ import annotations

import math


def size(size_bytes: int) -> str:
    """Bytes: `512 B`, `17.7 kB`, `91.0 MB`."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    value, unit = size_bytes / 1000, "kB"
    for larger in ("MB", "GB"):
        if value >= 999.95:
            value, unit = value / 1000, larger
    return f"{value:.1f} {unit}"


def count(number: float) -> str:
    """A number of things: `512`, `17.7 k`, `4.1 G`, `2.5 T`."""
    if number < 1000:
        return f"{number:.0f}"
    value, unit = number / 1000, "k"
    for larger in ("M", "G", "T", "P"):
        if value >= 999.95:
            value, unit = value / 1000, larger
    return f"{value:.1f} {unit}"


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
