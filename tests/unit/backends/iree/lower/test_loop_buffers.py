"""Loops that are tested at the end of a trip, whose carries have room, compute what eager computes."""

from __future__ import annotations

import re

import pytest
import torch

from tests.programs.through import Together, check

while_loop = torch.while_loop


def zero(dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.zeros((), dtype=dtype)


class Flag(torch.nn.Module):
    """A bool beside a count: IREE's branches lose one where they move an i32 and an i64."""

    def forward(self, x, n):
        return while_loop(
            lambda go, i, y: go.clone(), lambda go, i, y: (i + 1 < n, i + 1, y + x), (n > 0, zero(), x * 2)
        )


class Widths(torch.nn.Module):
    """Bools and counts of two widths in turns."""

    def forward(self, x, n):
        return while_loop(
            lambda a, i, b, j, k, y: i < n,
            lambda a, i, b, j, k, y: (~a, i + 1, a ^ b, j + i, k - 1, y + x),
            (n > 0, zero(), n > 2, zero(), zero(torch.int32), x * 2),
        )


class Filled(torch.nn.Module):
    """Carries that become one number throughout: IREE fills these into other buffers than their own."""

    def forward(self, x, n):
        def body(i, y, z, w):
            y = y.index_put((i.reshape(1) % 3,), x[:1])
            z = z.index_put((i.reshape(1) % 3,), x[1:2])
            return i + 1, torch.zeros(3), torch.zeros(3), torch.where(y > z, w + y, w - z)

        return while_loop(
            lambda i, y, z, w: i < n, body, (zero(), torch.zeros(3), torch.full((3,), 2.0), x.clone())
        )


class Kept(torch.nn.Module):
    """Inner loops, twice, whose rooms are made before the outer one; one may make no trip."""

    def forward(self, x, n):
        def inner(y):
            return while_loop(
                lambda y, c: y.sum() < 10, lambda y, c: (y + c.abs(), c * 1), (y * 1, torch.ones(3))
            )[0]

        def body(i, y, w):
            first, second = inner(y), inner(y - 3)
            return i + 1, second - first * 0.5, w + first - second

        return while_loop(lambda i, y, w: i < n, body, (zero(), x.clone(), x.clone()))


class Partly(torch.nn.Module):
    """A test of counts, of a count of data, and of data."""

    def forward(self, x, n):
        def body(i, hits, y):
            return i + 1, hits + (y.sum() > 0).to(torch.int64), y.sin()

        return while_loop(
            lambda i, hits, y: (i < n) & ~((hits >= 3) | (y[0] < -2)) & (i != 7),
            body,
            (zero(), zero(), x * 1),
        )


class Branched(torch.nn.Module):
    """A branch on data in a loop, and one in the test."""

    def forward(self, x, n):
        def test(i, y):
            return (i < n) & torch.cond(y.sum() > 0, lambda y: y.max() < 9, lambda y: y.min() > -9, (y,))

        def body(i, y):
            return i + 1, torch.cond(y[0] > 0.5, lambda y: y * 2, lambda y: y + x, (y,))

        return while_loop(test, body, (zero(), x.clone()))


MODELS = [Flag, Widths, Filled, Kept, Partly, Branched]


def test_loops_of_one_program_give_what_eager_gives() -> None:
    x = torch.tensor([0.25, -1.0, 3.0])
    check(
        Together(model() for model in (Widths, Filled, Kept, Branched)),
        *((x, torch.tensor(trips)) for trips in (3, 0, 1, 5)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_loops_give_what_eager_gives(model: type[torch.nn.Module]) -> None:
    x = torch.tensor([0.25, -1.0, 3.0])
    check(model(), *((x, torch.tensor(trips)) for trips in (3, 0, 1, 5)))


class Varying(torch.nn.Module):
    """A carry of a size that varies beside one whose size does not."""

    def forward(self, x, n):
        def body(i, y, z):
            return i + 1, y * 1.5 + z.sum(), z - y.mean()

        return while_loop(lambda i, y, z: (i < n) & (z.sum() < 50), body, (zero(), x * 1, torch.ones(2)))


def test_a_carry_whose_size_varies_is_beside_one_that_has_room() -> None:
    calls = [(torch.randn(rows), torch.tensor(trips)) for rows, trips in ((4, 3), (1, 0), (7, 6))]
    text = check(
        Varying(), *calls, dynamic_shapes={"x": {0: torch.export.Dim("rows", min=1, max=8)}, "n": None}
    ).module.decode()
    assert re.search(r"scf.while \(.*\) : \(i64, i64, !hal.buffer_view, !hal.buffer\)", text)


def test_a_test_of_data_reads_once_a_trip_and_what_is_of_counts_never() -> None:
    class Model(torch.nn.Module):
        def forward(self, x, n):
            return while_loop(
                lambda i, y: (i < n) & (y[0] >= 0), lambda i, y: (i + 1, y + x), (zero(), x.clone())
            )

    text = check(Model(), *((torch.ones(3), torch.tensor(trips)) for trips in (3, 0))).module.decode()
    before, trip = re.split(r"\n *\} do \{", text[text.index("scf.while") :])
    assert "tensor.extract " not in before
    assert trip.count("tensor.extract ") == 1
    assert trip.index("torch.aten.add") < trip.index("tensor.extract ")
    # Its carry and what it reads have room before the loop.
    assert "flow.tensor.alloca" not in trip
    assert text[: text.index("scf.while")].count("flow.tensor.alloca") == 3


def test_a_scan_allocates_no_carry_in_a_trip() -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch._higher_order_ops.scan(lambda c, r: (c * 0.5 + r, c * 2), x.new_zeros(3), x)

    text = check(Model(), *((torch.randn(5, 3),) for _ in range(2))).module.decode()
    assert "flow.tensor.alloca" not in text[text.index("scf.for") :]
