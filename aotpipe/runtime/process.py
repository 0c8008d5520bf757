"""Runs a tool under a time limit and a memory limit, and says how it ended and what it cost.

The tool gets its own process group, so that everything it started ends with it: at a limit, at Ctrl-C and on
any exception. Ctrl-C reaches the main thread only; `stop_with(event)` ends the tools of other threads. Output
goes to files: a pipe that nobody reads would stop the tool.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from aotpipe import errors
from aotpipe.errors import Interrupted

Ending = Literal["exited", "signalled", "timeout", "memory"]

_PR_SET_PDEATHSIG: Final = 1
_FIRST_POLL_S: Final = 0.001
_LAST_POLL_S: Final = 0.02
_STOP: Final[ContextVar[threading.Event | None]] = ContextVar("stop", default=None)
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


_fork_lock = threading.RLock()


@contextmanager
def forks_held() -> Iterator[None]:
    """Let forks of this process by other threads wait until the block is done.

    A child has the locks that a library or an import holds at the fork, and not the threads that would free
    them. What Python starts by `subprocess` is no fork in this sense, and does not wait.
    """
    with _fork_lock:
        yield


def _let_children_fork() -> None:
    global _fork_lock
    _fork_lock = threading.RLock()


os.register_at_fork(
    before=lambda: _fork_lock.acquire(),
    after_in_parent=lambda: _fork_lock.release(),
    after_in_child=_let_children_fork,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a tool ended.

    Attributes:
        ending: `timeout` and `memory` mean that a limit was passed and the tool was killed.
        code: The exit code of `exited`, the signal's number of `signalled`, else 0.
        peak_rss_bytes: The largest resident set of the tool or of one of its children. Where it stays below
            this process's own peak it is read while the tool runs, and its last 20 ms can go unseen.
    """

    ending: Ending
    code: int
    wall_s: float
    peak_rss_bytes: int
    stderr: str


def run(
    argv: Sequence[str],
    *,
    folder: Path,
    timeout_s: float,
    memory_limit_bytes: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a tool to its end.

    Args:
        argv: The program and its arguments.
        folder: Its working directory; `stdout.txt` and `stderr.txt` are written there, and its temporary
            files go there too.
        timeout_s: Seconds of wall time.
        memory_limit_bytes: Resident bytes; checked every 20 ms where the kernel shows them (Linux).
        env: Variables beside those of this process.

    Raises:
        OSError: The program cannot be started or the folder cannot be written.
        Interrupted: The event of `stop_with` was set.
    """
    _heed_stop()
    stderr_path = folder / "stderr.txt"
    started = time.monotonic()
    with (folder / "stdout.txt").open("wb") as stdout, stderr_path.open("wb") as stderr:
        process = subprocess.Popen(
            [*_ending_with_its_parent(), *argv],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, "TMPDIR": str(folder), **(env or {})},
            process_group=0,
        )
        try:
            ending, code, peak = _wait(process, started + timeout_s, memory_limit_bytes)
        finally:
            kill_group(process)
    return Outcome(
        ending=ending,
        code=code,
        wall_s=time.monotonic() - started,
        peak_rss_bytes=peak,
        stderr=stderr_path.read_text(encoding="utf-8", errors="replace"),
    )


@contextmanager
def stop_with(event: threading.Event) -> Iterator[None]:
    """In this thread, once `event` is set, the tool that runs is killed and none starts: `Interrupted`."""
    token = _STOP.set(event)
    try:
        yield
    finally:
        _STOP.reset(token)


def default_memory_limit() -> int:
    """Four fifths of this machine's or container's memory, in bytes."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        limit = "max"
    return 4 * min(total, int(limit) if limit.isdigit() else total) // 5


def python_path() -> str:
    """The PYTHONPATH by which another Python finds this very aotpipe, installed or not."""
    own = str(Path(errors.__file__).parents[1])
    return os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH"))))


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its own group, with all that it started, and reap it, if it is not yet."""
    # A reaped child's number may already belong to somebody else's group.
    if process.returncode is not None:
        return
    # The group may have ended by now; macOS answers EPERM for a group of zombies.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait(
    process: subprocess.Popen[bytes], deadline: float, memory_limit_bytes: int | None
) -> tuple[Ending, int, int]:
    """Wait for the end or for a limit: the ending, its code, and the peak resident bytes."""
    pause, seen = _FIRST_POLL_S, 0
    while True:
        # wait4 and not Popen.wait: it alone gives the resource use of this one child.
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            process.returncode = code
            peak = max(seen, _own_peak_bytes(usage.ru_maxrss))
            return ("exited", code, peak) if code >= 0 else ("signalled", -code, peak)
        seen = max(seen, peak_bytes(process.pid))
        if memory_limit_bytes is not None and seen > memory_limit_bytes:
            return "memory", 0, seen
        if time.monotonic() > deadline:
            return "timeout", 0, seen
        _heed_stop()
        time.sleep(pause)
        pause = min(2 * pause, _LAST_POLL_S)


def _heed_stop() -> None:
    stop = _STOP.get()
    if stop is not None and stop.is_set():
        raise Interrupted("interrupted while a tool ran")


def _own_peak_bytes(child_maxrss: int) -> int:
    """A child's peak; 0 where it cannot be told, since before its exec it counts as large as its parent."""
    parent_maxrss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return child_maxrss * 1024 if child_maxrss > parent_maxrss else 0


def peak_bytes(pid: int) -> int:
    """The peak of a running process as its kernel counts it; 0 where the kernel does not show it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    _, _, rest = status.partition("VmHWM:")
    return int(rest.split(maxsplit=1)[0]) * 1024 if rest else 0


def _ending_with_its_parent() -> Sequence[str]:
    """What starts a tool, with its arguments after it, so that it ends with the thread that waits for it."""
    if sys.platform != "linux":
        return ()
    # What is called between fork and exec (`preexec_fn`) may wait for a lock that another thread had.
    code = (
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(%d, %d); "
        "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
    )
    return (sys.executable, "-I", "-S", "-c", code % (_PR_SET_PDEATHSIG, signal.SIGKILL), str(os.getpid()))


def become_child(parent: int) -> bool:
    """Let this process end with the thread that started it, before that one's, and without a core file.

    Returns:
        Whether the parent, named by its PID, still lives.
    """
    if sys.platform == "linux":
        # A call that hangs does not see the end of a connection.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        # Where memory runs out, the kernel is to end this process and not its parent.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    return os.getppid() == parent
