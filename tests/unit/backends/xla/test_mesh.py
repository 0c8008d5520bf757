"""How rules are applied to names, what is written into a module, and what each device computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from aotpipe.backends.xla import mesh as meshes
from aotpipe.backends.xla.estimate.figures import count_products, least_traffic
from aotpipe.backends.xla.mesh import parsed
from aotpipe.errors import MeshError
from aotpipe.runtime.xla import clients
from aotpipe.runtime.xla.mesh import Mesh, rules

MESH = Mesh.parse("data=2,model=2")
RANKS = {"up.weight": 2, "down.weight": 2, "down.bias": 1, "x": 2}


def test_the_first_rule_that_matches_counts() -> None:
    given = rules([r"down\.weight=(None, model)", r".*\.weight=(model, None)", "x=(data,)"])
    placement = meshes.resolve(MESH, given, RANKS)
    assert placement.described() == {
        "down.weight": "(None, model)",
        "up.weight": "(model, None)",
        "x": "(data,)",
    }
    assert placement.sharding("x", (4, 3)).tiles == (2, 1)
    assert placement.sharding("down.bias", (3,)).is_replicated
    with pytest.raises(MeshError, match="its dim 0 is 3") as caught:
        placement.sharding("x", (3, 4))
    assert "data has 2 devices" in caught.value.reason


def test_a_module_says_where_its_arguments_are() -> None:
    def double(x: jax.Array, count: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x * 2, count + 1

    arrays = (np.ones((4, 2), np.float32), np.ones((2,), np.float32))
    module = jax.jit(double).trace(*arrays).lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo")
    placement = meshes.resolve(MESH, rules(["x=(data,)"]), {"x": 2, "count": 1})
    spread = meshes.annotate(module, ["x", "count"], [None, "count"], placement)
    assert [sharding["tiles"] for sharding in spread["arguments"]] == [[2, 1], [1]]
    assert spread["results"] == [[4, 2], [2]]
    assert str(module).count('mhlo.sharding = "{replicated}"') == 2
    assert meshes.decided(module) == [True, False]


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
    return meshes.module_of_one_device(parsed(MODULE.encode()), compiled, options, tmp_path)


def test_each_device_has_its_part_of_the_work_and_of_the_arrays(tmp_path: Path) -> None:
    part = of_one(tmp_path)
    work = 3 * 2 * 64 * 32 * 32
    assert count_products(parsed(MODULE.encode())).flops == {("float32", "highest"): work}
    assert count_products(part).flops == {("float32", "highest"): work // 4}
    # Its rows come and go, and it reads all of the other factor.
    assert least_traffic(part) == 4 * (2 * 16 * 32 + 32 * 32)


def test_a_compiler_that_leaves_no_such_module_gives_none(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(meshes, "_PARTITIONER", "renamed")
    assert of_one(tmp_path) is None
