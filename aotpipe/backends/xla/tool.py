"""XLA's compilers as a tool of its own process: `python -m aotpipe.backends.xla.tool` in a folder.

Reads `request.json` (`platform`, `topology`, `modules`: names) and `NAME.mlir`, writes `NAME.bin`. What XLA
says goes to stderr, after a line that begins with `aotpipe: ` and names the module. No device of the
platform is needed but for CPUs. Torch-free.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

REQUEST: Final = "request.json"
REFUSED: Final = 3
"""The exit code where the compiler refused a module."""


def main() -> int:
    """Compile what the request names."""
    request = json.loads(Path(REQUEST).read_text(encoding="utf-8"))
    compile_one = _compiler(request["platform"], request["topology"])
    for name in request["modules"]:
        try:
            payload = compile_one(Path(f"{name}.mlir").read_bytes())
        # XLA's errors are a RuntimeError of its own, or a ValueError of the bindings.
        except (RuntimeError, ValueError) as error:
            sys.stderr.write(f"aotpipe: {name}\n{error}\n")
            return REFUSED
        Path(f"{name}.bin").write_bytes(payload)
    return 0


def _compiler(platform: str, topology: str) -> Callable[[bytes], bytes]:
    from jaxlib import xla_client as xla

    options = xla.CompileOptions()
    if platform == "cpu":
        device: Any = xla.make_cpu_client(asynchronous=False).devices()[0]
        devices = xla.DeviceList((device,))
        return lambda module: bytes(device.client.compile_and_load(module, devices, options).serialize())
    from jax.experimental import topologies

    kind, _, shape = topology.partition(":")
    # A topology of one chip is smaller than the host that such chips come in.
    bounds = {} if set(shape) != {"1", "x"} else {"chips_per_host_bounds": (1, 1, 1)}
    described = topologies.get_topology_desc(platform=platform, topology_name=f"{kind}:{shape}", **bounds)
    device = described.devices[0]
    devices = xla.DeviceList((device,))
    return lambda module: bytes(device.client.compile(_parsed(module), devices, options).serialize())


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
