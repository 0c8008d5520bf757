"""Runs the command `aotpipe` in this process as it runs in one of its own, which would import torch again."""

from __future__ import annotations

import io
import linecache
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch

from aotpipe.build.file_reads import user_modules
from aotpipe.cli import cli, guarded

SEED_OF_A_NEW_PROCESS = 67280421310721  # torch's `default_rng_seed_val`


def aotpipe(*argv: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in a folder; gives its exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with as_a_new_process(folder, **env), redirect_stdout(out), redirect_stderr(err):
        code = guarded(cli, argv)
    return subprocess.CompletedProcess(["aotpipe", *argv], code, out.getvalue(), err.getvalue())


@contextmanager
def as_a_new_process(folder: Path, **env: str) -> Iterator[None]:
    """Work in a folder with the random numbers of a new process, and without the modules that tests imported.

    A build keeps nothing of a model for which it saw modules of the user before it began.
    """
    torch.compiler.reset()
    torch.manual_seed(SEED_OF_A_NEW_PROCESS)
    linecache.clearcache()
    paths = list(sys.path)
    users = user_modules()
    hidden = {
        name: module
        for name, module in sys.modules.items()
        if name != "__main__" and os.path.realpath(getattr(module, "__file__", None) or "") in users
    }
    for name in hidden:
        del sys.modules[name]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which fail a test, and are only printed by a process
        patch.chdir(folder)
        for name, value in env.items():
            patch.setenv(name, value)
        try:
            yield
        finally:
            sys.path[:] = paths
            below = f"{folder.resolve()}{os.sep}"
            for name, module in list(sys.modules.items()):
                if (getattr(module, "__file__", None) or "").startswith(below):
                    del sys.modules[name]
            sys.modules.update(hidden)
