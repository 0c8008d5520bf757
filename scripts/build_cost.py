"""What a cold build costs beside the least it can: torch.export and the compiler with the same flags.

usage: build_cost.py [--rounds N] [--json FILE] [CASE]

A case is one of latency.py's, or a reference below models/; `bert_base` by default. In turns, each in
processes of their own:

    bare    torch, the model and `torch.export.export` in one process, then `iree-compile` with the flags and
            the module of the build, weights outside
    one     `aotpipe build --no-cache` for iree-cpu-host: bundle written, executed and compared with eager
    three   the same for iree-cpu-host, iree-cpu-x86_64_v3 (with its variant) and iree-cpu-aarch64

The least of the rounds counts. Memory is the greatest of the resident bytes of one process of a build, and of
all of them together.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil

ROOT: Final = Path(__file__).resolve().parent.parent
TARGETS: Final = {
    "one": ["iree-cpu-host"],
    "three": ["iree-cpu-host", "iree-cpu-x86_64_v3", "iree-cpu-aarch64"],
}
PERIOD_S: Final = 0.05


def spec_of(case: str) -> Any:
    """The case's spec."""
    import latency

    return latency.CASES[case]() if case in latency.CASES else latency.file(case)


def exported(case: str, _folder: Path) -> None:
    """What a bare torch.export does."""
    import torch

    spec = spec_of(case)
    (point,) = spec.entry_points.values()
    torch.export.export(spec.build(), point.args, dict(point.kwargs))


def lowered(case: str, folder: Path) -> None:
    """Write the module and its flags; print the bytes of the weights."""
    from aotpipe.backends import legalization
    from aotpipe.backends.iree.compile import flags
    from aotpipe.backends.iree.lower import importer
    from aotpipe.canonicalize import canonicalize
    from aotpipe.core.targets import expand
    from aotpipe.export import export
    from aotpipe.passes import legalize

    legal = legalize(export(canonicalize(spec_of(case))), legalization())
    made = importer.lower(legal)
    (folder / "module.mlir").write_bytes(made.module)
    (target,) = expand(["iree-cpu-host"])
    chosen = [*target.row.flags, *flags.choose(made.module, made.dialect, target), flags.PREPROCESS]
    (folder / "flags.json").write_text(json.dumps(chosen))
    print(sum(each.numel() * each.element_size() for each in legal.weights.values()))


_MODEL: Final = """\
import sys
sys.path.insert(0, {scripts!r})
import build_cost

def spec():
    return build_cost.spec_of({case!r})
"""


def build(case: str, folder: Path, targets: list[str]) -> list[str]:
    """The command line of a cold build."""
    (folder / "model.py").write_text(_MODEL.format(scripts=str(ROOT / "scripts"), case=case))
    chosen = [word for target in targets for word in ("-t", target)]
    return [
        *(sys.executable, "-m", "aotpipe", "build", f"{folder}/model.py:spec", *chosen),
        *("--out", f"{folder}/bundle", "--no-cache", "--no-latency", "--quiet"),
    ]


def measured(*command: str) -> tuple[float, tuple[int, int], str]:
    """The seconds, the greatest resident bytes of one process and of all together, and the output."""
    start = time.perf_counter()
    process = psutil.Popen(command, stdout=subprocess.PIPE, text=True)
    largest = together = 0
    while process.poll() is None:
        resident = list(_resident(process))
        largest, together = max(largest, *resident, 0), max(together, sum(resident))
        time.sleep(PERIOD_S)
    spent = time.perf_counter() - start
    if process.returncode:
        sys.exit(f"failed: {' '.join(command)}")
    return spent, (largest, together), process.stdout.read()


def _resident(process: psutil.Process) -> Iterator[int]:
    try:
        for each in (process, *process.children(recursive=True)):
            yield each.memory_info().rss
    except psutil.NoSuchProcess:
        return


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="?", default="bert_base")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--do", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.do:
        {"exported": exported, "lowered": lowered}[options.do](options.case, options.folder)
        return
    least: dict[str, float] = {}
    peaks = (0, 0)
    with tempfile.TemporaryDirectory() as name:

        def run(what: str) -> tuple[float, tuple[int, int], str]:
            own = tempfile.mkdtemp(dir=name)
            if what in TARGETS:
                return measured(*build(options.case, Path(own), TARGETS[what]))
            return measured(sys.executable, __file__, options.case, "--do", what, "--folder", own)

        folder = Path(name)
        *_, output = measured(sys.executable, __file__, options.case, "--do", "lowered", "--folder", name)
        weights = int(output)
        flags = json.loads((folder / "flags.json").read_text())
        for _ in range(options.rounds):
            for what in ("exported", *TARGETS):
                spent, peak, _ = run(what)
                least[what] = min(spent, least.get(what, math.inf))
                if what == "one":
                    peaks = (max(peak[0], peaks[0]), max(peak[1], peaks[1]))
            spent, *_ = measured("iree-compile", f"{name}/module.mlir", "-o", f"{name}/out.vmfb", *flags)
            least["iree-compile"] = min(spent, least.get("iree-compile", math.inf))
    bare = least["exported"] + least["iree-compile"]
    print(f"torch.export {least['exported']:.1f} s, iree-compile {least['iree-compile']:.1f} s")
    print(f"one target   {least['one']:.1f} s, {least['one'] / bare:.2f} of both")
    print(f"three        {least['three']:.1f} s, {least['three'] / least['one']:.2f} of one")
    allowed = 2.5 * weights + 500e6
    print(f"weights {weights / 1e6:.0f} MB: 2.5 times + 500 MB are {allowed / 1e6:.0f} MB")
    for whose, peak in zip(("largest process", "all together"), peaks, strict=True):
        print(f"{whose:<15}  {peak / 1e6:.0f} MB, {peak / allowed:.2f} of that")
    if options.json:
        options.json.write_text(json.dumps({"seconds": least, "peaks": peaks, "weights": weights}) + "\n")


if __name__ == "__main__":
    main()
