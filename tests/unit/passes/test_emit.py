"""What an emitter writes has the fake value that torch computes, and its cause's stack trace."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from aotpipe.passes.emit import Emitter, fake_mode
from tests.unit.passes.ranges.programs import Program

aten = torch.ops.aten


def test_values_shapes_and_order() -> None:
    program = Program()
    x = program.input((2, 3))
    x.meta["stack_trace"] = 'File "user.py", line 7, in forward'
    emit = Emitter(program.module, program.end, cause=x)
    total = emit(aten.sum.dim_IntList, x, [1], True)
    doubled = emit(aten.mul.Scalar, total, 2)
    assert total.meta["val"].shape == (2, 1)
    assert doubled.meta["val"].dtype is torch.int64
    assert doubled.meta["stack_trace"] == x.meta["stack_trace"]
    assert list(program.module.graph.nodes) == [x, total, doubled, program.end]


def test_a_graph_without_tensors_gets_a_mode_of_its_own() -> None:
    module = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
    end = module.graph.output(())
    node = Emitter(module, end)(aten.full.default, [], 3, dtype=torch.int64)
    assert node.meta["val"].shape == ()
    assert fake_mode(module) is node.meta["val"].fake_mode


def test_the_mode_is_that_of_the_first_value_and_no_other_is_looked_at() -> None:
    program = Program()
    x = program.input((2, 3))
    mode = fake_mode(program.module)
    Emitter(program.module, program.end)(aten.neg.default, x).meta["val"] = FakeTensorMode().from_tensor(
        torch.zeros(2)
    )
    assert fake_mode(program.module) is mode


def test_a_product_of_sizes_stays_one() -> None:
    class Rows(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(-1, 4) + 1

    sizes = {0: torch.export.Dim("n", max=9), 1: torch.export.Dim("m", max=9)}
    module = torch.export.export(Rows(), (torch.ones(2, 3, 4),), dynamic_shapes=(sizes,)).graph_module
    *_, rows, end = module.graph.nodes
    pair = Emitter(module, end)(aten.complex.default, rows, rows)
    assert pair.meta["val"].shape == rows.meta["val"].shape
    assert isinstance(pair.meta["val"].shape[0], torch.SymInt)
