"""Sizes that vary, where Python or torch takes an int alone, against eager at other sizes."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.operators import builtin_calls
from aotpipe.core.dims import Dim
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow, sweep
from tests.unit.canonicalize.trace import agree

SIZES = (6, 2, 3, 9, 30)


def check(model: Any, *, exact: bool = True) -> None:
    dim = Dim("n", min=2, max=40)
    calls = [torch.arange(2.0 * size).sin().reshape(size, 2) for size in SIZES]
    spec = as_spec(model, args=(calls[0],), dynamic_shapes={"x": {0: dim}})
    program = export(canonicalize(spec)).entries[0].program.module()
    for x in calls:
        torch.testing.assert_close(program(x), model(x), rtol=1e-5, atol=1e-6 if exact else 2e-3)


@pytest.mark.parametrize(
    "made",
    sweep(
        [
            lambda n: torch.linspace(-1, 2, n),
            lambda n: torch.linspace(1, 0, steps=n, dtype=torch.float64),
            lambda n: torch.linspace(3, 4, n - 1),
            lambda n: torch.logspace(0, 1, n),
            lambda n: torch.tril_indices(n, n),
            lambda n: torch.triu_indices(n, n + 1, 1),
            lambda n: torch.hann_window(n),
            lambda n: torch.hann_window(n - 1, periodic=False),
            lambda n: torch.hamming_window(n),
            lambda n: torch.blackman_window(n),
            lambda n: torch.fft.fftfreq(n),
            lambda n: torch.fft.fftfreq(n + 1, 0.5),
            lambda n: torch.fft.rfftfreq(n),
            lambda n: torch.nn.functional.one_hot(torch.arange(2), n),
            lambda n: torch.bartlett_window(n),
            lambda n: torch.kaiser_window(n),
            lambda n: torch.kaiser_window(n, periodic=False, beta=6.0),
            lambda n: torch.tensor([n, n + 1]) + torch.as_tensor(n) + torch.tensor(n, dtype=torch.float64),
            lambda n: torch.arange(min(n, int(n * 2.0 / 4.0) + 1)) + max(n, 3, 2 * n),
            lambda n: torch.ones(2) * float(n) + divmod(n, 3)[1] + abs(n - 9) + round(n / 3),
            lambda n: torch.ones(int(np.ceil(n / 2)), int(np.floor(n * 1.5))) * np.sqrt(n) + np.log(n),
            lambda n: torch.ones(2) * np.power(n, 2) + np.maximum(n, 4) + np.float32(n) + np.ceil(n / 4),
            lambda n: torch.ones(2) * (math.log(n) / n) ** 0.5,
            lambda n: torch.eye(n) * math.sqrt(n) + math.log(n) - math.log2(n + 1),
        ],
        quick=6,
    ),
)
def test_what_is_made_of_a_size_follows_it(made):
    check(lambda x: made(x.shape[0]))
    check(lambda x: made(len(x)))


@pytest.mark.parametrize(
    "made",
    sweep(
        [
            lambda n: torch.from_numpy(np.hanning(n)),
            lambda n: torch.from_numpy(np.kaiser(n, 14.0).astype(np.float32)),
            lambda n: torch.tensor(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / (n - 1))),
            lambda n: torch.as_tensor(np.linspace(0, 1, n, endpoint=False, dtype=np.float32)),
            lambda n: torch.from_numpy((np.array([n, 2]) - 1) / 2) * int(np.prod([n, 3])),
        ],
        quick=3,
    ),
)
def test_arrays_of_numpy_that_are_made_of_a_size_follow_it(made):
    check(lambda x: made(x.shape[0]))


def reflected(places: Any, least: float, most: float) -> Any:
    """Places outside of a range reflected into it, as libraries of wavelets pad."""
    places = np.asanyarray(places)
    turn = 2 * (most - least)
    passed = np.fmod(places - least, turn)
    passed = np.where(passed < 0, passed + turn, passed)
    return np.array(np.where(passed >= turn / 2, turn - passed, passed) + least, dtype=places.dtype)


def test_tensors_are_indexed_by_arrays_that_are_made_of_a_size():
    def model(x):
        n = x.shape[0]
        places = reflected(np.arange(-3, n + 2, dtype="int32"), -0.5, n - 0.5)
        written = x.clone()
        written[np.arange(n)[1:], 0] = 7.0
        return x[places] + x[:, :1][places, :], written

    check(model)


def test_classes_out_of_range_raise():
    def model(x):
        return torch.nn.functional.one_hot((x[:, 0] * 10).long().abs(), x.shape[0])

    x = torch.ones(12, 2)
    spec = as_spec(model, args=(x,), dynamic_shapes={"x": {0: Dim("n", min=2, max=40)}})
    program = export(canonicalize(spec)).entries[0].program.module()
    assert torch.equal(program(x), model(x))
    with pytest.raises(RuntimeError, match="Class values"):
        program(torch.ones(5, 2))


@pytest.mark.parametrize(
    "model",
    [
        slow(lambda x: torch.stack(torch.cat([x] * 6).chunk(6))),
        slow(lambda x: torch.stack(x.repeat(3, 1).split(x.shape[0]))),
        lambda x: torch.stack(torch.split(x.repeat(1, 2), 2, dim=1)),
        lambda x: torch.einsum("ij,kj,kl->il", x, x, x),
        lambda x: torch.vander(x[:, 0], 4) + torch.vander(x[:, 1], 4, increasing=True),
        lambda x: torch.vander(torch.arange(x.shape[0]), 3),
        slow(lambda x: torch.kron(x, torch.ones(2, 3)) + torch.kron(torch.ones(2, 1), x.repeat(1, 3))),
        slow(lambda x: torch.combinations(x[:, 0]).sum(0) + torch.combinations(x[:, 1], 2, True).sum(0)),
        lambda x: F.avg_pool1d(x.t()[None], x.shape[0]) + F.max_pool1d(x.t()[None], kernel_size=len(x)),
        lambda x: F.max_pool2d(x[None], x.shape) + F.avg_pool2d(x[None], kernel_size=(x.shape[0], 2)),
        lambda x: x / x.shape.numel() + (x.shape[0] - x) + (x.shape[0] / 2 - x),
        slow(lambda x: x[list(range(x.shape[0]))]),
        lambda x: torch.stack((*x.chunk(chunks=2, dim=-1), *torch.chunk(chunks=2, input=x, dim=1))),
        lambda x: torch.stack(torch.split(tensor=x.repeat(2, 1), split_size_or_sections=x.shape[0])),
        lambda x: torch.stack(x.repeat(2, 1).split(split_size=x.shape[0])),
        lambda x: F.avg_pool1d(input=x.t()[None], kernel_size=x.shape[0]),
        lambda x: torch.kron(input=x, other=x[:1]) * torch.combinations(input=x[:, 0]).sum(),
        lambda x: torch.hann_window(window_length=len(x)) + torch.fft.fftfreq(n=len(x)),
        slow(lambda x: F.one_hot(input=torch.arange(2), num_classes=len(x))),
    ],
)
def test_functions_of_tensors_follow_their_sizes(model):
    check(model)


def test_log_sums_of_as_many_rows_as_a_run_finds():
    def model(x):
        rows = x[x[:, 0] > 0]
        both = torch.cat((rows, rows / 0), 1)
        chosen = rows.logsumexp(dim=-1) if len(rows) > 1 else x[:, 1]
        return torch.logsumexp(rows, 0), rows.logsumexp((0, 1), True), both.logsumexp(0), chosen

    x = torch.arange(12.0).sin().reshape(6, 2)
    program = export(canonicalize(as_spec(model, args=(x,)))).entries[0].program.module()
    for call in (x, -x.abs(), x.abs(), x * torch.tensor([[1.0]] + [[-1.0]] * 5), x * math.inf):
        torch.testing.assert_close(program(call), model(call), equal_nan=True)


def test_a_dim_is_inferred_beside_one_that_only_a_run_knows():
    def model(x):
        rows = x[x[:, 0] > 0]
        count = rows.shape[0]
        both = torch.stack((rows.t(), rows.t() * 2)).reshape(2, -1, count)
        return both, rows.t().contiguous().view(-1, count), torch.reshape(input=both, shape=[-1, 2, count])

    def mixed(x):
        history = [x]
        while x.abs().max() > 0.5 and len(history) < 4:
            x = x / 2
            history.append(x)
        return torch.stack(history, dim=-1).reshape(x.shape[0], -1, len(history)).sum(-1)

    x = torch.arange(12.0).sin().reshape(6, 2)
    agree.check(model, (x,), (x.abs() + 1,), (-x.abs(),))  # none: -1 may be any, and eager raises
    agree.check(mixed, (x,), (x / 4,), (x * 9,))


def test_items_are_read_and_written_at_a_list_of_indices():
    def model(x):
        kept, out = [i for i in range(x.shape[0]) if x[i, 0] > 0], x.clone()
        out[kept] = 5.0
        return out, x[kept].sum(0), x[kept, 1].sum()

    check(model)


def test_distances_of_any_number_of_points():
    check(lambda x: torch.cdist(x, x.flip(0)), exact=False)


def recurrent(x):
    state, out = torch.zeros(2), []
    for row in x:
        state = torch.tanh(state + row)
        out.append(state)
    return torch.stack(out) + x


def backwards(x):
    state, out = torch.zeros(2), []
    for t in range(len(x) - 1, -1, -1):
        state = state * 0.5 + x[t]
        out.append(state)
    out.reverse()
    return torch.stack(out)


def written(x):
    out = torch.zeros_like(x)
    for t in range(1, x.shape[0]):
        out[t] = out[t - 1] * 0.5 + x[t]
    return out


def left_early(x):
    for i in range(x.shape[0]):
        if x[i].sum() > 1.2:
            return x[i]
    return x[0]


def pairs(x):
    total, count = torch.zeros(()), len(x)
    for i in range(count):
        for j in range(i):
            total = total + x[i] @ x[j]
    return total


def comprehended(x):
    kept = [row * 2 for row in x if row.sum() > -2.5]
    return torch.stack([a + b for a, b in zip(x, x.flip(0), strict=True)]), torch.stack(kept[:2])


@pytest.mark.parametrize(
    "model",
    [slow(recurrent), backwards, slow(written), slow(left_early), slow(pairs), comprehended],
    ids=lambda model: model.__name__,
)
def test_loops_over_a_size_are_loops_of_the_graph(model):
    check(model)


def test_a_module_that_a_call_moves_to_where_it_is_stays():
    class Moved(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x):
            self.linear = self.linear.to(x.device)
            return self.linear.float()(x) + self.linear.to(x)(x) + self.linear.to(dtype=x.dtype).cpu()(x)

    check(Moved().requires_grad_(False))


def test_a_module_that_a_call_casts_is_refused():
    linear = torch.nn.Linear(2, 2)
    assert builtin_calls.of(linear.float)() is linear
    for move in (
        linear.double,
        functools.partial(linear.to, torch.float16),
        functools.partial(linear.to, "meta"),
    ):
        staged = builtin_calls.of(getattr(move, "func", move))
        with pytest.raises(ExportFailed, match="moves a module"):
            staged(*getattr(move, "args", ()))


def test_arguments_have_the_names_that_numpy_gives_them():
    def model(x):
        rows = x[x[:, 0] > 0]
        return torch.logsumexp(rows, axis=0, keepdims=True), rows.logsumexp(axis=1, keepdim=True)

    agree.check(model, *((torch.tensor([[v, 2.0], [-1, 3], [4, 5]]),) for v in (1.0, -1.0)))


@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"scale": 0.3, "enable_gqa": True}, {"mask": True}]
)
def test_attention_over_as_many_rows_as_only_a_run_knows(options):
    """As packed sequences have it: an image's rows are those between two offsets."""

    def model(x, ends):
        parts, start = [], 0
        for place in range(ends.numel()):
            end = ends[place].item()
            rows = x[start:end].transpose(0, 1).unsqueeze(0)
            keys = rows[:, :1] if "enable_gqa" in options else rows
            given = {name: each for name, each in options.items() if name != "mask"}
            if "mask" in options:
                given["attn_mask"] = x[None, start:end, :1, 0] < 0.5
            found = torch.nn.functional.scaled_dot_product_attention(rows, keys, keys, **given)
            parts.append(found.squeeze(0).transpose(0, 1).contiguous())
            start = end
        return torch.cat(parts)

    x = torch.rand(7, 2, 4)
    agree.check(model, *((x, torch.tensor(ends)) for ends in ([3, 7], [1, 7], [7, 7], [5, 6], [0, 2])))
