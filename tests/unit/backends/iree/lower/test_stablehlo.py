"""Models through StableHLO to IREE: equal to eager and to the torch dialect's program, or refused by name."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.lower import importer, stablehlo
from aotpipe.core.stages import Dialect, Legal, Lowered
from aotpipe.core.targets import Target
from aotpipe.errors import AssertionViolated, NoBuckets, UnsupportedOps
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.runtime.iree import runtime
from tests.programs import through

HOST = Target.parse("iree-cpu-host")


def load(program: Legal, lowered: Lowered) -> runtime.Runner:
    return through.load_payload(program, compiler.compile(lowered, HOST).payload, "local-sync")


@dataclass(frozen=True)
class Made:
    """A model as a program of one dialect."""

    legal: Legal
    lowered: Lowered
    payload: bytes


LOWER = {"stablehlo": stablehlo.lower, "torch": importer.lower}
# The torch dialect has tests of its own, beside which it shows here that both give the same.
DIALECTS = ["stablehlo", pytest.param("torch", marks=pytest.mark.slow)]


def check(module: torch.nn.Module, dialect: Dialect, *calls: tuple[Any, ...]) -> Made:
    """Compare eager with the program of a dialect over calls, of which the first is the example."""
    own = copy.deepcopy(module)
    program = through.legal(own, calls[0], dialect=dialect)
    lowered = LOWER[dialect](program)
    made = Made(program, lowered, compiler.compile(lowered, HOST).payload)
    with through.load_payload(program, made.payload, "local-sync") as runner:
        for call in calls:
            through.compare(runner, program, own, call)
    return made


class Net(torch.nn.Module):
    """A convolution, a norm, an embedding of bytes, a table of int64, and a result of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3, padding=1)
        self.norm = torch.nn.LayerNorm(4)
        self.register_buffer("bytes", torch.tensor([250, 3, 7], dtype=torch.uint8))
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        self.register_buffer("turn", torch.tensor([1 + 2j, 3j, -1, 2]))

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.nn.functional.gelu(self.conv(x)).mean((2, 3))
        y = torch.softmax(self.norm(y), -1) * self.mask
        return y, y.argmax(-1), self.bytes[n] // 2, (y * self.turn).real, y > 0.1, n + 2**40


class Deciding(torch.nn.Module):
    """State, a branch, a loop and an assert."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch._check(n.item() < 100)
        self.calls += 1
        self.total.add_(x[0])
        y = torch.cond(x.sum() > 0, lambda v: self.linear(v), lambda v: v.sin() * self.total, (x,))
        (z,) = torch.while_loop(lambda v: v.abs().sum() > 1, lambda v: ((v * 0.5).clone(),), (y,))
        return y, z, self.calls * 2


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_model_of_many_dtypes_equals_eager_in_both_dialects(dialect: Dialect) -> None:
    torch.manual_seed(0)
    lowered = check(
        Net().eval(), dialect, *[(torch.randn(2, 2, 4, 4), torch.tensor([2, 0])) for _ in range(2)]
    ).lowered
    assert lowered.dialect == dialect
    if dialect == "torch":
        return
    text = lowered.module.decode()
    # Weights are no arguments, and each is stored once, outside.
    assert text.count('#flow.parameter.named<"model"::') == 7
    assert "site-packages" not in text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_state_branches_loops_and_asserts_are_as_in_the_torch_dialect(dialect: Dialect) -> None:
    torch.manual_seed(0)
    calls = [(torch.randn(2, 4), torch.tensor(step)) for step in range(3)]
    made = check(Deciding().eval(), dialect, *calls)
    if dialect == "torch":
        return
    with through.load_payload(made.legal, made.payload, "local-sync") as runner:
        x = view_numpy(calls[0][0])
        assert list(runner.infer({"x": x, "n": np.array(3)}).values())[-1] == 2
        with pytest.raises(AssertionViolated, match="u0 <= 99"):
            runner.infer({"x": x, "n": np.array(100)})
        assert (
            list(runner.infer({"x": x, "n": np.array(3)}).values())[-1] == 4
        )  # the call that failed did not count


def test_ops_have_the_users_line_and_the_digest_has_not(tmp_path: Path) -> None:
    program = through.legal(
        Net().eval(), (torch.randn(2, 2, 4, 4), torch.tensor([2, 0])), dialect="stablehlo"
    )
    lowered = stablehlo.lower(program)
    assert 'test_stablehlo.py":' in lowered.module.decode()
    assert stablehlo.lower(program).digest == lowered.digest


class Rows(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_a_dim_is_refused_by_name() -> None:
    program = through.legal(
        Rows(),
        (torch.randn(3, 2),),
        dialect="stablehlo",
        dynamic_shapes={"x": {0: Dim("batch", min=1, max=8)}},
    )
    with pytest.raises(NoBuckets, match="Dim batch=1") as caught:
        stablehlo.lower(program)
    assert "--dialect" in caught.value.hint


class Spectrum(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.fft.rfft(x)  # eight
        return torch.fft.irfft(y * 2) + torch.fft.fft(x[:, :6]).real.sum()


def test_what_iree_has_no_conversion_for_is_named_with_its_line() -> None:
    program = through.legal(Spectrum(), (torch.randn(2, 8),), dialect="stablehlo")
    with pytest.raises(UnsupportedOps, match=r"no lowering \(2 in all\): stablehlo.fft") as caught:
        stablehlo.lower(program)
    error = caught.value
    own = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert error.where is not None
    assert own[error.where.line - 1].strip().startswith("return torch.fft.irfft")
    assert "back to real numbers" in error.reason
    assert "powers of two" in error.reason
    assert "--dialect" in error.hint
