import torch

from aotpipe.passes import unbacked
from aotpipe.passes.unbacked import DataSize
from tests.programs import through


class Sizes(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        bounded, unbounded, number = n[0].item(), n[1].item(), n[2].item()
        torch._check(bounded >= 1)
        torch._check(bounded <= 7)
        return x[x > 0], torch.arange(bounded), torch.arange(unbounded), x + number, x[:, number:]


def test_sizes_have_the_bounds_that_are_known_of_them():
    program = through.legal(Sizes(), (torch.randn(2, 3), torch.tensor([3, 4, 5])))
    found = unbacked.sizes(program.entries[0].graph)
    wanted = [DataSize(0, 3), DataSize(0, 6), DataSize(0, None), DataSize(1, 7)]
    assert sorted(found.values(), key=str) == wanted
