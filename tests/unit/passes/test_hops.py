"""Where a control-flow op keeps its subgraphs and operands."""

from __future__ import annotations

import torch
from torch._higher_order_ops import scan

from aotpipe.passes import hops


class Nested(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def step(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            (row,) = torch.cond(row.sum() > 0, lambda r: (r + 1,), lambda r: (r - 1,), (row,))
            return carry + row, carry * 2

        return scan(step, x[0] * 1, x, dim=0)[1]


def _module() -> torch.fx.GraphModule:
    module = torch.export.export(Nested(), (torch.randn(4, 3),)).graph_module
    assert isinstance(module, torch.fx.GraphModule)
    return module


def test_calls_subgraphs_and_operands() -> None:
    module = _module()
    (call,) = hops.calls(module)
    assert call.node.target is torch.ops.higher_order.scan
    assert not call.is_cond
    assert not call.is_while
    (body,) = call.subgraphs
    assert len(hops.placeholders(body)) == len(call.all_operands)
    assert len(call.operands(call.layout.carried)) == len(call.operands(call.layout.sliced)) == 1
    (inner,) = hops.calls(body)
    assert inner.is_cond
    assert len(inner.subgraphs) == 2
    assert list(hops.walk(module)) == [module, body, *inner.subgraphs]


def test_an_operand_appended_is_a_placeholder_appended() -> None:
    module = _module()
    (call,) = hops.calls(module)
    (body,) = call.subgraphs
    (x,) = hops.placeholders(module)
    call.set_operands(call.layout.extra, [*call.operands(call.layout.extra), x])
    added = hops.add_placeholder(body, "x", x.meta["val"])
    assert hops.placeholders(body)[-1] is added
    assert call.all_operands[-1] is x
    module.recompile()
    body.recompile()
    given = torch.randn(4, 3)
    torch.testing.assert_close(module(given)[0], Nested()(given))


def test_results_are_set_in_their_own_form() -> None:
    module = _module()
    values = hops.output_values(module)
    hops.set_output_values(module, [*values, values[0]])
    assert len(hops.output_values(module)) == len(values) + 1
    assert isinstance(module.graph.output_node().args[0], tuple)
