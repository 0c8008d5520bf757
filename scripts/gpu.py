"""Every check that needs a GPU, in one call: the programs of all models at parity and timed beside torch.

usage: gpu.py [--device cuda|cpu] [--minutes M] [--json FILE] [CASE...]

First all models are built, several at a time, by the same code as `aotpipe build`; then, while time is left,
each is timed alone (`latency.py`), its programs taken from the cache. What there was no time for is listed as
such. `--device cpu` does the same with this machine's CPU, which is how the script itself is tested.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

import latency  # noqa: E402  # a script beside this one

MORE = (
    "dynamic_batch.py",
    "mtcnn.py:PNET",
    "mtcnn.py",
    "voice_encoder.py",
    "silero_vad.py",
    "mtcnn_detect.py",
    "nam52.py",
)
# Of the time, for building; the rest is for timing.
SHARE = 0.6


def targets(device: str) -> list[str]:
    """IREE's for the best architecture that the GPU has, and those of XLA."""
    from aotpipe.core.targets import table
    from aotpipe.runtime.iree import devices

    if device == "cpu":
        return ["iree-cpu-host"]
    here = devices.cuda_capability()
    architectures = [int(name.rpartition("_")[2]) for name in table() if name.startswith("iree-cuda-sm_")]
    best = max(each for each in architectures if each <= here)
    return [f"iree-cuda-sm_{best}", *(name for name in table() if name.startswith("xla-cuda"))]


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Build all, then time all, within the minutes."""
    from aotpipe.runtime.iree import devices

    started = time.monotonic()
    cases = options.cases or [*latency.CASES, *MORE]
    options.target, options.threads = ",".join(targets(options.device)), str(devices.cores())

    def left_s(share: float = 1.0) -> float:
        return options.minutes * 60 * share - (time.monotonic() - started)

    def build(case: str) -> list[dict[str, Any]]:
        if left_s(SHARE) < 5:
            return [{"case": case, "status": "failed", "reason": "no time was left to build it"}]
        return latency.run_case(case, options, timeout_s=left_s(SHARE))

    options.parity_only = True
    with ThreadPoolExecutor(max(1, devices.cores() // 3)) as pool:
        built = [row for rows in pool.map(build, cases) for row in rows]
    print("\n".join(map(latency.shown, built)), flush=True)

    options.parity_only = False
    timed: list[dict[str, Any]] = []
    for case in dict.fromkeys(row["case"] for row in built if row["status"] == "executed"):
        rows = [{"case": case, "status": "failed", "reason": "no time was left to time it"}]
        if left_s() > 20:
            rows = latency.run_case(case, options, timeout_s=left_s())
        timed += rows
        print("\n".join(map(latency.shown, rows)), flush=True)
    gpu = ", ".join(devices.names("cuda"))
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": gpu if options.device == "cuda" else platform.machine(),
        "targets": options.target.split(","),
        "wall_s": round(time.monotonic() - started, 1),
        "parity": built,
        "latency": timed,
        "geometric_means": latency.geometric_means(timed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--minutes", type=float, default=8.5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of timing each entry point")
    parser.add_argument("--json", type=Path, default=Path("gpu.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["AOTPIPE_CACHE"] = cache
        found = run(options)
    options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found["geometric_means"]))
    sys.exit(any(row["status"] == "failed" for row in found["parity"]))


if __name__ == "__main__":
    main()
