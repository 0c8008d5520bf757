"""Small programs written by hand in the torch dialect, so that what runs programs is tested without torch."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

import aotpipe
from aotpipe.backends.iree.compile import attempts, flags
from aotpipe.backends.iree.fixes.rewrites import rewritten
from aotpipe.backends.iree.fixes.torch_dialect import host_reads
from aotpipe.backends.iree.kernels import lowering
from aotpipe.core.signature import Signature, Symbol, TensorSpec
from aotpipe.core.targets import Target
from aotpipe.runtime import toolchain

FOLDER = Path(__file__).parent
FOR_LATER_RUNS = FOLDER.parents[1] / ".pytest_cache" / "programs"
KEPT_S = 14 * 86400
BACKENDS = {
    "vmvx": ("--iree-hal-local-target-device-backends=vmvx",),
    "llvm-cpu": ("--iree-hal-local-target-device-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host"),
    "aarch64": (
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-triple=aarch64-unknown-linux-gnu",
        "--iree-llvmcpu-target-cpu=generic",
    ),
}
TARGETS = {"vmvx": "iree-vmvx", "llvm-cpu": "iree-cpu-host", "aarch64": "iree-cpu-aarch64"}

ACCUMULATE = {
    "forward": Signature(
        inputs=(TensorSpec.parse("x: float32[batch, 4]"), TensorSpec.parse("ids: int64[batch] in [0, 9]")),
        outputs=(TensorSpec.parse("y: float32[batch, 4]"), TensorSpec.parse("positive: bool[batch]")),
        state=(TensorSpec.parse("count: int64[]"), TensorSpec.parse("total: float32[4]")),
        symbols=(Symbol.parse("batch=1..8"),),
    ),
    "decode": Signature(
        inputs=(TensorSpec.parse("x: float32[4]"),),
        outputs=(TensorSpec.parse("count: int64[]"), TensorSpec.parse("same: float32[4]")),
        state=(TensorSpec.parse("count: int64[]"),),
    ),
}
ACCUMULATE_ASSERTS = {"forward": ("total must stay below 100",)}


def accumulate_weights() -> dict[str, np.ndarray]:
    return {"weight": np.arange(4, dtype=np.float32)}


def accumulate_state() -> dict[str, np.ndarray]:
    return {"count": np.zeros((), np.int64), "total": np.zeros(4, np.float32)}


def compiled(name: str, backend: str = "vmvx") -> bytes:
    """The program of `<name>.mlir`."""
    return compile_text((FOLDER / f"{name}.mlir").read_text(), backend)


def compile_text(text: str, backend: str = "vmvx") -> bytes:
    """Compile a module of the torch dialect; what comes of equal bytes is kept for later runs."""
    module = with_kernels(text.encode(), backend)
    text = (rewritten(module, [host_reads.FIX.apply]) or module).decode()
    command = ["--iree-input-type=torch", "--iree-hal-target-device=local", *BACKENDS[backend]]
    # Other tests have the other cores: threads would only wait for each other.
    command += ["--iree-input-demote-f64-to-f32=false", *flags.REPRODUCIBLE, "--mlir-disable-threading"]
    command.append(flags.PREPROCESS if backend == "vmvx" else flags.CHANNELS_LAST)

    def compile_now(folder: Path) -> bytes:
        (folder / "module.mlir").write_text(text)
        run = [str(attempts.binary()), "module.mlir", "-o", "module.vmfb", *command]
        subprocess.run(run, cwd=folder, check=True, timeout=300, capture_output=True)
        return (folder / "module.vmfb").read_bytes()

    return for_later_runs((*_compiled_by(), *command, text), compile_now)


def with_kernels(module: bytes, backend: str) -> bytes:
    """A module with what a target's compiler gets for our own ops."""
    return rewritten(module, [lowering.rewrite([Target.parse(TARGETS[backend])])]) or module


def for_later_runs(key: Sequence[str], make: Callable[[Path], bytes]) -> bytes:
    """What a compiler makes in a scratch folder; `key` is all that it is given, and what it is itself."""
    _forget_unused()
    return _kept(FOR_LATER_RUNS, key, make)


def once_a_run(key: Sequence[str], make: Callable[[Path], bytes]) -> bytes:
    """What `make` gives in a scratch folder; the first of a run's processes to ask for a key makes it.

    `tests/conftest.py` names the folder of the run; where no run is under way, nothing is kept.
    """
    kept = os.environ.get("AOTPIPE_TEST_PROGRAMS")
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="aotpipe-test-") as scratch:
            return make(Path(scratch))
    return _kept(Path(kept), (_source(), *_compiled_by(), *key), make)


def _kept(folder: Path, key: Sequence[str], make: Callable[[Path], bytes]) -> bytes:
    path = folder / hashlib.sha256("\0".join(key).encode()).hexdigest()
    with tempfile.TemporaryDirectory(prefix="aotpipe-test-") as scratch:
        if path.exists():
            path.touch()
        else:
            content = make(Path(scratch))
            path.parent.mkdir(parents=True, exist_ok=True)
            # Beside its destination, so that it appears there whole.
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(content)
            Path(file.name).replace(path)
    return path.read_bytes()


@cache
def _forget_unused() -> None:
    """Remove the programs that no run of the last days asked for."""
    for path in FOR_LATER_RUNS.glob("*"):
        with suppress(FileNotFoundError):  # another process removes them too
            if time.time() - path.stat().st_mtime > KEPT_S:
                path.unlink()


@cache
def _source() -> str:
    """The aotpipe that programs are made by."""
    source = hashlib.sha256()
    for path in sorted(Path(aotpipe.__file__).parent.rglob("*.py")):
        source.update(path.read_bytes())
    return source.hexdigest()


@cache
def _compiled_by() -> tuple[str, ...]:
    """The compiler and the CPU that programs are made by and for."""
    compiler = toolchain.version_of("iree-base-compiler")
    return (str(compiler), str(attempts.binary().stat().st_size), str(toolchain.host_features()))
