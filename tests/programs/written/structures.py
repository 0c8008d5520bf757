"""Data structures and iterators around tensors: caches, rings, heaps, packers, automata, quantiles."""

# ruff: noqa: RET504, B007, B905  # as people write it

from __future__ import annotations

import enum
import functools
import heapq
import itertools
import math
import operator
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.written import program, seeded

T = torch.tensor


@dataclass(order=True)
class Hypothesis:
    score: float
    tokens: list = field(default_factory=list, compare=False)
    done: bool = field(default=False, compare=False)

    def extend(self, token, logp):
        return Hypothesis(self.score + logp, [*self.tokens, token], token == 0)


@program(seeded(4, 3), seeded(4, 3, seed=3) * 3, T([[9.0, 0.0, 0.0]] * 4))
def beam_search_dataclass(logits):
    beams = [Hypothesis(0.0)]
    for step in F.log_softmax(logits, -1):
        pool = []
        for hyp in beams:
            if hyp.done:
                pool.append(hyp)
                continue
            for token, logp in enumerate(step.tolist()):
                pool.append(hyp.extend(token, logp))
        beams = sorted(pool, reverse=True)[:2]
        if all(h.done for h in beams):
            break
    best = max(beams)
    return torch.tensor(best.score), torch.tensor(len(best.tokens)), torch.tensor(best.tokens[-1])


@program(
    (T([1, 2, 3]), seeded(3, 5).softmax(-1), T([0.9, 0.9, 0.9])),
    (T([0, 4, 1]), seeded(3, 5, seed=2).softmax(-1), T([0.01, 0.01, 0.01])),
    (T([0, 4, 1]), seeded(3, 5, seed=4).softmax(-1), T([0.01, 0.5, 0.2])),
)
def speculative_decoding_step(draft, probs, u):
    accepted = []
    for i, token in enumerate(draft.tolist()):
        if u[i] <= probs[i, token]:
            accepted.append(token)
        else:
            residual = probs[i].clone()
            residual[token] = 0
            accepted.append(residual.argmax().item())
            break
    else:
        accepted.append(probs[-1].argmax().item())
    out = torch.full((4,), -1)
    out[: len(accepted)] = torch.tensor(accepted)
    return out, torch.tensor(len(accepted))


class SinkCache(nn.Module):
    """Keeps the first key as a sink and evicts the one with the least attention."""

    def __init__(self, room=4):
        super().__init__()
        self.room = room
        self.register_buffer("keys", torch.zeros(room, 2))
        self.register_buffer("mass", torch.zeros(room))
        self.used = 0
        self.evictions = 0

    def forward(self, q):
        if self.used < self.room:
            slot = self.used
            self.used += 1
        else:
            slot = 1 + self.mass[1:].argmin().item()
            self.evictions += 1
        self.keys[slot] = q
        self.mass[slot] = 0.0
        w = torch.softmax(self.keys[: self.used] @ q, 0)
        self.mass[: self.used] += w
        return w @ self.keys[: self.used], torch.tensor([slot, self.evictions])


program(*[seeded(2, seed=i) for i in range(6)])(SinkCache)


class CapacityMoE(nn.Module):
    """Top-1 routing where an expert that is full drops the token, which goes on by the residual."""

    def __init__(self, experts=3, capacity=2):
        super().__init__()
        torch.manual_seed(1)
        self.router = nn.Linear(4, experts)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(experts))
        self.capacity = capacity
        self.dropped = 0

    def forward(self, x):
        gates = self.router(x).softmax(-1)
        load = [0] * len(self.experts)
        out = x.clone()
        for i, (p, e) in enumerate(zip(*gates.max(-1))):
            e = int(e)
            if load[e] >= self.capacity:
                self.dropped += 1
                continue
            load[e] += 1
            out[i] += p * self.experts[e](x[i])
        return out, torch.tensor(load), self.dropped


program(seeded(5, 4), torch.ones(5, 4), seeded(5, 4, seed=7))(CapacityMoE)


class PonderNet(nn.Module):
    def __init__(self, max_steps=5):
        super().__init__()
        torch.manual_seed(4)
        self.cell = nn.GRUCell(3, 3)
        self.lam = nn.Linear(3, 1)
        self.max_steps = max_steps

    def forward(self, x):
        h = x.new_zeros(1, 3)
        left, outputs, probs = 1.0, [], []
        for n in range(1, self.max_steps + 1):
            h = self.cell(x[None], h)
            lam = 1.0 if n == self.max_steps else torch.sigmoid(self.lam(h)).item()
            outputs.append(h[0])
            probs.append(left * lam)
            left *= 1 - lam
            if left < 0.2:
                break
        p = torch.tensor(probs)
        return (p[:, None] * torch.stack(outputs)).sum(0), p.sum(), n


