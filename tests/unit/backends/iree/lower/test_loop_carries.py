"""Tensors become views, each with a buffer of its own."""

from __future__ import annotations

import pytest
import torch
from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from aotpipe.backends.iree.lower.region_borders import in_own_buffer, pack, packed_type, unpack
from tests.programs.through import Together, check
from tests.sweep import sweep

ELEMENTS = ["f32", "f64", "f16", "bf16", "i1", "i8", "i64", "f8E4M3FN"]


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("dims", ["", "4x", "?x0x"], ids=["scalar", "static", "dynamic"])
def test_no_pass_merges_the_buffers(element: str, dims: str) -> None:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(f"func.func @f(%x: tensor<{dims}{element}>) {{ return }}")
        block = module.body.operations[0].regions[0].blocks[0]
        with ir.InsertionPoint.at_block_terminator(block):
            made = [in_own_buffer(block.arguments[0]) for _ in range(3)]
            ir.Operation.create("util.optimization_barrier", results=[v.type for v in made], operands=made)
        assert module.operation.verify()
        PassManager.parse("builtin.module(canonicalize,cse)").run(module.operation)
        assert str(module).count("hal.tensor.alias") == 3 == str(module).count("flow.tensor.alloca")


def test_complex_tensors_are_carried() -> None:
    class Model(torch.nn.Module):
        def forward(self, x, n):
            x = torch.cond(n > 0, lambda x: x * 2, lambda x: x * 3j, (x,))
            return torch.while_loop(
                lambda i, y, z: i < n,
                lambda i, y, z: (i + 1, y * (1 + 1j), z + y),
                (torch.zeros((), dtype=torch.int64), x, x * 2),
            )

    x = torch.tensor([1 - 2j, 3j, 0.5])
    check(Model(), *((x, torch.tensor(trips)) for trips in (1, 0, 3)))


@pytest.mark.parametrize(
    "dtype",
    sweep(
        [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.bool],
        quick=0,
        always=[torch.bool],
    ),
    ids=str,
)
def test_constants_of_any_dtype_can_be_carried(dtype: torch.dtype) -> None:
    class Model(torch.nn.Module):
        def forward(self, n):
            return torch.while_loop(
                lambda i, y, z: i < n,
                lambda i, y, z: (i + 1, y.index_put((i.reshape(1),), z[:1]), z.clone()),
                (torch.zeros((), dtype=torch.int64), torch.zeros(4, dtype=dtype), torch.ones(4, dtype=dtype)),
            )

    check(Model(), (torch.tensor(3),), (torch.tensor(0),))


def _written(y: torch.Tensor, n: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """`y` with its first n rows replaced."""
    start = torch.zeros((), dtype=torch.int64)
    return torch.while_loop(
        lambda i, y: i < n, lambda i, y: (i + 1, y.index_put((i.reshape(1),), row)), (start, y.clone())
    )[1]


class Shared(torch.nn.Module):
    """A value that two loops write to, and that is read again."""

    def forward(self, x, n):
        y = x + 1
        return _written(y, n, torch.ones(1, 3)), _written(y, n, torch.zeros(1, 3)), y * 2, x + 0


class Twice(torch.nn.Module):
    """A loop's result that a second loop writes to, and that is read again."""

    def forward(self, x, n):
        first = _written(x, n, torch.ones(1, 3))
        return first, _written(first, n, torch.zeros(1, 3)), first * 2


class Weight(torch.nn.Module):
    """A weight that a loop starts from."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", torch.arange(18.0).reshape(6, 3))

    def forward(self, x, n):
        return _written(self.held, n, x[:1]), self.held + x


class Invariant(torch.nn.Module):
    """A carry that becomes the same value each trip, and that the next trip writes to."""

    def forward(self, x, n):
        def body(i, y, z):
            return i + 1, x.sin(), y.index_put((i.reshape(1),), z[:1])

        return torch.while_loop(
            lambda i, y, z: i < n, body, (torch.zeros((), dtype=torch.int64), x.clone(), x + 1)
        )


class Alike(torch.nn.Module):
    """Two carries that are one value after each trip, and that the next trip writes to."""

    def forward(self, x, n):
        def body(i, y, z):
            first = y.index_put((i.reshape(1),), z[:1] + 1)
            second = z.index_put((i.reshape(1),), y[:1] * 2)
            both = first + second
            return i + 1, both, both.clone()

        return torch.while_loop(
            lambda i, y, z: i < n, body, (torch.zeros((), dtype=torch.int64), x + 1, x + 1)
        )


class Swapped(torch.nn.Module):
    """Carries that change places, one of which a trip writes to."""

    def forward(self, x, n):
        def body(i, y, z):
            return i + 1, z.clone(), y.index_put((i.reshape(1),), z[:1] + 1)

        return torch.while_loop(
            lambda i, y, z: i < n, body, (torch.zeros((), dtype=torch.int64), x.clone(), x * 1)
        )


class Condition(torch.nn.Module):
    """A condition that writes to its own copy of a carry."""

    def forward(self, x, n):
        def test(i, y):
            return (y.index_put((i.reshape(1),), y[:1] * 0).abs().sum() >= 0) & (i < n)

        start = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(test, lambda i, y: (i + 1, y * 2), (start, x + 1))


MODELS = [Shared, Twice, Weight, Invariant, Alike, Swapped, Condition]


def test_loops_of_one_program_write_to_nothing_but_their_own_carries() -> None:
    generator = torch.Generator().manual_seed(0)
    check(
        Together(model() for model in (Weight, Swapped, Condition)),
        *[(torch.randn(6, 3, generator=generator), torch.tensor(trips)) for trips in (3, 0, 2)],
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_loop_writes_to_nothing_but_its_own_carry(model: type[torch.nn.Module]) -> None:
    generator = torch.Generator().manual_seed(0)
    check(model(), *[(torch.randn(6, 3, generator=generator), torch.tensor(trips)) for trips in (3, 0, 2)])


def test_tensors_cross_as_views_and_numbers_as_they_are() -> None:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse("func.func @f(%x: tensor<?x3xf32>, %n: i64) { return }")
        block = module.body.operations[0].regions[0].blocks[0]
        tensor, number = block.arguments
        with ir.InsertionPoint.at_block_terminator(block):
            view, same = pack([tensor, number])
            assert str(view.type) == "!hal.buffer_view" == str(packed_type(tensor.type))
            assert same == number
            assert unpack(view, tensor.type, lambda: [None, None]).type == tensor.type
            assert unpack(same, number.type, list) == number
        assert module.operation.verify()
        assert "hal.buffer_view.dim" in str(module)
