"""Newton's method as a `torch.while_loop`: square roots, until the largest step is below a tolerance.

In plain Python this is `while diff.abs().max() > tol and iterations < max_iter:`. A carry must have one shape
for the whole loop. The difference is `(batch,)`, so a first value of `torch.tensor(1.0)`, which is 0-d, is
refused by torch 2.13; here the carry is the largest step, 0-d from the start.
"""

from __future__ import annotations

import torch

from aotpipe import Dim, EntryPoint, Spec


class SquareRoot(torch.nn.Module):
    def __init__(self, tolerance: float = 1e-4, max_iterations: int = 100) -> None:
        super().__init__()
        self.tolerance = tolerance
        self.max_iterations = max_iterations

    def forward(self, square: torch.Tensor) -> torch.Tensor:
        def unsettled(_x: torch.Tensor, step: torch.Tensor, trips: torch.Tensor) -> torch.Tensor:
            return (step > self.tolerance) & (trips < self.max_iterations)

        def improve(x: torch.Tensor, _step: torch.Tensor, trips: torch.Tensor) -> tuple[torch.Tensor, ...]:
            # The error of the next guess is about step**2 / 2x, so that a trip more or less changes nothing.
            better = x - (x * x - square) / (2 * x)
            return better, (better - x).abs().max(), trips + 1

        start = (square.clone(), square.new_full((), 1.0), torch.zeros((), dtype=torch.int64))
        root, _, _ = torch.while_loop(unsettled, improve, start)
        return root


SPEC = Spec(
    name="newton",
    build=lambda: SquareRoot().eval(),
    entry_points={
        "forward": EntryPoint(
            args=(torch.tensor([2.0, 9.0, 50.0]),),
            dynamic_shapes={"square": {0: Dim("batch", min=1, max=64)}},
            value_ranges={"square": (0.5, 100.0)},
        )
    },
)
