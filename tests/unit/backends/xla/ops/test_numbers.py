"""Numbers that only a run knows, among the arguments of ops."""

from __future__ import annotations

import torch

from tests.programs import on_xla


class OfTheRun(torch.nn.Module):
    def forward(self, x: torch.Tensor, s: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
        number, start = s.item(), k.item()
        return (
            torch.add(x, x, alpha=number),
            torch.addcmul(x, x, x, value=number),
            torch.nn.functional.leaky_relu(x, number),
            torch.addmm(x[:, :3], x, x.t(), alpha=number),
            torch.add(x > 0, x > 1, alpha=start),
            x.narrow(0, start, 2),
            x.sign() + 1 / x[0, :1].sign(),
        )


def test_programs_take_them() -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    x[0, 0] = -0.0
    on_xla.check(
        OfTheRun(), *((x, torch.tensor(s), torch.tensor(k)) for s, k in ((2.5, 1), (1.0, 0), (-1.0, -3)))
    )