program(seeded(3), seeded(3, seed=1) * 10, T([0.0, 0.0, 0.0]))(PonderNet)


class StepRejected(Exception):
    def __init__(self, error):
        super().__init__(f"error {error}")
        self.error = error


@program(T([1.0, 0.0]), T([0.0, 0.0]), T([-3.0, 50.0]))
def ode_with_rejection_exception(y):
    def f(t, y):
        return torch.stack([y[1], -y[0]])

    def step(t, y, h, tol=1e-2):
        k1 = f(t, y)
        k2 = f(t + h, y + h * k1)
        error = (h * (k2 - k1) / 2).abs().max()
        if error > tol:
            raise StepRejected(error)
        return y + h * (k1 + k2) / 2

    t, h, rejected = 0.0, 0.4, 0
    while t < 1.0 - 1e-6 and rejected < 12:
        try:
            y = step(t, y, min(h, 1.0 - t))
        except StepRejected:
            h = 0.5 * h
            rejected += 1
        else:
            t += min(h, 1.0 - t)
            h *= 1.5
    return y, torch.tensor(rejected)


@program((T(2.0), T(1.0)), (T(9.0), T(0.0)), (T(-1.0), T(1.0)), (T(1e6), T(3.0)))
def newton_falls_back_to_bisection(a, start):
    def newton(x):
        for _ in range(8):
            d = 2 * x
            if d == 0:
                raise ZeroDivisionError("flat")
            new = x - (x * x - a) / d
            if abs(new - x) < 1e-5:
                return new
            x = new
        raise ArithmeticError("no convergence")

    try:
        root, how = newton(start), 0
    except ArithmeticError as e:
        how = 1 if isinstance(e, ZeroDivisionError) else 2
        lo, hi = torch.zeros(()), a.abs() + 1
        while hi - lo > 1e-4 * hi:
            mid = (lo + hi) / 2
            lo, hi = (mid, hi) if mid * mid < a else (lo, mid)
        root = lo
    return root, torch.tensor(how)


@dataclass
class EMA:
    decay: float
    value: float | None = None

    def __call__(self, x):
        self.value = x if self.value is None else self.decay * self.value + (1 - self.decay) * x
        return self.value


class PlateauTrainer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ema = EMA(0.5)
        self.best = math.inf
        self.bad = 0
        self.lr = 1.0

    def forward(self, loss):
        smooth = self.ema(loss.item())
        if math.isnan(smooth):
            raise FloatingPointError("loss is NaN")
        if smooth < self.best * 0.95:
            self.best, self.bad = smooth, 0
        elif (bad := self.bad + 1) >= 2:
            self.lr, self.bad = max(self.lr * 0.5, 0.1), 0
        else:
            self.bad = bad
        return torch.tensor([smooth, self.best, self.lr])


program(T(4.0), T(4.0), T(4.0), T(1.0), T(9.0))(PlateauTrainer)


class RingBuffer:
    def __init__(self, size):
        self.data = torch.zeros(size)
        self.head = 0
        self.count = 0

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        if i < 0:
            i += len(self)
        return self.data[(self.head - self.count + i) % len(self.data)]

    def __setitem__(self, i, value):
        self.data[(self.head - self.count + i) % len(self.data)] = value

    def push(self, v):
        self.data[self.head % len(self.data)] = v
        self.head += 1
        self.count = min(self.count + 1, len(self.data))


class Smoother(nn.Module):
    def __init__(self):
        super().__init__()
        self.ring = RingBuffer(3)

    def forward(self, x):
        self.ring.push(x)
        if x < 0:
            self.ring[0] = -x
        if len(self.ring) > 2 and self.ring[-1] > self.ring[-3]:
            return self.ring[-1] - self.ring[-3]
        return self.ring[-1] * 1.0


program(T(1.0), T(2.0), T(-3.0), T(5.0))(Smoother)


@program((T([5.0, 1.0, 9.0, 3.0, 7.0]), T(0.5)), (T([1.0, 1.0, 1.0, 2.0, 0.0]), T(0.9)))
def running_median_two_heaps(x, q):
    low, high, medians = [], [], []
    for v in x.tolist():
        heapq.heappush(low, -v)
        heapq.heappush(high, -heapq.heappop(low))
        if len(high) > len(low):
            heapq.heappush(low, -heapq.heappop(high))
        medians.append(-low[0] if len(low) > len(high) else (high[0] - low[0]) / 2)
    above = sum(m > q.item() for m in medians)
    return torch.tensor(medians), torch.tensor(above)


