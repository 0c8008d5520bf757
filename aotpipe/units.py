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


def duration(seconds: float) -> str:
    """Seconds: `45.2 µs`, `1.30 ms`, `2.5 s`, `3 min 5 s`."""
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
