"""Kills a build (SIGKILL) at random moments, and looks at what is left.

    python scripts/kills.py [--moments 40] [--seed 1]

Counts the bundles that are neither whole nor absent, the processes that are left 2 s after a kill, and the
temporary folders that are left after the next build. Exits 1 where one of them is not 0.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODEL = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, %d)).eval()
EXAMPLE_INPUTS = (torch.ones(2, 64),)
"""
ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--moments", type=int, default=40)
    arguments.add_argument("--seed", type=int, default=1)
    asked = arguments.parse_args()
    draw = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        took_s = _timed(folder)
        found = [_killed(folder, number, draw.uniform(0, took_s)) for number in range(asked.moments)]
        left = _left(folder, asked.moments)
    ran, torn, alive = (sum(each) for each in zip(*found, strict=True))
    print(f"{asked.moments} kills within {took_s:.1f} s, seed {asked.seed}; {ran} of running builds")
    print(f"bundles neither whole nor absent: {torn}")
    print(f"processes left after 2 s: {alive}")
    print(f"temporary folders left after the next build: {len(left)} {' '.join(left)}".rstrip())
    return bool(torn or alive or left)


def _build(folder: Path, width: int) -> subprocess.Popen[bytes]:
    for each in ("tmp", "cache"):
        (folder / each).mkdir(exist_ok=True)
    (folder / "model.py").write_text(MODEL % width)
    # What a build starts has this variable, by which it is found among all processes.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")}
    environment |= {"AOTPIPE_CACHE": str(folder / "cache"), "AOTPIPE_KILLS": str(folder)}
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "torch")  # which torch makes, and keeps
    argv = "-P -m aotpipe build model.py --quiet --out out/bundle -t iree-cpu-host -t iree-vmvx".split()
    return subprocess.Popen([sys.executable, *argv], cwd=folder, env=environment, stdout=subprocess.DEVNULL)


def _timed(folder: Path) -> float:
    """Seconds of a build with nothing of its own in the cache; the first one reads all of Python's files."""
    for width in (31, 32):
        start = time.monotonic()
        if _build(folder, width).wait():
            raise SystemExit("the build fails")
    return time.monotonic() - start


def _killed(folder: Path, number: int, after_s: float) -> tuple[bool, bool, int]:
    """Whether the build ran still, whether the bundle is torn, and how many processes are left.

    Each build has weights of its own.
    """
    from aotpipe import errors
    from aotpipe.runtime import bundle

    process = _build(folder, 33 + number)
    time.sleep(after_s)
    ran = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    torn = False
    if (folder / "out" / "bundle").exists():
        try:
            bundle.verify(folder / "out" / "bundle")
        except errors.AotpipeError as error:
            torn = True
            print(f"after {after_s:.2f} s: {error}", file=sys.stderr)
    time.sleep(2)
    return ran, torn, len(_processes(folder))


def _processes(folder: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"AOTPIPE_KILLS={folder}\0".encode() in path.read_bytes():
                found.append(
                    (path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
        except OSError:
            continue
    for each in found:
        print(f"left: {each[:200]}", file=sys.stderr)
    return found


def _left(folder: Path, number: int) -> list[str]:
    """The temporary folders and files after one more build."""
    if _build(folder, 33 + number).wait():
        raise SystemExit("the build after the kills fails")
    kept = {"bundle", "bundle.report"}
    places = ("tmp", "cache/tmp", "out")
    found = [path for place in places for path in (folder / place).iterdir()]
    return [str(path.relative_to(folder)) for path in found if path.name not in kept]


if __name__ == "__main__":
    sys.exit(main())
