"""Inference loops, streams and estimators, as an engineer writes them for a review."""

# ruff: noqa: B007, B905, E731, N803, N806  # as people write it

from __future__ import annotations

import contextlib
import enum
import functools
import heapq
import itertools
import logging
import math
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import nn

from tests.programs.written import program, seeded

log = logging.getLogger(__name__)
T = torch.tensor
inf, nan = float("inf"), float("nan")


class Draft(NamedTuple):
    token: int
    prob: float


@program(
    (seeded(6, 5), seeded(6, 5, seed=1), T([0.1, 0.9, 0.2, 0.5, 0.7, 0.3])),
    (seeded(6, 5), seeded(6, 5), T([0.1, 0.9, 0.2, 0.5, 0.7, 0.3])),
    (seeded(6, 5, seed=4), -seeded(6, 5, seed=4), T([0.99, 0.9, 0.99, 0.5, 0.7, 0.3])),
)
def speculative_sampling(draft_logits, target_logits, coins):
    """Leviathan et al.: accept a draft with min(1, p/q), else resample from the residual and stop."""
    q = draft_logits.softmax(-1)
    p = target_logits.softmax(-1)
    drafts = [Draft(int(row.argmax()), row.max().item()) for row in q]
    accepted: list[int] = []
    for i, draft in enumerate(drafts):
        ratio = p[i, draft.token].item() / draft.prob
        if coins[i] < min(1.0, ratio):
            accepted.append(draft.token)
        else:
            residual = (p[i] - q[i]).clamp(min=0)
            total = residual.sum()
            if total == 0:
                raise RuntimeError(f"empty residual at position {i}")
            accepted.append(int((residual / total).argmax()))
            break
    else:
        accepted.append(int(p[-1].argmax()))
    padded = accepted + [-1] * (7 - len(accepted))
    return torch.tensor(padded), len(accepted)


GRAMMAR = {
    "start": {0: "number", 1: "open"},
    "open": {0: "number", 1: "open"},
    "number": {2: "start", 3: "close", 4: "end"},
    "close": {3: "close", 4: "end", 2: "start"},
}


class GrammarError(ValueError):
    pass


@program(
    seeded(8, 5),
    seeded(8, 5, seed=3),
    T([[0.0, 9.0, 0.0, 0.0, 0.0]] * 8),
    T([[9.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 9.0]] * 4),
)
def json_like_decode(logits):
    """Mask logits by the state of a grammar, with a depth counter."""
    state, depth, out = "start", 0, []
    for step in logits:
        allowed = dict(GRAMMAR[state])
        if depth == 0:
            allowed.pop(3, None)
        else:
            allowed.pop(4, None)
        mask = torch.full_like(step, -inf)
        mask[list(allowed)] = 0.0
        token = int((step + mask).argmax())
        out.append(token)
        state = allowed[token]
        if token == 1:
            depth += 1
        elif token == 3:
            depth -= 1
        if state == "end":
            break
    if depth != 0:
        raise GrammarError(f"{depth} brackets are left open")
    return sum(t * 5**i for i, t in enumerate(out)), len(out), state == "end"


class Event(NamedTuple):
    t: float
    y: torch.Tensor
    kind: str


@program((T([1.0, 0.0]), T(0.5)), (T([0.2, 3.0]), T(0.5)), (T([1.0, -4.0]), T(0.2)), (T([5.0, 9.0]), T(0.9)))
def bouncing_ball(state, restitution):
    """Integrate until an event, locate it by bisection, apply it, and go on."""

    def step(y, h):
        height, v = y
        return torch.stack([height + h * v - 4.9 * h * h, v - 9.8 * h])

    t, y, h = 0.0, state, 0.1
    bounces = 0
    highest = y[0]
    while t < 1.45 and bounces < 5:
        new = step(y, h)
        if new[0] < 0:
            lo, hi = 0.0, h
            for _ in range(12):
                mid = (lo + hi) / 2
                if step(y, mid)[0] < 0:
                    hi = mid
                else:
                    lo = mid
            y = step(y, lo)
            y = torch.stack([torch.zeros(()), -restitution * y[1]])
            t += lo
            bounces += 1
            if abs(y[1]) < 0.1:
                break
        else:
            y, t = new, t + h
        highest = torch.maximum(highest, y[0])
    return t, y, bounces, highest


@dataclass
class ExitDecision:
    logits: torch.Tensor
    layer: int
    confidence: float
    history: list[float] = field(default_factory=list)


