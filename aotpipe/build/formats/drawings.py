"""Drawings of a report as inline SVG: errors against their tolerance, latencies, failing elements.

Colours are the page's (`style` of page.html.jinja), so that a drawing follows its light or dark. Each drawing
has a title that says what it shows, for readers who do not see it; its numbers stand in a table too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from aotpipe.build.report import TargetReport
from aotpipe.core.stages import Latency, ParityCase, Timing
from aotpipe.core.units import duration, share

_WIDTH: Final = 640
_LEFT: Final = 8
_RIGHT: Final = 20
_ROW: Final = 42
_BETWEEN_TICKS: Final = 40
_LOWEST_SHARE: Final = 1e-4
_HIGHEST_SHARE: Final = 10.0
_SIZE: Final = re.compile(r"\b[A-Za-z_]\w*=(\d+)\b")


class _Axis:
    """Positions from a lowest to a highest value on a logarithmic scale; what lies outside is at an end."""

    def __init__(self, low: float, high: float, width: float = _WIDTH - _LEFT - _RIGHT) -> None:
        self.low, self.high = math.log10(low), math.log10(max(high, low * 1.0001))
        self.width = width

    def at(self, value: float) -> float:
        if not value > 0:
            return float(_LEFT)
        part = (math.log10(value) - self.low) / (self.high - self.low) if math.isfinite(value) else 1.0
        return round(_LEFT + self.width * min(max(part, 0.0), 1.0), 1)

    def decades(self) -> list[float]:
        return [10.0**power for power in range(math.ceil(self.low), math.floor(self.high) + 1)]


def _svg(height: float, title: str, parts: Iterable[str]) -> str:
    said = escape(title)
    inside = "".join(parts)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{said}"><title>{said}</title>'
        f"{inside}</svg>"
    )


def _text(x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(said)}</text>'


def _ticks(axis: _Axis, values: Iterable[tuple[float, str]], bottom: float) -> list[str]:
    found: list[str] = []
    before = -float(_WIDTH)
    for value, said in values:
        x = axis.at(value)
        if x - before < _BETWEEN_TICKS:
            continue
        before = x
        found.append(f'<line x1="{x}" x2="{x}" y1="4" y2="{bottom - 14:g}" class="grid"/>')
        anchor = "start" if x < 40 else "end" if x > _WIDTH - 40 else "middle"
        found.append(_text(x, bottom - 2, said, "soft", anchor))
    return found


def _dot(x: float, y: float, said: str, kind: str) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="4" class="{kind}"><title>{escape(said)}</title></circle>'


def errors(row: TargetReport) -> str:
    """Each comparison of a target as a dot at its share of the allowed error; a row for each output."""
    groups: dict[tuple[str, str], list[ParityCase]] = {}
    for case in row.parity.cases if row.parity else ():
        groups.setdefault((case.entry_point, case.output), []).append(case)
    axis = _Axis(_LOWEST_SHARE, _HIGHEST_SHARE)
    height = _ROW * len(groups) + 26
    parts = _ticks(axis, [(each, f"{100 * each:g}%") for each in axis.decades()], height)
    limit = axis.at(1.0)
    parts.append(f'<line x1="{limit}" x2="{limit}" y1="0" y2="{height - 14:g}" class="limit"/>')
    for number, ((entry, output), cases) in enumerate(groups.items()):
        y = number * _ROW
        parts.append(_text(_LEFT, y + 14, f"{output} of {entry}"))
        parts += [_error_dot(axis, case, y + 29) for case in cases]
    return _svg(height, f"{row.target}: share of the allowed error by comparison, 100% is allowed", parts)


def _error_dot(axis: _Axis, case: ParityCase, y: float) -> str:
    kind = "dot bad" if not case.passed else "dot none" if case.uninformative else "dot"
    said = f"{case.case}: {share(case.ratio)} {case.message}".strip()
    return _dot(axis.at(max(case.ratio, _LOWEST_SHARE)), y, said, kind)


def errors_by_size(row: TargetReport) -> str:
    """The same dots by the size that a call's name tells (`batch=64`); empty where there are no two sizes."""
    cases = row.parity.cases if row.parity else ()
    named = [(found, case) for case in cases if (found := _SIZE.search(case.case))]
    sized = [(max(1, int(found[1])), case) for found, case in named if not case.uninformative]
    sizes = sorted({size for size, _ in sized})
    if len(sizes) < 2:
        return ""
    axis = _Axis(sizes[0], sizes[-1])
    tall = 120.0
    parts = _ticks(axis, [(each, str(each)) for each in _some(sizes)], tall + 22)
    low, high = math.log10(_LOWEST_SHARE), math.log10(_HIGHEST_SHARE)

    def y_of(ratio: float) -> float:
        value = math.log10(min(max(ratio, _LOWEST_SHARE), _HIGHEST_SHARE))
        return round(tall - (tall - 8) * (value - low) / (high - low), 1)

    parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y_of(1)}" y2="{y_of(1)}" class="limit"/>')
    parts.append(_text(_WIDTH - _RIGHT, y_of(1) - 3, "100%", "soft", "end"))
    for size, case in sized:
        kind = "dot" if case.passed else "dot bad"
        parts.append(_dot(axis.at(size), y_of(case.ratio), f"{case.case}: {share(case.ratio)}", kind))
    return _svg(tall + 22, f"{row.target}: share of the allowed error by the size of a call", parts)


