"""What is counted of a program, by XLA for this CPU and in its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aotpipe.backends.xla.estimate.figures import collectives, figures, least_traffic
from aotpipe.backends.xla.mesh import parsed
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


TABLE = np.ones((1000, 8), np.float32)
PLACES = np.zeros(4, np.int32)


def least(function: Callable[..., Any], *arguments: Any) -> int:
    module = jax.jit(function, keep_unused=True).lower(*arguments).compiler_ir("stablehlo")
    with module.context:
        return least_traffic(module)


@pytest.mark.parametrize(
    ("function", "elements"),
    [
        (lambda table, places: table + places.sum().astype(np.float32), 8000 + 4 + 8000),
        # The rows that are taken, and no others.
        (lambda table, places: table[places], 4 * 8 + 4 + 4 * 8),
        (lambda table, places: table.astype(np.float16)[:2].astype(np.float32) + places[:1], 16 + 1 + 16),
        (lambda table, places: (table[places], table @ table.T), 8000 + 4 + 4 * 8 + 1000 * 1000),
        # What is not read, and what is read in a function of its own.
        (lambda table, places: places, 4 + 4),
        (lambda table, places: jnp.take(table, places, axis=0, mode="clip"), 4 * 8 + 4 + 4 * 8),
    ],
)
def test_each_element_that_is_looked_at_counts_once(function: Callable[..., Any], elements: int) -> None:
    assert least(function, TABLE, PLACES) == 4 * elements


def test_a_byte_is_the_least_that_is_moved() -> None:
    assert least(lambda flags: flags, np.ones(6, np.bool_)) == 12


@pytest.mark.parametrize(
    ("dtype", "size"), [("float8_e4m3fnuz", 1), ("float8_e4m3fn", 1), ("bfloat16", 2), ("complex64", 8)]
)
def test_an_element_is_as_large_as_its_dtype(dtype: str, size: int) -> None:
    assert least(lambda x: x, jnp.zeros(6, dtype)) == 12 * np.dtype(dtype).itemsize == 12 * size


_TEXT = """
HloModule jit_forward, num_partitions=4
%region (a: f32[], b: f32[]) -> f32[] {
  ROOT %add = f32[] add(%a, %b)
}
ENTRY %main {
  %all-reduce.1 = f32[8,8]{1,0:T(8,128)} all-reduce(%dot), channel_id=1, to_apply=%region
  %ag = (f32[2]{0}, f32[8]{0}) all-gather-start(%p), dimensions={0}
  %done = f32[8]{0} all-gather-done(%ag)
  %x = f32[8]{0} fusion(%all-reduce.1), kind=kLoop, metadata={op_name="all-reduce"}
  %collective-permute-start = (f32[2], f32[2], u32[], u32[]) collective-permute-start(%x)
  ROOT %rs = f32[2]{0} reduce-scatter(%done), dimensions={0}
}
"""


def test_instructions_are_counted_and_not_their_names() -> None:
    assert collectives(_TEXT) == {
        "all-reduce": 1,
        "all-gather": 1,
        "reduce-scatter": 1,
        "collective-permute": 1,
    }
    assert collectives("") == {}