class BudgetedExits(nn.Module):
    """Early exits with a compute budget that is refilled, and a count of exits by layer."""

    def __init__(self, dim=6, depth=4, budget=9):
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.heads = nn.ModuleList(nn.Linear(dim, 3) for _ in range(depth))
        self.budget = budget
        self.left = budget
        self.exits = Counter()

    def decide(self, x):
        best = None
        history = []
        for i, (layer, head) in enumerate(zip(self.layers, self.heads)):
            if self.left <= 0:
                break
            self.left -= 1
            x = x + layer(x).relu()
            logits = head(x)
            confidence = logits.softmax(-1).max().item()
            history.append(confidence)
            if best is None or confidence > best.confidence:
                best = ExitDecision(logits, i, confidence)
            if confidence > 0.8:
                break
        if best is None:
            raise RuntimeError("no compute left")
        best.history = history
        return best

    def forward(self, x):
        try:
            found = self.decide(x)
        except RuntimeError:
            self.left = self.budget
            raise
        self.exits[found.layer] += 1
        return found.logits, found.layer, max(found.history), self.left, self.exits[0]


program(seeded(6), seeded(6) * 9, seeded(6, seed=2), seeded(6, seed=8) * 4, torch.zeros(6), torch.zeros(6))(
    BudgetedExits
)


@program(
    (T([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]]), T([1.0, 2.0, 3.0])),
    (T([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), T([1.0, 2.0, 3.0])),
    (T([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, -1.0]]), T([1.0, -2.0, 3.0])),
    (T([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]]), T([0.0, 0.0, 0.0])),
)
def restarted_cg(A, b):
    """Conjugate gradient that restarts where directions lose conjugacy, and reports the reason it ended."""
    x = torch.zeros_like(b)
    r = b - A @ x
    p = r.clone()
    rs_old = r @ r
    restarts, reason = 0, "max_iter"
    residuals = [rs_old.sqrt().item()]
    for it in range(1, 11):
        if residuals[-1] < 1e-5:
            reason = "converged"
            break
        Ap = A @ p
        curvature = p @ Ap
        if curvature <= 0:
            reason = "indefinite"
            break
        alpha = rs_old / curvature
        x = x + alpha * p
        r = r - alpha * Ap
        rs_new = r @ r
        if rs_new.sqrt() > 0.9 * residuals[-1]:
            p = b - A @ x
            r = p.clone()
            rs_new = r @ r
            restarts += 1
        else:
            p = r + (rs_new / rs_old) * p
        rs_old = rs_new
        residuals.append(rs_new.sqrt().item())
    if reason == "indefinite":
        raise ValueError("matrix is not positive definite")
    return x, len(residuals), restarts, reason == "converged"


@program((T([1.0, 1.0]), T(1.0)), (T([-1.2, 1.0]), T(0.1)), (T([0.0, 0.0]), T(10.0)), (T([nan, 0.0]), T(1.0)))
def levenberg_marquardt(theta, lam):
    """Rosenbrock as least squares; damping goes down on success, up on failure."""

    def residual(p):
        return torch.stack([10 * (p[1] - p[0] ** 2), 1 - p[0]])

    def jacobian(p):
        return torch.stack([torch.stack([-20 * p[0], T(10.0)]), T([-1.0, 0.0])])

    r = residual(theta)
    cost = float(r @ r)
    if not math.isfinite(cost):
        raise FloatingPointError("the first cost is not finite")
    history = deque(maxlen=3)
    accepted = rejected = 0
    while accepted + rejected < 15:
        J = jacobian(theta)
        H = J.T @ J + lam * torch.eye(2)
        delta = torch.linalg.solve(H, -(J.T @ r))
        candidate = theta + delta
        new = residual(candidate)
        new_cost = float(new @ new)
        if new_cost < cost:
            theta, r, cost = candidate, new, new_cost
            lam = max(lam * 0.3, T(1e-6))
            accepted += 1
            history.append(cost)
            if len(history) == 3 and max(history) - min(history) < 1e-7:
                break
        else:
            lam = lam * 4.0
            rejected += 1
            if rejected > 8:
                break
    return theta, cost, accepted, rejected


class ParticleFilter(nn.Module):
    """Bootstrap filter: resample where the effective sample size is low; degenerate weights raise."""

    def __init__(self, n=6):
        super().__init__()
        self.n = n
        self.register_buffer("particles", torch.linspace(-2, 2, n))
        self.register_buffer("weights", torch.full((n,), 1 / n))
        self.resampled = 0
        self.steps = 0

    def systematic(self, offset):
        positions = [(i + offset.item()) / self.n for i in range(self.n)]
        cumulative = self.weights.cumsum(0).tolist()
        cumulative[-1] = 1.0
        indices, j = [], 0
        for position in positions:
            while position > cumulative[j]:
                j += 1
            indices.append(j)
        return torch.tensor(indices)

    def forward(self, z, offset):
        self.steps += 1
        self.particles = self.particles * 0.9 + 0.1
        likelihood = torch.exp(-0.5 * (z - self.particles) ** 2 / 0.05)
        weights = self.weights * likelihood
        total = weights.sum()
        if total < 1e-12:
            raise RuntimeError("all particles died")
        self.weights = weights / total
        ess = 1.0 / (self.weights**2).sum()
        if ess < self.n / 2:
            idx = self.systematic(offset)
            self.particles = self.particles[idx]
            self.weights = torch.full_like(self.weights, 1 / self.n)
            self.resampled += 1
        return (self.particles * self.weights).sum(), ess, self.resampled, self.steps


