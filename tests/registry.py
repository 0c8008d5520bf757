"""A real OCI registry (Debian's docker-registry) on this machine's loopback, for as long as a block runs."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CONFIG = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Its address, `127.0.0.1:PORT`; it keeps what it is given below `folder`."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("apt-get install docker-registry")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "config.yml").write_text(CONFIG.format(folder=folder / "blobs", port=port))
    process = subprocess.Popen(
        [program, "serve", folder / "config.yml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(500):
            with socket.socket() as to:
                if not to.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.02)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
