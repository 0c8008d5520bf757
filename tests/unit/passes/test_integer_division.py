"""Whole-number divisions, shifts and casts: of constants, of large numbers, and those without an answer.

What may stop a process runs in a worker.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from aotpipe import Dim, backends
from aotpipe.backends.xla import lowering
from aotpipe.build.chain import lower_for_iree, write_weights
from aotpipe.core.targets import Target
from aotpipe.errors import AssertionViolated
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.runtime.worker import Worker
from tests.programs import on_xla, through
from tests.programs.through import check
from tests.sweep import sweep
from tests.unit.passes.legal import Runner, legal, model, targets


class Constants(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seven = torch.full((3,), -7)
        return (
            x + seven // 2,
            x + 7 * seven // -2,
            x + (seven - 1)[:1] * 3 // 5,
            x + seven // torch.full((3,), 2),
            x + torch.div(seven, 2, rounding_mode="trunc"),
            x + seven % 3,
            x + seven.to(torch.int32) // 2,
            x + torch.full_like(x, -7) // 2,
        )


def test_program_of_constants() -> None:
    rows = torch.export.Dim("rows", min=1, max=9)
    x = torch.zeros(3, dtype=torch.int64)
    check(Constants(), (x,), dynamic_shapes=None)
    check(Sized(), (x,), (torch.ones(5, dtype=torch.int64),), dynamic_shapes={"x": {0: rows}})


class Sized(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + torch.full_like(x, -7) // 2, x - torch.full((x.shape[0],), -9) % 4


class Large(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x // 2, x // 7, x // -7, x.clamp(-100, 100) // -7, x[0] // 3


def test_program_of_large_numbers() -> None:
    check(Large(), (torch.tensor([2**53 + 1, 2**62 + 1, -(2**62) - 1, -7, 7, -(2**53) - 3, 0]),))


X, Y, ZERO = torch.tensor([7, -8, 9]), torch.tensor([1, 2, -3]), torch.tensor([1, 0, 3])
BY_ZERO = "RuntimeError: ZeroDivisionError"


def _branch(self, x, y):
    return torch.cond(x.sum() > 0, lambda x, y: x // y, lambda x, y: x + y, (x, y))


def _python_branch(self, x, y):
    if x.sum() > 0:
        return x % y
    return x + y


def _loop(self, x, y):
    return while_loop(lambda x, y: x.sum() > 10, lambda x, y: (x // y - 9, y.clone()), (x + 9, y))


def _in_place(self, x, y):
    x = x.clone()
    x //= y
    x %= y
    return x.clone().fmod_(y), x.div_(y, rounding_mode="trunc")


class TestGuards:
    @pytest.mark.parametrize(
        "forward",
        [
            lambda self, x, y: x // y,
            lambda self, x, y: torch.divide(x, y, rounding_mode="trunc"),
            lambda self, x, y: 7 % y,
            lambda self, x, y: torch.vmap(lambda one: one // y)(x.reshape(3, 1)),
            lambda self, x, y: torch.where(y != 0, x // y, 0),
            _branch,
            _python_branch,
            _loop,
            _in_place,
        ],
    )
    def test_by_zero_raises_what_eager_raises(self, forward: Any) -> None:
        program = legal(model(forward), (X, Y))
        run = Runner(program)
        run((X, Y))
        assert all(run.asserts.values())
        run((X, ZERO))
        assert {said[: len(BY_ZERO)] for said, holds in run.asserts.items() if not holds} == {BY_ZERO}

    @pytest.mark.parametrize("forward", [_branch, _python_branch, _loop])
    def test_what_is_not_computed_does_not_raise(self, forward: Any) -> None:
        run = Runner(legal(model(forward), (X, Y)))
        run((X - 100, ZERO))
        assert all(run.asserts.values())

    def test_masked_divisors(self) -> None:
        def forward(self, x, y):
            return torch.where(y != 0, x // torch.where(y != 0, y, 1), 0)

        run = Runner(legal(model(forward), (X, Y)))
        (found,) = run((X, ZERO)).values()
        assert found.tolist() == [7, 0, 3]
        assert all(run.asserts.values())

    @pytest.mark.parametrize(
        "forward",
        [
            lambda self, x, y: (x // 2, x % -3, x.fmod(5), x / y, x.float() // y, x.float() % y),
            lambda self, x, y: x // (y.abs().clamp(0, 9) + 1),
            lambda self, x, y: (torch.gcd(x, y), torch.lcm(x, y)),
        ],
    )
    def test_what_always_has_an_answer_costs_nothing(self, forward: Any) -> None:
        program = legal(model(forward), (X, Y))
        assert program.entries[0].asserts == ()

    def test_proven_ranges_cost_nothing(self) -> None:
        program = legal(model(lambda self, x, y: x % y), (X, Y.abs()), value_ranges={"y": (1, 9)})
        assert program.entries[0].asserts == ()
        assert "aten.where.self" not in targets(program)

    def test_of_nothing_by_zero(self) -> None:
        rows = {"x": {0: Dim("rows", min=0, max=9)}, "y": None}
        run = Runner(legal(model(lambda self, x, y: x // y), (X, Y[0]), dynamic_shapes=rows))
        for x, holds in ((X, False), (X[:0], True)):
            run((x, ZERO[1]))
            assert list(run.asserts.values()) == [holds]

    def test_of_chosen_rows(self) -> None:
        rows = {"x": {0: Dim("rows", min=1, max=9)}, "y": None}
        module = model(lambda self, x, y: (x[x > 0] // y).sum())
        check(module, (X, Y[1]), (torch.arange(5), Y[2]), dynamic_shapes=rows)

    def test_by_a_size(self) -> None:
        def forward(self, x):
            return x.sum() + 100 // x.shape[0], 7 % x.shape[0]

        run = Runner(legal(model(forward), (X,), dynamic_shapes={"x": {0: Dim("rows", min=0, max=9)}}))
        found = run((X,))
        assert [value.item() for value in found.values()] == [int(X.sum()) + 33, 1]
        run((X[:0],))
        assert not any(run.asserts.values())


class Line(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x // y


def test_the_line_of_a_division_by_zero_is_named() -> None:
    (said,) = legal(Line(), (X, Y)).entries[0].asserts
    assert said.startswith(f"{BY_ZERO} (test_integer_division.py:")


class Divided(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), x << y, 7 // y


def test_padded_rows_do_not_count() -> None:
    rows = {name: {0: Dim("rows", min=1, max=8)} for name in ("x", "y")}
    x, y = torch.arange(3) - 1, torch.arange(3) + 1
    program = through.legal(Divided(), (x, y), dialect="stablehlo", dynamic_shapes=rows)
    lowered = lowering.lower(program, {"rows": [4, 8]})
    with on_xla.load(program, lowered) as runner, on_xla.garbage(0.0):
        through.compare(runner, program, Divided(), (x, y))
        with pytest.raises(AssertionViolated, match="ZeroDivisionError"):
            runner.infer({"x": x.numpy(), "y": x.numpy()})


# Every form of a division; each has a divisor of its own, so that one alone may be zero.
DIVISIONS: Mapping[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "fmod": torch.fmod,
    "number //": lambda a, b: 7 // b,
    "number %": lambda a, b: 7 % b,
    "0-d //": lambda a, b: a // b[0],
    "numbers //": lambda a, b: a[0].item() // b[0].item(),
    "numbers %": lambda a, b: a[0].item() % b[0].item(),
}
BY_NUMBERS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "3": lambda a: torch.stack([a // 3, a % 3, torch.fmod(a, 3), torch.div(a, 3, rounding_mode="trunc")]),
    "-1": lambda a: torch.stack([a // -1, a % -1, torch.fmod(a, -1)]) if a.dtype.is_signed else a // 1,
    "<< 9": lambda a: a << 9,
    ">> 70": lambda a: a >> 70,
}
SHIFTS: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "<<": lambda a, count: a << count,
    ">>": lambda a, count: a >> count,
    "number <<": lambda a, count: 7 << count,
    "number >>": lambda a, count: 7 >> count,
}
NAMES = [*DIVISIONS, *BY_NUMBERS, *SHIFTS, "cast", "cast of a double"]
NAN, INF = float("nan"), float("inf")
FLOATS = [NAN, INF, -INF, 1e30, -1e30, 300.7, -300.7, 3e9, -3e9, 70000.0, 2.0**31 + 5, -0.9, -1.5, 2.9]


class Everything(torch.nn.Module):
    """All of it over one dtype; `doubles` where the target casts them."""

    def __init__(self, dtype: torch.dtype, *, doubles: bool) -> None:
        super().__init__()
        self.dtype, self.doubles = dtype, doubles

    def forward(
        self, a: torch.Tensor, count: torch.Tensor, floats: torch.Tensor, *divisors: torch.Tensor
    ) -> list[Any]:
        divided = [form(a, b) for form, b in zip(DIVISIONS.values(), divisors, strict=True)]
        numbers = [form(a) for form in BY_NUMBERS.values()]
        shifted = [form(a, count) for form in SHIFTS.values()]
        casts = [floats.to(torch.float32).to(self.dtype)]
        return [*divided, *numbers, *shifted, *casts, *[floats.to(self.dtype)] * self.doubles]


class Process:
    """A program of everything for one target, in a process of its own."""

    def __init__(self, module: Everything, target: Target, example: Sequence[torch.Tensor], folder: Path):
        program = through.legal(
            module, tuple(example), dialect="torch" if target.backend == "iree" else "stablehlo"
        )
        lowered = lower_for_iree(program) if target.backend == "iree" else lowering.lower(program, None)
        (self.entry,) = program.entries
        self.module, self.cases = module, 0
        self.worker = Worker(backend=target.backend).load(
            target,
            backends.compiler(target).compile(lowered, target).payload,
            signatures={self.entry.name: self.entry.signature},
            weights=write_weights({}, {}, folder),
            initial_state={},
            asserts={self.entry.name: self.entry.asserts},
        )

    def run(self, call: Sequence[torch.Tensor]) -> list[Any]:
        names = [leaf.name for leaf in self.entry.signature.tensor_inputs]
        given = {name: view_numpy(value) for name, value in zip(names, call, strict=True)}
        found = self.worker.infer(given, entry_point=self.entry.name)
        return [found[leaf.name] for leaf in self.entry.signature.tensor_outputs]

    def compare(self, *call: torch.Tensor, wanted: Sequence[Any] | None = None) -> None:
        wanted = self.module(*call) if wanted is None else wanted
        for name, found, value in zip(NAMES, self.run(call), wanted, strict=False):
            np.testing.assert_array_equal(found, np.asarray(value), name, strict=True)
            self.cases += 1

    def must_raise(self, said: str, *call: torch.Tensor) -> None:
        with pytest.raises(AssertionViolated, match=said):
            self.run(call)
        self.cases += 1


@contextmanager
def process(dtype: torch.dtype, target: str, folder: Path) -> Iterator[tuple[Process, list[torch.Tensor]]]:
    info = torch.iinfo(dtype)
    a = torch.tensor([7, info.max - 7, info.max, info.min, 0, 1], dtype=dtype)
    b = torch.tensor([3, 2, 5, info.max, info.min or 9, -3 % (info.max + 1)], dtype=dtype)
    count = torch.tensor([0, 1, info.bits - 1, info.bits - 2, 2, 3], dtype=dtype)
    floats = torch.tensor(FLOATS, dtype=torch.float64 if target != "iree-vmvx" else torch.float32)
    call = [a, count, floats, *[b] * len(DIVISIONS)]
    made = Process(Everything(dtype, doubles=target != "iree-vmvx"), Target.parse(target), call, folder)
    with made.worker:
        yield made, call


DTYPES = (torch.int32, torch.uint8, torch.int8, torch.int16, torch.int64)
TARGETS = ("iree-vmvx", "iree-cpu-host", "xla-cpu-host")


def compare_all(target: str, dtype: torch.dtype, folder: Path) -> int:
    """Compare a program of everything with eager, and how each call fails; gives how many cases agree."""
    info = torch.iinfo(dtype)
    with process(dtype, target, folder) as (made, call):
        a, count, floats, *divisors = call
        made.compare(*call)
        edges = [info.bits, info.bits + 1, 100, info.max, info.max - 1, 65]
        for counts in [edges, *[[-1, -2, -100, info.min, info.min + 1, -8]] * dtype.is_signed]:
            made.compare(a, torch.tensor(counts, dtype=dtype), floats, *divisors)
        for place, name in enumerate(DIVISIONS):
            rest = divisors[:place], divisors[place + 1 :]
            for at in [0] if "number" in name or "0-d" in name else [0, 5]:
                zero = divisors[place].clone()
                zero[at] = 0
                made.must_raise("ZeroDivisionError", a, count, floats, *rest[0], zero, *rest[1])
            least, negative = torch.full_like(a, info.min), torch.full_like(a, -1)
            if not dtype.is_signed or name in ("numbers //", "number %", "number //"):
                continue
            # Eager's own truncation of the least int32 and int64 dies; it wraps around as all others do.
            safe = torch.ones_like(a) if name == "trunc" else negative
            wanted = made.module(least, count, floats, *rest[0], safe, *rest[1])
            made.compare(least, count, floats, *rest[0], negative, *rest[1], wanted=wanted)
        if dtype is torch.int64:
            made.must_raise("OverflowError", least, count, floats, *[negative] * len(divisors))
        return made.cases


@pytest.mark.parametrize(("target", "dtype"), sweep(itertools.product(TARGETS, DTYPES), quick=2))
def test_divisions_shifts_and_casts_are_eagers(target: str, dtype: torch.dtype, tmp_path: Path) -> None:
    cases = compare_all(target, dtype, tmp_path)
    print(f"{target}, {dtype}: {cases} cases as in eager")
    assert cases > (100 if dtype.is_signed else 50)