program((T(0.5), T(0.3)), (T(0.4), T(0.9)), (T(90.0), T(0.5)), (T(-0.2), T(0.1)), (T(0.0), T(0.99)))(
    ParticleFilter
)


@dataclass
class Tracked:
    id: int
    x: torch.Tensor
    missed: int = 0
    hits: int = 1

    @property
    def confirmed(self):
        return self.hits >= 2


class CentroidTracker(nn.Module):
    """Greedy nearest matching of detections to tracks, with ids, misses and removal."""

    def __init__(self, gate=1.0, max_missed=1):
        super().__init__()
        self.gate = gate
        self.max_missed = max_missed
        self.tracks: list[Tracked] = []
        self.next_id = 0

    def forward(self, detections, scores):
        points = [d for d, s in zip(detections, scores) if s > 0.5]
        unmatched = list(range(len(points)))
        for track in self.tracks:
            best, best_distance = None, self.gate
            for i in unmatched:
                distance = (points[i] - track.x).norm()
                if distance < best_distance:
                    best, best_distance = i, distance
            if best is None:
                track.missed += 1
            else:
                track.x = 0.5 * track.x + 0.5 * points[best]
                track.missed = 0
                track.hits += 1
                unmatched.remove(best)
        self.tracks = [t for t in self.tracks if t.missed <= self.max_missed]
        for i in unmatched:
            self.tracks.append(Tracked(self.next_id, points[i]))
            self.next_id += 1
        confirmed = sum(1 for t in self.tracks if t.confirmed)
        return len(self.tracks), confirmed, self.next_id


program(
    (T([[0.0, 0.0], [5.0, 5.0]]), T([0.9, 0.8])),
    (T([[0.1, 0.0], [5.2, 5.0]]), T([0.9, 0.8])),
    (T([[9.0, 9.0], [0.2, 0.1]]), T([0.9, 0.7])),
    (T([[9.0, 9.0], [0.2, 0.1]]), T([0.1, 0.1])),
    (T([[9.0, 9.0], [0.2, 0.1]]), T([0.1, 0.1])),
)(CentroidTracker)


class PageTable(nn.Module):
    """Paged key-value cache: blocks are allocated from a free list, and evicted by least recent use."""

    def __init__(self, blocks=3):
        super().__init__()
        self.free = list(range(blocks))
        self.table: OrderedDict[int, int] = OrderedDict()
        self.evictions = 0
        self.register_buffer("pages", torch.zeros(blocks, 2))

    def lookup(self, seq):
        if seq in self.table:
            self.table.move_to_end(seq)
            return self.table[seq], True
        if self.free:
            block = self.free.pop()
        else:
            _, block = self.table.popitem(last=False)
            self.evictions += 1
        self.table[seq] = block
        return block, False

    def forward(self, seq, value):
        seq = int(seq)
        if seq < 0:
            raise KeyError(f"sequence {seq}")
        block, hit = self.lookup(seq)
        self.pages[block] = self.pages[block] * (0.5 if hit else 0.0) + value
        return self.pages.clone(), block, hit, self.evictions, len(self.table)


program(
    (T(1), T([1.0, 2.0])),
    (T(2), T([3.0, 4.0])),
    (T(1), T([5.0, 6.0])),
    (T(7), T([1.0, 1.0])),
    (T(-1), T([1.0, 1.0])),
    (T(9), T([2.0, 2.0])),
    (T(2), T([0.0, 1.0])),
)(PageTable)


class SpeechState(enum.Enum):
    SILENCE = enum.auto()
    ONSET = enum.auto()
    SPEECH = enum.auto()
    HANGOVER = enum.auto()


