"""`python -m tests.opinfo [--ops a,b] [--dtypes float32,int64] [--samples 4] [--target T] [--rows FILE]`."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import threading
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from aotpipe.core.targets import Target
from tests.opinfo.cases import DTYPES, OPS, Sample
from tests.opinfo.sweep import IREE, Row, sweep
from tests.opinfo.table import render


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.opinfo", description=__doc__)
    parser.add_argument("--ops", default="", help="comma-separated names; default all")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--target", type=Target.parse, default=IREE)
    parser.add_argument(
        "--rows",
        type=Path,
        help="write one JSON object per sample here, as they come; run no sample that has one",
    )
    options = parser.parse_args()
    names = options.ops.replace(".", "_").split(",") if options.ops else list(OPS)
    if unknown := [name for name in names if name not in OPS]:
        parser.error(f"torch has no samples of {', '.join(unknown)}")
    dtypes = options.dtypes.split(",")
    rows = earlier(options.rows, options.target)
    done = {op: {(row.op, row.dtype, row.index) for row in rows if row.op == op} for op in names}
    with ThreadPoolExecutor(options.jobs) as pool:
        found = pool.map(lambda op: isolated(op, dtypes, options.samples, options.target, done[op]), names)
        for number, (op, some) in enumerate(zip(names, found, strict=True), 1):
            rows += some
            print(f"{number}/{len(names)} {op}", file=sys.stderr, flush=True)
            if options.rows:
                with options.rows.open("a") as stream:
                    stream.writelines(row.to_json() + "\n" for row in some)
    wanted = [row for row in rows if row.op in done and row.dtype in dtypes]
    print(render(wanted))
    return any(row.verdict == "WRONG" for row in wanted)


def earlier(path: Path | None, target: Target) -> list[Row]:
    """What an earlier run for the target wrote of its samples; not of those that broke the sweep."""
    lines = path.read_text().splitlines() if path and path.exists() else []
    rows = map(Row.from_json, lines)
    return [row for row in rows if row.target == str(target) and row.index >= 0]


_own = threading.local()


def isolated(
    op: str, dtypes: list[str], count: int, target: Target = IREE, done: Collection[Sample] = ()
) -> list[Row]:
    """`sweep` in another process, as torch or the compiler's bindings can abort the one they run in."""
    if getattr(_own, "pool", None) is None:
        context = multiprocessing.get_context("spawn")
        _own.pool = ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=60)
    try:
        return _own.pool.submit(sweep, op, dtypes, count, target, done).result()
    except BrokenProcessPool:
        _own.pool = None
    except Exception as error:  # an op's samples that break the sweep must not end it
        return [Row(op, dtypes[0], -1, "crashed", f"sweep: {error!r}"[:300], str(target))]
    if len(dtypes) > 1:
        return [row for dtype in dtypes for row in isolated(op, [dtype], count, target, done)]
    return [Row(op, dtypes[0], -1, "crashed", "the sweep's process died", str(target))]


if __name__ == "__main__":
    sys.exit(main())
