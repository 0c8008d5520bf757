"""Reads the manifests of bundles, and checks their signatures, in a process that ends when it has.

Takes the paths of bundles, or of folders of versions; gives each `Opened`. pydantic, which reads a manifest,
and what checks a signature would stay in the server's memory for as long as it runs (10 MB and more), and its
event loop would answer nobody while they are imported. The process also reads while the server is imported.

Raises `ServeError`, `BundleError`, `SignatureInvalid`.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from aotpipe.errors import AotpipeError, ServeError
from aotpipe.runtime import process

if TYPE_CHECKING:
    from aotpipe.runtime.bundle.files import Bundle

_TIMEOUT_S: Final = 300.0
_FIRST_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class Opened:
    """A bundle whose manifest was read.

    Attributes:
        path: What was asked for: the bundle, or a folder of versions of it.
        version: Its name in that folder.
    """

    path: Path
    version: str
    bundle: Bundle


class Opening:
    """Bundles that a process of its own is reading; a context manager, which ends it.

    Args:
        paths: Bundles, or folders of versions, of which the highest is opened.
        key: The file of the public key with which each must be signed.
    """

    def __init__(self, paths: Sequence[Path], key: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [
                # Not by -m: what it pickles is to be of this module, and not of __main__.
                *(sys.executable, "-P", "-c", f"from {__name__} import main; main()"),
                *(str(os.getpid()), os.fspath(key) if key else "", *map(os.fspath, paths)),
            ],
            # numpy would start a thread for each core, which takes half of its import.
            env={**os.environ, "PYTHONPATH": process.python_path(), "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            process_group=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.communicate()

    def kill(self) -> None:
        """End the process; `bundles` raises."""
        process.kill_group(self._process)

    def bundles(self) -> list[Opened]:
        """Each bundle, once all are read.

        Raises:
            AotpipeError: The first that cannot be read, or is not signed with the key.
        """
        try:
            data, _ = self._process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise ServeError(f"a bundle could not be read in {_TIMEOUT_S:.0f} s") from error
        if self._process.returncode:
            raise ServeError(
                "a bundle could not be read", reason=f"the reader ended with code {self._process.returncode}"
            )
        answers: list[Opened | AotpipeError] = pickle.loads(data)  # noqa: S301  # the server's own child
        opened = []
        for answer in answers:
            if isinstance(answer, AotpipeError):
                raise answer
            opened.append(answer)
        return opened


async def opened(path: Path, key: Path | None) -> Opened:
    """A bundle that a process of its own reads, while the event loop goes on.

    Raises:
        AotpipeError: It cannot be read, or is not signed with the key.
    """
    with Opening([path], key) as opening:
        reading = asyncio.ensure_future(asyncio.to_thread(opening.bundles))
        try:
            (found,) = await asyncio.shield(reading)
        except asyncio.CancelledError:
            opening.kill()
            await asyncio.wait([reading])  # the pipe is the thread's as long as it reads
            reading.exception()
            raise
    return found


def read(path: Path, key: Path | None = None) -> Opened:
    """Open a bundle, or the highest version in a folder of them, in this process.

    Raises:
        AotpipeError: It cannot be read, or is not signed with the key.
    """
    from aotpipe.runtime.bundle import files, signatures

    version, folder = _version(path)
    return Opened(path, version, signatures.trusted(folder, key) if key else files.open_bundle(folder))


def named(text: str) -> tuple[str, Path]:
    """The name, which may be empty, and the path in `PATH` or `NAME=PATH`."""
    name, _, path = text.rpartition("=")
    return name, Path(path)


def main() -> None:
    """Read the bundles that the command line names, and write to stdout what became of each."""
    parent, key, *paths = sys.argv[1:]
    if not process.become_child(int(parent)):
        return
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a library prints is no answer
        pickle.dump([_answer(Path(path), Path(key) if key else None) for path in paths], answers)


def _answer(path: Path, key: Path | None) -> Opened | AotpipeError:
    try:
        return read(path, key)
    except AotpipeError as error:
        return error


def _version(path: Path) -> tuple[str, Path]:
    """The highest version in a folder of versions, or the bundle itself as the first."""
    try:
        versions = [each.name for each in path.iterdir() if each.name.isdecimal() and each.is_dir()]
    except OSError:
        versions = []
    highest: Callable[[str], int] = int
    version = max(versions, key=highest, default="")
    return (version, path / version) if version else (_FIRST_VERSION, path)
