"""Python numbers become 0-d tensors with the values that Python computes."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest
import torch

from aotpipe import Dim
from aotpipe.passes import scalars
from aotpipe.passes.emit import Emitter
from tests.programs import on_xla, through
from tests.unit.passes.legal import Runner, legal, model
from tests.unit.passes.ranges.programs import Program


@pytest.mark.parametrize(
    ("value", "dtype"), [(True, torch.bool), (3, torch.int64), (2.5, torch.float64)], ids=str
)
def test_a_number_keeps_its_value(value: Any, dtype: torch.dtype) -> None:
    program = Program()
    node = scalars.as_tensor(Emitter(program.module, program.end), value)
    assert program.run([])[node] == torch.tensor(value, dtype=dtype)
    assert node.meta["val"].dtype is dtype is scalars.dtype_of(value)


@pytest.mark.parametrize("relation", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_a_comparison_of_numbers(relation: str) -> None:
    compare = getattr(operator, relation)
    program = Program()
    emit = Emitter(program.module, program.end)
    for left, right in (*itertools.product((1, 2), (1, 2.5)), (1, 2**64), (-(2**63) - 1, 1)):
        with program.module.graph.inserting_before(program.end):
            node = program.module.graph.call_function(compare, (left, right))
        node.meta["val"] = compare(left, right)
        written = scalars.as_tensor(emit, node)
        assert bool(program.run([])[written]) is compare(left, right)


def test_a_number_that_is_passed_in_is_read_from_a_tensor() -> None:
    def forward(self: Any, x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    module = torch.fx.symbolic_trace(model(forward), concrete_args=None)
    _, number = module.graph.find_nodes(op="placeholder")
    number.meta["val"] = 4
    scalars.open_input(module, number)
    module.recompile()
    assert number.meta["val"].dtype is torch.int64
    assert torch.equal(module(torch.ones(2), torch.tensor(4)), torch.full((2,), 4.0))


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)], ids=str)
@pytest.mark.parametrize("value", [True, False])
def test_all_true(shape: tuple[int, ...], value: bool) -> None:
    program = Program()
    flags = program.input(shape, dtype=torch.bool)
    node = scalars.all_true(Emitter(program.module, program.end), flags)
    given = torch.full(shape, value)
    assert torch.equal(program.run([given])[node], given.all())
    assert node.meta["val"].shape == ()


class Rounded(torch.nn.Module):
    """A size that is computed from a float, and one that is bounded by another."""

    def forward(self, x: Any, factor: Any, k: Any) -> Any:
        head = x[: int(factor * 4 / 2 + 1)]
        return head.sum(), x * min(k.item(), 3)


@pytest.fixture(scope="module")
def rounded() -> Runner:
    return Runner(legal(Rounded(), (torch.arange(6.0), torch.tensor(1.0), torch.tensor(1))))


@pytest.mark.parametrize(("factor", "k"), [(1.0, 2), (0.3, 5), (1.6, -1)])
def test_integers_of_floats_and_the_smaller_of_two(rounded: Runner, factor: float, k: int) -> None:
    x = torch.arange(6.0)
    got = list(rounded((x, torch.tensor(factor), torch.tensor(k))).values())
    want = Rounded()(x, torch.tensor(factor), torch.tensor(k))
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])


class Summed(torch.nn.Module):
    """A size that torch writes as a sum of several."""

    def forward(self, x: Any) -> Any:
        low, high = x[x < 1], x[x > 2]
        return torch.sym_sum(low.shape[0], high.shape[0], 3) * x


def test_a_sum_of_sizes() -> None:
    x = torch.arange(6.0)
    (got,) = Runner(legal(Summed(), (x,)))((x,)).values()
    assert torch.equal(got, Summed()(x))


class Chosen(torch.nn.Module):
    """A size that is one of two."""

    def forward(self, x: Any) -> Any:
        low = x[x < 1]
        return torch.sym_ite(low.shape[0] > 1, low.shape[0] - 1, low.shape[0] + 2) * x


def test_one_of_two_sizes() -> None:
    x = torch.arange(6.0)
    program = Runner(legal(Chosen(), (x,)))
    for each in (x, x - 3):
        (got,) = program((each,)).values()
        assert torch.equal(got, Chosen()(each))


class OfSize(torch.nn.Module):
    """Powers, roots and remainders of a size."""

    def forward(self, x: Any) -> Any:
        n = x.shape[0]
        return x * n**3, x * n**-0.5, x * (n / 3) ** 2, x * torch.sym_sqrt(n), x * ((n - 5) % 3), x * (17 % n)


@pytest.mark.parametrize("backend", [through, on_xla], ids=["iree", "xla"])
def test_powers_and_remainders_of_a_size(backend: Any) -> None:
    calls = [(torch.linspace(-1, 1, size),) for size in (4, 2, 9)]
    options = {"buckets": {"n": (4, 9)}} if backend is on_xla else {}
    backend.check(OfSize(), *calls, dynamic_shapes={"x": {0: Dim("n", min=2, max=9)}}, **options)


def test_numbers_of_fixed_sizes_are_written_as_such() -> None:
    program = Program()
    with program.module.graph.inserting_before(program.end):
        double = program.module.graph.call_function(operator.mul, (4, 2))
        double.meta["val"] = 8
        whole = program.module.graph.call_function(operator.add, (double, 1))
        whole.meta["val"] = 9
    ones = Emitter(program.module, program.end)(torch.ops.aten.full.default, [whole], 1.0)
    program.end.args = ((ones,),)
    scalars.lower(program.module)
    assert [node.target for node in program.module.graph.nodes if node.op == "call_function"] == [
        torch.ops.aten.full.default
    ]
    assert ones.args[0] == [9]