@program((T([4.0, 2.0, 7.0, 1.0, 3.0]), T(3)), (T([1.0, 2.0, 3.0, 4.0, 5.0]), T(2)), (T([5.0] * 5), T(9)))
def sliding_window_maximum(x, k):
    window, out = deque(), []
    for i, v in enumerate(x):
        while window and x[window[-1]] <= v:
            window.pop()
        window.append(i)
        if window[0] <= i - k:
            window.popleft()
        if i >= k - 1:
            out.append(x[window[0]])
    return torch.stack(out) if out else torch.zeros(0)


@program((seeded(5, 3), seeded(3, 3, seed=1), T(5)), (seeded(5, 3, seed=2), seeded(3, 3, seed=3), T(2)))
def crf_decode_with_length(emissions, transitions, length):
    score, history = emissions[0], []
    for t in range(1, length.item()):
        total = score[:, None] + transitions
        best, back = total.max(0)
        history.append(back)
        score = best + emissions[t]
    tag = int(score.argmax())
    path = [tag]
    for back in reversed(history):
        tag = back[tag].item()
        path.append(tag)
    path.reverse()
    return torch.tensor(path), score.max()


class Node:
    def __init__(self, i):
        self.parent, self.rank = i, 0


@program(
    (T([[0, 1], [2, 3], [1, 3]]), T([1, 1, 1])),
    (T([[0, 1], [0, 1], [4, 3]]), T([1, 1, 1])),
    (T([[0, 1], [1, 2], [0, 2]]), T([0, 1, 0])),
)
def union_find_by_rank(edges, keep):
    nodes = [Node(i) for i in range(5)]

    def find(i):
        while nodes[i].parent != i:
            nodes[i].parent = nodes[nodes[i].parent].parent
            i = nodes[i].parent
        return i

    merges = 0
    for (a, b), k in zip(edges.tolist(), keep):
        if not k:
            continue
        ra, rb = find(a), find(b)
        if ra == rb:
            continue
        if nodes[ra].rank < nodes[rb].rank:
            ra, rb = rb, ra
        nodes[rb].parent = ra
        if nodes[ra].rank == nodes[rb].rank:
            nodes[ra].rank += 1
        merges += 1
    return torch.tensor([find(i) for i in range(5)]), torch.tensor(merges)


@program(T([3, 1, 2, 1, 2, 0]), T([1, 2, 1, 2, 1, 2]), T([0, 0, 0, 0, 0, 0]))
def byte_pair_merges(ids):
    merges = {(1, 2): 5, (5, 5): 6, (0, 0): 7}
    tokens = ids.tolist()
    while len(tokens) > 1:
        pair = min(itertools.pairwise(tokens), key=lambda p: merges.get(p, 99))
        if pair not in merges:
            break
        merged, i = [], 0
        while i < len(tokens):
            if i + 1 < len(tokens) and (tokens[i], tokens[i + 1]) == pair:
                merged.append(merges[pair])
                i += 2
            else:
                merged.append(tokens[i])
                i += 1
        tokens = merged
    return torch.tensor(len(tokens)), torch.tensor(tokens[0])


class Gait(enum.Enum):
    IDLE = enum.auto()
    WALK = enum.auto()
    RUN = enum.auto()


class GaitMachine(nn.Module):
    def __init__(self):
        super().__init__()
        self.state = Gait.IDLE
        self.since = 0

    def forward(self, speed):
        before = self.state
        match (self.state, speed.item()):
            case (Gait.IDLE, v) if v > 0.1:
                self.state = Gait.WALK
            case (Gait.WALK, v) if v > 2:
                self.state = Gait.RUN
            case (Gait.WALK | Gait.RUN, v) if v <= 0.1:
                self.state = Gait.IDLE
            case (Gait.RUN, v) if v < 1.5:
                self.state = Gait.WALK
        self.since = self.since + 1 if self.state is before else 0
        return torch.tensor([self.state.value, self.since])


program(T(0.0), T(1.0), T(3.0), T(3.0), T(0.0))(GaitMachine)


