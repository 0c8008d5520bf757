"""aotpipe's programs are made before the first call, and what they do not take is refused."""

from __future__ import annotations

import torch

from aotpipe.build.chain import Chain
from aotpipe.build.compile_stage import CompileSettings
from aotpipe.build.events import Recorder
from aotpipe.build.request import Request
from aotpipe.tools.recompiles import programs
from aotpipe.tools.recompiles.calls import ModelCall, given
from aotpipe.tools.recompiles.results import Way
from tests.unit.tools.recompiles.models import Counting, N, Scaled


def run(module: torch.nn.Module, example: tuple[object, ...], calls: list[object]) -> Way:
    chain = Chain(Request.of(module.eval(), ["iree-vmvx"], example, dynamic_shapes={"x": {0: N}}), Recorder())
    [way] = programs.run(chain, given(chain.canonical, calls), CompileSettings(cache=False))
    return way


def test_one_program_over_state_and_sizes_at_parity() -> None:
    calls = [torch.full((n, 2), sign) for n, sign in ((3, 1.0), (1, -1.0), (8, 1.0), (8, -1.0))]
    way = run(
        Counting(),
        (torch.ones(3, 2),),
        [*calls, ModelCall(entry_point="forward", case="", args=(calls[0],), reset=True)],
    )
    assert way.so_far == (1,) * 5
    assert (way.compared, way.refused, way.error) == (5, (), None)
    assert way.ratio <= 1


def test_a_number_that_varies_and_a_size_beyond_the_dim_are_refused() -> None:
    x = torch.ones(3, 2)
    way = run(Scaled(), (x, 2), [(x, 2), (x, 3), (torch.ones(9, 2), 2), (x,), (torch.ones(3, 2, 1), 2)])
    assert way.count == 1
    assert [each.call for each in way.refused] == [2, 3, 4, 5]
    assert way.refused[0].reason == "the input 'k' is fixed at 2, and this call gives 3"
    assert way.compared == 1


def test_a_call_that_lacks_an_optional_input_has_any_size_and_the_rest_of_the_example() -> None:
    class Masked(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, k: int = 2) -> torch.Tensor:
            return (x if mask is None else x * mask) * k

    request = Request.of(
        Masked().eval(),
        ["iree-vmvx"],
        (torch.ones(3),),
        {"mask": torch.ones(3), "k": 3},
        dynamic_shapes={"x": {0: N}, "mask": {0: N}},
        optional=("mask",),
        tensorize=("k",),
    )
    calls = [{"x": torch.ones(5)}, {"x": torch.ones(2), "mask": torch.zeros(2), "k": 7}]
    chain = Chain(request, Recorder())
    made = given(chain.canonical, calls)
    [way] = programs.run(chain, made, CompileSettings(cache=False))
    assert (way.count, way.compared, way.refused) == (1, 2, ())
    assert made[0].args[0]["k"] == 3
