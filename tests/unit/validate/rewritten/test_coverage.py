"""Which ways the branches and loops of a file go, and inputs that go other ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.validate.rewritten.coverage import counting, variants

CODE = """
import torch

def run(x, n):
    def then_1(x):
        return x + 1

    def otherwise_1(x):
        return x - 1

    x = torch.cond(x.sum() > 0, then_1, otherwise_1, (x,))

    def going_2(i, x):
        return i < n

    def trip_2(i, x):
        return i + 1, x * 2

    return torch.while_loop(going_2, trip_2, (torch.tensor(0), x))
"""


def test_branches_and_trips_are_counted(tmp_path: Path):
    path = tmp_path / "code.py"
    path.write_text(CODE)
    space: dict = {}
    exec(compile(CODE, str(path), "exec"), space)
    with counting(str(path)) as counters, uncompiled():
        for n in (0, 1, 3):
            space["run"](torch.ones(2), torch.tensor(n))
            assert not counters.is_covered()
        space["run"](-torch.ones(2), torch.tensor(3))
        assert counters.is_covered()
    branch, loop = counters.coverage()
    assert (branch.what, branch.line, *branch.ways.values()) == ("cond", 11, 3, 1)
    assert (loop.what, loop.line, *loop.ways.values(), loop.most) == ("while_loop", 19, 1, 1, 2, 3)
    assert "3 times true, 1 times false" in str(branch)
    assert loop.to_json()["most"] == 3


SIGNATURE = Signature(
    inputs=(
        TensorSpec(name="x", dtype="float32", dims=(2, 3), value_range=(-1.0, 1.0)),
        TensorSpec(name="n", dtype="int64", dims=()),
        TensorSpec(name="ids", dtype="int64", dims=(4,)),
        TensorSpec(name="mask", dtype="bool", dims=(3,)),
    ),
    outputs=(),
    state=(),
    symbols=(),
)
EXAMPLE = {
    "x": np.full((2, 3), 0.5, np.float32),
    "n": np.array(3),
    "ids": np.zeros(4, np.int64),
    "mask": np.array([True, False, True]),
}


def test_every_variant_fits_the_signature():
    found = dict(variants(SIGNATURE, EXAMPLE, 0))
    for inputs in found.values():
        for name, array in inputs.items():
            assert (array.dtype, array.shape) == (EXAMPLE[name].dtype, EXAMPLE[name].shape)
        assert np.abs(inputs["x"]).max() <= 1
    assert int(found["n 0"]["n"]) == 0
    assert not found["mask all False"]["mask"].any()
    assert found["ids numbered"]["ids"].tolist() == [0, 1, 0, 1]
    assert (found["x negated"]["x"] == -0.5).all()
    assert found["x negated"]["n"] is EXAMPLE["n"]


def test_they_are_the_same_each_time():
    for (how, one), (again, other) in zip(
        variants(SIGNATURE, EXAMPLE, 1), variants(SIGNATURE, EXAMPLE, 1), strict=True
    ):
        assert how == again
        assert all(np.array_equal(one[name], other[name]) for name in one)
