"""What the host computes of whole numbers: the bits of torch's ops; no trip reads a count from the device."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from iree.compiler import ir
from iree.compiler.dialects import func
from iree.compiler.passmanager import PassManager
from torch.fx.experimental.proxy_tensor import make_fx

from aotpipe.backends.iree.lower import importer
from aotpipe.backends.iree.lower.host_scalars import Numbers, hosted_carries, literal
from aotpipe.passes import hops
from tests.programs.through import Together, check, legal

aten = torch.ops.aten
OPS: list[Callable[..., Any]] = [
    *(getattr(aten, name).Tensor for name in ("lt", "le", "gt", "ge", "eq", "ne", "add", "sub", "mul")),
    *(getattr(aten, f"bitwise_{name}").Tensor for name in ("and", "or", "xor")),
    *(getattr(aten, f"logical_{name}").default for name in ("and", "or", "xor")),
    aten.minimum.default,
    aten.maximum.default,
]
WITH_NUMBER: list[Callable[..., Any]] = [
    *(getattr(aten, name).Scalar for name in ("lt", "le", "gt", "ge", "eq", "ne", "add", "sub", "mul")),
    *(getattr(aten, f"bitwise_{name}").Scalar for name in ("and", "or", "xor")),
]
DTYPES = [torch.int64, torch.int32, torch.bool]
edges = [0, 1, -1, 2, 7, -7, 2**31 - 1, -(2**31)]
numbers = st.sampled_from(edges) | st.integers(-(2**31), 2**31 - 1)
tensors = st.builds(lambda value, dtype: torch.tensor(value).to(dtype), numbers, st.sampled_from(DTYPES))


@cache
def context() -> ir.Context:
    """One for all examples: to load the dialects costs more than all else here."""
    return ir.Context()


def computed(graph_module: torch.fx.GraphModule, *args: torch.Tensor) -> int | None:
    """What the host's instructions give for a graph's only output; None where it leaves it to a device."""
    (wanted,) = hops.output_values(graph_module)
    with context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            block = func.FuncOp("f", ir.FunctionType.get([], [])).add_entry_block()
        with ir.InsertionPoint(block):
            sources = {
                node: literal(int(arg), arg.dtype)
                for node, arg in zip(hops.placeholders(graph_module), args, strict=True)
            }
            found = Numbers(graph_module, sources, lambda node: pytest.fail(f"{node} is read from a tensor"))
            if wanted not in found:
                return None
            ir.Operation.create(
                "util.optimization_barrier", results=[(n := found(wanted)).type], operands=[n]
            )
            func.ReturnOp([])
        PassManager.parse("builtin.module(canonicalize)").run(module.operation)
        text = str(module)
    (constant,) = re.findall(r"arith.constant (\S+)", text)
    return {"true": 1, "false": 0}.get(constant) if constant in ("true", "false") else int(constant)


@cache
def traced(function: Callable[..., torch.Tensor], *dtypes: torch.dtype) -> torch.fx.GraphModule:
    """A function's graph, which no value of its arguments decides."""
    return make_fx(function, tracing_mode="fake")(*(torch.zeros((), dtype=dtype) for dtype in dtypes))


