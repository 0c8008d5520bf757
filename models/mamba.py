"""A Mamba block (Gu and Dao 2023): the selective state space as a `scan` over time; random weights."""

from __future__ import annotations

import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.nn.functional import silu, softplus

from aotpipe import Dim, EntryPoint, Spec

WIDTH, INNER, STATE, RANK, KERNEL = 32, 64, 8, 4, 4


class MambaBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.in_proj = nn.Linear(WIDTH, 2 * INNER, bias=False)
        self.conv = nn.Conv1d(INNER, INNER, KERNEL, groups=INNER, padding=KERNEL - 1)
        self.x_proj = nn.Linear(INNER, RANK + 2 * STATE, bias=False)
        self.dt_proj = nn.Linear(RANK, INNER)
        self.a_log = nn.Parameter(torch.arange(1.0, STATE + 1).log().repeat(INNER, 1))
        self.d = nn.Parameter(torch.ones(INNER))
        self.out_proj = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seq = x.shape[1]
        u, gate = self.in_proj(self.norm(x)).chunk(2, dim=-1)
        u = silu(self.conv(u.transpose(1, 2))[..., :seq]).transpose(1, 2)
        rank, b, c = self.x_proj(u).split([RANK, STATE, STATE], dim=-1)
        delta = softplus(self.dt_proj(rank))
        decay = torch.exp(delta.unsqueeze(-1) * -self.a_log.exp())
        drive = (delta * u).unsqueeze(-1) * b.unsqueeze(2)

        def step(
            state: torch.Tensor, now: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
        ) -> tuple[torch.Tensor, torch.Tensor]:
            decay_now, drive_now, c_now = now
            state = state * decay_now + drive_now
            return state, (state * c_now.unsqueeze(1)).sum(-1)

        first = x.new_zeros(x.shape[0], INNER, STATE)
        _, y = scan(step, first, (decay, drive, c), dim=1)
        return x + self.out_proj((y + u * self.d) * silu(gate))


SPEC = Spec(
    name="mamba",
    build=lambda: MambaBlock().eval(),
    entry_points={
        "forward": EntryPoint(
            args=(torch.linspace(-1.0, 1.0, 2 * 9 * WIDTH).reshape(2, 9, WIDTH),),
            dynamic_shapes={"x": {0: Dim("batch", min=1, max=8), 1: Dim("seq", min=2, max=64)}},
        )
    },
)
