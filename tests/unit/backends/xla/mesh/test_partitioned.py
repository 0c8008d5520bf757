"""What one device of several computes, by the partitioner's own module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aotpipe.backends.xla.estimate import matmuls
from aotpipe.backends.xla.estimate.figures import least_traffic
from aotpipe.backends.xla.mesh import partitioned
from aotpipe.backends.xla.modules import parsed
from aotpipe.runtime.xla import clients

# A product of which each of four devices has a quarter of the rows, three times over.
MODULE = """
func.func public @main(
    %x: tensor<64x32xf32> {mhlo.sharding = "{devices=[4,1]<=[4]}"}, %w: tensor<32x32xf32>
) -> (tensor<64x32xf32>) {
  %first = stablehlo.constant dense<0> : tensor<i32>
  %trips = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %done:2 = stablehlo.while(%n = %first, %a = %x) : tensor<i32>, tensor<64x32xf32>
  cond {
    %more = stablehlo.compare LT, %n, %trips : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = stablehlo.add %n, %one : tensor<i32>
    %y = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
      : (tensor<64x32xf32>, tensor<32x32xf32>) -> tensor<64x32xf32>
    stablehlo.return %next, %y : tensor<i32>, tensor<64x32xf32>
  }
  return %done#1 : tensor<64x32xf32>
}
"""


def of_one(tmp_path: Path) -> Any | None:
    xla = clients.bindings()
    devices = xla.make_cpu_client(asynchronous=False, num_devices=4).devices()

    def compiled(module: Any, options: Any) -> Any:
        return devices[0].client.compile_and_load(module, xla.DeviceList(tuple(devices)), options)

    options = clients.options([each.id for each in devices], [True])
    return partitioned.of_one_device(parsed(MODULE.encode()), compiled, options, tmp_path)


def test_each_device_has_its_part_of_the_work_and_of_the_arrays(tmp_path: Path) -> None:
    part = of_one(tmp_path)
    work = 3 * 2 * 64 * 32 * 32
    assert matmuls.count(parsed(MODULE.encode())).flops == {("float32", "highest"): work}
    assert matmuls.count(part).flops == {("float32", "highest"): work // 4}
    # Its rows come and go, and it reads all of the other factor.
    assert least_traffic(part) == 4 * (2 * 16 * 32 + 32 * 32)


def test_a_compiler_that_leaves_no_such_module_gives_none(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(partitioned, "_PARTITIONER", "renamed")
    assert of_one(tmp_path) is None