class Endpointer(nn.Module):
    """Streaming endpointing: onset needs consecutive frames, the end needs a hangover; emits segments."""

    def __init__(self, onset=2, hangover=2):
        super().__init__()
        self.onset, self.hangover = onset, hangover
        self.reset()

    def reset(self):
        self.state = SpeechState.SILENCE
        self.count = 0
        self.frame = 0
        self.start = None
        self.segments = []

    def forward(self, frame):
        energy = frame.pow(2).mean()
        speech = energy > 0.25
        match self.state:
            case SpeechState.SILENCE if speech:
                self.state, self.count, self.start = SpeechState.ONSET, 1, self.frame
            case SpeechState.ONSET:
                if speech:
                    self.count += 1
                    if self.count >= self.onset:
                        self.state = SpeechState.SPEECH
                else:
                    self.state, self.start = SpeechState.SILENCE, None
            case SpeechState.SPEECH if not speech:
                self.state, self.count = SpeechState.HANGOVER, 1
            case SpeechState.HANGOVER:
                if speech:
                    self.state = SpeechState.SPEECH
                else:
                    self.count += 1
                    if self.count >= self.hangover:
                        self.segments.append((self.start, self.frame))
                        self.state, self.start = SpeechState.SILENCE, None
        self.frame += 1
        length = self.segments[-1][1] - self.segments[-1][0] if self.segments else 0
        return self.state is SpeechState.SPEECH, len(self.segments), length


program(torch.ones(4), torch.ones(4), torch.zeros(4), torch.zeros(4), torch.ones(4), torch.zeros(4))(
    Endpointer
)


class MovingStats(nn.Module):
    """Sliding window with mean, variance, median and an outlier count."""

    def __init__(self, window=4):
        super().__init__()
        self.window = deque(maxlen=window)
        self.outliers = 0

    def forward(self, x):
        value = x.item()
        if len(self.window) >= 2:
            mean = sum(self.window) / len(self.window)
            var = sum((v - mean) ** 2 for v in self.window) / (len(self.window) - 1)
            if abs(value - mean) > 3 * math.sqrt(var) + 1e-3:
                self.outliers += 1
                warnings.warn(f"outlier {value:.2f}", stacklevel=2)
                value = mean
        self.window.append(value)
        ordered = sorted(self.window)
        mid = len(ordered) // 2
        median = ordered[mid] if len(ordered) % 2 else (ordered[mid - 1] + ordered[mid]) / 2
        return median, min(self.window), max(self.window), self.outliers


program(T(1.0), T(2.0), T(1.5), T(99.0), T(1.2), T(-3.0))(MovingStats)


class OnlineClusters(nn.Module):
    """Leader clustering: a new cluster where nothing is near, else a running mean; full tables merge."""

    def __init__(self, radius=1.0, limit=3):
        super().__init__()
        self.radius, self.limit = radius, limit
        self.centers: list[torch.Tensor] = []
        self.counts: list[int] = []

    def closest(self, x):
        distances = [(c - x).norm().item() for c in self.centers]
        best = min(range(len(distances)), key=distances.__getitem__)
        return best, distances[best]

    def merge(self):
        pairs = itertools.combinations(range(len(self.centers)), 2)
        i, j = min(pairs, key=lambda ij: (self.centers[ij[0]] - self.centers[ij[1]]).norm().item())
        total = self.counts[i] + self.counts[j]
        self.centers[i] = (self.centers[i] * self.counts[i] + self.centers[j] * self.counts[j]) / total
        self.counts[i] = total
        del self.centers[j], self.counts[j]

    def forward(self, x):
        if self.centers:
            k, d = self.closest(x)
            if d < self.radius:
                self.counts[k] += 1
                self.centers[k] = self.centers[k] + (x - self.centers[k]) / self.counts[k]
                return k, len(self.centers), d
        if len(self.centers) == self.limit:
            self.merge()
        self.centers.append(x.clone())
        self.counts.append(1)
        return len(self.centers) - 1, len(self.centers), 0.0


program(T([0.0, 0.0]), T([0.3, 0.0]), T([4.0, 0.0]), T([0.0, 9.0]), T([-9.0, 0.0]), T([4.2, 0.1]))(
    OnlineClusters
)


class SumTreeReplay(nn.Module):
    """Prioritized replay by a sum tree in a list: add, sample by mass, update."""

    def __init__(self, capacity=4):
        super().__init__()
        self.capacity = capacity
        self.tree = [0.0] * (2 * capacity - 1)
        self.data = [0.0] * capacity
        self.write = 0
        self.size = 0

    def update(self, idx, priority):
        change = priority - self.tree[idx]
        self.tree[idx] = priority
        while idx > 0:
            idx = (idx - 1) // 2
            self.tree[idx] += change

    def find(self, mass):
        idx = 0
        while 2 * idx + 1 < len(self.tree):
            left = 2 * idx + 1
            if mass <= self.tree[left]:
                idx = left
            else:
                mass -= self.tree[left]
                idx = left + 1
        return idx

    def forward(self, value, priority, u):
        if priority < 0:
            raise ValueError("a priority is negative")
        self.data[self.write] = value.item()
        self.update(self.write + self.capacity - 1, priority.item())
        self.write = (self.write + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)
        if self.tree[0] == 0:
            return -1, 0.0, self.size
        leaf = self.find(u.item() * self.tree[0])
        return leaf, self.data[leaf - self.capacity + 1], self.size


