"""What the compilers of both backends share: the digest of their source, errors of their runs."""

from __future__ import annotations

import signal
from functools import cache
from pathlib import Path
from typing import Final

from aotpipe.core.targets import Backend
from aotpipe.errors import CompileError, CompilerOutOfMemory, CompileTimeout
from aotpipe.runtime.process import Outcome
from aotpipe.runtime.toolchain import source_digest
from aotpipe.runtime.xla import container

DEFAULT_TIMEOUT_S: Final = 1800.0
_FOLDER: Final = Path(__file__).parent


def sources(backend: Backend) -> tuple[Path, ...]:
    """The folders and files that a backend's programs are made by."""
    # XLA's executables are put together by the module that the runtime reads them with.
    more = (Path(container.__file__),) if backend == "xla" else ()
    return (_FOLDER / backend, *more)


@cache
def backend_digest(backend: Backend) -> str:
    """SHA-256 of the source of a backend, read once per process: part of the key of each of its programs."""
    return source_digest(*sources(backend))


def limit_error(
    compiler: str,
    target: str,
    outcome: Outcome,
    timeout_s: float,
    limit_bytes: int,
    log: str,
    *,
    no_memory: bool = False,
) -> CompileError | None:
    """The error of a run that passed a limit; None for every other run.

    `no_memory` says that the compiler itself could not allocate.
    """
    if outcome.ending == "timeout":
        return CompileTimeout(
            f"{compiler} passed its limit of {timeout_s:g} s for {target}",
            hint="give it more time, or a smaller model",
            log=log,
        )
    # Nobody but the kernel sends SIGKILL.
    killed = outcome.ending == "signalled" and outcome.code == signal.SIGKILL
    if outcome.ending == "memory" or killed or no_memory:
        return CompilerOutOfMemory(
            f"{compiler} passed its memory limit of {limit_bytes / 2**30:.1f} GiB for {target}",
            reason=f"its resident set had grown to {outcome.peak_rss_bytes / 2**30:.1f} GiB",
            hint="give it more memory, or a smaller model",
            log=log,
        )
    return None
