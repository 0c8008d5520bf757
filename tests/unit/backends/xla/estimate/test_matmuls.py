"""Flops of products, counted in modules written by hand and in those that jax gives."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

from aotpipe.backends.xla.estimate import figures
from aotpipe.backends.xla.mesh import parsed


def count(text: str) -> figures.Counted:
    return figures.count_products(parsed(text.encode()))


def lowered(function: Any, *arguments: Any) -> figures.Counted:
    module = jax.jit(function).trace(*arguments).lower(lowering_platforms=("tpu",)).compiler_ir("stablehlo")
    with module.context:
        return figures.count_products(module)


PRODUCT = """
func.func public @main(%x: tensor<2x3x4xbf16>, %y: tensor<2x4x5xbf16>) -> tensor<2x3x5xf32> {
  %z = func.call @product(%x, %y) : (tensor<2x3x4xbf16>, tensor<2x4x5xbf16>) -> tensor<2x3x5xf32>
  %w = func.call @product(%x, %y) : (tensor<2x3x4xbf16>, tensor<2x4x5xbf16>) -> tensor<2x3x5xf32>
  %v = stablehlo.add %z, %w : tensor<2x3x5xf32>
  return %v : tensor<2x3x5xf32>
}
func.func private @product(%x: tensor<2x3x4xbf16>, %y: tensor<2x4x5xbf16>) -> tensor<2x3x5xf32> {
  %z = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1],
    precision = [HIGHEST, DEFAULT] : (tensor<2x3x4xbf16>, tensor<2x4x5xbf16>) -> tensor<2x3x5xf32>
  return %z : tensor<2x3x5xf32>
}
"""


def test_a_function_counts_as_often_as_it_is_called() -> None:
    assert count(PRODUCT).flops == {("bfloat16", "highest"): 2 * 2 * (2 * 3 * 5) * 4}


def test_operands_count_as_the_wider_of_them() -> None:
    left, right = np.ones((2, 3), np.float32), np.ones((3, 2), np.int8)
    found = lowered(lambda x, y: lax.dot(x, y, preferred_element_type=np.float32), left, right)
    assert found.flops == {("float32", "default"): 24}


def test_a_loop_that_counts_repeats_its_work_and_another_does_not() -> None:
    matrix, work = np.ones((4, 4), np.float32), 2 * 4**3
    counting = lowered(lambda x: lax.fori_loop(2, 12, lambda _, carry: carry @ carry, x), matrix)
    assert (counting.total, counting.further, counting.loops) == (10 * work, 9 * work, 0)
    rows = lowered(lambda x: lax.scan(lambda carry, _: (carry @ carry, None), x, None, length=7)[0], matrix)
    assert (rows.total, rows.loops) == (7 * work, 0)
    nested = lowered(
        lambda x: lax.fori_loop(
            0, 3, lambda _, outer: lax.fori_loop(0, 5, lambda _, carry: carry @ carry, outer), x
        ),
        matrix,
    )
    assert (nested.total, nested.further) == (15 * work, 14 * work)
    waiting = lowered(lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c @ c, x), matrix)
    assert (waiting.total, waiting.further, waiting.loops) == (work, 0, 1)


def test_of_branches_the_one_with_the_most_work_counts() -> None:
    matrix = np.ones((4, 4), np.float32)

    def branching(x: Any, flag: Any) -> Any:
        return lax.cond(flag, lambda y: y @ y @ y, lambda y: y @ y, x)

    assert lowered(branching, matrix, np.array(True)).total == 2 * 2 * 4**3


@pytest.mark.parametrize(
    ("settings", "taps"),
    [
        # Of a kernel of 3 over 8 places, padded by 1, the two outer ones meet padding.
        ({"padding": [(1, 1)]}, 8 * 3 - 2),
        ({"padding": [(0, 0)], "window_strides": (2,)}, 3 * 3),
        ({"padding": [(2, 2)], "rhs_dilation": (2,)}, 8 * 3 - 4),
        # An input spread by 2 has a hole at every second place.
        ({"padding": [(0, 0)], "lhs_dilation": (2,)}, 13 + 7),
    ],
)
def test_a_convolution_counts_what_meets_the_image(settings: dict[str, Any], taps: int) -> None:
    image, kernel = np.ones((2, 4, 8), np.float32), np.ones((6, 2, 3), np.float32)
    settings = {"window_strides": (1,), **settings}

    def convolve(x: Any, y: Any) -> Any:
        return lax.conv_general_dilated(
            x, y, feature_group_count=2, precision=lax.Precision.HIGHEST, **settings
        )

    found = lowered(convolve, image, kernel)
    assert found.flops == {("float32", "highest"): 2 * 2 * 6 * 2 * taps}