def assert_bits(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> None:
    try:
        expected = function(*args)
    except RuntimeError:  # a difference of bools
        return
    got = computed(traced(function, *(arg.dtype for arg in args)), *args)
    if got is None:
        # A sum of bools is no sum of bits.
        assert expected.dtype is torch.bool
    else:
        assert got == int(expected)


@given(st.sampled_from(OPS), tensors, tensors)
def test_two_numbers_give_what_the_op_gives(
    op: Callable[..., Any], left: torch.Tensor, right: torch.Tensor
) -> None:
    assert_bits(op, left, right)


@given(st.sampled_from(WITH_NUMBER), tensors, numbers | st.booleans())
def test_a_number_and_a_literal_give_what_the_op_gives(
    op: Callable[..., Any], left: torch.Tensor, right: int
) -> None:
    assert_bits(lambda x: op(x, right), left)


CASTS = {dtype: partial(aten._to_copy.default, dtype=dtype) for dtype in DTYPES}


def less_six(x: torch.Tensor) -> torch.Tensor:
    return aten.add.Tensor(x, aten.full.default([], 3), alpha=-2)


@given(tensors, st.sampled_from(DTYPES), tensors)
def test_casts_choices_and_inversions(value: torch.Tensor, dtype: torch.dtype, other: torch.Tensor) -> None:
    assert_bits(CASTS[dtype], value)
    assert_bits(aten.bitwise_not.default, value)
    assert_bits(aten.logical_not.default, value)
    assert_bits(aten.where.self, value.bool(), value, other.to(value.dtype))
    assert_bits(less_six, value)


def test_a_long_chain_is_no_deep_recursion() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(sys.getrecursionlimit() + 100):
            x = aten.add.Scalar(x, 1)
        return x

    assert_bits(chain, torch.tensor(5))


@pytest.mark.parametrize(
    "function",
    [lambda x: x * 2**40, lambda x: x.clone().view(1), lambda x: x + 0.5, lambda x: x // 2],
    ids=["long literal", "one element", "float", "division"],
)
def test_what_may_fail_or_differ_is_left_to_the_device(function: Callable[..., Any]) -> None:
    graph_module = make_fx(function, tracing_mode="fake")(torch.tensor(3))
    assert computed(graph_module, torch.tensor(3)) is None


class Counted(torch.nn.Module):
    """A count, a count of every other trip, a flag, and a sum on the device."""

    def forward(self, x, n):
        def test(i, odd, seen, y):
            return (i < n) & (i < 50)

        def body(i, odd, seen, y):
            is_odd = torch.bitwise_and(i, 1) == 1
            y = torch.cond(is_odd, lambda y: y + 1, lambda y: y * 2, (y,))
            return i + 1, torch.where(is_odd, odd + 1, odd), torch.logical_or(seen, i > 2), y

        start = (torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int32), torch.tensor(False))
        return torch.while_loop(test, body, (*start, x.clone()))


class Nested(torch.nn.Module):
    """An inner count that goes on with the outer one, and data that decides a third."""

    def forward(self, x, n):
        def inner(i, total, y):
            return torch.while_loop(
                lambda j, total, y: j < i,
                lambda j, total, y: (j + 1, total + j, y + total),
                (i - 2, total, y),
            )

        def body(i, total, hits, y):
            _, total, y = inner(i, total, y)
            return i + 1, total, hits + (y.sum() > 0).to(torch.int64), y.sin()

        start = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(
            lambda i, total, hits, y: (i < n) & (hits < 4),
            body,
            (start, start.clone(), start.clone(), x.clone()),
        )


class Sized(torch.nn.Module):
    """A count up to a size."""

    def forward(self, x, n):
        return torch.while_loop(
            lambda i, y: i < x.shape[0] + n,
            lambda i, y: (i + 1, y + x.shape[0]),
            (torch.zeros((), dtype=torch.int64), x.clone()),
        )


def test_loops_of_one_program_give_what_eager_gives() -> None:
    x = torch.tensor([0.25, -1.0, 3.0])
    models = Together([Counted(), Nested(), Sized()])
    check(models, *((x, torch.tensor(trips)) for trips in (5, 0, 1, 4)))


@pytest.mark.slow
@pytest.mark.parametrize("model", [Counted, Nested, Sized])
def test_loops_on_numbers_give_what_eager_gives(model: type[torch.nn.Module]) -> None:
    x = torch.tensor([0.25, -1.0, 3.0])
    check(model(), *((x, torch.tensor(trips)) for trips in (5, 0, 1, 4)))


def test_no_trip_reads_a_count_from_the_device() -> None:
    text = importer.lower(legal(Counted(), (torch.ones(3), torch.tensor(3)))).module.decode()
    loop = text[text.index("scf.while") :]
    assert re.search(r"scf.while \(.*\) : \(i64, i64, i64, i64, !hal.buffer\)", loop)
    assert "tensor.extract " not in loop
    # n, once.
    assert text[: text.index("scf.while")].count("tensor.extract ") == 1


def test_what_a_trip_reads_of_data_is_no_count() -> None:
    def hosted(body: Callable[..., Any]) -> set[int]:
        def loop(x):
            start = torch.zeros((), dtype=torch.int64)
            return torch.while_loop(lambda i, j, y: i < 3, body, (start, start.clone(), x.clone()))

        graph = torch.export.export(_Call(loop), (torch.ones(3),)).graph
        (node,) = (node for node in graph.nodes if node.target is torch.ops.higher_order.while_loop)
        return set(hosted_carries(node))

    assert hosted(lambda i, j, y: (i + 1, j + i, y.clone())) == {0, 1}
    assert hosted(lambda i, j, y: (i + 1, j + y.sum().to(torch.int64), y + 1)) == {0}
    assert hosted(lambda i, j, y: (i + j, j + y.sum().to(torch.int64), y + 1)) == set()


class _Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)