program(
    (T(1.0), T(0.5), T(0.3)),
    (T(2.0), T(1.5), T(0.9)),
    (T(3.0), T(-1.0), T(0.9)),
    (T(4.0), T(0.0), T(0.2)),
    (T(5.0), T(3.0), T(0.99)),
)(SumTreeReplay)


class Branch:
    def __init__(self, feature, threshold, low, high):
        self.feature, self.threshold, self.low, self.high = feature, threshold, low, high


FOREST = [
    Branch(0, 0.0, Branch(1, 0.5, 1.0, -1.0), 2.0),
    Branch(1, -0.5, -2.0, Branch(2, 1.0, 0.5, Branch(0, 2.0, 3.0, 4.0))),
    Branch(2, 0.0, 0.25, -0.25),
]


def walk(node, x, depth=0):
    if not isinstance(node, Branch):
        return node, depth
    return walk(node.low if x[node.feature] <= node.threshold else node.high, x, depth + 1)


@program(
    T([-1.0, 0.0, 0.5]), T([1.0, 1.0, 2.0]), T([3.0, 1.0, 2.0]), T([-1.0, 1.0, -1.0]), T([nan, 0.0, 0.0])
)
def boosted_trees(x):
    if torch.isnan(x).any():
        raise ValueError(f"{int(torch.isnan(x).sum())} features are missing")
    score, deepest = 0.0, 0
    for tree, rate in zip(FOREST, (1.0, 0.5, 0.25)):
        value, depth = walk(tree, x)
        score += rate * value
        deepest = max(deepest, depth)
    label = "positive" if score > 0.5 else "negative" if score < -0.5 else "unsure"
    return score, deepest, ["negative", "unsure", "positive"].index(label)


@program(
    (seeded(3, 4).abs(), T(0.1)),
    (torch.zeros(3, 4), T(0.5)),
    (seeded(3, 4, seed=5).abs() * 100, T(0.01)),
    (seeded(3, 4), T(-1.0)),
)
def sinkhorn(cost, eps):
    """Log-domain Sinkhorn: stops on marginal error, doubles epsilon where it is not finite."""
    assert eps > 0, f"epsilon {eps.item()} must be positive"
    n, m = cost.shape
    log_a = torch.full((n,), -math.log(n))
    log_b = torch.full((m,), -math.log(m))
    for attempt in range(3):
        f, g = torch.zeros(n), torch.zeros(m)
        err, it = inf, 0
        while it < 20 and err > 1e-3:
            f = eps * (log_a - torch.logsumexp((g - cost) / eps, dim=1))
            g = eps * (log_b - torch.logsumexp((f[:, None] - cost) / eps, dim=0))
            plan = torch.exp((f[:, None] + g - cost) / eps)
            err = (plan.sum(1) - 1 / n).abs().sum().item()
            it += 1
        if math.isfinite(err) and err < 0.1:
            break
        eps = eps * 2
    return (plan * cost).sum(), it, attempt


@dataclass(frozen=True)
class Root:
    x: float
    iterations: int
    method: str


def newton(f, df, x, tol=1e-4, limit=8):
    for i in range(limit):
        slope = df(x)
        if abs(slope) < 1e-8:
            raise ZeroDivisionError("the slope vanished")
        step = f(x) / slope
        x = x - step
        if abs(x) > 1e3:
            raise OverflowError("it diverges")
        if abs(step) < tol:
            return Root(x, i + 1, "newton")
    raise TimeoutError("no convergence")


def bisect(f, lo, hi, tol=1e-3):
    if f(lo) * f(hi) > 0:
        raise ValueError("no sign change")
    steps = 0
    while hi - lo > tol:
        mid = (lo + hi) / 2
        lo, hi = (lo, mid) if f(lo) * f(mid) <= 0 else (mid, hi)
        steps += 1
    return Root((lo + hi) / 2, steps, "bisection")


@program((T(2.0), T(1.0)), (T(2.0), T(0.0)), (T(-8.0), T(0.001)), (T(100.0), T(3.0)), (T(nan), T(1.0)))
def robust_root(c, x0):
    """Solve x^3 = c by Newton, or by bisection where that fails."""
    f = lambda x: x**3 - c.item()
    df = lambda x: 3 * x**2
    try:
        root = newton(f, df, x0.item())
    except (ArithmeticError, TimeoutError) as error:
        log.warning("newton failed: %s", error)
        root = bisect(f, -10.0, 10.0)
    return root.x, root.iterations, root.method == "newton"


