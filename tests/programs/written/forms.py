"""Values of another form on each path, objects made anew, generators that return, and state that grows."""

# ruff: noqa: B007, B905, E731, RET504, RUF005  # as people write it

from __future__ import annotations

import dataclasses
import enum
import functools
import heapq
import itertools
import math
import operator
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn

from tests.programs.written import program, seeded

T = torch.tensor


@dataclass(order=True)
class Hyp:
    score: float
    tokens: list = field(compare=False, default_factory=list)

    def extend(self, token, logp):
        return Hyp(self.score + logp, [*self.tokens, token])


@program(seeded(3, 4), seeded(3, 4, seed=5), torch.zeros(3, 4))
def beam_search_hypotheses(logits):
    beams = [Hyp(0.0)]
    for step in logits.log_softmax(-1):
        values, ids = step.topk(2)
        candidates = [h.extend(i, v) for h in beams for v, i in zip(values.tolist(), ids.tolist())]
        beams = heapq.nlargest(2, candidates, key=lambda h: h.score)
    best = max(beams)
    return torch.tensor(best.tokens), torch.tensor(best.score)


@program(T([1, 1, 0, 2, 2, 0]), T([0, 0, 0, 0, 0, 0]), T([3, 1, 1, 3, 3, 1]))
def ctc_groupby(path):
    best = [k for k, _ in itertools.groupby(path.tolist()) if k != 0]
    padded = best + [-1] * (6 - len(best))
    return torch.tensor(padded), torch.tensor(len(best))


@dataclass
class ODEState:
    t: float
    y: torch.Tensor
    h: float
    stats: dict = field(default_factory=lambda: {"accepted": 0, "rejected": 0})


@program(T([1.0, 0.0]), T([10.0, -3.0]), T([0.0, 0.0]))
def rk23_state(y0):
    def f(y):
        return torch.stack([y[1], -4.0 * y[0]])

    state = ODEState(0.0, y0, 0.3)
    while state.t < 1.0:
        state.h = min(state.h, 1.0 - state.t)
        k1 = f(state.y)
        k2 = f(state.y + state.h / 2 * k1)
        k3 = f(state.y + state.h * (2 * k2 - k1))
        y_new = state.y + state.h / 6 * (k1 + 4 * k2 + k3)
        err = torch.linalg.norm(y_new - (state.y + state.h * k2)).item()
        if err < 0.2:
            state = dataclasses.replace(state, t=state.t + state.h, y=y_new)
            state.stats["accepted"] += 1
        else:
            state.stats["rejected"] += 1
        factor = 0.9 * math.sqrt(0.2 / max(err, 1e-6))
        state.h *= min(2.0, max(0.3, factor))
        if state.stats["accepted"] + state.stats["rejected"] > 30:
            break
    return state.y, torch.tensor([state.stats["accepted"], state.stats["rejected"]])


class Mode(enum.Enum):
    IDLE = enum.auto()
    ACTIVE = enum.auto()
    COOLDOWN = enum.auto()

    def next(self, loud):
        if self is Mode.IDLE:
            return Mode.ACTIVE if loud else Mode.IDLE
        if self is Mode.ACTIVE:
            return Mode.ACTIVE if loud else Mode.COOLDOWN
        return Mode.IDLE


@program(
    T([0.1, 3.0, 3.0, 0.1, 0.1, 0.1]), T([0.0, 0.0, 0.0, 0.0, 0.0, 0.0]), T([5.0, 0.0, 5.0, 0.0, 0.0, 5.0])
)
def vad_modes(energy):
    mode = Mode.IDLE
    segments, start = [], None
    for t, e in enumerate(energy):
        new = mode.next(e > 1.0)
        if new is Mode.ACTIVE and mode is not Mode.ACTIVE:
            start = t
        elif mode is Mode.ACTIVE and new is Mode.COOLDOWN:
            segments.append((start, t))
            start = None
        mode = new
    total = sum(b - a for a, b in segments)
    return torch.tensor(total), torch.tensor(len(segments)), torch.tensor(mode.value)


class Level(enum.IntEnum):
    LOW = 0
    MID = 1
    HIGH = 2


