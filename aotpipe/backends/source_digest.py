"""What of aotpipe's own source can change the programs that a backend's compiler gives. Torch-free."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from aotpipe.core.targets import Backend
from aotpipe.runtime.toolchain import source_digest
from aotpipe.runtime.xla import container

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