class DroplessFallback(nn.Module):
    """Top-1 experts with capacity; overflow goes to the second choice, then it is dropped."""

    def __init__(self, dim=4, experts=3, capacity=2):
        super().__init__()
        torch.manual_seed(11)
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(experts))
        self.capacity = capacity
        self.register_buffer("load", torch.zeros(experts, dtype=torch.long))

    def forward(self, x):
        weights, choices = self.gate(x).softmax(-1).topk(2, dim=-1)
        assigned = defaultdict(list)
        dropped = []
        for t in range(x.shape[0]):
            for k in range(2):
                e = choices[t, k].item()
                if len(assigned[e]) < self.capacity:
                    assigned[e].append((t, weights[t, k]))
                    break
            else:
                dropped.append(t)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            for t, w in assigned[e]:
                out[t] += w * expert(x[t])
            self.load[e] += len(assigned[e])
        if len(dropped) > x.shape[0] // 2:
            raise RuntimeError(f"{len(dropped)} tokens were dropped")
        return out, len(dropped), self.load.clone()


program(seeded(4, 4), seeded(4, 4, seed=3), torch.ones(4, 4), seeded(4, 4, seed=9) * 5)(DroplessFallback)


class HeavyHitters(nn.Module):
    """H2O: keeps recent tokens and those with the most attention, evicts the rest."""

    def __init__(self, dim=3, heavy=2, recent=2):
        super().__init__()
        self.heavy, self.recent = heavy, recent
        self.keys: list[torch.Tensor] = []
        self.scores: list[float] = []
        self.evicted = 0

    def forward(self, q, k):
        self.keys.append(k)
        self.scores.append(0.0)
        attention = torch.softmax(torch.stack(self.keys) @ q, dim=0)
        for i, a in enumerate(attention.tolist()):
            self.scores[i] += a
        if len(self.keys) > self.heavy + self.recent:
            old = self.scores[: -self.recent]
            victim = old.index(min(old))
            self.keys.pop(victim)
            self.scores.pop(victim)
            self.evicted += 1
        return attention.max(), len(self.keys), self.evicted, max(self.scores)


program(
    (seeded(3), seeded(3, seed=1)),
    (seeded(3, seed=2), seeded(3, seed=3)),
    (seeded(3, seed=4), seeded(3, seed=5)),
    (seeded(3, seed=6), seeded(3, seed=7)),
    (seeded(3, seed=8), seeded(3, seed=9)),
    (seeded(3, seed=10), seeded(3, seed=11)),
)(HeavyHitters)


@contextlib.contextmanager
def bounded(model):
    before = model.scale
    try:
        yield model
    except OverflowError:
        model.scale = before * 0.5
        model.backoffs += 1
    finally:
        model.calls += 1


class LossScaled(nn.Module):
    """A context manager that backs off where the body overflows, and a good-step counter."""

    def __init__(self):
        super().__init__()
        self.scale = 8.0
        self.good = 0
        self.backoffs = 0
        self.calls = 0

    def forward(self, grads):
        result = None
        with bounded(self):
            scaled = grads * self.scale
            if scaled.abs().max() > 100:
                self.good = 0
                raise OverflowError("overflow")
            self.good += 1
            if self.good % 3 == 0:
                self.scale *= 2
            result = scaled.norm()
        if result is None:
            return torch.zeros(()), self.scale, self.backoffs, self.calls
        return result, self.scale, self.backoffs, self.calls


program(T([1.0, 2.0]), T([20.0, 1.0]), T([3.0, 0.0]), T([1.0, 1.0]), T([1.0, 9.0]))(LossScaled)


def chunks(items, size):
    it = iter(items)
    while chunk := list(itertools.islice(it, size)):
        yield chunk


@program(
    (T([3.0, 1.0, 2.0, 5.0, 4.0]), T(2.5)), (T([0.0] * 5), T(1.0)), (T([9.0, 1.0, 9.0, 1.0, 9.0]), T(4.0))
)
def streaming_peaks(x, threshold):
    """A pipeline of generators: chunk, reduce, keep, and merge."""

    def summaries(parts):
        for part in parts:
            total = functools.reduce(lambda a, b: a + b, part)
            yield total / len(part), max(part)

    kept = [(mean, peak) for mean, peak in summaries(chunks(x, 2)) if peak > threshold]
    if not kept:
        return 0.0, 0.0, 0
    best = max(kept, key=lambda pair: pair[0])
    return best[0], best[1], len(kept)


class Job(NamedTuple):
    priority: float
    arrival: int
    cost: int


