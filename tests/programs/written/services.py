"""State machines, caches, schedulers and parsers, as an engineer writes them for a review."""

# ruff: noqa: B007, B905, RUF005, RUF007  # as people write it

from __future__ import annotations

import contextlib
import enum
import itertools
import math
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.written import program, seeded

T = torch.tensor
inf, nan = float("inf"), float("nan")


class RunningMoments(nn.Module):
    """Welford with outlier rejection; a reset when too many were rejected in a row."""

    def __init__(self, warmup=2):
        super().__init__()
        self.n = 0
        self.mean = 0.0
        self.m2 = 0.0
        self.warmup = warmup
        self.streak = 0

    @property
    def std(self):
        return math.sqrt(self.m2 / (self.n - 1)) if self.n > 1 else float("inf")

    def reset(self):
        self.n, self.mean, self.m2 = 0, 0.0, 0.0

    def forward(self, x):
        v = x.item()
        if math.isnan(v):
            raise ValueError("NaN in the stream")
        if self.n >= self.warmup and abs(v - self.mean) > 4 * self.std + 1e-3:
            self.streak += 1
            if self.streak >= 2:
                self.reset()
                self.streak = 0
            else:
                return self.mean, self.n, False
        self.streak = 0
        self.n += 1
        delta = v - self.mean
        self.mean += delta / self.n
        self.m2 += delta * (v - self.mean)
        return self.mean, self.n, True


program(T(1.0), T(1.5), T(0.5), T(100.0), T(1.0), T(nan), T(100.0), T(101.0), T(-50.0))(RunningMoments)


class Ring:
    def __init__(self, size):
        self.data = [0.0] * size
        self.head = 0
        self.full = False

    def push(self, v):
        self.data[self.head] = v
        self.head = (self.head + 1) % len(self.data)
        if self.head == 0:
            self.full = True

    def __len__(self):
        return len(self.data) if self.full else self.head

    def __iter__(self):
        for i in range(len(self)):
            yield self.data[(self.head - len(self) + i) % len(self.data)]


class SmoothedTrigger(nn.Module):
    def __init__(self):
        super().__init__()
        self.ring = Ring(3)
        self.fired = 0

    def forward(self, x):
        self.ring.push(x.item())
        mean = sum(self.ring) / len(self.ring)
        if len(self.ring) == 3 and mean > 1.0:
            self.fired += 1
        rising = all(a < b for a, b in itertools.pairwise(self.ring))
        return mean, self.fired, rising


program(T(0.5), T(1.0), T(3.0), T(2.0), T(-9.0))(SmoothedTrigger)


class TransientError(RuntimeError):
    pass


class Client(nn.Module):
    """Retries with backoff, releasing a slot in finally; counts what happened."""

    def __init__(self, retries=3):
        super().__init__()
        self.retries = retries
        self.in_flight = 0
        self.log = {"ok": 0, "retry": 0, "failed": 0}

    def request(self, x, attempt):
        if x < 0:
            raise ValueError("negative request")
        if x > 10 * (attempt + 1):
            raise TransientError("overloaded")
        return x / (attempt + 1)

    def forward(self, x):
        self.in_flight += 1
        try:
            for attempt in range(self.retries):
                try:
                    y = self.request(x, attempt)
                except TransientError:
                    self.log["retry"] += 1
                    if attempt == self.retries - 1:
                        self.log["failed"] += 1
                        raise
                else:
                    self.log["ok"] += 1
                    return y, attempt, self.log["retry"]
        finally:
            self.in_flight -= 1


program(T(4.0), T(25.0), T(100.0), T(-1.0), T(15.0))(Client)


def windows(x, size, step):
    start = 0
    while start + size <= x.shape[0]:
        yield start, x[start : start + size]
        start += step


def active(pairs, threshold):
    for start, w in pairs:
        energy = (w * w).mean()
        if energy > threshold:
            yield start, energy


@program((seeded(8), T(0.5)), (torch.zeros(8), T(0.1)), (torch.ones(8), T(0.5)), (seeded(8, seed=9), T(1.0)))
def voiced_segments(x, threshold):
    segments = []
    for start, energy in active(windows(x, 4, 2), threshold):
        if segments and start - segments[-1][1] <= 0:
            segments[-1] = (segments[-1][0], start + 4)
        else:
            segments.append((start, start + 4))
    longest = max((b - a for a, b in segments), default=0)
    covered = sum(b - a for a, b in segments)
    return longest, covered, len(segments)


