"""Updates of one tensor whose kernel reads no buffer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

import aotpipe
from aotpipe.backends.iree.fixes.input_phase import shared_destinations
from aotpipe.backends.iree.fixes.rewrites import rewritten
from tests.canaries import canary, check_compiled


class Found(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[x > 0], torch.nonzero(x < 1), x.sort()[1], (-x).sort()[1]


class Written(nn.Module):
    """Two updates of each tensor, by each kind of update, for several dtypes."""

    def forward(self, x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> tuple[torch.Tensor, ...]:
        size = x.shape[0]
        both: list[torch.Tensor] = []
        for dtype in (torch.float32, torch.int64, torch.uint8):
            values = (x.abs() * 9).to(dtype)
            for base in (torch.zeros(size, dtype=dtype), torch.arange(size).to(dtype)):
                both += [base.scatter_add(0, i, values), base.index_put((j,), values[:1], accumulate=False)]
        flags, ones = torch.zeros(size, dtype=torch.bool), torch.ones(size, size).tril()
        both += [flags.index_fill(0, i, True), flags.index_fill(0, j, True), flags]
        first, last = torch.arange(size).float(), torch.arange(size).float()
        first[:1], last[-1:] = x[:1], x[:1]
        return (*both, ones.index_fill(0, i[:1], 2.0), ones.index_fill(1, j[:1], 3.0), first, last)


class Large(nn.Module):
    """A size that does not vary, of a tensor that the compiler does not compute itself."""

    def forward(self, i: torch.Tensor, j: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        base = torch.arange(2**18)
        return base.scatter_add(0, i, j), base.scatter_add(0, j, i)


SIZE = {0: Dim("n", min=1, max=9)}


def test_results_of_unknown_sizes_stand_beside_each_other() -> None:
    torch.manual_seed(0)
    check_compiled(Found(), *((torch.randn(n),) for n in (9, 1, 5)), dynamic_shapes=(SIZE,))


def test_each_update_sees_what_it_updates() -> None:
    places = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([3, 4, 5, 5, 5, 3])
    call = (torch.linspace(-1, 1, 6), *places)
    check_compiled(Written(), call, (torch.ones(1), *torch.zeros(2, 1).long()), dynamic_shapes=(SIZE,) * 3)


def test_large_constants_are_updated_apart() -> None:
    check_compiled(Large(), (torch.tensor([0, 0, 1]), torch.tensor([1, 5, 5])))


_MODULE = """
util.func public @forward(%i: tensor<3x1xi32>, %n: index, %k: i64) -> tensor<?x{type}> {{
  %empty = tensor.empty(%n) : tensor<?x{type}>
  %c = arith.constant {constant} : {type}
  %base = linalg.fill ins({filler} : {type}) outs(%empty : tensor<?x{type}>) -> tensor<?x{type}>
  %new = tensor.empty() : tensor<3x{type}>
  %y = iree_linalg_ext.scatter dimension_map = [0] unique_indices(false)
      ins(%new, %i : tensor<3x{type}>, tensor<3x1xi32>) outs(%base : tensor<?x{type}>) {{
  ^bb0(%a: {type}, %b: {type}):
    iree_linalg_ext.yield %a : {type}
  }} -> tensor<?x{type}>
  util.return %y : tensor<?x{type}>
}}
"""


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        (("i64", 7, "%k"), True),
        (("i64", 7, "%c"), True),
        (("i64", 0, "%c"), False),
        (("i32", 7, "%c"), False),
    ],
)
def test_splats_stay(given: tuple[str, int, str], changes: bool) -> None:
    text = _MODULE.format(type=given[0], constant=given[1], filler=given[2])
    assert (rewritten(text.encode(), [shared_destinations.FIX.apply]) is not None) is changes


@canary(shared_destinations.FIX)
def test_iree_keeps_them_apart_without() -> None:
    check_compiled(Large(), (torch.tensor([0, 0, 1]), torch.tensor([1, 5, 5])))


def test_updates_of_complex_tensors_are_kept_apart(tmp_path: Path) -> None:
    def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        zeros = torch.zeros(x.shape[0], 3, dtype=torch.complex64)
        left, right = zeros.clone(), zeros.clone()
        left[:, :2] = torch.complex(x, x)
        right[:, 1:] = torch.complex(-x, x)
        return torch.view_as_real(left), torch.view_as_real(right)

    built = aotpipe.build(
        two,
        args=(torch.randn(5, 2),),
        dynamic_shapes={"x": {0: aotpipe.Dim("n", min=2, max=9)}},
        targets=["iree-cpu-host"],
        out=tmp_path / "bundle",
        latency=False,
    )
    assert [row.status for row in built.report.targets] == ["executed"]
