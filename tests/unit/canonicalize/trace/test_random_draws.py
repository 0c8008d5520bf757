"""A program draws what eager draws from the same generator, call after call, with torch's distributions."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from aotpipe.backends import legalization
from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.canonicalize.trace import random_draws
from aotpipe.errors import AotpipeError, ExportFailed, UnsupportedOps
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from aotpipe.passes import legalize

POSITIVE, NEGATIVE = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])


class Branches(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # noqa: SIM108  # the statement is what is tested
            y = x + torch.rand(3)
        else:
            y = torch.randn(3) * torch.randn_like(x)
        return y + torch.rand_like(y)


class Rejects(nn.Module):
    def forward(self, x):
        drawn, tries = torch.randn(()), 0
        while drawn < x[0] / 2 and tries < 50:
            drawn = torch.randn(())
            tries += 1
        return drawn, tries, torch.rand(2)


class InTests(nn.Module):
    """The test of a loop draws: before the first iteration it drew twice, and never again."""

    def forward(self, x):
        n = 0
        while torch.rand(()) < 0.7:
            n += 1
        return x + n, torch.rand(())


class RightOfAnd(nn.Module):
    def forward(self, x):
        if x.sum() > 0 and torch.rand(()) > 0.5:
            x = x + 1
        return x, torch.rand(1)


class Tries(nn.Module):
    def forward(self, x):
        try:
            y = torch.rand(3)
            if x.sum() < 0:
                raise ValueError("negative")  # noqa: TRY301
            y = y + torch.rand(3)
        except ValueError:
            y = torch.randn(3)
        return x + y, torch.rand(())


class Raises(nn.Module):
    def forward(self, x):
        y = torch.rand(3)
        if x.sum() < 0:
            raise ValueError("negative")
        return x + y


class Keeps(nn.Module):
    """Has what its generator is called, and state of its own."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Identity()
        self.register_buffer("state", torch.zeros(3))
        self.calls, self.last = 0, None

    def forward(self, x):
        self.calls += 1
        drawn = torch.rand(3)
        if x.sum() > 0:
            self.last = drawn
        self.state += drawn
        return self.generator(self.state) * self.calls, self.last if self.last is not None else x


class Lists(nn.Module):
    def forward(self, x):
        kept = [torch.rand(()) for v in x]
        for v in x:
            if v > 0:
                kept.append(torch.randn(()))  # noqa: PERF401
        return sum(kept), len(kept), torch.rand(())


class Conds(nn.Module):
    """torch's own control flow, of which the bodies draw."""

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda v: v + torch.rand(3), lambda v: v - torch.randn(3), (x,))
        z, _ = torch.while_loop(
            lambda _, i: i < 3, lambda v, i: (v + torch.rand(3), i + 1), (y, torch.tensor(0))
        )
        return z, torch.rand(())


class Views(nn.Module):
    def forward(self, x):
        y = torch.zeros(2, 3)
        row = y[0]
        row.uniform_()
        y[1].normal_()
        if x.sum() > 0:
            row.bernoulli_(0.5)
        return y, y.sum()


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.RReLU(), nn.AlphaDropout(0.2))
            self.attention = nn.MultiheadAttention(4, 2, dropout=0.3, batch_first=True)
            self.recurrent = nn.LSTM(4, 4)

    def forward(self, x):
        h = self.net(x).expand(1, 2, 4)
        h, _ = self.attention(h, h, h)
        h = h + functional.scaled_dot_product_attention(h, h, h)  # draws nothing
        h = h + functional.scaled_dot_product_attention(h, h, h, dropout_p=0.4, is_causal=True)
        return self.recurrent(h)[0], functional.gumbel_softmax(x, hard=True)


class Samples(nn.Module):
    def forward(self, x):
        p, e = x.abs(), torch.empty(5)
        return (
            *(torch.multinomial(p, 2), torch.multinomial(p, 7, replacement=True), torch.randperm(6)),
            *(
                torch.randint(3, 9, (2, 2)),
                torch.randint(low=0, high=4, size=(3,)),
                torch.randint(4, size=(2,)),
            ),
            *(
                e.clone().exponential_(2.0),
                e.clone().cauchy_(),
                e.clone().log_normal_(),
                e.clone().geometric_(0.3),
            ),
            *(e.clone().uniform_(-2, 3), e.clone().random_(3, 8), torch.rand([3]), torch.rand(size=(3,))),
            *(torch.bernoulli(x.sigmoid()), x.bernoulli(0.4), torch.randn(2, dtype=torch.bfloat16)),
            *(torch.normal(2.0, 3.0, (2,)), torch.normal(x, p), torch.randn(2, dtype=torch.complex64).abs()),
            *(distributions.Gamma(p, p).rsample(), distributions.Beta(p, p).rsample()),
            *(distributions.Categorical(logits=x).sample(), distributions.Laplace(x, p).rsample()),
            torch.svd_lowrank(torch.outer(x, x) + torch.eye(3), 2)[1],
        )


def drawn(x):
    return x + torch.rand(3)


MODELS = (Branches, Rejects, InTests, RightOfAnd, Tries, Raises, Keeps, Lists, Conds, Views, Layers, Samples)
QUICK = {
    ("Branches", "state"),
    ("InTests", "state"),
    ("Keeps", "state"),
    ("Conds", "state"),
    ("drawn", "input"),
}


def _outcome(call: Any, *args: Any, **kwargs: Any) -> list[Any]:
    try:
        with torch.no_grad(), uncompiled():
            return pytree.tree_leaves(call(*copy.deepcopy(args), **kwargs))
    except AotpipeError:
        raise
    except Exception:
        return ["raises"]


