"""Singular values, eigenvalues, pseudoinverses and exponentials beside LAPACK's."""

from __future__ import annotations

import math

import pytest
import torch

from aotpipe.passes.decompositions import jacobi
from tests.unit.passes.legal import Runner, check, legal, model, targets

SHAPES = [(1, 1), (2, 2), (3, 5), (8, 5), (17, 20), (40, 40), (0, 3), (3, 0)]
PRECISION = {torch.float32: 2e-6, torch.float64: 1e-14}


def matrices(rows, columns, dtype):
    torch.manual_seed(rows * 50 + columns)
    a = torch.randn(2, rows, columns, dtype=dtype)
    low = a[..., :1] * a[..., :1, :]
    same = torch.eye(rows, columns, dtype=dtype).expand_as(a)
    return [a, a * 1e-30, a * 1e30, low, same, torch.zeros_like(a)]


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_are_lapacks(shape, dtype):
    for a in matrices(*shape, dtype):
        wanted = torch.linalg.svdvals(a)
        atol = PRECISION[dtype] * float(wanted.max()) if wanted.numel() else 0
        torch.testing.assert_close(jacobi.singular_values(a), wanted, rtol=0, atol=atol)
        if shape[0] == shape[1]:
            wanted = torch.linalg.eigvalsh(a)
            atol = 3 * PRECISION[dtype] * float(wanted.abs().max())
            torch.testing.assert_close(jacobi.eigh(a, compute_v=False)[0], wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("shape", SHAPES[:-3] + SHAPES[-2:], ids=str)
def test_a_pseudoinverse_is_lapacks(shape, dtype):
    for a in matrices(*shape, dtype):
        wanted = torch.linalg.pinv(a)
        atol = 100 * PRECISION[dtype] * float(wanted.abs().max()) if wanted.numel() else 0
        torch.testing.assert_close(jacobi.pinv(a), wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("shape", SHAPES[:-2], ids=str)
@pytest.mark.parametrize("columns", [None, 1, 4])
def test_a_solution_of_least_squares_is_lapacks(shape, columns, dtype):
    for a in matrices(*shape, dtype)[:1]:
        b = torch.randn(2, shape[0], *(() if columns is None else (columns,)), dtype=dtype)
        wanted = torch.linalg.lstsq(a, b).solution
        found = jacobi.lstsq(a, b)[0]
        atol = 1000 * PRECISION[dtype] * float(wanted.abs().max())
        torch.testing.assert_close(found, wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_least_squares_of_any_rank_are_eagers(rank):
    def forward(model, a, b):
        return torch.linalg.lstsq(a, b).solution

    a = torch.randn(5, rank) @ torch.randn(rank, 3)
    b = torch.randn(5, 7)
    found = Runner(legal(model(forward), (a, b)))((a, b))
    wanted = forward(None, a, b)
    torch.testing.assert_close(next(iter(found.values())), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("scale", [0, 1e-3, 1, 10, math.inf, math.nan])
def test_an_exponential_is_eagers(scale, dtype):
    torch.manual_seed(0)
    a = torch.randn(3, 5, 5, dtype=dtype) * scale
    wanted = torch.linalg.matrix_exp(a)
    atol = 10 * PRECISION[dtype] * float(wanted.nan_to_num().abs().max())
    torch.testing.assert_close(jacobi.matrix_exp(a), wanted, rtol=0, atol=atol, equal_nan=True)


def test_what_is_made_of_them_is_eagers():
    def forward(model, x):
        linalg = torch.linalg
        whole = linalg.matrix_rank(x), linalg.cond(x), linalg.matrix_norm(x, "nuc"), linalg.matrix_norm(x, 2)
        tolerant = linalg.pinv(x, atol=0.5, rtol=0.1), linalg.pinv(x @ x.T, hermitian=True)
        return *whole, *tolerant, linalg.eigvalsh(x @ x.T, UPLO="U"), linalg.matrix_exp(x[:, :2])

    x = torch.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 4.0]])
    program = check(model(forward), (x,), (x.flip(0) * 3,))
    assert not [op for op in targets(program) if any(name in op for name in ("svd", "pinv", "eigh"))]


def test_what_lapack_refuses_is_refused():
    program = legal(model(lambda model, x: torch.linalg.svdvals(x)), (torch.eye(3),))
    run = Runner(program)
    run((torch.full((3, 3), math.nan),))
    assert not all(run.asserts.values())
    run((torch.eye(3),))
    assert all(run.asserts.values())


def near(found, wanted, precision):
    scale = float(wanted.abs().max()) if wanted.numel() else 0.0
    torch.testing.assert_close(found, wanted, rtol=0, atol=precision * scale)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_vectors_make_the_matrix(shape, dtype, full):
    precision = 30 * PRECISION[dtype]
    for a in matrices(*shape, dtype):
        u, values, v = jacobi.svd(a, full)
        wanted = torch.linalg.svd(a, full_matrices=full)
        assert [one.shape for one in (u, values, v)] == [one.shape for one in wanted]
        near(u.mT @ u, torch.eye(u.shape[-1], dtype=dtype).expand_as(u.mT @ u), precision)
        near(v @ v.mT, torch.eye(v.shape[-2], dtype=dtype).expand_as(v @ v.mT), precision)
        count = values.shape[-1]
        near((u[..., :count] * values.unsqueeze(-2)) @ v[..., :count, :], a, precision)
        if shape[0] == shape[1]:
            values, v = jacobi.eigh(a, "U")
            near(v.mT @ v, torch.eye(shape[0], dtype=dtype).expand_as(a), precision)
            near((v * values.unsqueeze(-2)) @ v.mT, a.triu() + a.triu(1).mT, precision)


def test_what_has_no_sign_is_eagers():
    def forward(model, x):
        values, vectors = torch.linalg.eigh(x.mT @ x)
        u, _, v = torch.linalg.svd(x, full_matrices=False)
        return (vectors * values.clamp(min=0.1).rsqrt()) @ vectors.mT, u @ v

    x = torch.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 4.0], [0.0, 2.0, 1.0], [1.0, 1.0, -2.0]])
    program = check(model(forward), (x,), (x.flip(0) * 3 + 1,))
    assert not [op for op in targets(program) if any(name in op for name in ("svd", "eigh"))]
