"""Builds models of other packages for IREE and XLA and prints what became of each.

usage: python -m tests.wild [CASE]... [--filter TEXT] [--sample N] [--seed S] [--target TARGET]...
                            [--json FILE] [--limit-s SECONDS]

Each model is built in a process of its own, under a time limit. `--seed` draws weights and inputs, and which
cases `--sample` takes. A model that eager does not run, or whose package is not installed, is not counted.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.wild.cases import Case, cases

TARGETS = ("iree-cpu-host", "xla-cpu-host")
LIMIT_S = 600.0


def build_one(case: Case, targets: Sequence[str], seed: int) -> dict[str, Any]:
    """Build one case in this process."""
    import torch

    import aotpipe
    from aotpipe.errors import AotpipeError

    torch.manual_seed(seed)
    try:
        model, args = case.make()
        if isinstance(model, torch.nn.Module):
            model.eval()
        with torch.no_grad():
            model(*args)
    except Exception as error:
        return {"status": "not run by eager", "reason": f"{type(error).__name__}: {error}"}
    torch.manual_seed(seed)
    model, args = case.make()  # what a call keeps on the model is not to be there before the build
    if isinstance(model, torch.nn.Module):
        model.eval()
    options: dict[str, Any] = dict(case.options)
    if case.dims:
        options["dynamic_shapes"], sizes = _dynamic(case.dims, model, args)
        if any(target.startswith("xla") for target in targets):
            options["buckets"] = {name: sorted({low, *sizes[name]}) for name, low in _lows(case.dims)}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            built = aotpipe.build(
                model,
                args=args,
                targets=targets,
                out=Path(folder, "bundle"),
                latency=False,
                keep_going=True,
                name="wild",
                **options,
            )
        except AotpipeError as error:
            return {"status": "refused", "stage": error.stage, "reason": str(error)}
        except Exception:
            return {"status": "crashed", "reason": traceback.format_exc()[-3000:]}
    rows = {
        row.target: {"status": row.status, "stage": row.stage, "reason": row.reason}
        for row in built.report.targets
    }
    status = "executed" if all(row["status"] == "executed" for row in rows.values()) else "partly"
    return {"status": status, "rows": rows, "build_s": round(time.perf_counter() - start, 1)}


def _lows(dims: Mapping[str, Mapping[int, tuple[str, int, int]]]) -> list[tuple[str, int]]:
    return [(name, low) for of_input in dims.values() for name, low, _ in of_input.values()]


def _dynamic(
    dims: Mapping[str, Mapping[int, tuple[str, int, int]]], model: Any, args: Sequence[Any]
) -> tuple[dict[str, dict[int, Any]], dict[str, set[int]]]:
    """The `dynamic_shapes` of a build, and by Dim the sizes of the example."""
    import aotpipe

    forward = getattr(model, "forward", model)
    given = inspect.signature(forward).bind(*args).arguments
    made = {
        name: aotpipe.Dim(name, min=low, max=high)
        for of_input in dims.values()
        for name, low, high in of_input.values()
    }
    sizes: dict[str, set[int]] = {name: set() for name in made}
    for key, of_input in dims.items():
        value: Any = given
        for part in key.split("."):
            value = value[int(part)] if isinstance(value, list | tuple) else value[part]
        for dim, (name, _, _) in of_input.items():
            sizes[name].add(value.shape[dim])
    shapes = {
        key: {dim: made[name] for dim, (name, _, _) in of_input.items()} for key, of_input in dims.items()
    }
    return shapes, sizes


def build_all(
    wanted: Sequence[Case], targets: Sequence[str], seed: int, limit_s: float
) -> Iterator[dict[str, Any]]:
    """Build each case in a process of its own."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    for case in wanted:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.wild",
            "--one",
            case.name,
            "--seed",
            str(seed),
        ]
        command += [part for target in targets for part in ("--target", target)]
        start = time.perf_counter()
        try:
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit_s)
        except subprocess.TimeoutExpired:
            found = {"status": "crashed", "reason": f"not done in {limit_s:.0f} s"}
        else:
            try:
                found = json.loads(ran.stdout.splitlines()[-1])
            except (ValueError, IndexError):
                found = {"status": "crashed", "reason": f"exit {ran.returncode}: {ran.stderr[-2000:]}"}
        yield {"case": case.name, "seconds": round(time.perf_counter() - start, 1), **found}


def line(row: Mapping[str, Any]) -> str:
    """One row of the table."""
    detail = f"{row.get('stage', '')} {row.get('reason', '')}"
    if "rows" in row:
        detail = "; ".join(
            f"{target}: {found['stage']} {found['reason']}"
            for target, found in row["rows"].items()
            if found["status"] != "executed"
        )
    return f"{row['case']:44} {row['status']:10} {row['seconds']:6.1f} s  {' '.join(detail.split())[:220]}"


def count(rows: Sequence[Mapping[str, Any]]) -> str:
    """The last line of the table."""
    ran = [row for row in rows if row["status"] != "not run by eager"]
    return f"{sum(row['status'] == 'executed' for row in ran)} of {len(ran)} executed on every target"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="*")
    parser.add_argument("--filter", default="")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", default=[])
    parser.add_argument("--json", type=Path, help="append a line for each case; what it holds is not built")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    targets = options.target or list(TARGETS)
    known = {case.name: case for case in cases()}
    if options.one:
        print(json.dumps(build_one(known[options.one], targets, options.seed)))
        return
    chosen = [known[name] for name in options.case] or list(known.values())
    chosen = [case for case in chosen if options.filter in case.name and case.is_installed()]
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    rows = []
    if options.json and options.json.exists():
        rows = [json.loads(text) for text in options.json.read_text().splitlines()]
    done = {row["case"] for row in rows}
    for row in build_all(
        [case for case in chosen if case.name not in done], targets, options.seed, options.limit_s
    ):
        print(line(row), flush=True)
        rows.append(row)
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    print(count(rows))


if __name__ == "__main__":
    main()
