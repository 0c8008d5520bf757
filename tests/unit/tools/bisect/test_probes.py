"""Programs of parts of a graph: what they give, what they must give, after calls before."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotpipe.runtime.goldens import Golden
from aotpipe.tools.bisect.probes import Probes
from tests.unit.passes import legal


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.weight = torch.nn.Parameter(torch.full((4, 4), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        y = (x @ self.weight).log1p()
        more, less = torch.cond(x.sum() > 9, lambda y: (y + 1, y - 1), lambda y: (y * 2, y * 3), (y,))
        return (more + less)[:, : x.shape[0]] * self.count


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def probes() -> Probes:
    program = legal.legal(
        Model(), (torch.from_numpy(X),), dynamic_shapes={"x": {0: torch.export.Dim("batch", min=2, max=4)}}
    )
    calls = [
        Golden(entry_point="forward", case=f"call {n}", reset=n == 0, inputs={"x": X}, outputs={}, allowed={})
        for n in range(3)
    ]
    return Probes(program, calls)


def named(probes: Probes, op: str) -> str:
    return next(name for name in probes.order if probes.place(name).op.startswith(f"aten.{op}."))


def test_values_and_what_they_are_computed_from(probes: Probes):
    parents = probes.parents
    assert set(parents) == set(probes.order)
    places = {name: number for number, name in enumerate(probes.order)}
    assert all(places[parent] < places[name] for name in parents for parent in parents[name])
    [product] = parents[named(probes, "log1p")]
    assert probes.place(product).op == "aten.squeeze.dim"
    last = probes.value_of("output")
    assert last is not None
    where = probes.place(last).where
    assert where is not None
    assert where.path.endswith("test_probes.py")


def test_a_program_gives_what_float64_gives_after_the_calls_before(probes: Probes):
    last = probes.value_of("output")
    assert last is not None
    probe = probes.program([named(probes, "log1p"), last])
    [entry] = probe.legal.entries
    assert [spec.name for spec in entry.signature.inputs] == ["state.count", "x"]
    assert probe.golden.inputs["state.count"] == 2
    exact = np.log1p(X.astype(np.float64) @ np.full((4, 4), np.float32(0.1), np.float64))
    np.testing.assert_array_equal(probe.golden.outputs[named(probes, "log1p")], exact.astype(np.float32))
    wanted = (exact * 5)[:, :3] * 3
    np.testing.assert_allclose(probe.golden.outputs[last], wanted, rtol=1e-7)
    assert probe.golden.allowed[last][1] > 0


def test_an_op_alone_takes_what_torch_computes_for_it(probes: Probes):
    probe = probes.alone(named(probes, "log1p"))
    [entry] = probe.legal.entries
    assert entry.weights == ()
    [given] = probe.golden.inputs.values()
    np.testing.assert_allclose(given, X @ np.full((4, 4), 0.1, np.float32), rtol=1e-6, atol=1e-7)
    [wanted] = probe.golden.outputs.values()
    np.testing.assert_array_equal(wanted, np.log1p(given.astype(np.float64)).astype(np.float32))
    assert [node.op for node in entry.graph.graph.nodes] == ["placeholder", "call_function", "output"]


def test_a_part_of_a_tuple_is_the_op_that_gives_it(probes: Probes):
    first, second = (name for name in probes.order if probes.place(name).op == "cond")
    probe = probes.alone(second)
    [entry] = probe.legal.entries
    assert any(str(node.target) == "cond" for node in entry.graph.graph.nodes)
    [y] = (array for array in probe.golden.inputs.values() if array.ndim)
    np.testing.assert_allclose(probe.golden.outputs[second], y * 3, rtol=1e-6)
    assert set(probes.parents[first]) == set(probes.parents[second])
