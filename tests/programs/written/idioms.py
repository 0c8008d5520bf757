"""Python's idioms around tensors: closures, generators, enums, sorting, state machines, small algorithms."""

# ruff: noqa: B905, C417, FURB161, PYI024, SIM202  # as people write it

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import enum
import functools
import heapq
import itertools
import math

import torch
from torch import nn

from tests.programs.written import program, seeded

T = torch.tensor


@program(T([3.0, 1.0, 2.0]), T([-1.0, -2.0, -3.0]), T([0.0, 0.0, 5.0]))
def match_statement(x):
    match int(x.argmax().item()):
        case 0:
            return x * 2
        case 1 | 2 if x.sum() > 0:
            return x + 1
        case _:
            return -x


@program((T([1.0, 2.0, 3.0, 4.0]), T(2)), (T([1.0, 2.0, 3.0, 4.0]), T(0)), (T([1.0, 2.0, 3.0, 4.0]), T(3)))
def rotate_left(x, k):
    k = k.item() % len(x)
    return torch.cat([x[k:], x[:k]])


@program(T([5, 3, 8, 1]), T([1, 1, 1, 1]), T([4, 3, 2, 1]))
def insertion_sort(x):
    a = x.tolist()
    for i in range(1, len(a)):
        j = i
        while j > 0 and a[j - 1] > a[j]:
            a[j - 1], a[j] = a[j], a[j - 1]
            j -= 1
    return torch.tensor(a)


@program(T([5.0, 3.0, 8.0, 1.0]), T([1.0, 1.0, 1.0, 1.0]))
def bubble_in_place(x):
    y = x.clone()
    n = len(y)
    for i in range(n):
        swapped = False
        for j in range(n - 1 - i):
            if y[j] > y[j + 1]:
                y[j], y[j + 1] = y[j + 1].clone(), y[j].clone()
                swapped = True
        if not swapped:
            break
    return y


@program(T(10), T(1), T(97), T(0))
def is_prime(n):
    n = int(n)
    if n < 2:
        return T(False)
    i = 2
    while i * i <= n and i < 50:
        if n % i == 0:
            return T(False)
        i += 1
    return T(True)


@program(T([1.0, 2.0]), T([-3.0, 2.0]), T([0.0, 0.0]))
def generator_of_terms(x):
    def terms(v):
        t = v
        for k in range(1, 6):
            yield t
            t = t * v / (k + 1)

    total = torch.zeros_like(x)
    for t in terms(x):
        if t.abs().max() < 1e-3:
            break
        total = total + t
    return total


@program((T([1.0, -1.0]), T(True)), (T([1.0, -1.0]), T(False)))
def closure_nonlocal(x, flag):
    count = 0

    def bump(by):
        nonlocal count
        count += by

    for v in x:
        if v > 0 or flag:
            bump(2)
        else:
            bump(-1)
    return x * count


@program(T([1.0, 2.0, 3.0]), T([1.0, -2.0, 3.0]), T([-1.0, -2.0, -3.0]))
def try_except_raise(x):
    def safe_log(v):
        if v <= 0:
            raise ValueError("negative")
        return torch.log(v)

    out = []
    for v in x:
        try:
            out.append(safe_log(v))
        except ValueError:
            out.append(torch.full((), -10.0))
        finally:
            x = x + 1
    return torch.stack(out), x


