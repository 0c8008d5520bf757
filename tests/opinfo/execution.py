"""Compiles modules as the product does and runs them in a forked child, so that a crash is a verdict."""

from __future__ import annotations

import os
import pickle
import resource
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from aotpipe.backends import compiler
from aotpipe.backends.iree.compile import attempts, flags
from aotpipe.backends.iree.compile.compiler import given
from aotpipe.core.stages import Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import AotpipeError, AssertionViolated, CompileError
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.runtime import process
from aotpipe.runtime.loading import runtime
from tests.opinfo.lowering import Ready

MEMORY_BYTES: Final = 6 << 30
TIMEOUT_S: Final = 120.0


def compile_fast(program: Lowered, target: Target) -> bytes | None:
    """A program of several functions by the fast flags, or nothing where the compiler fails."""
    if target.backend == "xla":
        return compile_alone(program, target)[0]
    module = given(program.module, [target])
    chosen = flags.choose(module, "torch", target)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "module.mlir").write_bytes(module)
        outcome = process.run(
            [str(attempts.binary()), "module.mlir", "-o", "module.vmfb", *chosen],
            folder=Path(folder),
            timeout_s=TIMEOUT_S,
            memory_limit_bytes=MEMORY_BYTES,
        )
        done = outcome.ending == "exited" and outcome.code == 0
        return Path(folder, "module.vmfb").read_bytes() if done else None


def compile_alone(program: Lowered, target: Target) -> tuple[bytes | None, str]:
    """A program by whatever flags the product finds, and its note; or nothing and a diagnostic."""
    try:
        found = compiler(target).compile(
            program, target, timeout_s=TIMEOUT_S, memory_limit_bytes=MEMORY_BYTES
        )
    except CompileError as error:
        return None, f"{type(error).__name__}: {error.reason or error.message}"[:300]
    return found.payload, "; ".join(found.notes)[:300]


def run_all(payload: bytes, target: Target, calls: Sequence[Ready]) -> dict[str, Any]:
    """Outputs per function name, by output name; a string says why there are none."""
    results: dict[str, Any] = {}
    left = list(calls)
    while left:
        with tempfile.NamedTemporaryFile() as file:
            with warnings.catch_warnings():
                # jax warns of its locks where another test has imported it; the child uses nothing of jax.
                warnings.simplefilter("ignore")
                pid = os.fork()
            if pid == 0:
                _child(payload, target, left, file.name)
            _, status = os.waitpid(pid, 0)
            with Path(file.name).open("rb") as stream:
                while True:
                    try:
                        name, value = pickle.load(stream)
                    except EOFError:
                        break
                    results[name] = value
        left = [call for call in left if call.case.name not in results]
        if left:
            results[left[0].case.name] = f"crashed with status {status}"
            left = left[1:]
    return results


def _child(payload: bytes, target: Target, calls: Sequence[Ready], path: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + 60
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    code = 1
    try:
        with Path(path).open("wb") as stream:
            for call in calls:
                pickle.dump((call.case.name, _called(payload, target, call)), stream)
                stream.flush()
        code = 0
    finally:
        os._exit(code)


def _called(payload: bytes, target: Target, call: Ready) -> dict[str, np.ndarray[Any, Any]] | str:
    name = call.case.name
    try:
        with runtime(target.backend).load(
            payload,
            signatures={name: call.signature},
            weights=call.weights,
            initial_state={},
            driver="local-sync",
            asserts={name: call.asserts},
        ) as runner:
            names = [leaf.name for leaf in call.signature.tensor_inputs]
            inputs = dict(zip(names, map(view_numpy, call.case.tensors), strict=True))
            return runner.infer(inputs, entry_point=name)
    except AssertionViolated as error:
        return f"WRONG: an assert failed: {error.reason or error.message}"[:300]
    except AotpipeError as error:
        return f"runtime: {type(error).__name__}: {error.reason or error.message}"[:300]