class Escalation(nn.Module):
    def __init__(self):
        super().__init__()
        self.level = Level.LOW

    def forward(self, loss):
        if loss > 1.0 and self.level < Level.HIGH:
            self.level = Level(self.level + 1)
        elif loss < 0.1:
            self.level = Level.LOW
        scale = {Level.LOW: 1.0, Level.MID: 0.5, Level.HIGH: 0.1}[self.level]
        return loss * scale, torch.tensor(int(self.level))


program(T(2.0), T(2.0), T(0.5), T(0.01))(Escalation)


def _bisect_steps(lo, hi, f):
    steps = 0
    while hi - lo > 0.1 and steps < 10:
        mid = (lo + hi) / 2
        if f(mid) > 0:
            hi = mid
        else:
            lo = mid
        steps += 1
        yield mid
    return steps


@program(T(2.0), T(0.3), T(7.0))
def traced_bisection(target):
    def run():
        steps = yield from _bisect_steps(torch.zeros(()), torch.full((), 4.0), lambda m: m * m - target)
        yield torch.tensor(float(steps))

    visited = list(run())
    return torch.stack(visited).sum(), torch.tensor(len(visited))


@dataclass
class Scale:
    by: float


@dataclass
class Shift:
    by: float
    wrap: bool = False


@program(T([1.0, 2.0]), T([-1.0, 0.5]), T([9.0, 9.0]))
def apply_command(x):
    def decide(x):
        if x.sum() > 10:
            return Shift(float(x.max()), wrap=True)
        if x.min() < 0:
            return Shift(1.5)
        return Scale(3.0)

    match decide(x):
        case Scale(by=s):
            return x * s
        case Shift(by=s, wrap=True):
            return (x + s) % 10
        case Shift(by=s):
            return x + s


@program((T(1), T([1.0, 2.0])), (T(7), T([1.0, 2.0])), (T(30), T([1.0, 2.0])))
def scheduled(step, x):
    def warmup(base, s):
        return base * s / 5

    def decay(base, s, *, gamma=0.9):
        return base * gamma ** (s - 5)

    rule = functools.partial(warmup, 0.5) if step < 5 else functools.partial(decay, 0.5, gamma=0.8)
    lr = rule(step.item())
    total = functools.reduce(operator.mul, x.tolist(), 1.0)
    return x * lr, torch.tensor(total)


@program(T([1.0, 2.0, 3.0]), T([3.0, 2.0, 1.0]), T([0.0, 0.0, 0.0]))
def star_dispatch(x):
    def clip(v, lo=-1.0, hi=1.0):
        return v.clamp(lo, hi)

    def affine(v, scale, *shifts, gain=1.0):
        return gain * (scale * v + sum(shifts))

    first, *rest = x.tolist()
    if first > sum(rest) / 2:
        args, kwargs = (2.0, 0.5, 0.25), {"gain": 0.5}
    else:
        args, kwargs = (1.0,), {}
    y = affine(x, *args, **kwargs)
    return clip(y, **({"hi": 2.0} if first > 2 else {}))


class NamedStats(nn.Module):
    def __init__(self):
        super().__init__()
        self.sums = {f"bucket_{i}": 0.0 for i in range(3)}

    def forward(self, x):
        for v in x.tolist():
            i = 0 if v < 0 else 1 if v < 1 else 2
            self.sums[f"bucket_{i}"] += v
        return torch.tensor([self.sums[k] for k in sorted(self.sums)])


program(T([-1.0, 0.5, 3.0]), T([0.2, 0.3, 0.4]), T([5.0, -5.0, 0.0]))(NamedStats)


class ReplayBuffer(nn.Module):
    def __init__(self, size=3):
        super().__init__()
        self.size = size
        self.storage = []
        self.cursor = 0

    def push(self, item):
        if len(self.storage) < self.size:
            self.storage.append(item)
        else:
            self.storage[self.cursor] = item
        self.cursor = (self.cursor + 1) % self.size

    def forward(self, obs, reward):
        if reward > 0:
            self.push((obs, reward))
        if len(self.storage) == 0:
            return torch.zeros_like(obs), torch.zeros(())
        best = max(self.storage, key=lambda item: item[1])
        return best


program((T([1.0, 2.0]), T(1.0)), (T([3.0, 4.0]), T(-1.0)), (T([5.0, 6.0]), T(3.0)), (T([0.0, 1.0]), T(2.0)))(
    ReplayBuffer
)


