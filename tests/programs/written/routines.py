"""What a day of writing models brings: samplers, trackers, parsers, schedules, gates, books, small games."""

# ruff: noqa: B905, PYI024  # as people write it

from __future__ import annotations

import bisect
import contextlib
import enum
import itertools
import math
from collections import Counter, defaultdict, deque, namedtuple
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.written import program, seeded

T = torch.tensor


@program((seeded(6), T(0.7)), (T([9.0, 0.0, 0.0, 0.0, 0.0, 0.0]), T(0.7)), (torch.zeros(6), T(0.4)))
def typical_cutoff(logits, mass):
    logp = F.log_softmax(logits, -1)
    entropy = -(logp.exp() * logp).sum()
    order = (logp + entropy).abs().argsort()
    kept, total = [], 0.0
    for i in order.tolist():
        kept.append(i)
        total += logp[i].exp().item()
        if total >= mass:
            break
    mask = torch.full_like(logits, -1e9)
    mask[kept] = logits[kept]
    return mask.argmax(), torch.tensor(len(kept))


@dataclass
class Account:
    balance: float = 0.0
    moves: int = 0

    def withdraw(self, amount):
        if amount > self.balance:
            raise ValueError("insufficient funds")
        self.balance -= amount
        self.moves += 1


@program(
    (T([0, 1, 2]), T([1.0, 2.0, 3.0])),
    (T([2, 2, 2]), T([50.0, 60.0, 1.0])),
    (T([1, 1, 0]), T([0.0, 10.0, 99.0])),
)
def ledger(who, amounts):
    accounts = [Account(10.0), Account(20.0), Account(100.0)]
    rejected = 0
    for i, amount in zip(who.tolist(), amounts.tolist()):
        try:
            accounts[i].withdraw(amount)
        except ValueError:
            rejected += 1
    return torch.tensor([a.balance for a in accounts]), torch.tensor(rejected)


@program(T([1, 2, 3, 0, 4, 5]), T([2, 1, 0, 0, 0, 0]), T([0, 0, 0, 0, 0, 0]))
def opcode_parser(code):
    stream = iter(code.tolist())
    acc, steps = 0, 0
    for op in stream:
        steps += 1
        if op == 0:
            break
        if op == 1:
            acc += next(stream, 0)
        elif op == 2:
            acc *= 2
        else:
            acc -= op
    return torch.tensor(acc), torch.tensor(steps), torch.tensor(len(list(stream)))


class WelfordNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.mean, self.m2 = 0, 0.0, 0.0
        self.clipped = 0

    @property
    def std(self):
        return math.sqrt(self.m2 / (self.n - 1)) if self.n > 1 else 1.0

    def forward(self, x):
        v = x.item()
        if self.n > 2 and abs(v - self.mean) > 3 * self.std:
            self.clipped += 1
            v = self.mean + math.copysign(3 * self.std, v - self.mean)
        self.n += 1
        d = v - self.mean
        self.mean += d / self.n
        self.m2 += d * (v - self.mean)
        return torch.tensor([v, self.mean, self.std, float(self.clipped)])


program(T(1.0), T(2.0), T(1.5), T(90.0), T(1.0))(WelfordNorm)


@program(T([3, 1, 3, 3, 2]), T([1, 2, 1, 2, 5]), T([4, 4, 4, 4, 4]))
def mode_and_rarest(ids):
    counts = Counter(ids.tolist())
    (top, n), *_ = counts.most_common()
    rare = min(counts.values())
    singles = sorted(k for k, c in counts.items() if c == rare)
    return torch.tensor([top, n, rare, len(singles), singles[0]])


class Mode(enum.IntEnum):
    EXPLORE = 0
    EXPLOIT = 1


class Bandit(nn.Module):
    def __init__(self, arms=3):
        super().__init__()
        self.counts = [0] * arms
        self.values = [0.0] * arms
        self.mode = Mode.EXPLORE

    def forward(self, rewards):
        if self.mode is Mode.EXPLORE:
            arm = self.counts.index(min(self.counts))
        else:
            arm = max(range(len(self.values)), key=self.values.__getitem__)
        self.counts[arm] += 1
        self.values[arm] += (rewards[arm].item() - self.values[arm]) / self.counts[arm]
        if min(self.counts) >= 1 and max(self.values) > 0.5:
            self.mode = Mode.EXPLOIT
        return torch.tensor(arm), torch.tensor(self.values), torch.tensor(int(self.mode))