class Decision(enum.Enum):
    HOLD = "hold"
    BUY = "buy"
    SELL = "sell"


@dataclass
class Portfolio:
    cash: float = 10.0
    shares: int = 0
    trades: list = field(default_factory=list)

    def apply(self, decision, price):
        if decision is Decision.BUY:
            if self.cash < price:
                raise ValueError("insufficient funds")
            self.cash -= price
            self.shares += 1
        elif decision is Decision.SELL:
            if self.shares == 0:
                raise ValueError("nothing to sell")
            self.cash += price
            self.shares -= 1
        if decision is not Decision.HOLD:
            self.trades.append(price)


def decide(fast, slow):
    if fast > slow * 1.01:
        return Decision.BUY
    if fast < slow * 0.99:
        return Decision.SELL
    return Decision.HOLD


@program(
    T([1.0, 2.0, 3.0, 2.0, 1.0]),
    T([5.0, 4.0, 3.0, 2.0, 1.0]),
    T([1.0, 1.0, 1.0, 1.0, 1.0]),
    T([4.0, 6.0, 9.0, 12.0, 20.0]),
)
def backtest(prices):
    p = Portfolio()
    fast = slow = prices[0]
    skipped = 0
    for price in prices[1:]:
        fast = 0.5 * fast + 0.5 * price
        slow = 0.9 * slow + 0.1 * price
        try:
            p.apply(decide(fast, slow), price)
        except ValueError as error:
            skipped += 1 if "funds" in str(error) else 10
    return p.cash + p.shares * prices[-1], p.shares, skipped, len(p.trades)


class ParseResult(NamedTuple):
    value: int
    pos: int
    ok: bool


@program(
    T([1, 10, 2, 11, 3]),
    T([1, 11, 2, 10, 3]),
    T([12, 1, 10, 2, 13]),
    T([10, 1, 2, 3, 4]),
    T([12, 1, 10, 2, 3]),
    T([5, 13, 5, 5, 5]),
)
def expression_parser(tokens):
    """Recursive descent; 10 is +, 11 is *, 12 and 13 are parentheses, others are digits."""
    toks = tokens.tolist()

    def peek(i):
        return toks[i] if i < len(toks) else -1

    def factor(i, depth):
        t = peek(i)
        if t == 12 and depth > 0:
            inner = expr(i + 1, depth - 1)
            if not inner.ok or peek(inner.pos) != 13:
                return ParseResult(0, i, False)
            return ParseResult(inner.value, inner.pos + 1, True)
        if 0 <= t < 10:
            return ParseResult(t, i + 1, True)
        return ParseResult(0, i, False)

    def term(i, depth):
        left = factor(i, depth)
        while left.ok and peek(left.pos) == 11:
            right = factor(left.pos + 1, depth)
            left = ParseResult(left.value * right.value, right.pos, right.ok)
        return left

    def expr(i, depth):
        left = term(i, depth)
        while left.ok and peek(left.pos) == 10:
            right = term(left.pos + 1, depth)
            left = ParseResult(left.value + right.value, right.pos, right.ok)
        return left

    result = expr(0, 1)
    if not result.ok:
        raise SyntaxError("cannot parse")
    return result.value, result.pos == len(toks)


def make_counter(limit):
    count = 0
    resets = 0

    def step(amount):
        nonlocal count, resets
        count += amount
        if count >= limit:
            count = 0
            resets += 1
            return True
        return False

    def read():
        return count, resets

    return step, read


@program(T([1, 2, 3, 1]), T([5, 5, 5, 5]), T([0, 0, 0, 0]), T([-3, 1, 9, 0]))
def closures_over_counters(x):
    step, read = make_counter(4)
    fired = [i for i, v in enumerate(x.tolist()) if step(v)]
    count, resets = read()
    return count, resets, sum(fired)


