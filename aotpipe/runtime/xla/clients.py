"""XLA's clients of this process: one for each platform, made when first asked for.

Torch-free; needs jaxlib only. Raises `IncompatibleHost` where jaxlib is not installed or the
platform has no device here, and `ProgramCrashed` in a process that was forked from one with a client.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from aotpipe.errors import IncompatibleHost, ProgramCrashed

_lock = threading.Lock()
_clients: dict[tuple[str, int, int | None], Any] = {}
# XLA sizes the thread pool of a client by these when it is made.
_THREADS: Final = "NPROC"
_LOG_LEVEL: Final = "TF_CPP_MIN_LOG_LEVEL"
_NO_INFO: Final = "1"


_was_forked = False


def _after_fork() -> None:
    global _lock, _was_forked
    _lock = threading.Lock()
    _was_forked = _was_forked or bool(_clients)
    for each in _clients.values():
        # A child has none of their threads, for which loading a program waits, and so does their destructor.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    _clients.clear()


os.register_at_fork(after_in_child=_after_fork)


def bindings() -> Any:
    """Jaxlib's bindings of XLA.

    Raises:
        IncompatibleHost: jaxlib is not installed.
    """
    with _environment({_LOG_LEVEL: os.environ.get(_LOG_LEVEL, _NO_INFO)}):
        try:
            from jaxlib import xla_client
        except ImportError as error:
            raise IncompatibleHost(
                "jaxlib is not installed, and XLA programs need it",
                reason=str(error),
                hint="pip install 'aotpipe[xla]'",
            ) from error
    return xla_client


def devices(platform: str, count: int, threads: int | None = None) -> tuple[Any, ...]:
    """As many devices of a platform as are asked for; a CPU is any number of them.

    A program runs on so many threads, or one per core; the number counts for the first client only.

    Raises:
        IncompatibleHost: There are none here.
        ProgramCrashed: This process was forked from one that had some.
    """
    if _was_forked:
        # XLA's threads begin with a lock of the whole process, to enter their names. Where a thread of the
        # parent had it at the fork, those of the child wait for ever: about 1 child of 50.
        raise ProgramCrashed(
            "this process was forked from one that had loaded an XLA program",
            reason="its locks are as the threads of the other had them, which are not here",
            hint="fork before the first XLA program is loaded, or start workers with the method `spawn`",
        )
    key = (platform, count, threads)
    with _lock:
        if key not in _clients:
            _clients[key] = _created(*key)
        return tuple(_clients[key].devices())


def options(ids: Sequence[int], decided: Sequence[bool] = ()) -> Any:
    """What XLA is told of a program for some devices.

    `ids` are in the order of the mesh; `decided` tells for each result whether the partitioner decides where
    its parts are.
    """
    xla = bindings()
    found = xla.CompileOptions()
    if len(ids) > 1:
        found.num_replicas, found.num_partitions = 1, len(ids)
        found.device_assignment = xla.DeviceAssignment.create(np.array([ids]))
        build = found.executable_build_options
        build.use_spmd_partitioning = True
        # Shardy, the other partitioner, reads no annotations that portable StableHLO can hold.
        build.use_shardy_partitioner = False
        if decided:
            build.allow_spmd_sharding_propagation_to_output = list(decided)
    return found


def _created(platform: str, count: int, threads: int | None) -> Any:
    xla = bindings()
    if platform != "cpu":
        raise IncompatibleHost(f"this machine has no {platform} device that aotpipe can run on")
    settings = {} if threads is None else {_THREADS: str(threads)}
    with _environment({_LOG_LEVEL: os.environ.get(_LOG_LEVEL, _NO_INFO), **settings}):
        # Synchronous: a call's results are read at once, and handing over to a thread costs time.
        return xla.make_cpu_client(asynchronous=False, num_devices=count)


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
