"""Programs raise where Python's arithmetic raises, and give its numbers elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from aotpipe.backends.iree.lower import importer
from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.modules import as_module
from aotpipe.errors import AssertionViolated
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.programs import through
from tests.unit.canonicalize.trace.agree import check

VALUES = [0.5, 0.0, -0.5, -3.0, 2.0, math.nan, math.inf, -math.inf, 100.0, 1000.0]
OF_ONE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "log": lambda x: torch.tensor(math.log(x.item())),
    "log1p": lambda x: torch.tensor(math.log1p(x.item())),
    "sqrt": lambda x: torch.tensor(math.sqrt(x.item())),
    "acos": lambda x: torch.tensor(math.acos(x.item())),
    "atanh": lambda x: torch.tensor(math.atanh(x.item())),
    "exp": lambda x: torch.tensor(1 / (1 + math.exp(x.item()))),
    "cosh": lambda x: torch.tensor(1 / math.cosh(x.item())),
    "sin": lambda x: torch.tensor(math.sin(x.item())),
    "int": lambda x: x + int(x.item()),
    "int of a tensor": lambda x: x + int(x),
    "floor": lambda x: x + math.floor(x.item()),
    "divided": lambda x: torch.tensor(1 / x.item()),
    "floor divided": lambda x: torch.tensor(x.item() // 2),
    "reciprocal": lambda x: torch.tensor(x.item() ** -1),
    "least": lambda x: torch.tensor(min(5.0, x.item())),
    "least first": lambda x: torch.tensor(min(x.item(), 5.0)),
    "greatest": lambda x: torch.tensor(max(5.0, x.item())),
    "greatest of tensors": lambda x: max(torch.tensor(0.25), x),
}


@pytest.mark.parametrize("name", OF_ONE)
def test_a_function_of_a_number(name: str) -> None:
    check(OF_ONE[name], *((torch.tensor(value),) for value in VALUES))


def remainders(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    n = int(k)
    if x.sum() > 0:
        x = x + 7 % n
    return x * (7 // (n - 1))


def test_a_division_asserts_on_its_own_path() -> None:
    check(remainders, *((torch.tensor([v]), torch.tensor(k)) for v in (1.0, -1.0) for k in (2, 0, 1, -3)))


def retries(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    jitter = 0.0
    for i in range(5):
        y = x + jitter
        if (y > 0).all():
            return y, i
        jitter = 10 ** (i - 3)
    raise RuntimeError("not positive")


def test_powers_of_ints_in_a_loop_may_be_floats() -> None:
    check(retries, *((torch.tensor([v, 1.0]),) for v in (2.0, 0.0, -0.005, -0.05, -0.5, -2.0, -20.0)))


def logarithm(x: torch.Tensor) -> torch.Tensor:
    return x * math.log(x.sum().item()) + int(x.max())


def test_a_compiled_program_says_what_python_says() -> None:
    program = through.legal(as_module(logarithm), (torch.ones(2),))
    with through.load(program, importer.lower(program)) as runner:
        for value, said in (
            (0.0, "ValueError: math domain error"),
            (math.inf, "OverflowError: cannot convert"),
            (1e30, "OverflowError: cannot convert"),
        ):
            with pytest.raises(AssertionViolated, match=said):
                runner.infer({"x": np.full(2, value, np.float32)})


def test_what_cannot_be_rewritten_is_refused_in_strict_mode_too() -> None:
    space: dict[str, Callable[..., object]] = {}
    exec(compile("def f(x): return x + int(x.sum())", "<made>", "exec"), space)
    with pytest.raises(Exception, match="source is not there"):
        export(canonicalize(as_spec(space["f"], args=(torch.ones(2),))))


def shifted(x: torch.Tensor, k: torch.Tensor) -> tuple[int, ...]:
    n, board = k.item(), 0
    if x.sum() > 0:
        board |= 1 << n
        board |= True << (n >> 1)
    cells = torch.zeros(8)
    for number in k.view(1).tolist():
        cells[((number << 1) ^ (number >> 1)) & 7] += 1
    return board, 5 << n, 100 >> n, cells


def test_shifts_are_pythons() -> None:
    """`1 << n` was refused as `int << FakeTensor`, and an index of bits as torch's own error."""
    x = torch.ones(2)
    check(shifted, *((sign * x, torch.tensor(n)) for sign in (1, -1) for n in (3, 0, 60, 7, -1)))
    run = export(canonicalize(as_spec(shifted, args=(x, torch.tensor(3))))).entries[0].program.module()
    with pytest.raises(RuntimeError, match="beyond 64 bits"):
        run(x, torch.tensor(62))
