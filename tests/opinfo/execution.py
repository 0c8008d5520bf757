"""Compiles a module of many functions and runs them in a forked child, so that a crash is a verdict."""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import iree.compiler
import iree.runtime as rt
import numpy as np
import torch

COMPILER = Path(iree.compiler.__file__).parent / "_mlir_libs" / "iree-compile"
FLAGS = (
    "--iree-input-type=torch",
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-data-tiling",
    "--iree-llvmcpu-debug-symbols=false",
    "--mlir-disable-threading",
)
MEMORY_BYTES = 6 << 30
ELEMENTS = {
    torch.float32: rt.HalElementType.FLOAT_32,
    torch.float64: rt.HalElementType.FLOAT_64,
    torch.float16: rt.HalElementType.FLOAT_16,
    torch.bfloat16: rt.HalElementType.BFLOAT_16,
    torch.int64: rt.HalElementType.SINT_64,
    torch.int32: rt.HalElementType.SINT_32,
    torch.int16: rt.HalElementType.SINT_16,
    torch.int8: rt.HalElementType.SINT_8,
    torch.uint8: rt.HalElementType.UINT_8,
    torch.bool: rt.HalElementType.BOOL_8,
    torch.complex64: rt.HalElementType.COMPLEX_64,
    torch.complex128: rt.HalElementType.COMPLEX_128,
}
Inputs = tuple[torch.Tensor, ...]


def compile_module(mlir: str, timeout_s: float = 120.0) -> bytes | str:
    """A vmfb, or the compiler's first diagnostic."""
    flags = list(FLAGS)
    if "f64" in mlir:
        flags.append("--iree-input-demote-f64-to-f32=false")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "module.mlir"), Path(folder, "module.vmfb")
        source.write_text(mlir)
        command = [str(COMPILER), *flags, str(source), "-o", str(target)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, preexec_fn=_limit, check=False
            )
        except subprocess.TimeoutExpired:
            return f"compiler timeout after {timeout_s} s"
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error:" in line]
            first = errors[0].split("error:", 1)[1].strip() if errors else done.stderr.strip()[-200:]
            return f"compiler exit {done.returncode}: {first}"[:300]
        return target.read_bytes()


def run_all(vmfb: bytes, calls: Sequence[tuple[str, Inputs, Sequence[Any]]]) -> dict[str, Any]:
    """Outputs per function name, in the dtypes of the expected ones; a string says why there are none."""
    results: dict[str, Any] = {}
    left = list(calls)
    while left:
        with tempfile.NamedTemporaryFile() as file:
            pid = os.fork()
            if pid == 0:
                _child(vmfb, left, file.name)
            _, status = os.waitpid(pid, 0)
            with Path(file.name).open("rb") as stream:
                while True:
                    try:
                        name, value = pickle.load(stream)
                    except EOFError:
                        break
                    results[name] = value
        left = [call for call in left if call[0] not in results]
        if left:
            results[left[0][0]] = f"crashed with status {status}"
            left = left[1:]
    return results


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _child(vmfb: bytes, calls: Sequence[tuple[str, Inputs, Sequence[Any]]], path: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    code = 1
    try:
        device = rt.get_device("local-sync")
        instance = rt.VmInstance()
        module = rt.VmModule.copy_buffer(instance, vmfb)
        context = rt.VmContext(instance, [rt.create_hal_module(instance, device), module])
        with Path(path).open("wb") as stream:
            for name, inputs, expected in calls:
                try:
                    value: Any = _invoke(device, context, module.lookup_function(name), inputs, expected)
                except Exception as error:
                    value = f"runtime: {str(error)[:200]}"
                pickle.dump((name, value), stream)
                stream.flush()
        code = 0
    finally:
        os._exit(code)


def _invoke(device: Any, context: Any, function: Any, inputs: Inputs, expected: Sequence[Any]) -> list[Any]:
    arguments, results = rt.VmVariantList(len(inputs)), rt.VmVariantList(len(expected))
    for tensor in inputs:
        arguments.push_ref(_buffer(device, tensor))
    context.invoke(function, arguments, results)
    outputs: list[Any] = []
    for index, want in enumerate(expected):
        value = results.get_variant(index)
        if not isinstance(want, torch.Tensor):
            outputs.append(value)
            continue
        view = results.get_as_object(index, rt.HalBufferView)
        count = int(np.prod(view.shape)) * want.element_size()
        # Bytes, not numbers: IREE has no dtype names for bf16 and gives uint8 back as int8.
        data = bytes(view.map().asarray([count], np.dtype(np.uint8))) if count else b""
        flat = (
            torch.frombuffer(bytearray(data), dtype=want.dtype) if count else torch.empty(0, dtype=want.dtype)
        )
        outputs.append(
            flat.reshape(view.shape).clone().numpy(force=True)
            if want.dtype != torch.bfloat16
            else ("bfloat16", flat.view(torch.int16).reshape(view.shape).numpy())
        )
    return outputs


def _buffer(device: Any, tensor: torch.Tensor) -> Any:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    array = (plain.view(torch.int16) if tensor.dtype == torch.bfloat16 else plain).numpy()
    return device.allocator.allocate_buffer_copy(
        memory_type=rt.MemoryType.DEVICE_LOCAL,
        allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
        device=device,
        buffer=array,
        element_type=ELEMENTS[tensor.dtype],
    )