class Budget(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = 5.0
        self.log = []

    def forward(self, x):
        cost = float(x.abs().sum())
        if cost > self.left:
            raise RuntimeError("nothing is left")
        self.left -= cost
        self.log.append(cost)
        if len(self.log) > 3:
            self.log.pop(0)
        return x * self.left, torch.tensor(sum(self.log))


program(T([1.0, 1.0]), T([0.5, 0.0]), T([4.0, 4.0]), T([0.2, 0.2]), T([0.1, 0.2]), T([0.1, 0.1]))(Budget)


class TwoNames(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("h", torch.zeros(4))
        self.view = self.h[:2]

    def forward(self, x):
        if x.sum() > 0:
            self.view.add_(x[:2])
        else:
            self.h.mul_(0.5)
        return self.h.sum() + x


program(T([1.0, 2.0]), T([-1.0, 2.0]), T([-3.0, 2.0]), T([1.0, 2.0]))(TwoNames)


class DictState(nn.Module):
    def __init__(self):
        super().__init__()
        self.best = {}

    def forward(self, x, key):
        k = int(key)
        if k not in self.best or x.max() > self.best[k]:
            self.best[k] = x.max()
        return torch.stack([self.best.get(i, T(0.0)) for i in range(3)])


program((T([1.0, 2.0]), T(0)), (T([3.0, 2.0]), T(1)), (T([0.0, 1.0]), T(0)), (T([5.0, 1.0]), T(0)))(DictState)


@dataclasses.dataclass
class Node:
    value: torch.Tensor
    weight: float = 1.0

    def scaled(self):
        return self.value * self.weight


@program(T([1.0, 5.0, 2.0]), T([-1.0, -5.0, -2.0]))
def dataclass_reduce(x):
    nodes = [Node(v, weight=2.0 if i % 2 else 1.0) for i, v in enumerate(x)]
    best = max(nodes, key=lambda n: float(n.value))
    nodes.sort(key=lambda n: n.value.item())
    if best.value > 0:
        best.weight = 10.0
    return torch.stack([n.scaled() for n in nodes])


@program(T([1, 2, 3, 2, 1]), T([1, 2, 2, 1, 1]), T([1, 2, 3, 4, 5]))
def is_palindrome(x):
    lo, hi = 0, len(x) - 1
    while lo < hi:
        if x[lo] != x[hi]:
            return T(0)
        lo, hi = lo + 1, hi - 1
    else:
        return T(1)


@program(T([3, 1, 2, 3, 1]), T([1, 1, 1, 1, 1]), T([5, 4, 3, 2, 1]))
def first_duplicate(x):
    seen = set()
    for v in x.tolist():
        if v in seen:
            return torch.tensor(v)
        seen.add(v)
    return torch.tensor(-1)


@program(T([1, 2, 2, 3, 3]), T([1, 1, 1, 1, 1]), T([0, 1, 2, 3, 3]))
def counter_most_common(x):
    counts = collections.Counter(x.tolist())
    best, n = None, 0
    for k, c in counts.items():
        if c > n:
            best, n = k, c
    return torch.tensor([best, n])


@program(T([0.1, 0.4, 0.2, 0.3]), T([0.25, 0.25, 0.25, 0.25]), T([0.97, 0.01, 0.01, 0.01]))
def top_p_filter(p):
    sp, idx = torch.sort(p, descending=True)
    total = 0.0
    keep = 0
    for v in sp:
        total += v.item()
        keep += 1
        if total >= 0.7:
            break
    out = torch.zeros_like(p)
    out[idx[:keep]] = sp[:keep]
    return out / out.sum()


@program((T([1.0, 2.0, 3.0]), T(0)), (T([1.0, 2.0, 3.0]), T(1)), (T([1.0, 2.0, 3.0]), T(2)))
def dispatch_table(x, op):
    ops = {0: torch.sin, 1: lambda t: t * 2, 2: functools.partial(torch.clamp, max=2.0)}
    return ops[op.item()](x)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.router = nn.Linear(4, 3)
        self.register_buffer("usage", torch.zeros(3, dtype=torch.long))

    def forward(self, x):
        out = torch.empty_like(x)
        for i, row in enumerate(x):
            e = self.router(row).argmax().item()
            self.usage[e] += 1
            out[i] = self.experts[e](row)
        if self.usage.max() > 5:
            self.usage.zero_()
        return out


program(seeded(3, 4), seeded(3, 4, seed=1), seeded(3, 4, seed=2))(Gate)


@program(T([[1.0, 0.0], [0.0, 1.0]]), T([[2.0, 1.0], [1.0, 3.0]]), T([[1.0, 2.0], [2.0, 4.0]]))
def lu_with_pivot(a):
    a = a.clone()
    n = a.shape[0]
    sign = 1
    for k in range(n):
        p = k + int(a[k:, k].abs().argmax())
        if a[p, k].abs() < 1e-8:
            return T(0.0)
        if p != k:
            a[[k, p]] = a[[p, k]]
            sign = -sign
        for i in range(k + 1, n):
            f = a[i, k] / a[k, k]
            a[i] -= f * a[k]
    return sign * a.diagonal().prod()


@program(T(5.0), T(-2.0), T(0.0), T(float("nan")), T(float("inf")))
def float_conversions(x):
    try:
        k = int(x.item())
    except ValueError:
        k = -1
    except OverflowError:
        k = -2
    return torch.tensor(k)


@program((T(7), T(2)), (T(7), T(0)), (T(-7), T(2)))
def div_or_default(a, b):
    try:
        q, r = divmod(a.item(), b.item())
    except ZeroDivisionError:
        q, r = 0, 0
    return torch.tensor([q, r])


@program(T([2.0, 3.0]), T([-2.0, 3.0]), T([float("nan"), 1.0]))
def walrus_chain(x):
    if (m := x.min()) > 0 and (s := x.sum()) < 10:
        return m * s
    if not (m != m):
        return m
    return torch.zeros(())


@program(T([1, 0, 1, 1]), T([0, 0, 0, 0]), T([1, 1, 1, 1]))
def bits_to_int(b):
    n = 0
    for bit in b.tolist():
        n = (n << 1) | bit
    return torch.tensor([n, n ^ 5, ~n & 15, bin(n).count("1")])


class PID(nn.Module):
    def __init__(self, kp=1.0, ki=0.1, kd=0.01):
        super().__init__()
        self.kp, self.ki, self.kd = kp, ki, kd
        self.integral = 0.0
        self.prev = None

    @property
    def saturated(self):
        return abs(self.integral) > 2

    def forward(self, e):
        err = e.item()
        d = 0.0 if self.prev is None else err - self.prev
        if not self.saturated or err * self.integral < 0:
            self.integral += err
        self.prev = err
        return torch.tensor(self.kp * err + self.ki * self.integral + self.kd * d)


program(T(1.0), T(1.5), T(2.0), T(-1.0), T(-3.0), T(0.0))(PID)


class RingBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("buf", torch.zeros(4, 2))
        self.pos = 0
        self.full = False

    def forward(self, x):
        self.buf[self.pos] = x
        self.pos = (self.pos + 1) % 4
        if self.pos == 0:
            self.full = True
        data = self.buf if self.full else self.buf[: self.pos]
        return data.mean(0)


program(*[seeded(2, seed=i) for i in range(6)])(RingBuffer)


@program(T([[0, 1], [1, 2], [3, 4]]), T([[0, 1], [1, 2], [2, 0]]), T([[0, 0], [1, 1], [2, 2]]))
def has_cycle(edges):
    parent = list(range(5))

    def find(i):
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for a, b in edges.tolist():
        ra, rb = find(a), find(b)
        if ra == rb:
            return T(True)
        parent[ra] = rb
    return T(False)


@program(T([4.0, 1.0, 3.0]), T([1.0, 1.0, 1.0]), T([-1.0, 5.0, 0.0]))
def tuple_state(x):
    State = collections.namedtuple("State", "lo hi n")
    s = State(float("inf"), float("-inf"), 0)
    for v in x:
        s = s._replace(lo=min(s.lo, v.item()), hi=max(s.hi, v.item()), n=s.n + 1)
    return torch.tensor([s.lo, s.hi, float(s.n)])


@program((seeded(5), T(3)), (seeded(5), T(1)), (seeded(5), T(5)))
def prefix_mean(x, n):
    n = n.item()
    return x[:n].mean(), x[n - 1]


@program(seeded(6), seeded(6, seed=3), torch.zeros(6))
def local_maxima_list(x):
    peaks = [i for i in range(1, len(x) - 1) if x[i] > x[i - 1] and x[i] > x[i + 1]]
    mask = torch.zeros(len(x), dtype=torch.bool)
    for p in peaks:
        mask[p] = True
    return mask, torch.tensor(len(peaks))


@program(seeded(6), -seeded(6).abs(), torch.zeros(6))
def mask_then_branch(x):
    pos = x[x > 0]
    if pos.numel() == 0:
        return torch.zeros(())
    if len(pos) > 2:
        return pos.mean()
    return pos.max()


@program(T([1, 2, 3]), T([9, 9, 9]), T([0, 0, 1]))
def carry_addition(digits):
    d = digits.tolist()[::-1]
    carry = 1
    out = []
    for x in d:
        s = x + carry
        out.append(s % 10)
        carry = s // 10
    out.append(carry)
    return torch.tensor(out[::-1])


class Scheduler(nn.Module):
    class Mode(enum.IntEnum):
        WARM = 0
        RUN = 1
        COOL = 2

    def __init__(self):
        super().__init__()
        self.mode = self.Mode.WARM
        self.t = 0

    def forward(self, x):
        self.t += 1
        if self.mode is self.Mode.WARM and self.t >= 2:
            self.mode = self.Mode.RUN
        elif self.mode == self.Mode.RUN and x.max() > 2:
            self.mode = self.Mode.COOL
        scale = {self.Mode.WARM: 0.1, self.Mode.RUN: 1.0, self.Mode.COOL: 0.5}[self.mode]
        return x * scale, torch.tensor(int(self.mode))


program(T([1.0]), T([1.0]), T([3.0]), T([1.0]))(Scheduler)


@program(T([1.0, 2.0, 3.0]), T([4.0, -1.0, 3.0]))
def contextmanager_scope(x):
    @contextlib.contextmanager
    def scope(items):
        items.append(x.sum())
        yield
        items.append(x.max())

    items = []
    with scope(items):
        if x.min() < 0:
            items.append(-x.min())
        else:
            items.append(T(0.0))
    return torch.stack(items)


@program(T(6), T(0), T(1), T(12))
def fib_recursive_memo(n):
    a, b = 0, 1
    for _ in range(n.item()):
        a, b = b, a + b
    return torch.tensor(a)


@program((T([1.0, 2.0, 3.0]), T([1.0, 2.0, 3.0])), (T([1.0, 2.0, 3.0]), T([-1.0, 2.0, 3.0])))
def all_any_lazy(a, b):
    if all(x == y for x, y in zip(a, b)):
        return a + b
    if any(y < 0 and 1 / y < -0.5 for y in b):
        return a - b
    return a


@program(T([3.0, 4.0]), T([0.0, 0.0]), T([-1.0, 5.0]))
def normalize_or_raise(x):
    n = x.norm()
    if n == 0:
        raise ZeroDivisionError("zero vector")
    assert x[1] > 4.5 or n <= 5, f"too long: {n}"
    return x / n


@program(T([1.0, 2.0, 3.0, 4.0]), T([4.0, 3.0, 2.0, 1.0]), T([1.0, 1.0, 1.0, 1.0]))
def in_place_alias_swap(x):
    y = x.clone()
    a, b = y[:2], y[2:]
    if a.sum() > b.sum():
        a.copy_(b)
    else:
        b += a
    y[0] = b.sum()
    return y, a


@program(T([[1, 2], [3, 4]]), T([[4, 3], [2, 1]]))
def transpose_in_loop(m):
    out = [[0] * 2 for _ in range(2)]
    for i, row in enumerate(m.tolist()):
        for j, v in enumerate(row):
            if v > 2:
                out[j][i] = v
            else:
                out[i][j] += v
    return torch.tensor(out)


@program(T([2.0, 7.0, 1.0, 8.0]), T([1.0, 1.0, 1.0, 1.0]), T([-1.0, -2.0, -3.0, -4.0]))
def max_subarray(x):
    best = cur = x[0]
    start = end = s = 0
    for i in range(1, len(x)):
        if cur < 0:
            cur, s = x[i], i
        else:
            cur = cur + x[i]
        if cur > best:
            best, start, end = cur, s, i
    return best, torch.tensor([start, end])


@program(T(27), T(1), T(6))
def collatz_list(n):
    seq = [int(n)]
    while seq[-1] != 1 and len(seq) < 20:
        k = seq[-1]
        seq.append(k // 2 if k % 2 == 0 else 3 * k + 1)
    return torch.tensor([len(seq), max(seq), seq[-1]])


@program(T([1.0, 2.0, 3.0]), T([1.0, float("nan"), 3.0]), T([float("inf"), 0.0, 0.0]))
def nan_guard(x):
    if torch.isnan(x).any():
        return torch.nan_to_num(x)
    if not torch.isfinite(x).all():
        return torch.where(torch.isinf(x), torch.zeros_like(x), x)
    return x


@program(
    (T([[1.0, 2.0], [3.0, 4.0]]), T([2, 1])),
    (T([[1.0, 2.0], [3.0, 4.0]]), T([0, 2])),
    (T([[1.0, 2.0], [3.0, 4.0]]), T([3, 2])),
)
def ragged_mean(x, lens):
    outs = []
    for row, n in zip(x, lens):
        if n > row.numel():
            raise IndexError("length beyond the row")
        outs.append(row[:n].mean() if n > 0 else row.new_zeros(()))
    return torch.stack(outs)


class EMA(nn.Module):
    def __init__(self):
        super().__init__()
        self.shadow = None
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        self.steps += 1
        decay = min(0.9, (1 + self.steps.item()) / (10 + self.steps.item()))
        if self.shadow is None:
            self.shadow = x.clone()
        else:
            self.shadow.mul_(decay).add_(x, alpha=1 - decay)
        return self.shadow.clone()


program(*[seeded(3, seed=i) for i in range(5)])(EMA)


class LazyInit(nn.Module):
    def __init__(self):
        super().__init__()
        self.initialized = False
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("std", torch.ones(3))

    def forward(self, x):
        if not self.initialized:
            self.mean.copy_(x.mean(0))
            self.std = x.std(0) + 1e-5
            self.initialized = True
        return (x - self.mean) / self.std


program(seeded(4, 3), seeded(4, 3, seed=1), seeded(4, 3, seed=2))(LazyInit)


@program(T([1.0, 2.0, 3.0]), T([30.0, -20.0, 10.0]), T([-4.0, -5.0, -6.0]))
def clip_by_global_norm(x):
    total = math.sqrt(sum(float(v) ** 2 for v in x))
    if total > 10.0:
        scale = 10.0 / (total + 1e-6)
        for v in x:
            v.mul_(scale)
    return x, torch.tensor(total)


@program(T([1, 2, 3, 4]), T([7, 7, 7, 7]), T([4, 3, 2, 1]))
def zip_longest_enumerate(x):
    acc = 0
    for i, (a, b) in enumerate(itertools.pairwise(x.tolist()), start=1):
        if a == b:
            continue
        acc += i * (1 if a < b else -1)
    return torch.tensor(acc)


@program(T([1.0, 2.0, 3.0, 4.0]), T([2.0, 2.0, 2.0, 2.0]), T([-1.0, 0.0, 1.0, 0.0]))
def accumulate_until(x):
    sums = list(itertools.accumulate(x.tolist()))
    k = bisect.bisect_left(sums, 3.5) if sums == sorted(sums) else -1
    return torch.tensor(k), torch.tensor(sums)


@program((T([1.0, 2.0]), T(0.3)), (T([1.0, 2.0]), T(0.7)), (T([1.0, 2.0]), T(1.5)))
def round_and_format(x, p):
    k = round(p.item() * 10)
    name = "low" if k < 5 else "high"
    table = {"low": x, "high": x * k}
    if k > 10:
        name += "er"
    return table.get(name, x * 0)


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.stats = {"min": float("inf"), "hist": [0, 0, 0], "last": None}

    def forward(self, x):
        for v in x:
            b = 0 if v < -1 else 1 if v < 1 else 2
            self.stats["hist"][b] += 1
        m = x.min().item()
        if m < self.stats["min"]:
            self.stats["min"] = m
        last, self.stats["last"] = self.stats["last"], x
        return torch.tensor(self.stats["hist"]), x if last is None else x - last


program(*[seeded(4, seed=i) * 2 for i in range(4)])(Nested)


@program(T([0.5, 0.2, 0.9]), T([0.1, 0.1, 0.1]), T([0.9, 0.9, 0.9]))
def nested_break_flags(x):
    found = None
    for i in range(3):
        for j in range(i + 1, 3):
            if x[i] + x[j] > 1.0:
                found = (i, j)
                break
        if found is not None:
            break
    else:
        return torch.tensor([-1, -1])
    return torch.tensor(found)


@program(T([1.0, 2.0, 3.0]), T([3.0, 2.0, 1.0]))
def string_key_state(x):
    order = "asc" if all(x[i] <= x[i + 1] for i in range(len(x) - 1)) else "desc"
    if order.startswith("a"):
        return x.cumsum(0)
    return x.flip(0).cumsum(0)


@program((seeded(3, 4), T([True, False, True])), (seeded(3, 4), T([False, False, False])))
def boolean_row_write(x, m):
    y = x.clone()
    y[m] = 0.0
    if m.any():
        y[m] += x[m].mean()
    return y


@program(T([1.0, 4.0, 9.0]), T([1.0, -4.0, 9.0]))
def map_filter(x):
    good = list(filter(lambda v: v > 0, x))
    r = list(map(lambda v: v.sqrt(), good))
    return torch.stack(r).sum(), torch.tensor(len(r))


@program((T(5.0), T(3.0)), (T(3.0), T(5.0)), (T(4.0), T(4.0)))
def spaceship(a, b):
    c = (a > b).int() - (a < b).int()
    return [b, T(0.0), a][c.item() + 1]


@program(T([1.0, 2.0, 3.0]), T([0.0, 0.0, 0.0]))
def star_args(x):
    def stats(*vals, scale=1.0, **kw):
        s = sum(vals) * scale
        if s > kw.get("limit", 5):
            return s, "big"
        return s, "small"

    s, kind = stats(*x, scale=2.0, **({"limit": 3} if x[0] > 0 else {}))
    return s if kind == "big" else -s


@program((seeded(8), T(2)), (seeded(8), T(4)), (seeded(8), T(3)))
def chunk_by_scalar(x, n):
    out = torch.zeros(8)
    step = n.item()
    for start in range(0, 8, step):
        seg = x[start : start + step]
        out[start : start + step] = seg - seg.mean()
    return out


@program(T([3.0, 1.0, 2.0]), T([1.0, 1.0, 1.0]))
def heap_merge(x):
    h = []
    for i, v in enumerate(x.tolist()):
        heapq.heappush(h, (v, i))
    a = heapq.heappop(h)
    b = heapq.heappop(h)
    return torch.tensor([a[0] + b[0], float(a[1]), float(b[1])])


class GRUUntil(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.cell = nn.GRUCell(3, 3)
        self.halt = nn.Linear(3, 1)

    def forward(self, x, h: torch.Tensor | None = None):
        if h is None:
            h = x.new_zeros(x.shape)
        n, p = 0, torch.zeros(x.shape[0], 1)
        while (p < 0.99).any() and n < 6:
            h = self.cell(x, h)
            p = p + torch.sigmoid(self.halt(h)) * (1 - p)
            n += 1
        return h, p, torch.tensor(n)


program((seeded(2, 3),), (seeded(2, 3, seed=4) * 5,))(GRUUntil)


@program((T([1.0, 2.0, 3.0]), T(1)), (T([1.0, 2.0, 3.0]), T(5)), (T([1.0, 2.0, 3.0]), T(-4)))
def index_or_raise(x, i):
    return x[i.item()]


@program((T([10, 20, 30]), T(20)), (T([10, 20, 30]), T(25)))
def list_index(x, v):
    items = x.tolist()
    if v.item() in items:
        return torch.tensor(items.index(v.item()))
    items.append(v.item())
    return torch.tensor(sorted(items, reverse=True).index(v.item()))


class Hysteresis(nn.Module):
    def __init__(self):
        super().__init__()
        self.on = False
        self.history: collections.deque = collections.deque(maxlen=3)

    def __call__(self, *a, **k):
        return super().__call__(*a, **k)

    def forward(self, x):
        level = x.mean().item()
        self.on = level > 0.2 if not self.on else level > -0.2
        self.history.append(self.on)
        if len(self.history) == 3 and all(self.history):
            return x.new_ones(x.shape)
        return x * sum(self.history)


program(T([0.5]), T([0.0]), T([-0.1]), T([0.1]), T([-1.0]), T([0.1]))(Hysteresis)
