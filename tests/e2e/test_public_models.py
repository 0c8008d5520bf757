"""At least 98 of 100 public models that torch.export takes are at parity, with no edit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.e2e import public_cases, public_models, public_weights


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize(("library", "at_least"), [("timm", 30), ("transformers", 40)])
def test_public_models_are_at_parity(library: str, at_least: int, print_table: Callable[[str], None]) -> None:
    rows = list(public_models.build_all(case for case in public_cases.cases() if case.startswith(library)))
    print_table("\n".join([*map(str, rows), public_models.count(rows)]))
    built, taken = public_models.summary(rows)
    assert taken >= at_least
    assert built / taken >= 0.98


class Quiet(torch.nn.Module):
    """A branch that starts at zero, a batch norm without statistics, and a gain that hides all of it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        torch.nn.init.zeros_(self.norm.weight)
        self.gain = torch.nn.Parameter(torch.full((1, 8, 1, 1), 1e-6))
        self.register_buffer("scale", torch.tensor(3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gain * self.norm(self.conv(100 * x)) * self.scale


def test_drawn_weights_let_the_outputs_follow_the_inputs() -> None:
    model, inputs = Quiet().eval(), {"x": torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))}
    with pytest.raises(public_weights.Unvaried, match="do not follow"):
        public_weights.spread(model, inputs)
    public_weights.draw(model, inputs)
    found = public_weights.spread(model, inputs)
    assert 0.01 < found.std < 1
    assert found.change > 0.5
    assert model.scale == 3
    assert not model.norm.training
    again = Quiet().eval()
    public_weights.draw(again, inputs)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_outputs_that_are_not_finite_are_seen() -> None:
    model = torch.nn.Linear(4, 4)
    torch.nn.init.constant_(model.bias, float("inf"))
    with pytest.raises(public_weights.Unvaried, match="not finite"):
        public_weights.spread(model, {"input": torch.ones(2, 4)})


def test_a_table_ends_with_its_count() -> None:
    rows = [
        public_models.Row("timm/a", "executed"),
        public_models.Row("timm/b", "failed", "compile"),
        public_models.Row("timm/c", "refused", "torch.export"),
    ]
    assert public_models.count(rows) == "1 of 3 at parity (2 taken by torch.export)"