@program(T([3, 2, 5, 1]), T([6, 6, 6, 6]), T([1, 1, 1, 1]), T([7, 1, 1, 1]))
def pack_sequences(lengths):
    bins = []
    for n in sorted(lengths.tolist(), reverse=True):
        if n > 6:
            raise ValueError("sequence is longer than a bin")
        for i, room in enumerate(bins):
            if room >= n:
                bins[i] -= n
                break
        else:
            bins.append(6 - n)
    return torch.tensor(len(bins)), torch.tensor(bins).sum()


class LRUCache(nn.Module):
    def __init__(self, capacity=2):
        super().__init__()
        self.capacity = capacity
        self.table = OrderedDict()
        self.hits = self.misses = 0

    def forward(self, key):
        k = key.item()
        if k in self.table:
            self.table.move_to_end(k)
            self.hits += 1
        else:
            self.misses += 1
            self.table[k] = k * k
            if len(self.table) > self.capacity:
                self.table.popitem(last=False)
        return torch.tensor([self.table[k], self.hits, self.misses])


program(T(1), T(2), T(1), T(3), T(2))(LRUCache)


@program(T([1.0, -2.0, 3.0, -4.0]), T([1.0, 2.0, 3.0, 4.0]), T([-1.0, -1.0, -1.0, -1.0]))
def nonlocal_counters(x):
    flips = 0
    last = None

    def visit(v):
        nonlocal flips, last
        sign = v > 0
        if last is not None and sign != last:
            flips += 1
        last = sign
        return v if sign else v.abs() / (flips + 1)

    out = torch.stack([visit(v) for v in x])
    return out, torch.tensor(flips)


@program(T([1.0, 2.0, 3.0, 4.0, 5.0]), T([-1.0, 2.0, -3.0, 4.0, -5.0]), T([0.0] * 5))
def generator_pipeline(x):
    def positives(items):
        for v in items:
            if v > 0:
                yield v

    def windows(items, n=2):
        buffer = []
        for v in items:
            buffer.append(v)
            if len(buffer) == n:
                yield sum(buffer)
                buffer.pop(0)

    best = max(windows(positives(x)), default=torch.zeros(()))
    return best


class GradScaler:
    def __init__(self):
        self._scale = 8.0
        self.good = 0

    @property
    def scale(self):
        return self._scale

    @scale.setter
    def scale(self, value):
        self._scale = min(max(value, 1.0), 32.0)

    def __enter__(self):
        self.found = False
        return self

    def unscale(self, g):
        if not torch.isfinite(g).all():
            self.found = True
            return torch.zeros_like(g)
        return g / self.scale

    def __exit__(self, *exc):
        if self.found:
            self.scale /= 2
            self.good = 0
        else:
            self.good += 1
            if self.good == 2:
                self.scale *= 2
                self.good = 0


class ScaledStep(nn.Module):
    def __init__(self):
        super().__init__()
        self.scaler = GradScaler()

    def forward(self, g):
        with self.scaler as s:
            step = s.unscale(g)
        return step, torch.tensor(self.scaler.scale)


program(T([8.0, 4.0]), T([8.0, 4.0]), T([float("inf"), 1.0]), T([1.0, 1.0]))(ScaledStep)


@program(T([3.0, 1.0, 2.0]), T([0.0, 0.0, 0.0]), T([-1.0, 5.0, -1.0]))
def stats_by_name(x):
    stats = {"min": x.min, "max": x.max, "mean": x.mean}
    values = {name: f().item() for name, f in stats.items()}
    active = {name for name, v in values.items() if v > 0}
    total = sum((v for name, v in values.items() if name in active), 0.0)
    if "min" not in active and (spread := values["max"] - values["min"]) > 2:
        total += spread
    return torch.tensor(total), torch.tensor(len(active))


@program(T([0.5, 0.3, 0.2]), T([0.9, 0.05, 0.05]), T([0.0, 0.0, 1.0]))
def early_returns_of_structures(p):
    def decide(p):
        top, rest = p.max(), p.sum() - p.max()
        if top > 0.95:
            return "sure", (p.argmax(), top)
        if rest > 0.4:
            return "unsure", (torch.tensor(-1), rest)
        return "likely", (p.argmax(), top - rest)

    verdict, (index, margin) = decide(p)
    bonus = {"sure": 2.0, "likely": 1.0}.get(verdict, 0.0)
    return index, margin + bonus


