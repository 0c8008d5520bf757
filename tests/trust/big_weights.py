"""A model of 3 GB: what the build takes at most, and what loading takes.

Memory is looked at five times a second, summed over the build and what it started, and what several share
is divided among them (PSS). What counts is memory that no file backs: pages of the file of weights are given
up where others need the memory, and are printed beside it. The compiler's own peak is that of a model of the
same graph with few weights.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WANTED = (
    "weights over 2 GB: the build's peak at most 2 times the weights plus the compiler; mapped once hashed"
)
UNITS = ["3 GB"]
_LAYERS = 12
_WIDTH = {"3 GB": 8192, "small": 64}
_BUILD = """\
import sys
import torch
import aotpipe

width, layers, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.manual_seed(0)
with torch.no_grad():
    parts = []
    for _ in range(layers):
        linear = torch.nn.Linear(width, width, bias=False)
        linear.weight.normal_(0, width**-0.5)
        parts += [linear, torch.nn.Tanh()]
model = torch.nn.Sequential(*parts).eval()
aotpipe.build(model, args=(torch.ones(1, width),), targets=["iree-cpu-host"], latency=False, out=out)
"""
_LOAD = """\
import sys
import numpy as np
import aotpipe

with aotpipe.load(sys.argv[1], verify=sys.argv[2] == "True") as runner:
    (spec,) = runner.signature.tensor_inputs
    print(runner.infer({spec.name: np.ones(spec.dims, np.float32)})["output"].sum())
"""


def run(unit: str, folder: Path) -> dict[str, float]:
    # A build moves its weights into the bundle where both are on one file system.
    environment = {**os.environ, "TMPDIR": str(folder), "AOTPIPE_CACHE": str(folder / "cache")}
    base, _ = _peaks([_BUILD, str(_WIDTH["small"]), str(_LAYERS), str(folder / "s")], environment)
    build, mapped = _peaks([_BUILD, str(_WIDTH[unit]), str(_LAYERS), str(folder / "b")], environment)
    own, _ = _peaks([_LOAD, str(folder / "b"), "True"], environment)
    shared, of_file = _peaks([_LOAD, str(folder / "b"), "False"], environment)
    shards = [*(folder / "b").glob("weights*.safetensors")]
    return {
        "weights_mb": sum(each.stat().st_size for each in shards) / 1e6,
        "files": len(shards),
        "goldens_mb": (folder / "b" / "goldens.safetensors").stat().st_size / 1e6,
        "base_mb": base,
        "build_mb": build,
        "build_with_file_mb": mapped,
        "load_mb": own,
        "mapped_mb": shared,
        "mapped_with_file_mb": of_file,
    }


def judge(counts: Any) -> tuple[str, bool]:
    most = 2 * counts["weights_mb"] + counts["base_mb"]
    figure = (
        f"weights {counts['weights_mb']:.0f} MB in {counts['files']} files: "
        f"build's peak {counts['build_mb']:.0f} MB of at most "
        f"{most:.0f} ({counts['build_with_file_mb']:.0f} with pages of files; a small model's is "
        f"{counts['base_mb']:.0f}), load {counts['load_mb']:.0f} MB, with verify=False "
        f"{counts['mapped_mb']:.0f} MB and the file's pages, goldens {counts['goldens_mb']:.1f} MB"
    )
    return figure, 0 < counts["build_mb"] <= most and counts["weights_mb"] > 3000 and counts["files"] > 1


def _peaks(argv: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """The largest memory of a process and what it started, in MB: without pages of files, and with them."""
    process = subprocess.Popen([sys.executable, "-P", "-c", *argv], env=environment, stdout=sys.stderr)
    own = every = 0.0
    while process.poll() is None:
        found = [_proportional_mb(pid) for pid in _tree(process.pid)]
        own = max(own, sum(each for each, _ in found))
        every = max(every, sum(each for _, each in found))
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"it ended with {process.returncode}")
    print(f"{argv[1:]}: {own:.0f} MB, {every:.0f} MB with pages of files", file=sys.stderr)
    return own, every


def _tree(pid: int) -> list[int]:
    found, place = [pid], 0
    while place < len(found):
        try:
            for task in Path(f"/proc/{found[place]}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:
            pass
        place += 1
    return found


def _proportional_mb(pid: int) -> tuple[float, float]:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0, 0.0
    rows = (line.split() for line in text.splitlines() if line.startswith("Pss"))
    kb = {name: int(value) for name, value, *_ in rows}
    return (kb["Pss:"] - kb["Pss_File:"]) / 1e3, kb["Pss:"] / 1e3