class LossGuard(nn.Module):
    def __init__(self):
        super().__init__()
        self.history = deque(maxlen=3)
        self.strikes = 0

    def forward(self, loss):
        value = loss.item()
        if not math.isfinite(value):
            self.strikes += 1
            if self.strikes >= 2:
                raise FloatingPointError(
                    f"loss is {value} after {self.strikes} strikes: {list(self.history)}"
                )
            return loss.new_zeros(())
        self.strikes = 0
        if len(self.history) == 3 and value > 2 * (sum(self.history) / 3):
            value = max(self.history)
        self.history.append(value)
        return torch.tensor(value)


program(T(1.0), T(1.2), T(0.8), T(9.0), T(float("nan")), T(float("inf")))(LossGuard)


@dataclass
class Tracklet:
    id: int
    pos: float
    misses: int = 0


class GreedyTracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.tracks = [Tracklet(i, float(i * 3)) for i in range(2)]
        self.switches = 0

    def forward(self, detections):
        free = detections.tolist()
        used = set()
        for track in self.tracks:
            best, best_d = None, 1.5
            for i, d in enumerate(free):
                if i in used:
                    continue
                if abs(d - track.pos) < best_d:
                    best, best_d = i, abs(d - track.pos)
            if best is None:
                track.misses += 1
            else:
                used.add(best)
                track.pos = 0.5 * track.pos + 0.5 * free[best]
                track.misses = 0
        return (
            torch.tensor([t.pos for t in self.tracks]),
            torch.tensor([t.misses for t in self.tracks]),
            torch.tensor(len(used)),
        )


program(T([0.5, 2.0]), T([9.0, 2.5]), T([0.2, 0.1]))(GreedyTracker)


class LoopState(NamedTuple):
    x: torch.Tensor
    step: int
    loss: float


@program(T([4.0, -4.0]), T([0.01, 0.0]), T([100.0, 1.0]))
def descent_namedtuple(x):
    state = LoopState(x, 0, float("inf"))
    lr = 0.3
    while state.step < 20:
        loss = (state.x**2).sum().item()
        if abs(state.loss - loss) < 1e-3 or loss < 1e-2:
            break
        state = state._replace(x=state.x - lr * 2 * state.x, step=state.step + 1, loss=loss)
    return state.x, torch.tensor(state.step), torch.tensor(state.loss)


@program(seeded(3, 3), torch.zeros(3, 3), seeded(3, 3, seed=4))
def greedy_assignment(cost):
    rows, cols = set(range(3)), set(range(3))
    pairs = []
    while rows and cols:
        best = None
        for r in sorted(rows):
            for c in sorted(cols):
                if best is None or cost[r, c] < cost[best[0], best[1]]:
                    best = (r, c)
        pairs.append(best)
        rows.remove(best[0])
        cols.remove(best[1])
    return torch.tensor(pairs), sum(cost[r, c] for r, c in pairs)


def secant_iterates(f, x0, x1):
    while True:
        f0, f1 = f(x0), f(x1)
        if abs(f1 - f0) < 1e-9:
            return
        x0, x1 = x1, x1 - f1 * (x1 - x0) / (f1 - f0)
        yield x1


@program(T(2.0), T(9.0), T(0.0))
def secant_root(c):
    f = lambda v: v * v - c
    last = c
    n = 0
    for x in itertools.islice(secant_iterates(f, c + 1, c + 2), 8):
        n += 1
        last = x
        if abs(f(x)) < 1e-3:
            break
    return last, torch.tensor(n)


@program(T([0, 1, 1]), T([2, 2, 2]), T([0, 1, 2]))
def majority_vote(votes):
    counts = Counter(votes.tolist())
    (winner, n), *rest = counts.most_common()
    tie = bool(rest) and rest[0][1] == n
    return torch.tensor(winner), torch.tensor(n), torch.tensor(tie)


class HysteresisByProperty(nn.Module):
    def __init__(self):
        super().__init__()
        self._on = False
        self.transitions = []

    @property
    def on(self):
        return self._on

    @on.setter
    def on(self, value):
        if value != self._on:
            self.transitions = (self.transitions + [value])[-3:]
        self._on = value

    def forward(self, x):
        level = x.mean().item()
        self.on = level > 1.0 if not self.on else level > 0.5
        ups = sum(1 for v in self.transitions if v)
        return x * float(self.on), torch.tensor(ups)


