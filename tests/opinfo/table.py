"""The table op x dtype, with totals."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from tests.opinfo.cases import DTYPES
from tests.opinfo.sweep import Row

WORST_FIRST = ("WRONG", "crashed", "failed", "refused", "equal", "export")


def render(rows: Iterable[Row]) -> str:
    """Markdown: a line per op, a column per dtype; a cell is its worst verdict, its share where mixed."""
    cells: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    rows = list(rows)
    for row in rows:
        cells[row.op][row.dtype][row.verdict] += 1
        totals[row.dtype][row.verdict] += 1
    dtypes = [dtype for dtype in DTYPES if dtype in totals]
    lines = ["| op | " + " | ".join(dtypes) + " |", "|---" * (len(dtypes) + 1) + "|"]
    lines += [
        f"| {op} | " + " | ".join(_cell(cells[op][dtype]) for dtype in dtypes) + " |" for op in sorted(cells)
    ]
    lines += ["", "| samples | " + " | ".join(dtypes) + " | all |", "|---" * (len(dtypes) + 2) + "|"]
    for verdict in WORST_FIRST:
        counts = [totals[dtype][verdict] for dtype in dtypes]
        lines.append(f"| {verdict} | " + " | ".join(map(str, counts)) + f" | {sum(counts)} |")
    return "\n".join(lines)


def _cell(counts: Counter[str]) -> str:
    total = sum(counts.values())
    verdict = next((name for name in WORST_FIRST if counts[name]), "")
    if not verdict or counts[verdict] == total:
        return verdict
    return f"{verdict} {counts[verdict]}/{total}"
