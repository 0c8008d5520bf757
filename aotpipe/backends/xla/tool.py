"""XLA's compilers as a tool of its own process: `python -m aotpipe.backends.xla.tool` in a folder.

Reads `request.json` (`platform`, `topology`, `config`, `devices`, `modules`: names) and `NAME.mlir`, writes
`NAME.bin` and, of what the compiler counted, `NAME.json`; of several devices, what each computes, what they
send each other and where the parts of results are.
For TPUs, programs with convolutions of float32 are compiled with the least effort, and `quick.json` has them:
libtpu's search for the best form of a convolution in six passes takes most of a minute, for each.
What XLA says goes to stderr, after a line that begins with `aotpipe: ` and names the module. No device of the
platform is needed but for CPUs. Torch-free.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from aotpipe.backends.xla.estimate.figures import collectives, figures
from aotpipe.backends.xla.mesh import decided, module_of_one_device, parsed, results_of
from aotpipe.backends.xla.object_files import sorted_object_files
from aotpipe.runtime.xla import clients

REQUEST: Final = "request.json"
QUICK: Final = "quick.json"
EFFORT: Final = -1.0
REFUSED: Final = 3
"""The exit code where the compiler refused a module."""


def main() -> int:
    """Compile what the request names."""
    request = json.loads(Path(REQUEST).read_text(encoding="utf-8"))
    compile_one = _compiler(**{key: request[key] for key in ("platform", "topology", "config", "devices")})
    # Not before: XLA reads its environment when it is loaded.
    from jaxlib.mlir.ir import MLIRError

    quick: list[str] = []
    for name in request["modules"]:
        try:
            executable, counted, is_quick = compile_one(Path(f"{name}.mlir").read_bytes())
        # XLA's errors are a RuntimeError of its own, or a ValueError of the bindings.
        except (RuntimeError, ValueError, MLIRError) as error:
            sys.stderr.write(f"aotpipe: {name}\n{error}\n")
            return REFUSED
        Path(f"{name}.bin").write_bytes(executable)
        Path(f"{name}.json").write_text(json.dumps(counted), encoding="utf-8")
        quick += [name] if is_quick else []
    Path(QUICK).write_text(json.dumps(quick), encoding="utf-8")
    return 0


Made = tuple[bytes, dict[str, Any], bool]
"""An executable, what was counted of it, and whether it was compiled with the least effort."""


def _compiler(platform: str, topology: str, config: str, devices: int) -> Callable[[bytes], Made]:
    if platform == "cuda":
        _name_cuda()
    from jaxlib import xla_client as xla

    if platform == "cpu":
        chosen: Any = xla.make_cpu_client(asynchronous=False, num_devices=devices).devices()
        compile_program = chosen[0].client.compile_and_load
    else:
        chosen = _described(platform, topology, config)
        compile_program = chosen[0].client.compile
    chosen = chosen[:devices]

    def compile_one(module: bytes) -> Made:
        program = parsed(module)
        is_quick = platform == "tpu" and _has_wide_convolutions(program)
        executable = compiled(program, options_for(program, is_quick))
        if devices == 1:
            return serialized(executable), figures(executable, program), is_quick
        counted = figures(executable, part) if (part := part_of(module)) else {}
        counted["collectives"] = collectives(executable.hlo_modules()[0].to_string())
        counted["results"] = results_of(executable, program, devices)
        return serialized(executable), counted, is_quick

    def options_for(program: Any, is_quick: bool) -> Any:
        options = clients.options([each.id for each in chosen], decided(program) if devices > 1 else ())
        if is_quick:
            options.executable_build_options.exec_time_optimization_effort = EFFORT
        return options

    def compiled(program: Any, options: Any) -> Any:
        return compile_program(program, xla.DeviceList(tuple(chosen)), options)

    def serialized(executable: Any) -> bytes:
        content = bytes(executable.serialize())
        return sorted_object_files(content) if platform == "cpu" else content

    def part_of(module: bytes) -> Any | None:
        """Of a chip's program what one device computes; of CPUs nobody asks."""
        if platform == "cpu":
            return None
        program = parsed(module)
        with tempfile.TemporaryDirectory(dir=".") as folder:
            return module_of_one_device(program, compiled, options_for(program, True), Path(folder))

    return compile_one


def _described(platform: str, topology: str, config: str) -> list[Any]:
    from jax.experimental import topologies

    shape = topology.rpartition(":")[2]
    more: dict[str, Any] = {}
    if platform == "cuda":
        more = {"topology": topology, "target_config": config}
    elif set(shape) == {"1", "x"}:
        # A topology of one chip is smaller than the host that such chips come in.
        more = {"chips_per_host_bounds": (1, 1, 1)}
    described = topologies.get_topology_desc(platform=platform, topology_name=topology, **more)
    return list(described.devices)


def _name_cuda() -> None:
    """Tell XLA where CUDA's assembler is, which it reads when it is loaded."""
    found = find_spec("nvidia.cuda_nvcc")
    if found is not None and found.submodule_search_locations:
        flags = f"--xla_gpu_cuda_data_dir={next(iter(found.submodule_search_locations))}"
        os.environ["XLA_FLAGS"] = f"{flags} {os.environ.get('XLA_FLAGS', '')}".strip()


def _has_wide_convolutions(module: Any) -> bool:
    from jaxlib.mlir import ir

    kinds = set()

    def look(operation: Any) -> Any:
        if operation.name == "stablehlo.convolution":
            kinds.add(str(ir.RankedTensorType(operation.operands[0].type).element_type))
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return "f32" in kinds


if __name__ == "__main__":
    sys.exit(main())
