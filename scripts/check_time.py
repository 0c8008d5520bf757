"""How long `aotpipe check` takes, in a process of its own for each model.

usage: check_time.py [MODEL]...

What comes after the imports of torch, of the compiler and of the model counts; the CPU seconds
are of the same part, and steadier where other work runs.
"""

from __future__ import annotations

import json
import subprocess
import sys

LIMIT_S = 5.0
MODELS = ("models/resnet50.py:SPEC",)

CHECK = """
import json, sys, time
import aotpipe, torch
from aotpipe.model import spec
import aotpipe.tools.check.examine
import iree.compiler.extras.fx_importer
found = spec.load(sys.argv[1])
found.build()
start, cpu = time.perf_counter(), time.process_time()
checked = aotpipe.check(found)
print(json.dumps({
    "wall_s": time.perf_counter() - start,
    "cpu_s": time.process_time() - cpu,
    "ok": checked.ok,
}))
"""


def main(*models: str) -> int:
    worst = 0.0
    for model in models or MODELS:
        ran = subprocess.run([sys.executable, "-c", CHECK, model], check=True, capture_output=True, text=True)
        found = json.loads(ran.stdout.splitlines()[-1])
        worst = max(worst, found["wall_s"])
        print(f"{model:<32}{found['wall_s']:8.2f} s{found['cpu_s']:8.2f} s of CPU   ok: {found['ok']}")
    print(f"at most {worst:.2f} s (limit {LIMIT_S:.0f} s)")
    return int(worst > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