def _some(values: Sequence[int]) -> list[int]:
    """A few of many values, the first and the last among them."""
    step = max(1, len(values) // 6)
    return sorted({*values[::step], values[-1]})


def latencies(entry_point: str, rows: Sequence[tuple[str, Latency]]) -> str:
    """How long calls took, a row for each program and each baseline of one entry point, on one scale."""
    lines: list[tuple[str, Timing, str]] = []
    for target, latency in rows:
        lines.append((target, latency.program, "dot"))
    for target, latency in rows:
        many = f" beside {target}" if len(rows) > 1 else ""
        lines += [(f"{name}{many}", timing, "dot none") for name, timing in latency.baselines.items()]
    points = [point for _, timing, _ in lines for point in timing.points_us]
    if not points:
        return ""
    axis = _Axis(max(min(points), 1e-3) / 1.1, max(points) * 1.1)
    height = _ROW * len(lines) + 26
    parts = _ticks(axis, [(each, duration(each / 1e6)) for each in _round_values(axis)], height)
    for number, (name, timing, kind) in enumerate(lines):
        parts += _latency(axis, number * _ROW, name, timing, kind)
    return _svg(height, f"{entry_point}: time of a call, the line in a box is the median", parts)


def _latency(axis: _Axis, y: float, name: str, timing: Timing, kind: str) -> list[str]:
    points = timing.points_us
    said = f"{name}: median {duration(timing.median_us / 1e6)} of {timing.samples}"
    parts = [_text(_LEFT, y + 14, said)]
    low, high = (axis.at(points[round((len(points) - 1) * part)]) for part in (0.25, 0.75))
    middle = axis.at(timing.median_us)
    parts += [
        f'<circle cx="{axis.at(each):g}" cy="{y + 28:g}" r="2.5" class="{kind} faint"/>' for each in points
    ]
    parts.append(f'<rect x="{low:g}" y="{y + 22:g}" width="{max(high - low, 1):g}" height="12" class="box"/>')
    parts.append(f'<line x1="{middle:g}" x2="{middle:g}" y1="{y + 20:g}" y2="{y + 36:g}" class="median"/>')
    return parts


def _round_values(axis: _Axis) -> list[float]:
    decades = range(math.floor(axis.low), math.ceil(axis.high) + 1)
    steps = (1, 2, 5) if axis.high - axis.low < 1.5 else (1,)
    values = [step * 10.0**power for power in decades for step in steps]
    return [each for each in values if axis.low <= math.log10(each) <= axis.high][:8]


def failing_elements(case: ParityCase) -> str:
    """Where in an output elements differ: for each part of it a bar as high as its share of the tolerance."""
    bars = case.profile
    if not bars:
        return ""
    tall, width = 60.0, (_WIDTH - _LEFT - _RIGHT) / len(bars)
    low, high = math.log10(_LOWEST_SHARE), math.log10(1000.0)
    parts = []
    for number, ratio in enumerate(bars):
        value = math.log10(min(max(ratio, _LOWEST_SHARE), 1000.0))
        bar = max(1.0, (tall - 4) * (value - low) / (high - low))
        kind = "bar bad" if ratio > 1 else "bar"
        x = _LEFT + number * width
        area = f'x="{x:.1f}" y="{tall - bar:.1f}" width="{max(width - 1, 1):.1f}" height="{bar:.1f}"'
        parts.append(f'<rect {area} class="{kind}"/>')
    limit = tall - (tall - 4) * (0 - low) / (high - low)
    parts.append(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{limit:.1f}" y2="{limit:.1f}" class="limit"/>'
    )
    parts.append(_text(_LEFT, tall + 14, "first element", "soft"))
    parts.append(_text(_WIDTH - _RIGHT, tall + 14, "last element", "soft", "end"))
    return _svg(tall + 18, f"{case.output} of {case.entry_point}, {case.case}: which elements differ", parts)
