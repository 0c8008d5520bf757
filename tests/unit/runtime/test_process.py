"""Running a tool: how each kind of end is told apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from aotpipe.errors import Interrupted
from aotpipe.runtime import process


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_an_exit_keeps_its_code_and_what_it_said(tmp_path: Path) -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    outcome = process.run(_python(code), folder=tmp_path, timeout_s=30)
    assert (outcome.ending, outcome.code, outcome.stderr) == ("exited", 3, "err\n")
    assert (tmp_path / "stdout.txt").read_text() == "out\n"


def test_the_peak_memory_is_measured(tmp_path: Path) -> None:
    code = "x = b'1' * 200_000_000; del x; import time; time.sleep(0.2)"
    outcome = process.run(_python(code), folder=tmp_path, timeout_s=30)
    assert 200_000_000 < outcome.peak_rss_bytes < 400_000_000


def test_the_peak_memory_is_not_that_of_the_parent(tmp_path: Path) -> None:
    ballast = bytearray(300_000_000)
    ballast[::4096] = b"1" * len(ballast[::4096])
    outcome = process.run(_python("import time; time.sleep(0.2)"), folder=tmp_path, timeout_s=30)
    assert 1_000_000 < outcome.peak_rss_bytes < 100_000_000
    del ballast


def test_a_signal_is_told_from_an_exit(tmp_path: Path) -> None:
    outcome = process.run(_python("import os; os.abort()"), folder=tmp_path, timeout_s=30)
    assert (outcome.ending, outcome.code) == ("signalled", signal.SIGABRT)


def test_a_hang_ends_at_the_time_limit_with_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        "open('child', 'w').write(str(child.pid)); time.sleep(60)"
    )
    started = time.monotonic()
    outcome = process.run(_python(code), folder=tmp_path, timeout_s=1.5)
    assert outcome.ending == "timeout"
    assert time.monotonic() - started < 30  # half of what the child would take
    _assert_gone(int((tmp_path / "child").read_text()))


def test_memory_beyond_the_limit_ends_it(tmp_path: Path) -> None:
    code = "import time; x = b'1' * 500_000_000; time.sleep(60)"
    outcome = process.run(_python(code), folder=tmp_path, timeout_s=30, memory_limit_bytes=100_000_000)
    assert outcome.ending == "memory"


@pytest.mark.usefixtures("ctrl_c_is_heeded")
def test_an_interrupt_leaves_nothing_running(tmp_path: Path) -> None:
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"

    def interrupt() -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        process.run(_python(code), folder=tmp_path, timeout_s=30)
    thread.join()
    _assert_gone(int((tmp_path / "pid").read_text()))


def test_a_tool_of_another_thread_is_stopped(tmp_path: Path) -> None:
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    stop, caught = threading.Event(), []

    def work() -> None:
        with process.stop_with(stop), pytest.raises(Interrupted) as error:
            process.run(_python(code), folder=tmp_path, timeout_s=30)
        caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.01)
    stop.set()
    thread.join(10)
    assert caught
    _assert_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="a kernel that tells no child of its parent's end")
def test_a_tool_ends_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    waiting = (
        "import pathlib, sys; from aotpipe.runtime import process; "
        f"process.run([sys.executable, '-c', {code!r}], folder=pathlib.Path({str(tmp_path)!r}), timeout_s=60)"
    )
    environment = {**os.environ, "PYTHONPATH": process.python_path()}
    parent = subprocess.Popen(_python(waiting), env=environment)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    _assert_gone(int((tmp_path / "pid").read_text()))


def test_the_default_limit_leaves_memory_to_the_rest() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < process.default_memory_limit() < total


def _assert_gone(pid: int) -> None:
    """A killed process may stay a zombie for a moment, until its parent or init reaps it."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} is still running")


def test_a_fork_waits_for_a_lock_that_another_thread_holds() -> None:
    code = """
import os, threading, time
from aotpipe.runtime import process

began, ended = threading.Event(), []
def hold():
    with process.forks_held():
        began.set()
        time.sleep(0.2)
        ended.append(1)
threading.Thread(target=hold).start()
began.wait()
child = os.fork()
held = len(ended)
with process.forks_held():  # free in both
    if not child:
        os._exit(held)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == held == 1
"""
    environment = {**os.environ, "PYTHONPATH": process.python_path()}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)
