"""What the time of a case's program for this CPU goes to: its kernels, beside what the machine could do.

Each case of `scripts/peers.py`, `timm/NAME` and `transformers/NAME` among them, is built without a workspace,
which `iree-benchmark-module` cannot pass, and run by it on one thread with its profile of dispatches. `peak`
is the longer of two times: that of the model's floating-point operations, as torch counts them, at the rate
of a large matmul, and that of its weights and inputs at the rate of a large sum, both of torch's on one
thread. A kernel of ours is named by what it computes: `convolve_f32_...` has the images, outputs, kernel,
stride and dilation; a matmul is a convolution of single pixels.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from latency import ROOT
from peers import spec_named

_BIN: Final = ROOT / ".venv/bin"
_TARGET: Final = "iree-cpu-host"
_MODULE: Final = f"programs/{_TARGET}/program.vmfb"
_NO_WORKSPACE: Final = ("--iree-torch-externalize-transients=false",)


class Kernel(NamedTuple):
    """One kernel of a program; the time is that of all its starts in a call."""

    name: str
    us: float
    starts: float


def bundle(spec: Any, folder: Path) -> Path:
    """A bundle of the case whose program takes its inputs alone."""
    import aotpipe

    aotpipe.build(spec, targets=[_TARGET], out=folder, latency=False, extra_flags=_NO_WORKSPACE)
    return folder


def kernels(built: Path, seconds: float) -> list[Kernel]:
    """The kernels of one call, those that take longest first."""
    from aotpipe.runtime import goldens

    call = goldens.loads((built / "goldens.safetensors").read_bytes())[0]
    entry = next(iter(json.loads((built / "manifest.json").read_text())["entry_points"]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place, array in enumerate(call.inputs.values()):
            np.save(folder / f"{place}.npy", array)
        profile = folder / "profile.ireeprof"
        command = [
            str(_BIN / "iree-benchmark-module"),
            "--device=local-task",
            "--task_topology_group_count=1",
            f"--module={built / _MODULE}",
            f"--parameters=model={built / 'weights.safetensors'}",
            f"--function={entry}",
            *(f"--input=@{folder / f'{place}.npy'}" for place in range(len(call.inputs))),
            "--device_profiling_mode=host-execution",
            f"--device_profiling_output={profile}",
            f"--benchmark_min_time={seconds}s",
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        read = [str(_BIN / "iree-profile"), "dispatch", "--format=jsonl", str(profile)]
        text = subprocess.run(read, check=True, capture_output=True, text=True, timeout=300).stdout
    groups = [json.loads(line) for line in text.splitlines() if line.strip()]
    found = [each for each in groups if each.get("type") == "host_dispatch_group"]
    # A kernel that starts least often starts once a call.
    calls = min(each["count"] for each in found)
    rows = [Kernel(each["key"], each["total_ns"] / 1000 / calls, each["count"] / calls) for each in found]
    return sorted(rows, key=lambda row: -row.us)


def peak_us(spec: Any, rates: tuple[float, float]) -> float:
    """The least time of a call at the rates of operations and of bytes."""
    import torch
    from torch.utils import _pytree as pytree
    from torch.utils.flop_counter import FlopCounterMode

    model, point = spec.build().eval(), next(iter(spec.entry_points.values()))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*point.args)
    tensors = [*model.parameters(), *model.buffers(), *pytree.tree_leaves(point.args)]
    size = sum(each.nbytes for each in tensors if isinstance(each, torch.Tensor))
    return 1e6 * max(counter.get_total_flops() / rates[0], size / rates[1])


def rates() -> tuple[float, float]:
    """Floating-point operations and bytes in a second, on one thread."""
    import torch

    torch.set_num_threads(1)
    square, numbers = torch.randn(1024, 1024), torch.randn(1 << 26)
    operations = 2 * 1024**3 / _least(lambda: square @ square)
    return operations, numbers.nbytes / _least(numbers.sum)


def _least(call: Callable[[], object], times: int = 20) -> float:
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return min(found)


def least_us(built: Path, seconds: float) -> float:
    """The least time of a call by the runner that a user has."""
    import aotpipe
    from aotpipe.runtime import goldens

    inputs: Mapping[str, Any] = goldens.loads((built / "goldens.safetensors").read_bytes())[0].inputs
    with aotpipe.load(built, target=_TARGET, threads=1) as runner:
        first = _least(lambda: runner.infer(inputs), 3)
        return 1e6 * _least(lambda: runner.infer(inputs), max(5, int(seconds / first)))


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("cases", nargs="+", metavar="CASE")
    found.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    found.add_argument("--rows", type=int, default=6, help="kernels of each case")
    found.add_argument("--json", type=Path)
    options = found.parse_args()
    most = rates()
    print(f"one thread: {most[0] / 1e9:.0f} GFLOP/s, {most[1] / 1e9:.1f} GB/s", flush=True)
    rows = []
    for case in options.cases:
        spec = spec_named(case)
        with tempfile.TemporaryDirectory() as name:
            built = bundle(spec, Path(name) / "b")
            row = {
                "case": case,
                "us": least_us(built, options.seconds),
                "peak_us": peak_us(spec, most),
                "kernels": [each._asdict() for each in kernels(built, options.seconds)],
            }
        rows.append(row)
        total = sum(each["us"] for each in row["kernels"])
        print(f"{case}: {row['us']:.0f} us, peak {row['peak_us']:.0f} us ({row['peak_us'] / row['us']:.2f})")
        for each in row["kernels"][: options.rows]:
            share = each["us"] / total
            print(f"  {share:5.2f} {each['us']:10.1f} us {each['starts']:6.0f}  {each['name']}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
