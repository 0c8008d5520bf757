"""Transposes of a product's operands: which are folded into its dimension numbers, and what it computes."""

from __future__ import annotations

import pytest
import torch

from aotpipe.backends.xla import lowering
from aotpipe.backends.xla.mesh import parsed
from aotpipe.runtime.xla import container
from tests.programs import on_xla, through


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 5), torch.nn.Linear(5, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())


class Batched(torch.nn.Module):
    """Each product has one operand, or both, turned within the batch."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        turned = x.transpose(1, 2)
        return x @ y.transpose(1, 2), turned @ y, turned @ y.transpose(1, 2), turned


class AcrossTheBatch(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x.permute(1, 0, 2), y.permute(1, 2, 0))


class InALoop(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        torch.nn.init.constant_(self.layer.weight, 0.1)  # other weights may have a loop without end
        torch.nn.init.zeros_(self.layer.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step = lambda x: (self.layer(x).tanh(),)  # noqa: E731
        return torch.while_loop(lambda x: x.abs().sum() > 1.5, step, (x,))[0]


@pytest.mark.parametrize(
    ("model", "args", "transposes"),
    [
        (Layers(), (torch.randn(1, 6),), 0),
        (Layers(), (torch.randn(2, 3, 6),), 0),
        # A transpose that is a result stays.
        (Batched(), (torch.randn(2, 3, 3), torch.randn(2, 3, 3)), 1),
        (AcrossTheBatch(), (torch.randn(3, 2, 4), torch.randn(5, 2, 4)), 2),
        (InALoop(), (torch.randn(1, 4),), 0),
    ],
    ids=["vector", "rows", "batched", "across the batch", "in a loop"],
)
def test_what_a_product_reads_is_not_transposed_before(
    model: torch.nn.Module, args: tuple[torch.Tensor, ...], transposes: int
) -> None:
    legal = through.legal(model.eval(), args, dialect="stablehlo")
    index, parts = container.read(lowering.lower(legal).module)
    module = str(parsed(parts[index["programs"][0]["modules"]["cpu"]]))
    assert module.count("dot_general") >= 1
    assert module.count("stablehlo.transpose") == transposes, module
    on_xla.check(model, args)
