"""`python -m tests.opinfo [--ops a,b] [--dtypes float32,int64] [--samples 4] [--rows rows.jsonl]`."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from tests.opinfo.cases import DTYPES, OPS
from tests.opinfo.sweep import Row, sweep
from tests.opinfo.table import render


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.opinfo", description=__doc__)
    parser.add_argument("--ops", default="", help="comma-separated names; default all")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", type=Path, help="write one JSON object per sample here, as they come")
    options = parser.parse_args()
    names = options.ops.split(",") if options.ops else list(OPS)
    rows: list[Row] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        found = pool.map(lambda op: isolated(op, options.dtypes.split(","), options.samples), names)
        for number, (op, some) in enumerate(zip(names, found, strict=True), 1):
            rows += some
            print(f"{number}/{len(names)} {op}", file=sys.stderr, flush=True)
            if options.rows:
                with options.rows.open("a") as stream:
                    stream.writelines(row.to_json() + "\n" for row in some)
    print(render(rows))
    return any(row.verdict == "WRONG" for row in rows)


_own = threading.local()


def isolated(op: str, dtypes: list[str], count: int) -> list[Row]:
    """`sweep` in another process, as torch or the compiler's bindings can abort the one they run in."""
    if getattr(_own, "pool", None) is None:
        context = multiprocessing.get_context("spawn")
        _own.pool = ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=60)
    try:
        return _own.pool.submit(sweep, op, dtypes, count).result()
    except BrokenProcessPool:
        _own.pool = None
    except Exception as error:  # an op's samples that break the sweep must not end it
        return [Row(op, dtypes[0], -1, "crashed", f"sweep: {error!r}"[:300])]
    if len(dtypes) > 1:
        return [row for dtype in dtypes for row in isolated(op, [dtype], count)]
    return [Row(op, dtypes[0], -1, "crashed", "the sweep's process died")]


if __name__ == "__main__":
    sys.exit(main())
