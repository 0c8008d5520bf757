"""Compiles as tasks of Ray, so that the hosts of a cluster share the targets of a build.

A task takes a lowered module, as a compiler does, and gives the program or the typed error; the build keeps
programs in its own store, and finds those of earlier builds there. Ray places the tasks, and runs one again
elsewhere where its host is lost. Each host needs the extra `ray` and the same compilers as this one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import ray

from aotpipe.backends import compiler
from aotpipe.core.stages import Compiled, Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, CompileError, Interrupted
from aotpipe.runtime import toolchain

_POLL_S: Final = 0.1
_CONNECTING: Final = threading.Lock()


def compile(  # noqa: A001  # the stage's name
    lowered: Lowered, target: Target, stop: threading.Event, log_dir: Path, **options: Any
) -> Compiled:
    """Compile on some host of the cluster that RAY_ADDRESS names, or on this one.

    Args:
        lowered: The module.
        target: What to compile for; the CPU of this host alone has no other to be compiled on.
        stop: Once it is set, the task is ended.
        log_dir: Where a failed compile leaves its log, on its host.
        **options: Those of the compiler's `compile`.

    Raises:
        CompileError: The compiler gave no program, or no task ran to its end.
        Interrupted: `stop` was set.
    """
    with _CONNECTING:
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell others that it runs
            ray.init(log_to_driver=False)
    task = _compile.remote(lowered, target, toolchain.tools_digest(), {**options, "log_dir": log_dir})
    while not ray.wait([task], timeout=_POLL_S)[0]:
        if stop.is_set():
            ray.cancel(task, force=True)
            raise Interrupted("interrupted while a task of Ray compiled")
    try:
        found = ray.get(task)
    except Exception as error:  # Ray has many, and no base of them
        raise CompileError(f"{target}: no task of Ray gave a program", reason=str(error)) from error
    if isinstance(found, AotpipeError):
        raise found
    compiled: Compiled = found
    return compiled


@ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]  # Any, where ray is not installed
def _compile(
    lowered: Lowered, target: Target, tools: str, options: Mapping[str, Any]
) -> Compiled | AotpipeError:
    try:
        if toolchain.tools_digest() != tools:
            return CompileError(
                f"{target}: the host of a task has other compilers than that of the build",
                reason=", ".join(f"{name} {version}" for name, version in toolchain.versions().items()),
                hint="install the same versions on all hosts of the cluster",
            )
        return compiler(target).compile(lowered, target, **options)
    except AotpipeError as error:
        return error
