"""Compiles a kernel's text for this CPU and runs it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import iree.runtime as rt
import numpy as np

from aotpipe.backends.iree.compile import attempts


def computed(text: str, calls: list[list[np.ndarray[Any, Any]]]) -> list[Any]:
    """What the one function of a text gives for each call: an array, or a list of several."""
    text = re.sub(r"util\.func private @\w+", "util.func public @forward", text)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "module.mlir").write_text(text)
        flags = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
        flags += ["--iree-llvmcpu-target-cpu=host", "--iree-llvmcpu-stack-allocation-limit=262144"]
        flags += ["--iree-input-demote-f64-to-f32=false"]
        done = subprocess.run(
            [str(attempts.binary()), "module.mlir", "-o", "module.vmfb", *flags],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        payload = (Path(folder) / "module.vmfb").read_bytes()
    config = rt.Config("local-task")
    module = rt.VmModule.copy_buffer(config.vm_instance, payload)
    forward = rt.load_vm_module(module, config).forward
    return [_on_host(forward(*call)) for call in calls]


def _on_host(found: Any) -> Any:
    return (
        [_on_host(each) for each in found] if isinstance(found, tuple | list) else np.array(found.to_host())
    )