program(*[T([0.1, 0.9, 0.4])] * 4, T([0.0, -5.0, 0.0]))(Bandit)


@program(T([0.0, 1.0, 0.5, 3.0]), T([5.0, 4.0, 3.0, 2.0]), T([1.0, 1.0, 1.0, 1.0]))
def patience_sorting(x):
    tails = []
    for v in x.tolist():
        at = bisect.bisect_left(tails, v)
        if at == len(tails):
            tails.append(v)
        else:
            tails[at] = v
    return torch.tensor(len(tails)), torch.tensor(tails[-1])


Step = namedtuple("Step", "x value taken")


@program(T([3.0, -2.0]), T([0.0, 0.0]), T([100.0, 1.0]))
def armijo_history(x):
    def f(v):
        return (v**2).sum() + v.abs().sum()

    history = [Step(x, f(x), 0)]
    for _ in range(6):
        last = history[-1]
        g = 2 * last.x + last.x.sign()
        rate, tries = 0.5, 0
        while f(last.x - rate * g) > last.value - 0.1 * rate * (g * g).sum() and tries < 5:
            rate, tries = rate / 2, tries + 1
        history.append(Step(last.x - rate * g, f(last.x - rate * g), tries))
        if last.value - history[-1].value < 1e-3:
            break
    return history[-1].x, torch.tensor(len(history)), torch.tensor(sum(s.taken for s in history))


@program((T([1, 2, 3]), T([2, 3, 4])), (T([1, 1, 1]), T([1, 1, 1])), (T([5, 6, 7]), T([1, 2, 3])))
def jaccard(a, b):
    left, right = set(a.tolist()), set(b.tolist())
    both, either = left & right, left | right
    score = len(both) / len(either)
    only = sorted(left - right)
    return torch.tensor(score), torch.tensor(only[0] if only else -1)


class Retry(contextlib.ContextDecorator):
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append(1)
        return self

    def __exit__(self, kind, error, tb):
        self.log.append(-1 if kind else 0)
        return kind is not None and issubclass(kind, ArithmeticError)


@program(T([4.0, 2.0]), T([4.0, 0.0]), T([-1.0, 0.5]))
def guarded_division(x):
    log, out = [], torch.zeros(())
    with Retry(log):
        if x[1] == 0:
            raise ZeroDivisionError("no")
        out = x[0] / x[1]
    return out, torch.tensor(log)


@program(T([1.0, 2.0, 3.0, 4.0]), T([4.0, 3.0, 2.0, 1.0]), T([1.0, -1.0, 1.0, -1.0]))
def batched_running_best(x):
    items = iter(x.tolist())
    best, rounds = -math.inf, 0
    while chunk := list(itertools.islice(items, 2)):
        rounds += 1
        if max(chunk) <= best:
            break
        best = max(chunk)
    return torch.tensor(best), torch.tensor(rounds)


