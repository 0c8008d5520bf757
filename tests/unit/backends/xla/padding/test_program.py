import numpy as np
import torch
from torch.export import Dim

from aotpipe.backends.xla import lowering
from tests.programs import on_xla, through


class Halves(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[: x.shape[0] // 2].cumsum(0), x.view(2, -1).sum(1)


def test_dims_that_are_derived_are_found_from_those_of_the_call():
    half = Dim("half", min=1, max=8)
    dims = {"x": {0: 2 * half}}
    calls = [(torch.randn(2 * n),) for n in (3, 1, 5, 8)]
    on_xla.check_padded(Halves(), *calls, buckets={"half": (4, 8)}, dynamic_shapes=dims)
    program = through.legal(Halves(), calls[0], dialect="stablehlo", dynamic_shapes=dims)
    with on_xla.load(program, lowering.lower(program, {"half": (8,)})) as runner:
        outputs = list(runner.infer({"x": np.ones(10, np.float32)}).values())
    assert [output.shape for output in outputs] == [(5,), (2,)]
