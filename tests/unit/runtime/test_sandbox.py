"""The sandbox, entered in a process of its own, which then tries what a program has no need of."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aotpipe.runtime import process

_TRY = """\
import errno, os, resource, socket, sys, threading
from aotpipe.core.targets import Target
from aotpipe.runtime import sandbox

sandbox.enter(Target.parse(sys.argv[1]), cpu_s=77)
refused = 0
def of(what, do):
    try:
        do()
        print(what, "done")
    except (OSError, MemoryError, RuntimeError) as error:
        print(what, type(error).__name__)
of("core", lambda: print(resource.getrlimit(resource.RLIMIT_CORE)))
of("cpu", lambda: print(resource.getrlimit(resource.RLIMIT_CPU)))
of("memory", lambda: bytearray(1 << 44))
of("libraries", lambda: open(os.__file__).close())
of("cpuinfo", lambda: open("/proc/cpuinfo").close())
of("thread", lambda: threading.Thread(target=int).start())
of("secret", lambda: open(sys.argv[2]).close())
of("write", lambda: open(sys.argv[2] + ".new", "w").close())
of("environ", lambda: open(f"/proc/{os.getppid()}/environ").close())
of("signal", lambda: os.kill(os.getppid(), 0))
of("tcp", lambda: socket.socket().close())
of("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close())
of("fork", lambda: os.fork() or os._exit(0))
print(open("/proc/self/status").read(), flush=True)
of("exec", lambda: os.execv("/bin/true", ["true"]))
"""


def tried(target: str, secret: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", _TRY, target, secret],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": process.python_path(), "PATH": "", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if len(line.split()) > 1)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has no_new_privs")
def test_limits_and_privileges_are_always_taken(tmp_path):
    (tmp_path / "secret").touch()
    found = tried("iree-cuda-sm_90", str(tmp_path / "secret"))
    assert [found[each] for each in ("memory", "thread", "secret", "fork")] == ["MemoryError", *["done"] * 3]
    assert found["(0,"] == "0)"
    assert found["(77,"] == "77)"
    assert found["NoNewPrivs:"] == "1"


def test_files_sockets_and_processes_are_out_of_reach(tmp_path):
    """For programs of the CPU, where the packages are installed and the kernel has both."""
    landlockpy, seccompy = map(pytest.importorskip, ("landlockpy", "seccompy"))
    if not (landlockpy.supported() and seccompy.supported()):
        pytest.skip("this kernel has no Landlock or no seccomp")
    (tmp_path / "secret").touch()
    found = tried("iree-vmvx", str(tmp_path / "secret"))
    may = {"core", "cpu", "libraries", "cpuinfo", "thread"}
    tries = set("memory secret write environ signal tcp udp exec fork".split())
    assert {each for each in may | tries if found.get(each, "done") == "done"} == may
    assert found["Seccomp:"] == "2"