program(T([0.0, 0.1]), T([2.0, 2.0]), T([0.6, 0.6]), T([0.1, 0.2]), T([3.0, 3.0]))(HysteresisByProperty)


@program(T([1, 2, 0, 3]), T([0, 1, 2, 3]), T([5, 6, 7, 8]))
def until_sentinel(x):
    it = iter(x.tolist())
    total = 0
    for v in iter(lambda: next(it, 0), 0):
        total += v
    return torch.tensor(total)


class Retriever(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.eye(3))
        self.answers = {"none": 0.0, "doc0": 1.0, "doc1": 2.0, "doc2": 3.0}
        self.asked = defaultdict(int)

    def forward(self, q):
        scores = self.keys @ q
        best = int(scores.argmax())
        name = f"doc{best}" if scores[best] > 0.5 else "none"
        self.asked[name] += 1
        return torch.tensor(self.answers[name]), torch.tensor(self.asked[name])


program(T([1.0, 0.0, 0.0]), T([0.1, 0.2, 0.1]), T([0.0, 0.2, 0.9]), T([0.0, 0.0, 0.9]))(Retriever)


@program(T([1.0, 2.0, 3.0]), T([-1.0, -2.0, -3.0]))
def changed_inside_of_a_comprehension(x):
    log = []
    if x.sum() > 0:
        [log.append(i) for i in range(3)]
    return torch.tensor(len(log))


@program(T([1.0, -2.0, 3.0]), T([-1.0, -2.0, -3.0]), T([0.0, 0.1, 0.0]))
def key_that_may_be_none(x):
    used, best = {}, None
    for i, v in enumerate(x.tolist()):
        if v > 0:
            best = i
    if best is not None:
        used[best] = 5
    return torch.tensor(len(used))


class Alternating(nn.Module):
    def __init__(self):
        super().__init__()
        self.level = Level.LOW

    def forward(self, x):
        self.level = Level.HIGH if self.level is Level.LOW else Level.LOW
        return x + (5 if self.level is Level.HIGH else 0), torch.tensor(len(self.level.name))


program(T(0.5), T(2.0), T(2.0))(Alternating)


class ExitCounts(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.exits = Counter()

    def forward(self, x):
        for depth, block in enumerate(self.blocks):
            x = torch.tanh(block(x)) * 2
            if x.sum() < 1.0:
                break
        self.exits[depth] += 1
        return x, torch.tensor(self.exits[depth])


program(seeded(4) * 3, seeded(4, seed=1), torch.zeros(4))(ExitCounts)


@program(T([1.0, 2.0, 3.0]), T([-1.0, -2.0, -3.0]), T([1.0, -2.0, 0.5]))
def keys_in_branches(x):
    stats = {}
    if x.sum() > 0:
        stats["a"] = x.max()
    if x[0] > 0:
        stats["b"] = x.min()
    return sum(stats.values()) + torch.zeros(()), torch.tensor(len(stats))


@program(T([1.0, -2.0, 3.0]), T([-1.0, -2.0, -3.0]))
def changed_and_made_anew(x):
    s = [x.sum(), 0]
    while s[0].abs() > 0.3 and s[1] < 9:
        if x[0] > 0:
            s = [s[0] / 2, s[1] + 1]
        else:
            s[0] = s[0] / 3
        s[1] += 1
    return s[0], torch.tensor(s[1])


class Doubling:
    def __init__(self):
        self.by = 2.0

    def apply(self, x):
        return x * self.by


class Advancing:
    def __init__(self):
        self.by = 1.0

    def apply(self, x):
        self.by += 1
        return x + self.by


@program(T([1.0, 2.0]), T([-1.0, -2.0]), T([1.0, 2.0]))
class RulesKept(nn.Module):
    """What the model keeps is changed by one of two objects of other classes."""

    def __init__(self):
        super().__init__()
        self.doubling, self.advancing = Doubling(), Advancing()

    def forward(self, x):
        rule = self.doubling if x.sum() > 0 else self.advancing
        return rule.apply(x), self.advancing.by


@program(T([1.0, 2.0]), T([-1.0, -2.0]))
def asks_whether_it_is_the_list(x):
    found = []
    pair = (x, found)
    if x.sum() > 0:
        pair = (x + 3, found)
    return pair[0], pair[1] is found
