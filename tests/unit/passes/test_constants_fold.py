"""What has no lowering is computed at build time where no input leads to it."""

from __future__ import annotations

import torch

from tests.programs.through import check, legal


class Table(torch.nn.Module):
    """Positions in float64, added to the inputs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rates = 1.0 / 100 ** (torch.arange(4, dtype=torch.float64) / 4)
        angles = torch.arange(x.shape[0], dtype=torch.float64)[:, None] * rates
        return x + torch.cat([angles.sin(), angles.cos().log2()], 1).nan_to_num().to(x.dtype)


class Orthogonal(torch.nn.Module):
    """A weight that is a factor of another."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.Linear(4, 4)
        self.layer = torch.nn.utils.parametrizations.orthogonal(layer, orthogonal_map="householder")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(x), self.layer.weight.sin()


class Counted(torch.nn.Module):
    """The table depends on a state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count.sin().float()


def test_table() -> None:
    check(Table(), (torch.randn(3, 8),))


def test_factor_of_a_weight() -> None:
    check(Orthogonal(), (torch.randn(3, 4),))


def test_a_loop_over_a_weight_is_folded() -> None:
    class Inverse(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ torch.linalg.inv(self.weight)

    [entry] = legal(Inverse(6, 6), (torch.randn(2, 6),)).entries
    assert not entry.graph.graph.find_nodes(op="call_function", target=torch.ops.higher_order.scan)


class Both(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(3)
        return x + places.double().sin().float() + places.float().exp()


def test_only_what_lacks_a_lowering_is_folded() -> None:
    entry = legal(Both(), (torch.randn(3),)).entries[0]
    assert entry.graph.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default)
    assert len(entry.weights) == 1


def test_a_state_is_not_constant() -> None:
    assert sines(Counted())


def test_an_input_is_not_constant() -> None:
    class Sine(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.double().sin()

    assert sines(Sine())


def sines(model: torch.nn.Module) -> list[torch.fx.Node]:
    [entry] = legal(model, (torch.randn(3),)).entries
    return list(entry.graph.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default))
