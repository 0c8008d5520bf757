"""Vocabularies, caches, statistics, searches, pipelines, commands, annealing and tables."""

# ruff: noqa: B006, B007, B905, E741, PYI024  # as people write it

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections import namedtuple
from typing import NamedTuple

import torch
from torch import nn

from tests.programs.written import program, seeded

T = torch.tensor
inf, nan = float("inf"), float("nan")


class Tokenizer(nn.Module):
    """Grows a vocabulary up to a limit; unknown ids after that map to UNK."""

    def __init__(self, limit=4):
        super().__init__()
        self.vocab = {}
        self.limit = limit
        self.unknown = 0

    def encode(self, token):
        try:
            return self.vocab[token]
        except KeyError:
            if len(self.vocab) >= self.limit:
                self.unknown += 1
                return -1
            self.vocab[token] = len(self.vocab)
            return self.vocab[token]

    def forward(self, ids):
        return torch.tensor([self.encode(t) for t in ids.tolist()]), torch.tensor(self.unknown)


program(T([5, 7, 5]), T([7, 8, 9]), T([1, 2, 5]), T([9, 9, 3]))(Tokenizer)


class Matrix4:
    def __init__(self, data):
        self.data = data

    def __matmul__(self, other):
        return Matrix4(self.data @ other.data)

    def __pow__(self, n):
        result, base = Matrix4(torch.eye(len(self.data))), self
        while n > 0:
            if n & 1:
                result = result @ base
            base = base @ base
            n >>= 1
        return result

    def __getitem__(self, key):
        return self.data[key]


@program((T([[1.0, 1.0], [1.0, 0.0]]), T(5)), (torch.eye(2) * 2, T(0)), (T([[0.5, 0.5], [0.2, 0.8]]), T(12)))
def matrix_power_fast(m, n):
    result = Matrix4(m) ** int(n)
    return result.data, result[0, 1]


class TTLCache(nn.Module):
    def __init__(self, ttl=2):
        super().__init__()
        self.ttl = ttl
        self.clock = 0
        self.store = {}

    def forward(self, key, value):
        self.clock += 1
        k = key.item()
        hit = self.store.get(k)
        if hit is not None and self.clock - hit[1] <= self.ttl:
            return torch.tensor(hit[0]), True
        self.store[k] = (value.item(), self.clock)
        for old in [o for o, (_, t) in self.store.items() if self.clock - t > self.ttl]:
            del self.store[old]
        return torch.tensor(self.store[k][0]), False


program((T(1), T(1.5)), (T(2), T(2.5)), (T(1), T(9.0)), (T(1), T(8.0)), (T(2), T(7.0)), (T(1), T(6.0)))(
    TTLCache
)


class Welford:
    def __init__(self):
        self.n, self.mean, self._m2 = 0, 0.0, 0.0

    def update(self, x):
        self.n += 1
        delta = x - self.mean
        self.mean += delta / self.n
        self._m2 += delta * (x - self.mean)
        return self

    def merge(self, other):
        if other.n == 0:
            return self
        total = self.n + other.n
        delta = other.mean - self.mean
        self.mean += delta * other.n / total
        self._m2 += other._m2 + delta**2 * self.n * other.n / total
        self.n = total
        return self

    @property
    def variance(self):
        return self._m2 / (self.n - 1) if self.n > 1 else math.nan


@program(
    T([1.0, -2.0, 3.0, -4.0]),
    T([1.0, 2.0, 3.0, 4.0]),
    T([-1.0, -1.0, -1.0, -1.0]),
    T([1.0, -1.0, -1.0, -1.0]),
)
def split_statistics(x):
    pos, neg = Welford(), Welford()
    for v in x.tolist():
        (pos if v > 0 else neg).update(v)
    both = Welford().merge(pos).merge(neg)
    return torch.tensor([pos.variance, neg.variance, both.variance, both.mean]), torch.tensor(pos.n)


@program(T([3, 1, 2]), T([1, 2, 3]), T([7, 0, 7]), T([4, 4, 9]))
def subset_sum_product(values):
    """Which combination of values makes 4, smallest first."""
    items = values.tolist()
    for size in range(1, len(items) + 1):
        for combo in itertools.combinations(items, size):
            if sum(combo) == 4:
                return torch.tensor(size), torch.tensor(combo[0])
    return torch.tensor(0), torch.tensor(-1)


