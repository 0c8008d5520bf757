"""Programs raise where Python's arithmetic raises, and give its numbers elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.backends.iree.lower import importer
from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.modules import as_module
from aotpipe.errors import AssertionViolated, ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from aotpipe.passes import hops
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


def alternates(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(x)
    for n in range(1, 40):
        total = total + (-1) ** (n + 1) * x / n
        if total.max() > 9.0:
            break
    for n in range(40, 2, -1):
        total = total - x / 2 ** (n - 3)
        if total.min() < 0.1:
            break
    return total


def test_powers_of_a_count_are_one_loop() -> None:
    """Of a count that is known not to be negative a power is an int: each iteration was written out."""
    values = ([2.0, 3.0], [20.0, 1.0], [-4.0, 5.0])
    check(alternates, *((torch.tensor(each),) for each in values))
    (entry,) = export(canonicalize(as_spec(alternates, args=(torch.ones(2),)))).entries
    assert len(list(hops.calls(entry.program.graph_module))) < 8


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


GROWING: dict[str, Callable[[int, int], int]] = {
    "product": lambda a, b: a * b,
    "product with a constant": lambda a, b: a * 1_000_003 + (-b) * 5,
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: a - b,
    "square": lambda a, b: a**2 + min(b, 0),
    "cube": lambda a, b: a**3 + min(b, 0),
    "power of two": lambda a, b: 2 ** (abs(a) % 100) + min(b, 0),
    "power": lambda a, b: (abs(a) % 5000) ** (abs(b) % 70),
}
INTEGERS = st.one_of(st.integers(-100, 100), st.integers(-(2**62), 2**62), st.integers(-(2**32), 2**32))


@pytest.mark.parametrize("name", GROWING)
def test_whole_numbers_are_pythons_or_an_assert_fails(name: str) -> None:
    """They wrapped around where Python's integers go on: `n * n * n % 7` was another number."""

    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.tensor(GROWING[name](int(a.item()), int(b.item())))

    example = (torch.tensor(3), torch.tensor(2))
    run = export(canonicalize(as_spec(model, args=example))).entries[0].program.module()

    @given(INTEGERS, INTEGERS)
    def law(a: int, b: int) -> None:
        wanted = GROWING[name](a, b)
        # Sums and products are asserted from half of what 64 bits hold.
        if max(abs(wanted), abs(a), abs(b)) < 2**61:
            assert run(torch.tensor(a), torch.tensor(b)).item() == wanted
        else:
            with suppress(RuntimeError):
                assert run(torch.tensor(a), torch.tensor(b)).item() == wanted

    law()


def hashed(x: torch.Tensor) -> torch.Tensor:
    number = 7
    for value in x.tolist():
        number = number * 1_000_003 + int(value)
    return torch.tensor(number % 1009)


def test_a_hash_without_a_remainder() -> None:
    program = through.legal(as_module(hashed), (torch.ones(2),))
    with through.load(program, importer.lower(program)) as runner:
        (found,) = runner.infer({"x": np.full(2, 5, np.float32)}).values()
        assert found == (7 * 1_000_003**2 + 5 * 1_000_004) % 1009
        with pytest.raises(AssertionViolated, match="a whole number beyond 64 bits"):
            runner.infer({"x": np.full(2, 9e13, np.float32)})


def of_positions(x: torch.Tensor) -> torch.Tensor:
    first, last, total, i = int(x.argmax()), int(x.argmin()), 0, 0
    while i < first:
        total, i = max(total, i * 4 + last), i + 1
    return x[0] + total + first * last + first**2 + first - last


def test_numbers_with_bounds_need_no_assert() -> None:
    assert not through.legal(as_module(of_positions), (torch.arange(16.0),)).entries[0].asserts


@pytest.mark.parametrize("constant", [2**63, -(2**63) - 1, 2**64 - 1])
def test_a_constant_beyond_64_bits_is_refused(constant: int) -> None:
    """`n & (2**64 - 1)` kept a negative number negative; other operators said "int too big to convert"."""

    def masked(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor((int(x.sum()) & constant) % 1000)

    with pytest.raises(ExportFailed, match="more than 64 bits") as raised:
        export(canonicalize(as_spec(masked, args=(torch.ones(2),))))
    assert raised.value.where is not None
