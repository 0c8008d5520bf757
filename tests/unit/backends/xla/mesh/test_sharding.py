"""How rules are applied to names, and what is written into a module."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from aotpipe.backends.xla.mesh import sharding
from aotpipe.errors import MeshError
from aotpipe.runtime.xla.mesh import Mesh, rules

MESH = Mesh.parse("data=2,model=2")
RANKS = {"up.weight": 2, "down.weight": 2, "down.bias": 1, "x": 2}


def test_the_first_rule_that_matches_counts() -> None:
    given = rules([r"down\.weight=(None, model)", r".*\.weight=(model, None)", "x=(data,)"])
    placement = sharding.resolve(MESH, given, RANKS)
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
    placement = sharding.resolve(MESH, rules(["x=(data,)"]), {"x": 2, "count": 1})
    spread = sharding.annotate(module, ["x", "count"], [None, "count"], placement)
    assert [sharding["tiles"] for sharding in spread["arguments"]] == [[2, 1], [1]]
    assert spread["results"] == [[4, 2], [2]]
    assert str(module).count('mhlo.sharding = "{replicated}"') == 2
    assert sharding.decided(module) == [True, False]
    assert sharding.ranks_of_results(module) == [2, 1]
