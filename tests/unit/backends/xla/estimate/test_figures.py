"""What XLA says of a program that it compiled for this CPU."""

from __future__ import annotations

from typing import Any

from aotpipe.backends.xla.estimate.figures import figures
from aotpipe.backends.xla.modules import parsed
from aotpipe.runtime.xla import clients

MODULE = """
func.func public @main(%x: tensor<64x32xf32>, %y: tensor<32x16xf32>) -> tensor<64x16xf32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
    : (tensor<64x32xf32>, tensor<32x16xf32>) -> tensor<64x16xf32>
  return %z : tensor<64x16xf32>
}
"""


def test_a_product_is_counted_by_its_compiler_and_in_its_module() -> None:
    xla = clients.bindings()
    module = parsed(MODULE.encode())
    device = xla.make_cpu_client(asynchronous=False).devices()[0]
    made: Any = device.client.compile_and_load(module, xla.DeviceList((device,)), xla.CompileOptions())
    found = figures(made, module)
    work = 2 * 64 * 32 * 16
    assert found["matmuls"] == [["float32", "highest", work]]
    assert found["flops"] == work
    assert found["bytes_accessed"] == 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert found["traffic_bytes"] == found["bytes_accessed"]
    assert (found["arguments_bytes"], found["results_bytes"]) == (4 * (64 * 32 + 32 * 16), 4 * 64 * 16)
    assert found["peak_bytes"] >= found["arguments_bytes"] + found["results_bytes"]
