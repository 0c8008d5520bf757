"""Compares the build time and the latency of this checkout with another's, in turns.

usage: compare_checkouts.py OTHER [--rounds N] [--seconds S] [--target TARGET] [--json FILE] [CASE...]

OTHER is the folder of another checkout, such as a worktree of an earlier commit, with a .venv of its own. A
case is one of latency.py's, or a reference below models/. Each round builds the case in each checkout, with
nothing cached. Then both programs, each in a process of its checkout with one thread, answer the inputs that
this checkout's bundle holds, in turns. The least of each counts: other work on the machine only adds. A ratio
is this checkout's over the other's; below 1 this one is faster.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aotpipe.runtime import goldens

ROOT: Final = Path(__file__).resolve().parent.parent
CASES: Final = (
    "mlp_b1",
    "mlp_b32",
    "resnet18",
    "mobilenetv3",
    "minilm_32",
    "lstm",
    "cond_activation",
    "newton",
    "dynamic_batch.py",
    "gpt2",
    "mamba",
    "llama",
    "unet3d",
    "torchcrepe",
    "bert_base",
)
TURNS: Final = 10
_MODEL: Final = """\
import sys
sys.path.insert(0, {scripts!r})
import latency

def spec():
    return latency.CASES[{case!r}]() if {case!r} in latency.CASES else latency.file({case!r})
"""
# Runs in either checkout: it imports nothing but what users import.
_CALLS: Final = """\
import pickle, sys, time
from pathlib import Path
import aotpipe

inputs = pickle.loads(Path(sys.argv[1]).read_bytes())
with aotpipe.load(sys.argv[2], target=sys.argv[3], threads=1) as runner:
    for line in sys.stdin:
        name = line.strip()
        least, end = float("inf"), time.perf_counter() + float(sys.argv[4])
        while time.perf_counter() < end:
            runner.reset()
            start = time.perf_counter()
            runner.infer(inputs[name], entry_point=name)
            least = min(least, time.perf_counter() - start)
        print(least, flush=True)
"""


def built(checkout: Path, case: str, target: str, folder: Path) -> float:
    """Build a bundle into the folder, with nothing cached; the seconds it took."""
    folder.mkdir()
    (folder / "model.py").write_text(_MODEL.format(scripts=str(checkout / "scripts"), case=case))
    command = [".venv/bin/python", "-m", "aotpipe", "build", f"{folder}/model.py:spec", "-t", target]
    command += ["--out", f"{folder}/bundle", "--no-cache", "--no-latency", "--quiet"]
    start = time.perf_counter()
    subprocess.run(command, cwd=checkout, env=environment(checkout), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def environment(checkout: Path) -> dict[str, str]:
    """The variables with which a checkout's own tools and packages are found."""
    path = os.pathsep.join((str(checkout / ".venv" / "bin"), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "PYTHONPATH": str(checkout)}


def latencies(
    checkouts: Sequence[Path], bundles: Sequence[Path], options: argparse.Namespace
) -> dict[str, list[float]]:
    """By entry point, the least seconds of a call in each checkout."""
    inputs: dict[str, Any] = {}
    for golden in goldens.loads((bundles[0] / "goldens.safetensors").read_bytes()):
        inputs.setdefault(golden.entry_point, golden.inputs)
    given = bundles[0].parent / "inputs.pickle"
    given.write_bytes(pickle.dumps(inputs))
    workers = [
        subprocess.Popen(
            [".venv/bin/python", "-c", _CALLS, given, bundle, options.target, str(options.seconds / TURNS)],
            cwd=checkout,
            env=environment(checkout),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for checkout, bundle in zip(checkouts, bundles, strict=True)
    ]
    found: dict[str, list[float]] = {}
    for name in inputs:
        least = found[name] = [math.inf] * len(workers)
        for _ in range(TURNS):
            for number, worker in enumerate(workers):
                assert worker.stdin is not None
                assert worker.stdout is not None
                print(name, file=worker.stdin, flush=True)
                least[number] = min(least[number], float(worker.stdout.readline()))
    for worker in workers:
        worker.communicate()
    return found


def compare(case: str, checkouts: Sequence[Path], options: argparse.Namespace) -> dict[str, Any]:
    """The least seconds of a build and of a call of each entry point, of each checkout."""
    builds = [math.inf] * len(checkouts)
    with tempfile.TemporaryDirectory() as name:
        bundles: list[Path] = []
        for turn in range(options.rounds):
            bundles.clear()
            for number, checkout in enumerate(checkouts):
                folder = Path(name) / f"{turn}_{number}"
                builds[number] = min(builds[number], built(checkout, case, options.target, folder))
                bundles.append(folder / "bundle")
        return {"case": case, "build": builds, "latency": latencies(checkouts, bundles, options)}


def geometric_mean(pairs: Iterable[Sequence[float]]) -> float:
    """Of the ratios of pairs of (this, other) seconds."""
    return statistics.geometric_mean(own / other for own, other in pairs)


def shown(row: Mapping[str, Any]) -> str:
    """A line for the build and one for each entry point."""
    own, other = row["build"]
    lines = [f"{row['case']:<20}{'build':<12}{own:10.2f} s {other:10.2f} s {own / other:7.3f}"]
    for name, (own, other) in row["latency"].items():
        lines.append(
            f"{row['case']:<20}{name:<12}{own * 1e3:10.3f} ms{other * 1e3:10.3f} ms{own / other:7.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, metavar="OTHER")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="by default: " + ", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=2, help="builds in each checkout")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="of calls of each entry point and checkout"
    )
    parser.add_argument("--target", default="iree-cpu-host")
    parser.add_argument("--json", type=Path)
    options = parser.parse_intermixed_args()
    checkouts = [ROOT, options.other.resolve()]
    print(f"{'case':<32}{'this':>10}  {'other':>10}     ratio")
    rows = []
    for case in options.cases or CASES:
        rows.append(compare(case, checkouts, options))
        print(shown(rows[-1]), flush=True)
    means = {
        "build": geometric_mean(row["build"] for row in rows),
        "latency": geometric_mean(pair for row in rows for pair in row["latency"].values()),
    }
    print("\n".join(f"geometric mean, {name}: {mean:.3f}" for name, mean in means.items()))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "geometric_means": means}, indent=1) + "\n")


if __name__ == "__main__":
    main()