class TopKRouter(nn.Module):
    """Two experts per token, jitter by state, balance by counts that stay."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.gate = nn.Linear(4, 4, bias=False)
        self.experts = nn.ModuleDict({f"e{i}": nn.Linear(4, 4) for i in range(4)})
        self.register_buffer("load", torch.zeros(4))

    def forward(self, x):
        scores = self.gate(x) - 0.5 * self.load / (1 + self.load.sum())
        out = torch.zeros_like(x)
        for t in range(x.shape[0]):
            weights, chosen = scores[t].softmax(-1).topk(2)
            if weights[0] > 3 * weights[1]:
                weights, chosen = weights[:1] / weights[0], chosen[:1]
            for w, e in zip(weights, chosen.tolist()):
                out[t] += w * self.experts[f"e{e}"](x[t])
                self.load[e] += 1
        return out, self.load.clone()


program(seeded(2, 4), seeded(2, 4, seed=3) * 5, torch.ones(2, 4))(TopKRouter)


@program(
    T([[0, 1, 0], [1, 1, 0], [0, 0, 1]]),
    T([[1, 1, 1], [1, 1, 1], [1, 1, 1]]),
    torch.zeros(3, 3, dtype=torch.long),
)
def island_count(grid):
    seen, islands = set(), 0
    for r, c in itertools.product(range(3), range(3)):
        if not grid[r, c] or (r, c) in seen:
            continue
        islands += 1
        stack = [(r, c)]
        while stack and len(stack) < 20:
            i, j = stack.pop()
            if not (0 <= i < 3 and 0 <= j < 3) or (i, j) in seen or not grid[i, j]:
                continue
            seen.add((i, j))
            stack += [(i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)]
    return torch.tensor(islands), torch.tensor(len(seen))


@dataclass(frozen=True)
class Config:
    width: int = 2
    sharp: bool = False


@program(T([1.0, 2.0, 3.0]), T([-1.0, 5.0, -2.0]), T([0.0, 0.0, 0.0]))
def config_by_replace(x):
    config = Config()
    if x.max() > 4:
        config = replace(config, sharp=True)
    elif (x == 0).all():
        config = replace(config, width=3)
    y = x * config.width
    if config.sharp:
        y = y - y.mean()
    return y, torch.tensor(config.width)


class DoubleBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.front, self.back = torch.zeros(2), torch.ones(2)
        self.swaps = 0

    def forward(self, x):
        self.back = self.back * 0.5 + x
        if x.norm() > 2:
            self.front, self.back = self.back, self.front
            self.swaps += 1
        return self.front * 1.0, torch.tensor(self.swaps)


program(T([1.0, 0.0]), T([3.0, 0.0]), T([0.0, 1.0]), T([5.0, 5.0]))(DoubleBuffer)


@program(T([1, 0, 1, 1, 0]), T([0, 0, 0, 0, 0]), T([1, 1, 1, 1, 1]))
def gap_groups(mask):
    groups = defaultdict(list)
    gap = 0
    for i, bit in enumerate(mask.tolist()):
        if bit:
            groups[gap].append(i)
        else:
            gap += 1
    sizes = [len(v) for v in groups.values()]
    return torch.tensor(max(sizes, default=0)), torch.tensor(len(groups))


class Delay(nn.Module):
    """A delay line whose length follows the input, in a deque."""

    def __init__(self):
        super().__init__()
        self.line = deque([0.0, 0.0], maxlen=4)

    def forward(self, x):
        v = x.item()
        self.line.append(v)
        if v < 0:
            self.line.clear()
            self.line.append(0.0)
        return torch.tensor(self.line[0]), torch.tensor(len(self.line))


program(T(1.0), T(2.0), T(-1.0), T(3.0), T(4.0))(Delay)


@program(T([2.0, 7.0, 1.0]), T([0.0, 0.0, 0.0]), T([-5.0, 5.0, 5.0]))
def piecewise_by_table(x):
    table = [(0.0, lambda v: -v), (3.0, lambda v: v * 2), (math.inf, lambda v: v.sqrt())]
    out = []
    for v in x:
        for limit, f in table:
            if v < limit:
                out.append(f(v))
                break
    return torch.stack(out)


@program((seeded(5), T(2)), (torch.ones(5), T(0)), (T([3.0, 2.0, 1.0, 0.0, -1.0]), T(4)))
def decay_until(x, n):
    y = x.clone()
    k = int(n)
    for i in range(k):
        y[i:] *= 0.5
        if y[i] < 0:
            y[: i + 1] = 0
            break
    else:
        y += 1
    return y


@program(T([0.9, 0.2, 0.7]), T([0.1, 0.1, 0.1]), T([0.6, 0.9, 0.95]))
def chain_of_validators(p):
    def positive(v):
        return v > 0.15 or "too small"

    def bounded(v):
        return v < 0.92 or "too large"

    problems = []
    for v in p:
        for check in (positive, bounded):
            verdict = check(v)
            if verdict is not True and isinstance(verdict, str):
                problems.append(verdict)
    return torch.tensor(len(problems)), torch.tensor(problems.count("too large"))


@program(T([1.0, 2.0, 3.0]), T([-1.0, 2.0, 3.0]))
def changed_by_what_is_added(x):
    totals, counts = [1.0, 2.0, 3.0], {"a": 1.0}

    def reset():
        totals[0] = 10.0
        counts["a"] = 20.0
        return 1.0

    if x[0] > 0:
        totals[0] += reset()
        counts["a"] -= reset()
    totals[1] += (k := float(x[0]))
    return torch.tensor(totals), torch.tensor([counts["a"], k])
