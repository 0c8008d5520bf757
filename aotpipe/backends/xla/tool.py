"""XLA's compilers as a tool of its own process: `python -m aotpipe.backends.xla.tool` in a folder.

Reads `request.json` (`platform`, `topology`, `config`, `modules`: names) and `NAME.mlir`, writes `NAME.bin`.
For TPUs, programs with convolutions of float32 are compiled with the least effort, and `quick.json` has them:
libtpu's search for the best form of a convolution in six passes takes most of a minute, for each.
What XLA says goes to stderr, after a line that begins with `aotpipe: ` and names the module. No device of the
platform is needed but for CPUs. Torch-free.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

REQUEST: Final = "request.json"
QUICK: Final = "quick.json"
EFFORT: Final = -1.0
REFUSED: Final = 3
"""The exit code where the compiler refused a module."""


def main() -> int:
    """Compile what the request names."""
    request = json.loads(Path(REQUEST).read_text(encoding="utf-8"))
    compile_one = _compiler(request["platform"], request["topology"], request["config"])
    quick: list[str] = []
    for name in request["modules"]:
        try:
            payload, is_quick = compile_one(Path(f"{name}.mlir").read_bytes())
        # XLA's errors are a RuntimeError of its own, or a ValueError of the bindings.
        except (RuntimeError, ValueError) as error:
            sys.stderr.write(f"aotpipe: {name}\n{error}\n")
            return REFUSED
        Path(f"{name}.bin").write_bytes(payload)
        quick += [name] if is_quick else []
    Path(QUICK).write_text(json.dumps(quick), encoding="utf-8")
    return 0


def _compiler(platform: str, topology: str, config: str) -> Callable[[bytes], tuple[bytes, bool]]:
    if platform == "cuda":
        _name_cuda()
    from jaxlib import xla_client as xla

    options = xla.CompileOptions()
    if platform == "cpu":
        device: Any = xla.make_cpu_client(asynchronous=False).devices()[0]
        devices = xla.DeviceList((device,))
        return lambda module: (
            bytes(device.client.compile_and_load(module, devices, options).serialize()),
            False,
        )
    device = _described(platform, topology, config)
    devices = xla.DeviceList((device,))

    def compile_one(module: bytes) -> tuple[bytes, bool]:
        parsed, options = _parsed(module), xla.CompileOptions()
        is_quick = platform == "tpu" and _has_wide_convolutions(parsed)
        if is_quick:
            options.executable_build_options.exec_time_optimization_effort = EFFORT
        return bytes(device.client.compile(parsed, devices, options).serialize()), is_quick

    return compile_one


def _described(platform: str, topology: str, config: str) -> Any:
    """A device that is not there."""
    from jax.experimental import topologies

    shape = topology.rpartition(":")[2]
    more: dict[str, Any] = {}
    if platform == "cuda":
        more = {"topology": topology, "target_config": config}
    elif set(shape) == {"1", "x"}:
        # A topology of one chip is smaller than the host that such chips come in.
        more = {"chips_per_host_bounds": (1, 1, 1)}
    described = topologies.get_topology_desc(platform=platform, topology_name=topology, **more)
    return described.devices[0]


def _name_cuda() -> None:
    """Tell XLA where CUDA's assembler is, which it reads when it is loaded."""
    found = find_spec("nvidia.cuda_nvcc")
    if found is not None and found.submodule_search_locations:
        flags = f"--xla_gpu_cuda_data_dir={next(iter(found.submodule_search_locations))}"
        os.environ["XLA_FLAGS"] = f"{flags} {os.environ.get('XLA_FLAGS', '')}".strip()


def _has_wide_convolutions(module: Any) -> bool:
    """Whether a module convolves float32."""
    from jaxlib.mlir import ir

    found = False

    def look(operation: Any) -> Any:
        nonlocal found
        if operation.name == "stablehlo.convolution":
            kind = ir.RankedTensorType(operation.operands[0].type).element_type
            found = found or isinstance(kind, ir.F32Type)
        return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found


def _parsed(module: bytes) -> Any:
    """A module for compilers without a device, which take no bytes."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import chlo, stablehlo

    context = ir.Context()
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    return stablehlo.deserialize_portable_artifact(context, module)


if __name__ == "__main__":
    sys.exit(main())