class BatchScheduler(nn.Module):
    """Continuous batching: a priority queue, a token budget, preemption counts; state over calls."""

    def __init__(self, budget=6):
        super().__init__()
        self.budget = budget
        self.queue: list[tuple[float, int, int]] = []
        self.clock = 0
        self.served = 0

    def forward(self, priority, cost):
        if cost > self.budget:
            raise ValueError(f"job of {int(cost)} tokens exceeds the budget {self.budget}")
        heapq.heappush(self.queue, (-priority.item(), self.clock, int(cost)))
        self.clock += 1
        used, batch = 0, []
        while self.queue and used + self.queue[0][2] <= self.budget - 2:
            job = Job(*heapq.heappop(self.queue))
            used += job.cost
            batch.append(job.arrival)
        self.served += len(batch)
        return used, len(batch), len(self.queue), self.served, batch[0] if batch else -1


program((T(1.0), T(3)), (T(5.0), T(6)), (T(2.0), T(2)), (T(9.0), T(7)), (T(7.0), T(1)), (T(0.0), T(4)))(
    BatchScheduler
)


@dataclass(frozen=True)
class Region:
    center: torch.Tensor
    radius: float
    value: float
    steps: int = 0


@program(
    (T([2.0, -1.0]), T(1.0)), (T([0.0, 0.0]), T(0.5)), (T([30.0, 10.0]), T(1.0)), (T([1.0, inf]), T(1.0))
)
def trust_region(x0, radius):
    """Dogleg-like steps with an immutable state."""

    def f(x):
        return ((x[0] - 1) ** 2 + 4 * (x[1] + x[0] ** 2 / 4) ** 2).item()

    def gradient(x):
        inner = x[1] + x[0] ** 2 / 4
        return torch.stack([2 * (x[0] - 1) + 4 * inner * x[0], 8 * inner])

    region = Region(x0, radius.item(), f(x0))
    if not math.isfinite(region.value):
        raise ValueError("start outside of the domain")
    while region.steps < 12 and region.radius > 1e-3:
        g = gradient(region.center)
        norm = g.norm()
        if norm < 1e-4:
            break
        step = -g / norm * min(region.radius, norm.item() * 0.2)
        candidate = region.center + step
        value = f(candidate)
        predicted = -(g @ step).item()
        rho = (region.value - value) / predicted
        if rho < 0.1:
            region = replace(region, radius=region.radius / 4, steps=region.steps + 1)
        elif rho > 0.7:
            region = replace(
                region,
                center=candidate,
                value=value,
                radius=min(region.radius * 2, 4.0),
                steps=region.steps + 1,
            )
        else:
            region = replace(region, center=candidate, value=value, steps=region.steps + 1)
    return region.center, region.value, region.steps


class HierarchicalSoftmax(nn.Module):
    """Walks a binary tree of heads to a leaf, greedily, with the log-probability of the path."""

    def __init__(self, dim=4, depth=3):
        super().__init__()
        torch.manual_seed(2)
        self.nodes = nn.ModuleDict({f"node{i}": nn.Linear(dim, 1) for i in range(2**depth - 1)})
        self.depth = depth

    def forward(self, h):
        node, logp, path = 0, 0.0, []
        while len(path) < self.depth:
            p = torch.sigmoid(self.nodes[f"node{node}"](h)).item()
            right = p >= 0.5
            logp += math.log(p if right else 1 - p)
            path.append(int(right))
            node = 2 * node + 1 + int(right)
        leaf = functools.reduce(lambda acc, bit: acc * 2 + bit, path, 0)
        return leaf, logp, path[0]


program(seeded(4), seeded(4, seed=1), -seeded(4, seed=1), torch.zeros(4))(HierarchicalSoftmax)


@program(
    (T([[0.0, 2.0, 9.0], [3.0, 0.0, 4.0], [1.0, 8.0, 0.0]]), T([0, 2])),
    (T([[0.0, 2.0, inf], [3.0, 0.0, inf], [1.0, 8.0, 0.0]]), T([0, 2])),
    (T([[0.0, -2.0, 9.0], [1.0, 0.0, 4.0], [1.0, 8.0, 0.0]]), T([0, 2])),
    (T([[0.0, 2.0, 1.0], [3.0, 0.0, 4.0], [1.0, 0.5, 0.0]]), T([0, 1])),
)
def bellman_ford(weights, ends):
    """Shortest path with predecessors; a negative cycle raises."""
    n = weights.shape[0]
    source, target = ends.tolist()
    dist = [inf] * n
    pred = [-1] * n
    dist[source] = 0.0
    for _ in range(n - 1):
        changed = False
        for u, v in itertools.permutations(range(n), 2):
            w = weights[u, v].item()
            if dist[u] + w < dist[v]:
                dist[v], pred[v] = dist[u] + w, u
                changed = True
        if not changed:
            break
    for u, v in itertools.permutations(range(n), 2):
        if dist[u] + weights[u, v] < dist[v]:
            raise ValueError("negative cycle")
    if dist[target] == inf:
        return -1.0, 0
    hops, at = 0, target
    while at != source:
        at = pred[at]
        hops += 1
    return dist[target], hops