@program((T([2, 3]), T(3)), (T([1, 1]), T(2)), (T([0, 5]), T(1)))
def grid_search(limits, best):
    lrs, depths = [0.1, 1.0, 10.0], range(1, 4)
    top, arg = -math.inf, None
    a, b = limits.tolist()
    for lr, depth in itertools.product(lrs, depths):
        if depth > b or lr * depth > 10 * a:
            continue
        score = -((lr - 1.0) ** 2) - abs(depth - best.item())
        if score > top:
            top, arg = score, (lr, depth)
    if arg is None:
        raise LookupError("nothing fits")
    return torch.tensor(arg[0]), torch.tensor(arg[1]), torch.tensor(top)


@program(T([0.1, 0.9, 0.2]), T([0.6, 0.6, 0.6]), T([0.1, 0.1, 0.1]), T([-1.0, 0.5, 0.5]))
def validated_pipeline(p):
    """Steps that return a result or an error text, as in Go."""

    def check(v):
        if v < 0:
            return None, "negative"
        if v > 0.8:
            return v / 2, "clipped"
        return v, None

    total, errors = 0.0, []
    for v in p.tolist():
        value, err = check(v)
        if err == "negative":
            return torch.tensor(-1.0), torch.tensor(len(errors))
        if err:
            errors.append(err)
        total += value
    return torch.tensor(total), torch.tensor(len(errors))


@program(
    (T([1.0, 2.0, 3.0, 4.0]), T(1), T(3)),
    (T([4.0, 3.0, 2.0, 1.0]), T(0), T(0)),
    (T([1.0, 1.0, 1.0, 1.0]), T(2), T(9)),
)
def span_pooling(x, start, end):
    lo, hi = start.item(), end.item()
    if not 0 <= lo < hi <= len(x):
        return x.new_tensor(-1.0), torch.tensor(0)
    span = x[lo:hi]
    left, right = x[:lo], x[hi:]
    context = torch.cat([left, right])
    pooled = span.mean() - (context.mean() if context.numel() else 0.0)
    return pooled, torch.tensor(hi - lo)


@program((T([5.0, 1.0, 4.0]), T(2)), (T([1.0, 2.0, 3.0]), T(0)), (T([1.0, 1.0, 1.0]), T(5)))
def top_k_with_defaults(x, k, seen=[], *, sentinel=-1.0):
    k = k.item()
    seen = list(seen)
    for value, index in sorted(zip(x.tolist(), itertools.count()), key=lambda p: (-p[0], p[1])):
        if len(seen) == k:
            break
        seen.append(index)
    while len(seen) < 3:
        seen.append(int(sentinel))
    return torch.tensor(seen)


class Middleware(nn.Module):
    """A chain of closures, each of which may cut the rest short."""

    def __init__(self):
        super().__init__()
        self.rejected = 0
        self.chain = functools.reduce(
            lambda nxt, layer: functools.partial(layer, nxt), [self.clip, self.gate, self.norm], lambda x: x
        )

    def norm(self, nxt, x):
        n = x.norm()
        return nxt(x / n if n > 1 else x)

    def gate(self, nxt, x):
        if x.mean() < 0:
            self.rejected += 1
            return torch.zeros_like(x)
        return nxt(x)

    def clip(self, nxt, x):
        return nxt(x.clamp(max=0.8) if x.max() > 0.8 else x)

    def forward(self, x):
        return self.chain(x), torch.tensor(self.rejected)


program(T([3.0, 4.0]), T([-1.0, 0.1]), T([0.9, 0.1]), T([0.1, 0.2]))(Middleware)


@program(T([1, 2, 3, 4, 5, 6]), T([2, 2, 2, 2, 2, 2]), T([9, 1, 1, 1, 1, 1]))
def partition_and_groups(ids):
    even, odd = [], []
    for v in ids.tolist():
        (odd if v % 2 else even).append(v)
    longest = max((even, odd), key=len)
    by_size = {"even": len(even), "odd": len(odd)}
    winner = max(by_size, key=by_size.get)
    return torch.tensor(sum(longest)), torch.tensor(len(winner)), torch.tensor(by_size[winner])