def _canonical(model: Any, **options: Any) -> Any:
    return canonicalize(as_spec(model, args=(POSITIVE.clone(),), **options))


def _made(kind: Any) -> Any:
    made = kind() if isinstance(kind, type) else kind
    if isinstance(made, nn.Module):
        made.eval()
        for each in made.modules():
            if isinstance(each, nn.Dropout | nn.AlphaDropout | nn.MultiheadAttention):
                each.train()
    return made


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        pytest.param(each, source, marks=() if (each.__name__, source) in QUICK else pytest.mark.slow)
        for each in (*MODELS, drawn)
        for source in ("state", "input")
    ],
)
def test_a_program_draws_what_the_model_draws(kind, source):
    model = _canonical(_made(kind), random=source, seed=11).entries[0].module
    program = export(_canonical(_made(kind), random=source, seed=11)).entries[0].program.module()
    answers = []
    for number, x in enumerate([POSITIVE, NEGATIVE, NEGATIVE, POSITIVE, POSITIVE]):
        seed = {} if source == "state" else {"random_seed": torch.tensor(number % 4)}
        want, got = _outcome(model, x, **seed), _outcome(program, x, **seed)
        assert len(want) == len(got)
        for mine, other in zip(want, got, strict=True):
            if isinstance(mine, str) or isinstance(other, str):
                assert mine == other
                continue
            if isinstance(mine, torch.Tensor):
                assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
            pair = (torch.as_tensor(each, dtype=torch.float64) for each in (mine, other))
            torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-5)
        numbers = [torch.as_tensor(each).double().flatten() for each in want if not isinstance(each, str)]
        answers.append(torch.cat([torch.empty(0), *numbers]))
    if source == "state":
        assert not torch.equal(answers[3], answers[4]), "two calls draw the same numbers"
    elif kind is not Keeps:
        assert torch.equal(answers[0], answers[4]), "two calls of one seed draw other numbers"


_N = 50_000
_PAIRS = torch.tensor([[1.0, 3.0]]).expand(_N, 2)
_WEIGHTS = torch.tensor([0.0, 3.0, 1.0])


@pytest.mark.parametrize(
    ("draw", "mean", "variance"),
    [
        (lambda: torch.rand(_N), 0.5, 1 / 12),
        (lambda: torch.rand(_N, dtype=torch.bfloat16).double(), 0.5, 1 / 12),
        (lambda: torch.randn(_N), 0, 1),
        (lambda: torch.empty(_N).exponential_(2.0), 0.5, 0.25),
        (lambda: torch.empty(_N).log_normal_(0.0, 0.5), np.exp(0.125), np.exp(0.25) * np.expm1(0.25)),
        (lambda: torch.empty(_N).geometric_(0.25), 4, 12),
        (lambda: torch.randint(-3, 4, (_N,)).double(), 0, 4),
        (lambda: torch._standard_gamma(torch.full((_N,), 0.3)), 0.3, 0.3),
        (lambda: torch._standard_gamma(torch.full((_N,), 7.0)), 7, 7),
        (lambda: torch._sample_dirichlet(_PAIRS)[:, 0], 0.25, 3 / 80),
        (lambda: torch.multinomial(_WEIGHTS, _N, replacement=True).double(), 1.25, 0.1875),
        (lambda: torch.multinomial(_WEIGHTS.expand(_N, 3), 1).double(), 1.25, 0.1875),
        (lambda: functional.dropout(torch.ones(_N), 0.2, True), 1, 0.25),
        (lambda: functional.alpha_dropout(torch.randn(_N), 0.2, True), 0, 1),
    ],
)
def test_draws_have_the_distribution_of_torchs(draw, mean, variance):
    with random_draws.drawn_from(torch.tensor([4, 0])):
        found = draw()
    assert found.dtype in (torch.float32, torch.float64)
    assert abs(float(found.mean()) - mean) < 5 * (variance / _N) ** 0.5
    assert abs(float(found.var()) / variance - 1) < 0.06


def test_each_place_of_a_permutation_and_of_samples_without_replacement_is_alike():
    with random_draws.drawn_from(torch.tensor([4, 0])):
        orders = torch.stack([torch.randperm(4) for _ in range(2000)])
        chosen = torch.multinomial(torch.ones(2000, 4), 2)
    for found in (orders, chosen):
        shares = torch.stack([(found == each).double().mean(0) for each in range(4)])
        assert float((shares - 0.25).abs().max()) < 0.05
    assert (chosen[:, 0] != chosen[:, 1]).all()


class Seeds(nn.Module):
    def forward(self, x):
        torch.manual_seed(0)
        return x + torch.rand(3)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.LSTM(3, 4, 2, dropout=0.5)
        self.layers.train()

    def forward(self, x):
        return self.layers(x[None])[0]


def test_what_the_generator_cannot_give_is_refused_at_its_line():
    with pytest.raises(ExportFailed, match="sets torch's generator") as raised:
        _canonical(Seeds().eval(), random="state")
    assert raised.value.where is not None
    model = Recurrent().eval()
    model.layers.train()
    with pytest.raises(ExportFailed, match="drops what goes from one of its layers to the next"):
        _canonical(model, random="state")
    for draw in (lambda x: torch.poisson(x), lambda x: x + torch.rand(3)):
        kind = "state" if "poisson" in draw.__code__.co_names else None
        exported = export(_canonical(draw, random=kind))
        with pytest.raises(UnsupportedOps, match="draws random numbers from torch's generator"):
            legalize(exported, legalization("torch"))
