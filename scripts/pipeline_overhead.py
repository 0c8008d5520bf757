"""Where a cold build's time goes: torch.export, the compiler, running the model, and the pipeline itself.

usage: pipeline_overhead.py [MODEL [TARGET...]]

Nested calls count for the outermost kind, and only what the build itself does or waits for: a compiler runs
beside eager's answers. Decompositions are torch.export's own (`run_decompositions` and its table). The import
of torch, of what torch.export imports at its first call, and of the compiler's Python modules is a row of its
own. Running the model is its import and construction, eager's answers, and the programs' answers and times:
work that any comparison with PyTorch has to do. The rest is the pipeline's own.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from aotpipe.model.garbage_collector import import_torch

SPENT: Counter[str] = Counter()
_inside = threading.local()


def charge(kind: str, owner: Any, name: str) -> None:
    """Count the time inside a function, in the main thread and not within another counted one."""
    original: Callable[..., Any] = getattr(owner, name)

    @wraps(original)
    def timed(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() or getattr(_inside, "busy", False):
            return original(*args, **kwargs)
        _inside.busy = True
        start = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            SPENT[kind] += time.perf_counter() - start
            _inside.busy = False

    setattr(owner, name, timed)


def main(model: str = "models/minilm.py", *targets: str) -> None:
    start = time.perf_counter()
    import_torch()
    import_module("torch._dynamo")
    import_module("iree.compiler.extras.fx_importer")
    import torch

    SPENT["importing torch and iree"] = time.perf_counter() - start

    from aotpipe import validate
    from aotpipe.build.build import Settings, run
    from aotpipe.build.compile_stage import Compiling
    from aotpipe.build.request import Request
    from aotpipe.model import spec
    from aotpipe.runtime.worker import Worker
    from aotpipe.validate.eager.eager import Eager

    charge("torch.export", torch.export, "export")
    charge("torch.export", torch.export, "default_decompositions")
    charge("torch.export", torch.export.ExportedProgram, "run_decompositions")
    charge("compiler", Compiling, "wait")
    charge("running the model", spec, "load")
    charge("running the model", import_module("aotpipe.canonicalize"), "_build")
    charge("running the model", import_module("aotpipe.canonicalize.example_call"), "again")
    charge("running the model", Eager, "infer")
    for name in ("load", "infer", "time"):
        charge("running the model", Worker, name)
    charge("running the model", validate, "_time")

    with tempfile.TemporaryDirectory() as folder:
        os.environ["AOTPIPE_CACHE"] = str(Path(folder) / "cache")
        request = Request.of(model, targets or ("iree-cpu-host",))
        outcome = run(request, Settings(out=Path(folder) / "out"))
    total = time.perf_counter() - start
    own = total - sum(SPENT.values())
    rows = [*SPENT.most_common(), ("the pipeline itself", own), ("total", total)]
    for kind, seconds in rows:
        print(f"{kind:<22}{seconds:8.2f} s{seconds / total:8.1%}")
    print(f"\n{', '.join(row.target + ' ' + row.status for row in outcome.report.targets)}")
    running = own + SPENT["running the model"]
    imported = own + SPENT["importing torch and iree"]
    print(
        f"own time: {own / total:.1%} of a cold build (limit 15%); "
        f"{running / total:.1%} with running the model, {imported / total:.1%} with the imports"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