@program(T([1.0, 3.0, 2.0, 5.0, 4.0]), T([5.0, 4.0, 3.0, 2.0, 1.0]), T([1.0, 1.0, 1.0, 1.0, 1.0]))
def peaks_with_prominence(x):
    Peak = namedtuple("Peak", ["index", "height", "prominence"])
    xs = [-math.inf, *x.tolist(), -math.inf]
    peaks = []
    for i, (l, c, r) in enumerate(zip(xs, xs[1:], xs[2:])):
        if l < c > r:
            peaks.append(Peak(i, c, c - max(l, r)))
    peaks.sort(key=lambda p: p.height, reverse=True)
    if not peaks:
        return torch.tensor(-1), torch.tensor(0.0)
    best, *others = peaks
    margin = best.height - others[0].height if others else best.prominence
    return torch.tensor(best.index), torch.tensor(margin)


@program((T([1.0, 2.0]), T(0)), (T([1.0, 2.0]), T(1)), (T([1.0, 2.0]), T(2)), (T([1.0, 2.0]), T(7)))
def command_pattern(x, op):
    match op.item():
        case 0:
            run = torch.exp
        case 1 | 2 as k:
            run = functools.partial(torch.mul, float(k) + 1)
        case k if k > 5:
            raise NotImplementedError(f"op {k}")
        case _:
            run = torch.neg
    return run(x)


class Annealer(nn.Module):
    """Simulated annealing with given uniform draws; keeps the best across calls."""

    def __init__(self):
        super().__init__()
        self.best = None
        self.best_energy = math.inf
        self.accepted = 0

    @staticmethod
    def energy(s):
        return float(((s - 0.3) ** 2).sum())

    def forward(self, start, moves, u):
        s, e, temp = start, self.energy(start), 1.0
        for move, r in zip(moves, u.tolist()):
            candidate = s + move
            de = self.energy(candidate) - e
            if de <= 0 or r < math.exp(-de / temp):
                s, e = candidate, e + de
                self.accepted += 1
            if e < self.best_energy:
                self.best, self.best_energy = s.clone(), e
            temp = max(temp * 0.5, 1e-2)
        return self.best, self.best_energy, self.accepted


program(
    (T([0.0, 0.0]), seeded(4, 2, seed=1) * 0.3, T([0.5, 0.5, 0.5, 0.5])),
    (T([1.0, 1.0]), seeded(4, 2, seed=2) * 0.3, T([0.0, 0.9, 0.1, 0.5])),
    (T([5.0, 5.0]), seeded(4, 2, seed=3), T([0.0, 0.0, 0.0, 0.0])),
)(Annealer)


class Profile(NamedTuple):
    calls: int = 0
    worst: float = 0.0


class Tracer(nn.Module):
    """Counts by name in a dict of tuples."""

    def __init__(self):
        super().__init__()
        self.table = {"fast": Profile(), "slow": Profile()}

    def forward(self, x):
        cost = x.abs().sum().item()
        name = "slow" if cost > 3 else "fast"
        p = self.table[name]
        self.table[name] = p._replace(calls=p.calls + 1, worst=max(p.worst, cost))
        if self.table["slow"].calls > 2:
            self.table = {k: Profile() for k in self.table}
        return torch.tensor([p.calls for p in self.table.values()]), torch.tensor(self.table["fast"].worst)


program(T([1.0, 1.0]), T([3.0, 3.0]), T([-4.0, 1.0]), T([0.5, 0.5]), T([9.0, 9.0]))(Tracer)


@program(
    (T([0.0, 2.0, 5.0, 9.0]), T(4.0)),
    (T([0.0, 2.0, 5.0, 9.0]), T(-1.0)),
    (T([0.0, 2.0, 5.0, 9.0]), T(9.0)),
    (T([0.0, 2.0, 2.0, 9.0]), T(2.0)),
)
def interpolate_table(knots, t):
    xs = knots.tolist()
    ys = [x * x for x in xs]
    v = t.item()
    if not xs[0] <= v <= xs[-1]:
        raise ValueError(f"{v} is outside of the table")
    i = bisect.bisect_right(xs, v) - 1
    if i == len(xs) - 1:
        return torch.tensor(ys[-1])
    span = xs[i + 1] - xs[i]
    if span == 0:
        raise ZeroDivisionError("double knot")
    w = (v - xs[i]) / span
    return torch.tensor(ys[i] * (1 - w) + ys[i + 1] * w)
