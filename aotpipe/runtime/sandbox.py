"""Takes from a process, before it loads a program that nobody vouches for, what a program has no need of.

Always: a bound of memory, CPU time, open files and the size of a file that it writes, no core file, and on
Linux no way to new privileges (setuid). Where `aotpipe[sandbox]` is installed and the kernel has Landlock and
seccomp, for programs of the CPU: it reads the folders of the system and of Python, writes nowhere, opens no
socket, and starts, traces and signals no other process. The drivers of GPUs need more than that.

What the process has open stays open. Torch-free.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

from aotpipe.core.targets import Target
from aotpipe.runtime import process
from aotpipe.runtime.installed import is_installed

_PR_SET_NO_NEW_PRIVS: Final = 38
_OPEN_FILES: Final = 1024
# What it says on stderr, too.
_FILE_BYTES: Final = 64 << 20
_CLONE_THREAD: Final = 0x10000
# Where a runtime looks for libraries, for what the CPU is, and for the clock.
_READABLE: Final = (
    *("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/sys"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/dev/zero", "/dev/random", "/dev/urandom"),
)
_FORBIDDEN: Final = (
    "socket socketpair execve execveat fork vfork tkill rt_sigqueueinfo pidfd_open pidfd_send_signal ptrace "
    "process_vm_readv process_vm_writev shmat msgget mq_open unshare setns mount umount2 chroot pivot_root "
    "open_by_handle_at bpf perf_event_open userfaultfd io_uring_setup memfd_secret keyctl add_key "
    "request_key init_module finit_module kexec_load reboot swapon"
)


def enter(target: Target, *, cpu_s: int) -> None:
    """Restrict this process for ever; `target` is of the program that it will run, for `cpu_s` at most."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_DATA: process.default_memory_limit(),
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_FSIZE: _FILE_BYTES,
    }
    for kind, limit in limits.items():
        _, most = resource.getrlimit(kind)
        least = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (least, least))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if target.device in {"cpu", "vmvx"}:
            restrictions = [
                restrict
                for restrict, package in ((_restrict_files, "landlockpy"), (_restrict_calls, "seccompy"))
                # Imported before anything is restricted: they look for libc with the help of other programs.
                if is_installed(package) and import_module(package).supported()
            ]
            for restrict in restrictions:
                restrict()


def _restrict_files() -> None:
    from landlockpy import AccessFS, RestrictFlag, Ruleset, Scope

    reading = AccessFS.READ_FILE | AccessFS.READ_DIR
    with Ruleset(scoped=Scope.SIGNAL | Scope.ABSTRACT_UNIX_SOCKET) as ruleset:
        for path in {*_READABLE, sys.prefix, sys.base_prefix, *sys.path}:
            if os.path.isdir(path):  # noqa: PTH112  # a Path of "" is the working folder
                ruleset.allow_path(path, reading)
            elif os.path.exists(path):  # noqa: PTH110
                ruleset.allow_path(path, AccessFS.READ_FILE)
        ruleset.allow_path(os.devnull, AccessFS.READ_FILE | AccessFS.WRITE_FILE)
        ruleset.restrict(RestrictFlag.TSYNC)


def _restrict_calls() -> None:
    from seccompy import Action, ArgCmp, CmpOp, Filter, FilterFlag

    calls = Filter(default=Action.ALLOW, flags=FilterFlag.TSYNC)
    for name in _FORBIDDEN.split():
        with suppress(ValueError):  # another architecture has no such call
            calls.errno(name, errno.EPERM)
    # Threads may be started, processes not. The flags of clone3 cannot be seen: libc takes clone instead.
    calls.errno("clone", errno.EPERM, args=[ArgCmp(0, CmpOp.MASKED_EQ, 0, mask=_CLONE_THREAD)])
    calls.errno("clone3", errno.ENOSYS)
    others = [ArgCmp(0, CmpOp.NE, os.getpid())]
    for name in ("kill", "tgkill"):
        calls.errno(name, errno.EPERM, args=others)
    calls.errno("prlimit64", errno.EPERM, args=[*others, ArgCmp(0, CmpOp.NE, 0)])
    calls.load()
