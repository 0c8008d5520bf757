"""Python's functions on values that a graph computes, against eager."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from aotpipe.canonicalize import canonicalize
from aotpipe.core.dims import Dim
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.unit.canonicalize.trace.agree import check
from tests.unit.export.models import exported

VECTORS = tuple(
    (torch.tensor(v),) for v in ([0.5, -1.0, 2.0], [0.25, 0.5, 0.0], [3.0, 1.0, 0.25], [-2.0, -0.5, 0.1])
)


def of_math(x):
    s = x.sum().item()
    if s > 1:
        return x * math.sqrt(s) + math.floor(s) + math.log(s, 3)
    return x * math.exp(s) + math.ceil(s) + math.pow(2.0, s) + math.copysign(math.hypot(s, 1), s)


def smallest_and_largest(x):
    n = min(int(x.sum()), 3)
    m = max([x[0].item(), x[1].item(), 0.5])
    i = 0
    while i < n:
        x = x * 1.5
        i += 1
    return x + m, n


def rounded(x):
    s = x.sum().item()
    if s > 0:
        return x + round(s) + round(s, 1) + abs(s) + int(s)
    return x - abs(s) - int(s) + divmod(int(s), 3)[1]


def some_and_all(x):
    if any(v > 1 for v in x):
        return x + 1
    if all(v > 0 for v in (x[0], x[1])):
        return x + 2
    return x


def kinds(x):
    n = x.sum().item()
    if n > 0 and isinstance(n, float):
        return x * n
    return x


def a_tensor_of_numbers(x):
    n = int(x.sum())
    y = torch.tensor([n, 1.5, n + 1])
    return x + y if n > 0 else x - torch.tensor(n)


def tensors_of_doubles(x):
    numbers = [v.item() for v in x.double()]
    some = [n for n in numbers if n > 0]
    return (
        torch.tensor(numbers[0]),
        torch.tensor([numbers[0], 2]),
        torch.tensor(numbers),
        torch.tensor(some),
        torch.tensor([(n, True) for n in some]),
        torch.as_tensor(numbers[1], dtype=torch.float64),
        torch.tensor([x.double()[0], x.double()[1]]),
    )


def members(x):
    n = int(x.sum())
    if n in (1, 2, 3):
        return x + 1
    return x * 2 if n not in [0, -1] else x


def an_element_by_a_method(x):
    values = [v.item() for v in x]
    get, names = values.__getitem__, {0: 1.5, 1: 2.5, 2: 3.5}
    best = min(range(3), key=values.__getitem__)
    return get(int(x.argmax())), best, names.__getitem__(best), (4, 5, 6).__getitem__(best)


def a_text_of_a_bool(x):
    heads = {"head0": 1.0, "head1": 2.0, "head2": 4.0, "head3": 8.0}
    node = 0
    for v in x[:2]:
        node = 2 * node + int(v > 0.3)
    return x * heads[f"head{node}"]


def of_a_none(x):
    best = None
    total = x.sum()
    if total > 1:
        best = total
    if total > 5:
        return best - x
    if total < -2:
        best = None
        return best - x
    return x


def checked(x):
    n = int(x.sum())
    torch._check(n > -100, lambda: f"n is {n}")
    return x + 1 if n > 1 else x


def asserted(x):
    torch._assert(x.sum() < 2, "the sum is too large")
    return x * 2


def sizes_with_a_number(x):
    n = int(x.sum().abs()) + 1
    if n > 2:
        x = x + 1
    size = x.shape
    size += (n,)
    counted = x.new_ones((n,) + x.shape[1:] + torch.Size([2])).sum(0)  # noqa: RUF005  # what packages write
    return x[:, None].expand(size).sum(-1), counted, x.new_ones(torch.Size([x.abs().argmax(), 2])).sum(0)


@pytest.mark.parametrize(
    "model",
    [
        *(
            of_math,
            smallest_and_largest,
            rounded,
            some_and_all,
            kinds,
            a_tensor_of_numbers,
            tensors_of_doubles,
            members,
        ),
        *(checked, asserted, sizes_with_a_number, an_element_by_a_method, a_text_of_a_bool, of_a_none),
    ],
    ids=lambda model: model.__name__,
)
def test_functions_of_traced_values(model: Any):
    check(model, *VECTORS)


def a_key(x):
    table = {"1": 1.0, "2": 2.0}
    n = int(x.sum())
    return x * table[f"{n}"] if n in (1, 2) else x


def a_tuple_of_a_range(x):
    return x + len(tuple(range(int(x.sum()))))


@pytest.mark.parametrize(
    ("model", "said"), [(a_key, "a text is made of a value"), (a_tuple_of_a_range, "a range whose length")]
)
def test_what_no_graph_can_hold(model: Any, said: str):
    with pytest.raises(ExportFailed, match=said) as caught:
        check(model, *VECTORS)
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_builtin_calls.py")


def of_a_shape(shape):
    return torch.full((shape,) if isinstance(shape, int) and type(shape) is int else shape, 1 / shape)


def test_a_size_that_varies_is_an_int():
    shapes = {"x": {0: Dim("n", min=2, max=9)}}
    spec = as_spec(lambda x: x + of_a_shape(x.shape[0]), args=(torch.randn(4),), dynamic_shapes=shapes)
    program = export(canonicalize(spec)).entries[0].program.module()
    for n in (2, 7):
        torch.testing.assert_close(program(torch.ones(n)), torch.ones(n) + 1 / n)


def _of_legacy_classes(x):
    lengths = torch.LongTensor([x.shape[0]] * 2)
    total = x.sum()
    if total > 0:
        total = total + 1
    inside = torch.arange(x.shape[0]) < (lengths - 1).view(2, 1)
    return (x * inside).sum(1) + torch.Tensor([x.shape[0], total.item()]) + torch.FloatTensor([1, 2])


def test_classes_of_tensors_take_sizes_and_numbers_of_the_graph():
    """`torch.LongTensor([n])` asked the size for its value, and the example's was in the program."""
    program = exported(_of_legacy_classes, torch.randn(9), shapes={"x": {0: Dim("n", min=2, max=40)}})
    assert len(program.entries) == 1
    for size in (2, 9, 40):
        x = torch.randn(size)
        found = program.entries[0].program.module()(x)
        torch.testing.assert_close(found, _of_legacy_classes(x))


def _of_torchscript(x, n, flag):
    ops = torch.ops.aten
    total = ops.Float(ops.ScalarImplicit(n)) + ops.Int(x.sum()) + ops.IntImplicit(n) * ops.FloatImplicit(x[0])
    return (
        total,
        ops.Int(flag),
        ops.Bool.Tensor(x[0]),
        int(ops.Int.Tensor(x[0])),
        float(ops.ScalarImplicit(x[1])),
    )


def test_ops_of_torchscript_give_numbers_of_the_graph():
    program = (
        exported(_of_torchscript, torch.randn(3), torch.tensor(3), torch.tensor(True)).entries[0].program
    )
    for values, n, flag in (([-2.7, 1.5, 0.0], 4, True), ([0.0, -0.5, 7.2], -3, False)):
        given = torch.tensor(values), torch.tensor(n), torch.tensor(flag)
        for got, want in zip(program.module()(*given), _of_torchscript(*given), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), torch.tensor(want), check_dtype=False)
