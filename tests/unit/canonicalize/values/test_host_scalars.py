"""Numbers that a graph computes: `.item()`, promotion, and where torch wants a plain int."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.canonicalize.trace import torch_functions
from aotpipe.canonicalize.values import host_scalars
from aotpipe.canonicalize.values.abstract_values import join_values
from aotpipe.canonicalize.values.trace import Trace, started
from tests.unit.canonicalize.trace.agree import check

VECTORS = tuple(
    torch.tensor(v) for v in ([0.5, -1.0, 2.0], [0.0, 0.0, 0.0], [3.0, 1.0, 0.25], [-2.0, -0.5, 0.0])
)
COUNTED = tuple((x, torch.tensor(k)) for x, k in zip(VECTORS, (2, 0, 3, 1), strict=True))


def an_item_decides(x):
    n = x.sum().item()
    if n > 1.0:
        return x * n
    return x - n


def an_int_decides(x, k):
    n = int(k)
    if 1 < n < 10:
        x = x + n
    return x * 2, n


def an_item_of_another_type(x, k):
    n = k.to(torch.int32).item()
    if x.sum() > 0:
        n = n + 1
    return torch.tensor(2, dtype=torch.int32) * n, x * n


def a_number_is_a_size(x, k):
    n = k.item()
    if x.sum() > 0:
        x = x + 1
    return x[:n].sum()


def sizes_that_are_apart_by_one(x, k):
    n = k.item()
    if x.sum() > 0:
        x = x + 1
    return (torch.cat([x, x])[: n + 1] * torch.cat([x, x])[1 : n + 2]).sum()


def a_small_list(x):
    a, b, c = x.tolist()
    if a > b:
        return x * c
    return x + c


@pytest.mark.parametrize("model", [an_item_decides, a_small_list], ids=lambda model: model.__name__)
def test_numbers_of_tensors(model: Any):
    check(model, *((x,) for x in VECTORS))


@pytest.mark.parametrize(
    "model",
    [an_int_decides, an_item_of_another_type, a_number_is_a_size, sizes_that_are_apart_by_one],
    ids=lambda model: model.__name__,
)
def test_numbers_of_integers(model: Any):
    check(model, *COUNTED)


def test_what_is_computed_of_numbers_alone_is_a_number():
    abstract = join_values([1, 2])
    with started(Trace()), torch_functions.Traced():
        number = abstract.value(iter(abstract.tensors(1)).__next__)
        assert host_scalars.is_host_scalar(number)
        assert host_scalars.is_host_scalar(number + 1)
        assert host_scalars.is_host_scalar(number * number)
        assert not host_scalars.is_host_scalar(number * torch.ones(3))
        assert not host_scalars.is_host_scalar(torch.tensor(1))
    assert not host_scalars.is_host_scalar(number)


DTYPES = st.sampled_from([torch.bool, torch.uint8, torch.int32, torch.float16, torch.float32, torch.float64])


@given(st.booleans() | st.integers(1, 100) | st.floats(1, 100, width=32), DTYPES, st.booleans())
def test_a_number_promotes_as_pythons_does(value: Any, dtype: torch.dtype, has_dims: bool):
    other = torch.ones((2,) if has_dims else (), dtype=dtype)
    want = other * value
    with started(Trace()), torch_functions.Traced():
        got = other * host_scalars.item(torch.tensor(value))
    assert got.dtype == want.dtype
    assert torch.allclose(got.double(), want.double(), rtol=1e-3)


@given(st.integers(-5, 5), st.integers(-5, 5))
def test_how_far_integers_are_apart(first: int, second: int):
    base = torch.tensor(3)
    with started(Trace()), torch_functions.Traced():
        left, right = base + first, (base - 1) + second
        assert host_scalars.distance(left, right) == second - 1 - first
        assert host_scalars.distance(left, torch.tensor(1)) is None
        base += 1
        assert host_scalars.distance(left, base) is None


def of(value: float, dtype: torch.dtype) -> torch.Tensor:
    return host_scalars.as_host_scalar(torch.tensor(value, dtype=dtype))


F64, I64, BOOL = torch.float64, torch.int64, torch.bool


@pytest.mark.parametrize(
    ("compute", "value"),
    [
        # Among themselves numbers are computed with as Python does.
        (lambda: of(1, I64) / of(3, I64), 1 / 3),
        (lambda: of(1, I64) * 0.1, 0.1),
        (lambda: of(1, I64) / 3, 1 / 3),
        (lambda: of(True, BOOL) + of(True, BOOL), 2),
        (lambda: of(7, I64) // 2, 3),
        # Beside tensors they promote as Python's do.
        (lambda: torch.tensor([2]) * of(0.5, F64), torch.tensor([1.0])),
        (lambda: torch.tensor(2) * of(0.5, F64), torch.tensor(1.0)),
        (lambda: torch.tensor(2.0, dtype=torch.float16) * of(0.5, F64), torch.tensor(1.0).half()),
        (lambda: torch.tensor([2.0]) * of(0.5, F64), torch.tensor([1.0])),
        (lambda: torch.tensor([2], dtype=torch.int8) + of(3, I64), torch.tensor([5], dtype=torch.int8)),
    ],
)
def test_numbers_are_computed_with_as_pythons(compute: Any, value: Any) -> None:
    with started(Trace()), torch_functions.Traced():
        found = compute()
        assert host_scalars.is_host_scalar(found) == (not isinstance(value, torch.Tensor))
    if isinstance(value, torch.Tensor):
        assert found.dtype == value.dtype
        assert torch.equal(found, value)
    else:
        assert found.item() == value


def test_a_number_is_never_written() -> None:
    with started(Trace()), torch_functions.Traced():
        before = number = of(3, I64)
        number += 1
        number *= 2
        number <<= 1
    assert (before.item(), number.item()) == (3, 16)