class Backpressure(Exception):
    def __init__(self, depth):
        super().__init__(f"queue depth {depth}")
        self.depth = depth


class RateLimited(nn.Module):
    """Sliding log limiter with several tenants, an exception with data, and recovery."""

    def __init__(self, limit=2, horizon=10.0):
        super().__init__()
        self.limit, self.horizon = limit, horizon
        self.logs = {0: deque(), 1: deque()}
        self.rejected = 0

    def admit(self, tenant, now):
        entries = self.logs[tenant]
        while entries and now - entries[0] > self.horizon:
            entries.popleft()
        if len(entries) >= self.limit:
            raise Backpressure(len(entries))
        entries.append(now)
        return len(entries)

    def forward(self, tenant, now):
        tenant = int(tenant)
        if tenant not in self.logs:
            raise KeyError(f"unknown tenant {tenant}")
        try:
            depth = self.admit(tenant, float(now))
            ok = True
        except Backpressure as error:
            self.rejected += 1
            depth = error.depth
            ok = False
        return ok, depth, self.rejected


program((T(0), T(1.0)), (T(0), T(2.0)), (T(1), T(2.5)), (T(0), T(3.0)), (T(5), T(3.0)), (T(0), T(20.0)))(
    RateLimited
)


@program(T([1, 2, 1, 3, 1, 2]), T([5, 5, 5, 5, 5, 5]), T([0, 1, 2, 3, 4, 5]), T([4, 4, 3, 3, 2, 2]))
def entropy_code(symbols):
    """Huffman code lengths by a heap of (count, tie, symbols), and the size of the message."""
    counts = Counter(symbols.tolist())
    if len(counts) == 1:
        return len(symbols), 1
    heap = [(n, s) for s, n in sorted(counts.items())]
    heapq.heapify(heap)
    bits = 0
    merges = 0
    while len(heap) > 1:
        a, ta = heapq.heappop(heap)
        b, tb = heapq.heappop(heap)
        bits += a + b
        merges += 1
        heapq.heappush(heap, (a + b, min(ta, tb)))
    return bits, merges


class EMAWithWarmRestart(nn.Module):
    """Keeps an average of the parameters; resets on a loss spike, rolls back on NaN."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(T([1.0, -1.0]))
        self.shadow = None
        self.best = {"loss": inf, "weight": None}
        self.strikes = 0

    def forward(self, x, lr):
        loss = ((x @ self.weight) ** 2).mean()
        if torch.isnan(loss):
            self.strikes += 1
            if self.best["weight"] is None:
                raise FloatingPointError("NaN before a first good step")
            return self.best["weight"] * 1.0, self.best["loss"], self.strikes
        if self.shadow is None or loss.item() > 4 * self.best["loss"]:
            self.shadow = self.weight.detach().clone()
        else:
            decay = 0.9 if self.strikes == 0 else 0.5
            self.shadow = decay * self.shadow + (1 - decay) * (self.weight.detach() - lr)
        if loss.item() < self.best["loss"]:
            self.best = {"loss": loss.item(), "weight": self.shadow.clone()}
        return self.shadow, self.best["loss"], self.strikes


program(
    (T([[1.0, 2.0]]), T(0.1)),
    (T([[1.0, 1.5]]), T(0.2)),
    (T([[nan, 1.5]]), T(0.2)),
    (T([[9.0, 1.5]]), T(0.2)),
    (T([[1.0, 1.1]]), T(0.3)),
)(EMAWithWarmRestart)


@program(
    (seeded(5, 3), T(0.0)),
    (torch.zeros(5, 3), T(0.5)),
    (seeded(5, 3, seed=8), T(9.0)),
    (-seeded(5, 3).abs(), T(0.0)),
)
def lexicographic_pareto(points, slack):
    """The non-dominated rows, sorted, as a set of indices and a representative."""

    def dominates(a, b):
        return bool((a >= b - slack).all()) and bool((a > b + slack).any())

    front = {
        i for i, p in enumerate(points) if not any(dominates(q, p) for j, q in enumerate(points) if j != i)
    }
    if not front:
        raise LookupError("everything is dominated")
    ranked = sorted(front, key=lambda i: tuple(points[i].tolist()), reverse=True)
    return len(front), ranked[0], points[ranked[0]].sum()