class Transaction:
    """Rolls a table back when its block raises."""

    def __init__(self, table):
        self.table = table

    def __enter__(self):
        self.saved = dict(self.table)
        return self.table

    def __exit__(self, kind, value, tb):
        if kind is not None:
            self.table.clear()
            self.table.update(self.saved)
        return kind is not None and issubclass(kind, ValueError)


class Bank(nn.Module):
    def __init__(self):
        super().__init__()
        self.accounts = {"a": 10.0, "b": 5.0}
        self.rejected = 0

    def forward(self, amount, tax):
        ok = False
        with Transaction(self.accounts) as acc:
            acc["a"] -= float(amount)
            if tax != 0:
                acc["a"] -= 1 / float(tax)
            if acc["a"] < 0:
                raise ValueError("overdrawn")
            acc["b"] += float(amount)
            if acc["b"] > 30:
                raise OverflowError("too rich")
            ok = True
        if not ok:
            self.rejected += 1
        return self.accounts["a"], self.accounts["b"], self.rejected


program((T(3.0), T(1.0)), (T(100.0), T(0.0)), (T(-40.0), T(2.0)), (T(2.0), T(0.0)), (T(5.5), T(8.0)))(Bank)


@program((T([3, 1, 2]), T(2)), (T([0, 0, 0]), T(5)), (T([1, 2, 3]), T(0)), (T([9, 9, 9]), T(-1)))
def hanoi_like_recursion(x, depth):
    """A recursion with a depth that a tensor gives, up to 4."""

    def walk(value, d, level=0):
        if d == 0 or level == 4:
            return value, 1
        if value % 2 == 0:
            v, n = walk(value // 2 + 1, d - 1, level + 1)
        else:
            v, n = walk(3 * value + 1, d - 1, level + 1)
        return v + d, n + 1

    if depth < 0:
        raise RecursionError("depth must not be negative")
    values, calls = zip(*(walk(v, int(depth)) for v in x.tolist()))
    return torch.tensor(values), sum(calls)


class SeededSampler(nn.Module):
    """An LCG for reproducible numbers, and top-k sampling by inverse of the cumulated sum."""

    def __init__(self, seed=17):
        super().__init__()
        self.seed = seed

    def rand(self):
        self.seed = (self.seed * 1103 + 12345) % 65536
        return self.seed / 65536

    def forward(self, logits, k):
        k = int(k)
        if not 1 <= k <= logits.shape[-1]:
            raise ValueError(f"k={k} is out of range")
        values, indices = logits.sort(descending=True)
        probs = F.softmax(values[:k], dim=-1)
        u = self.rand()
        acc = 0.0
        for i in range(k):
            acc += probs[i].item()
            if u < acc:
                return int(indices[i]), u
        return int(indices[k - 1]), u


program(
    (seeded(5), T(3)),
    (seeded(5, seed=1), T(1)),
    (seeded(5, seed=2), T(0)),
    (seeded(5, seed=3), T(5)),
    (torch.zeros(5), T(6)),
)(SeededSampler)


VOCAB = {(): 0, (1,): 1, (2,): 2, (1, 2): 3, (2, 2): 4, (1, 2, 2): 5}
MERGES = {(1, 2): 3, (3, 2): 5, (2, 2): 4, (4, 1): 6}


@program(T([1, 2, 2, 1]), T([2, 2, 2, 2]), T([1, 1, 1, 1]), T([1, 2, 1, 2]), T([2, 2, 1, 0]))
def bpe_encode(ids):
    """Applies the merge of the best rank until none is left."""
    pieces = ids.tolist()
    rounds = 0
    while len(pieces) > 1:
        ranked = [(MERGES.get((a, b), 99), i) for i, (a, b) in enumerate(zip(pieces, pieces[1:]))]
        rank, i = min(ranked)
        if rank == 99:
            break
        pieces = pieces[:i] + [rank] + pieces[i + 2 :]
        rounds += 1
    padded = pieces + [0] * (4 - len(pieces))
    return torch.tensor(padded), rounds


class RoundRobin(nn.Module):
    """Gives each ready task a quantum; finished ones leave the queue."""

    def __init__(self, quantum=2):
        super().__init__()
        self.quantum = quantum
        self.total_switches = 0

    def forward(self, work):
        queue = deque(enumerate(work.tolist()))
        clock = 0
        finished = {}
        for _ in range(12):
            if not queue:
                break
            name, left = queue.popleft()
            if left <= self.quantum:
                clock += max(left, 0)
                finished[name] = clock
            else:
                clock += self.quantum
                queue.append((name, left - self.quantum))
                self.total_switches += 1
        if queue:
            raise TimeoutError("starved")
        return torch.tensor([finished[i] for i in range(3)]), clock, self.total_switches


program(T([3, 1, 4]), T([2, 2, 2]), T([0, -1, 5]))(RoundRobin)


class EMATeacher(nn.Module):
    """A teacher updated by EMA, only when the student is better; warm start on the first call."""

    def __init__(self):
        super().__init__()
        self.student = nn.Parameter(T([1.0, -1.0]))
        self.teacher = None
        self.best = float("inf")
        self.bad = 0

    def forward(self, x, y):
        pred = (self.student * x).sum()
        loss = (pred - y) ** 2
        if not torch.isfinite(loss):
            raise FloatingPointError("loss is not finite")
        if self.teacher is None:
            self.teacher = self.student.detach().clone()
        elif loss < self.best:
            self.teacher = 0.5 * self.teacher + 0.5 * self.student.detach() * loss
        if loss < self.best:
            self.best = loss.item()
            self.bad = 0
        else:
            self.bad += 1
        return (self.teacher * x).sum(), self.best, self.bad


program(
    (T([1.0, 2.0]), T(0.5)),
    (T([1.0, 1.0]), T(1.0)),
    (T([1.0, 1.0]), T(inf)),
    (T([0.0, 0.0]), T(0.1)),
    (T([9.0, 0.0]), T(0.0)),
)(EMATeacher)


class Handler:
    def __init__(self, successor=None):
        self.successor = successor

    def handle(self, x):
        if self.accepts(x):
            return self.process(x)
        if self.successor is None:
            raise LookupError("nobody handles it")
        return self.successor.handle(x)


class Small(Handler):
    def accepts(self, x):
        return x.abs() < 1

    def process(self, x):
        return x * 10, "small"


class Medium(Handler):
    def accepts(self, x):
        return 1 <= x < 10

    def process(self, x):
        return x, "medium"


class Negative(Handler):
    def accepts(self, x):
        return x < -5

    def process(self, x):
        return -x, "negative"


@program(T(0.5), T(3.0), T(-8.0), T(-2.0), T(50.0))
def chain_of_handlers(x):
    chain = Small(Medium(Negative()))
    value, who = chain.handle(x)
    weight = {"small": 1, "medium": 2, "negative": 3}[who]
    return value, weight


@program(T([1, 1, 2, 3, 3, 3]), T([5, 4, 3, 2, 1, 0]), T([7, 7, 7, 7, 7, 7]), T([0, 1, 0, 1, 0, 1]))
def word_counts(ids):
    """Counts, groups by count, and the distinct ids in order of first appearance."""
    counts = Counter(ids.tolist())
    common = counts.most_common(1)[0]
    first_seen = list(dict.fromkeys(ids.tolist()))
    by_count = defaultdict(int)
    for token, n in counts.items():
        by_count[n] += token
    singles = [t for t in first_seen if counts[t] == 1]
    return common[0], common[1], len(first_seen), first_seen[-1], len(singles), by_count[1]


class Stage(enum.IntEnum):
    WARMUP = 0
    TRAIN = 1
    COOLDOWN = 2
    DONE = 3


class Trainer(nn.Module):
    """A schedule as a state machine with transitions in a dict of handlers."""

    def __init__(self):
        super().__init__()
        self.stage = Stage.WARMUP
        self.step = 0
        self.lr = 0.1
        self.handlers = {
            Stage.WARMUP: self.warmup,
            Stage.TRAIN: self.train_step,
            Stage.COOLDOWN: self.cooldown,
        }

    def warmup(self, loss):
        self.lr = min(1.0, self.lr * 2)
        return Stage.TRAIN if self.lr >= 0.4 else Stage.WARMUP

    def train_step(self, loss):
        if loss < 0.1:
            return Stage.COOLDOWN
        if loss > 5:
            self.lr /= 10
        return Stage.TRAIN

    def cooldown(self, loss):
        self.lr *= 0.5
        return Stage.DONE if self.lr < 0.05 else Stage.COOLDOWN

    def forward(self, loss):
        if self.stage == Stage.DONE:
            raise StopIteration("training is over")
        self.stage = self.handlers[self.stage](loss)
        self.step += 1
        return self.lr, int(self.stage), self.step


program(T(1.0), T(2.0), T(9.0), T(0.05), T(1.0), T(1.0), T(1.0))(Trainer)


@dataclass(order=True)
class Cand:
    score: float
    index: int = field(compare=False)


@program(
    (T([0.3, 0.9, 0.1, 0.5]), T(2)),
    (T([1.0, 1.0, 1.0, 1.0]), T(3)),
    (T([0.0, -1.0, -2.0, 3.0]), T(9)),
    (T([1.0, 2.0, 3.0, 4.0]), T(0)),
)
def select_until_mass(scores, k):
    """The best candidates until their mass passes a half, at most k of them."""
    total = sum(max(s, 0.0) for s in scores.tolist())
    if total == 0 or k <= 0:
        return torch.zeros(4, dtype=torch.long), 0.0
    pool = sorted((Cand(s / total, i) for i, s in enumerate(scores.tolist())), reverse=True)
    chosen = torch.zeros(4, dtype=torch.long)
    mass = 0.0
    for rank, c in enumerate(pool, start=1):
        if rank > k or mass > 0.5:
            break
        chosen[c.index] = rank
        mass += c.score
    return chosen, mass


@contextlib.contextmanager
def guarded(stats):
    stats["entered"] += 1
    try:
        yield stats
    except ZeroDivisionError:
        stats["zero"] += 1
    finally:
        stats["left"] += 1


class GuardedRatio(nn.Module):
    def __init__(self):
        super().__init__()
        self.stats = {"entered": 0, "zero": 0, "left": 0}

    def forward(self, a, b):
        out = -1.0
        with guarded(self.stats) as s:
            out = a.item() / b.item()
            if out > 100:
                raise ValueError("ratio too large")
            s["entered"] += int(out > 1)
        return out, self.stats["entered"], self.stats["zero"], self.stats["left"]


program((T(1.0), T(2.0)), (T(4.0), T(2.0)), (T(1.0), T(0.0)), (T(0.0), T(3.0)))(GuardedRatio)


class Patch(NamedTuple):
    mean: torch.Tensor
    kind: int
    children: tuple


def build(x, depth, tol):
    if depth == 0 or x.var(unbiased=False) < tol:
        return Patch(x.mean(), 0, ())
    half = x.shape[0] // 2
    return Patch(x.mean(), 1, (build(x[:half], depth - 1, tol), build(x[half:], depth - 1, tol)))


def leaves(p):
    if not p.children:
        return 1
    return sum(leaves(c) for c in p.children)


@program(
    (seeded(8), T(0.1)),
    (torch.ones(8), T(0.1)),
    (T([0.0, 0, 0, 0, 5, 5, 5, 5]), T(0.1)),
    (T([0.0, 1, 0, 1, 5, 5, 5, 5]), T(0.2)),
)
def adaptive_tree(x, tol):
    """A binary tree that splits where the variance is high; its leaves and its deepest mean."""
    root = build(x, 2, tol)
    node, steps = root, 0
    while node.children:
        node = max(node.children, key=lambda c: c.mean)
        steps += 1
    return leaves(root), node.mean, steps


class Cache(nn.Module):
    """An LRU of results by a quantized key, with hits counted and errors not cached."""

    def __init__(self, size=2):
        super().__init__()
        self.entries = OrderedDict()
        self.size = size
        self.hits = 0

    def compute(self, x):
        if x < 0:
            raise ValueError("domain")
        return math.sqrt(x)

    def forward(self, x):
        key = round(x.item())
        if key in self.entries:
            self.hits += 1
            self.entries.move_to_end(key)
            return self.entries[key], self.hits
        value = self.compute(x.item())
        self.entries[key] = value
        if len(self.entries) > self.size:
            self.entries.popitem(last=False)
        return value, self.hits


program(T(4.0), T(4.2), T(9.0), T(-3.0), T(1.0), T(4.0), T(1.0))(Cache)