@program(T([1.0, 1.5, 3.0, 10.0]), T([1.0, 1.0, 1.0, 1.0]), T([-4.0, 0.0, 4.0, 0.0]))
def recursive_split(x):
    def split(v, depth):
        if depth == 0 or len(v) < 2 or v.max() - v.min() < 1.0:
            return v.mean() * torch.ones(len(v)), 1
        half = len(v) // 2
        left, n = split(v[:half], depth - 1)
        right, m = split(v[half:], depth - 1)
        return torch.cat([left, right]), n + m

    y, leaves = split(x, 2)
    return y, torch.tensor(leaves)


@program((seeded(4, 4), T(0.0)), (seeded(4, 4, seed=1), T(1.0)), (torch.eye(4), T(5.0)))
def gauss_seidel_in_place(a, threshold):
    m = a.clone()
    for i in range(4):
        row = m[i]
        if row.abs().max() < threshold:
            row.zero_()
            continue
        col = m[:, i]
        col[i:] -= row[i].clone()
        m.diagonal().add_(1.0)
    torch.where(m > threshold, m, torch.zeros(()), out=m)
    m[m < -1] = -1.0
    return m


@program((T([0, 2, 2, 1]), T([1.0, 2.0, 3.0, 4.0])), (T([0, 0, 0, 0]), T([1.0, -2.0, 3.0, -4.0])))
def scatter_until_full(index, values):
    table, hits = torch.zeros(3), torch.zeros(3, dtype=torch.long)
    for step in range(3):
        table.index_put_((index,), values / (step + 1), accumulate=True)
        hits.index_add_(0, index, torch.ones_like(index))
        if (full := hits >= 3).any():
            table[full] = table[full].clamp(max=5.0)
            break
    return table, hits, torch.tensor(step)


@program(T([1.0, 2.0]), T([-1.0, 2.0]), T([-1.0, -2.0]))
def short_circuit_side_effects(x):
    log = []

    def check(v, name):
        log.append(name)
        return bool(v > 0)

    ok = (check(x[0], 1) and check(x[1], 2)) or check(-x[0], 3)
    count = len(log)
    return torch.tensor(ok), torch.tensor(count), torch.tensor(sum(log))


@program(T([1.0, 2.0, -1.0, 3.0]), T([-1.0, 2.0, 1.0, 3.0]), T([1.0, 1.0, 1.0, 1.0]))
def iterator_in_two_parts(x):
    it = iter(x.tolist())
    head = sum(itertools.takewhile(lambda v: v > 0, it), 0.0)
    tail = [v * 2 for v in it]
    return torch.tensor(head), torch.tensor(len(tail)), torch.tensor(sum(tail, 0.0))


@program(
    (T([1, 2, 0, 0]), T([3, 4, 5, 0])), (T([0, 2, 1, 0]), T([0, 0, 0, 0])), (T([1, 1, 1, 1]), T([2, 2, 2, 2]))
)
def zip_longest_of_trimmed(a, b):
    def trim(row):
        tokens = row.tolist()
        while tokens and tokens[-1] == 0:
            tokens.pop()
        return tokens

    total, unequal = 0, 0
    for p, q in itertools.zip_longest(trim(a), trim(b), fillvalue=-1):
        total += p * q
        unequal += p != q
    return torch.tensor(total), torch.tensor(unequal)


@program(T([0.2, 0.5, 0.4, 0.1]), T([1.0, 0.0, 0.0, 0.0]), T([0.1, 0.1, 0.1, 0.1]))
def accumulate_and_pairwise(p):
    for i, c in enumerate(itertools.accumulate(p.tolist(), operator.add)):
        if c >= 0.6:
            break
    drops = [b - a for a, b in itertools.pairwise(p.tolist()) if b < a]
    clamp = functools.partial(torch.clamp, min=-0.2)
    worst = functools.reduce(min, drops, 0.0)
    return torch.tensor(i), clamp(torch.tensor(worst)), torch.tensor(len(drops))


class Event(NamedTuple):
    time: float
    kind: int
    payload: torch.Tensor


@program(T([3.0, 1.0, 2.0]), T([1.0, 1.0, 1.0]), T([9.0, -1.0, 0.5]))
def event_simulation(times):
    queue = [Event(t, i, times * i) for i, t in enumerate(times.tolist())]
    queue.sort(key=operator.attrgetter("time"))
    clock, total, handled = 0.0, torch.zeros(3), 0
    for event in queue:
        if event.time < clock:
            continue
        clock = event.time + 0.75
        match event:
            case Event(kind=0):
                total = total + 1
            case Event(_, kind, payload) if kind > 1:
                total = total - payload
            case _:
                total = total * 2
        handled += 1
    return total, torch.tensor([clock, float(handled)])
