"""Builds a model twice, under circumstances that must not matter, and compares every byte.

    python scripts/reproduce.py [MODEL] [-t TARGET ...] [--buckets DIM=SIZES ...] [--keep FOLDER]

The second build has another folder, umask, home, user name, locale, time zone and hash seed, no cache, one
compile at a time and, where there is a C compiler, a clock that is 400 days ahead (`other_day.c`). Prints
what was varied, digests (bundle, OCI artifact, archive, attestations), and the first byte that differs. Exits
1 where one does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DAYS = 400


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model", nargs="?", type=Path, default=ROOT / "models" / "cond_activation.py")
    arguments.add_argument("-t", "--target", action="append")
    arguments.add_argument("--buckets", action="append", default=[], help="of `aotpipe build`, for XLA")
    arguments.add_argument("--keep", type=Path, help="a new folder, in which both builds stay")
    asked = arguments.parse_args()
    targets = asked.target or ["iree-cpu-host", "iree-vmvx"]
    buckets = [option for each in asked.buckets for option in ("--buckets", each)]
    with contextlib.ExitStack() as stack:
        root = asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        root = root.resolve()
        first, second = root / "first", root / "a second place" / "below"
        root.mkdir(parents=True, exist_ok=True)
        later, problem = _later(root)
        print(
            "varied: folder, umask, HOME, USER, LC_ALL, TZ, PYTHONHASHSEED, cache, jobs"
            + ("" if problem else ", day")
        )
        if problem:
            print(f"not varied: the day ({problem})")
        print("not varied: the CPU, the toolchain")
        _build(first, asked.model, targets, ["--jobs", "2", *buckets], umask=0o022)
        others = {
            "USER": "other",
            "LOGNAME": "other",
            "LC_ALL": "C",
            "TZ": "Pacific/Kiritimati",
            "PYTHONHASHSEED": "7",
        }
        options = ["--jobs", "1", "--no-cache", *buckets]
        _build(second, asked.model, targets, options, umask=0o077, **others, **later)
        return _compared(first, second)


def _later(folder: Path) -> tuple[dict[str, str], str]:
    """Variables that give a process and what it starts a later day, or what is missing for it."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        return {}, "there is no C compiler"
    library = folder / "other_day.so"
    argv = [compiler, "-shared", "-fPIC", "-O1", ROOT / "scripts" / "other_day.c", "-o", library, "-ldl"]
    made = subprocess.run(argv, capture_output=True, text=True)
    if made.returncode:
        return {}, f"{compiler} failed: {made.stderr.strip().splitlines()[-1]}"
    preloaded = [os.environ["LD_PRELOAD"]] if os.environ.get("LD_PRELOAD") else []
    variables = {"LD_PRELOAD": " ".join([str(library), *preloaded]), "AOTPIPE_DAYS": str(DAYS)}
    clock = [sys.executable, "-c", "import time; print(time.time())"]
    told = subprocess.run(
        clock, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True, check=True
    )
    if float(told.stdout) - time.time() < (DAYS - 1) * 24 * 60 * 60:
        return {}, "a preloaded library does not move Python's clock"
    return variables, ""


def _build(
    folder: Path, model: Path, targets: list[str], options: list[str], *, umask: int, **variables: str
) -> None:
    (folder / "home").mkdir(parents=True)
    shutil.copytree(model.parent, folder / "models", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder / "home"), **variables}
    environment["AOTPIPE_CACHE"] = str(folder / "cache")
    aotpipe = [sys.executable, "-P", "-m", "aotpipe"]
    named = [option for target in targets for option in ("-t", target)]
    for argv in (
        ["build", f"models/{model.name}", "--quiet", "--no-latency", "--out", "out/b", *named, *options],
        ["archive", "out/b", "-o", "out/b.tar"],
        ["attest", "out/b"],
    ):
        done = subprocess.run(
            [*aotpipe, *argv], cwd=folder, env=environment, umask=umask, stdout=subprocess.DEVNULL
        )
        if done.returncode:
            # The folder is gone with the process, and what went wrong is in its logs alone.
            for log in sorted((folder / "cache" / "logs").glob("*.log")):
                print(log.read_text(), file=sys.stderr)
            done.check_returncode()


def _compared(first: Path, second: Path) -> int:
    from aotpipe.runtime.bundle import oci, open_bundle
    from aotpipe.runtime.store import file_digest

    failed = False
    pairs = {
        path.relative_to(root)
        for root in (first, second)
        for path in (root / "out").rglob("*")
        if path.is_file()
    }
    for name in sorted(pairs):
        if name.parts[1] == "b.report":  # times and paths of a build
            continue
        if difference := _difference(first / name, second / name):
            print(f"{name}: {difference}")
            failed = True
    manifest = open_bundle(first / "out" / "b").manifest
    print(f"{'bundle':<14} {manifest.digest}")
    print(f"{'OCI artifact':<14} {oci.artifact_digest(manifest)}")
    for name in ("b.tar", "b.intoto.json", "b.cdx.json"):
        print(f"{name:<14} {file_digest(first / 'out' / name)}")
    print("different" if failed else "equal, byte for byte")
    return int(failed)


def _difference(first: Path, second: Path) -> str:
    """Where two files differ first; empty where they are equal."""
    if not (first.exists() and second.exists()):
        return "is there once"
    a, b = first.read_bytes(), second.read_bytes()
    if a == b:
        return ""
    at = next(
        (at for at, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), min(len(a), len(b))
    )
    around = slice(max(0, at - 24), at + 24)
    return f"byte {at} differs: {a[around]!r} and {b[around]!r}"


if __name__ == "__main__":
    sys.exit(main())
