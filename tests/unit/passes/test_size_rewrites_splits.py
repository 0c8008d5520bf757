"""A split by sizes that are data becomes slices."""

from __future__ import annotations

import torch

from aotpipe import Dim
from tests.programs import through
from tests.unit.passes.legal import check, model, targets

X = torch.arange(24.0).reshape(6, 4)


def _forward(self, x, sizes):
    first, second, third = torch.split(x, sizes.tolist(), dim=0)
    return torch.cat([self.linear(third), self.linear(first) * 2, second])


CALLS = [(X, torch.tensor(sizes)) for sizes in ([1, 2, 3], [0, 6, 0], [4, 1, 1])]


def test_the_parts_are_those_of_eager() -> None:
    found = targets(check(model(_forward), *CALLS, value_ranges={"sizes": (0, 6)}))
    assert "aten.slice.Tensor" in found
    assert "aten.split_with_sizes.default" not in found


def test_compiles() -> None:
    through.check(model(_forward), *CALLS, value_ranges={"sizes": (0, 6)})


def test_a_split_by_known_sizes_stays() -> None:
    def forward(self, x):
        return torch.split(x, [2, 4], dim=0)

    assert "aten.split_with_sizes.default" in targets(check(model(forward), [X]))


def test_the_absolute_value_of_a_size() -> None:
    def forward(self, x):
        return x * abs(x.shape[0] - 4), x[: abs(x.shape[0] - 9) // 2].sum(0)

    through.check(
        model(forward),
        *[(X[:rows],) for rows in (6, 2, 4)],
        dynamic_shapes={"x": {0: Dim("n", min=2, max=8)}},
    )
