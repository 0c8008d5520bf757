"""Engines of serving, tracking, streams and solvers: sessions, allocators, matchers and controllers."""

# ruff: noqa: B007, B020, B904, B905, N806, RUF012, TRY301  # as people write it

from __future__ import annotations

import bisect
import contextlib
import enum
import functools
import itertools
import math
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn

from tests.programs.written import program, seeded

T = torch.tensor


# --- decoding


class State(enum.Enum):
    START = 0
    KEY = 1
    VALUE = 2
    DONE = 3


class Grammar:
    """Which tokens may follow: 0 open, 1 close, 2 colon, 3 comma, 4 and 5 words."""

    table = {
        State.START: {0: State.KEY},
        State.KEY: {4: State.VALUE, 5: State.VALUE, 1: State.DONE},
        State.VALUE: {2: State.VALUE, 3: State.KEY, 1: State.DONE},
        State.DONE: {},
    }

    def __init__(self):
        self.state = State.START

    @property
    def finished(self):
        return self.state is State.DONE

    def mask(self, size):
        allowed = torch.zeros(size, dtype=torch.bool)
        for token in self.table[self.state]:
            allowed[token] = True
        return allowed

    def advance(self, token):
        try:
            self.state = self.table[self.state][token]
        except KeyError:
            raise ValueError(f"token {token} is not allowed in {self.state.name}")


@program(seeded(8, 6, seed=1), seeded(8, 6, seed=2), seeded(8, 6, seed=5), seeded(8, 6, seed=9) * 4)
class GrammarDecoder(nn.Module):
    """Greedy decoding under a mask that the state of a grammar gives."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(seeded(6, 6, seed=7))

    def forward(self, logits):
        grammar = Grammar()
        ids = []
        score = 0.0
        last = None
        for row in logits:
            if last is not None:
                row = row + self.bias[last]
            masked = row.masked_fill(~grammar.mask(6), float("-inf"))
            logp = torch.log_softmax(masked, 0)
            last = int(logp.argmax())
            score += logp[last].item()
            grammar.advance(last)
            ids.append(last)
            if grammar.finished:
                break
        return torch.tensor(ids), score, grammar.finished


class Verdict(NamedTuple):
    accepted: int
    bonus: int
    rolled_back: int


@program(
    (T([1, 2, 3]), seeded(4, 5, seed=3)),
    (T([4, 4, 4]), T([[0.0, 0, 0, 0, 9]]).repeat(4, 1)),
    (T([0, 4, 1]), T([[9.0, 0, 0, 0, 1]]).repeat(4, 1)),
    (T([2, 0, 2]), seeded(4, 5, seed=8)),
)
class SpeculativeSession(nn.Module):
    """Verifies a draft against the target, rolls the cache back, and adapts how much is drafted."""

    MIN, MAX = 1, 3

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(16, dtype=torch.long))
        self.length = 0
        self.window = 3
        self.stats = Counter()

    def verify(self, draft, logits):
        best = logits.argmax(-1)
        for i, (mine, theirs) in enumerate(zip(draft.tolist()[: self.window], best.tolist())):
            if mine != theirs:
                return Verdict(i, theirs, self.window - i)
        return Verdict(self.window, int(best[self.window]), 0)

    def forward(self, draft, logits):
        verdict = self.verify(draft, logits)
        for token in itertools.chain(draft[: verdict.accepted], [verdict.bonus]):
            if self.length >= len(self.cache):
                raise RuntimeError("cache is full")
            self.cache[self.length] = token
            self.length += 1
        self.stats["accepted"] += verdict.accepted
        self.stats["rolled_back"] += verdict.rolled_back
        if verdict.rolled_back == 0:
            self.window = min(self.window + 1, self.MAX)
        elif verdict.accepted == 0:
            self.window = max(self.window - 1, self.MIN)
        return self.cache.clone(), self.length, self.stats["accepted"], self.window


class OutOfBlocks(RuntimeError):
    pass


class BlockAllocator:
    def __init__(self, count):
        self.free = list(range(count))
        self.tables = {0: [], 1: []}
        self.lengths = {0: 0, 1: 0}

    def append(self, seq, size):
        if self.lengths[seq] % size == 0:
            if not self.free:
                raise OutOfBlocks(f"no block for {seq}")
            self.tables[seq].append(self.free.pop())
        place = self.tables[seq][-1] * size + self.lengths[seq] % size
        self.lengths[seq] += 1
        return place

    def release(self, seq):
        self.free.extend(reversed(self.tables[seq]))
        self.tables[seq].clear()
        self.lengths[seq] = 0


@program(
    (T(1), seeded(3)),
    (T(1), seeded(3, seed=2)),
    (T(0), seeded(3, seed=3)),
    (T(-2), seeded(3, seed=4)),
    (T(1), seeded(3, seed=5)),
    (T(0), seeded(3, seed=6)),
    (T(-1), seeded(3, seed=6)),
)
class PagedCache(nn.Module):
    """A paged cache of two sequences; a negative id ends one of them."""

    def __init__(self):
        super().__init__()
        self.blocks = BlockAllocator(3)
        self.register_buffer("store", torch.zeros(6, 3))

    def forward(self, seq, key):
        if seq < 0:
            self.blocks.release(int(-seq - 1))
            return self.store.sum(0), -1
        s = int(seq)
        place = self.blocks.append(s, 2)
        self.store[place] = key
        rows = torch.stack(
            [self.store[self.blocks.tables[s][i // 2] * 2 + i % 2] for i in range(self.blocks.lengths[s])]
        )
        return torch.softmax(rows @ key, 0) @ rows, place


@program(seeded(4, seed=1), seeded(4, seed=2) * 3, seeded(4, seed=3) * 0.1, seeded(4, seed=4) * 8)
class EntropyExit(nn.Module):
    """Leaves after a layer whose entropy is low, or whose answer has been the same for a while."""

    threshold = 0.6

    def __init__(self, depth=5, patience=2):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(depth))
        self.heads = nn.ModuleList(nn.Linear(4, 3) for _ in range(depth))
        for i, p in enumerate(self.parameters()):
            p.data = seeded(*p.shape, seed=i)
        self.patience = patience
        self.exits = [0] * depth

    def forward(self, x):
        same, before = 0, -1
        for i, (layer, head) in enumerate(zip(self.layers, self.heads)):
            x = torch.tanh(layer(x)) + x
            p = head(x).softmax(-1)
            if (entropy := -(p * p.clamp_min(1e-9).log()).sum()) < type(self).threshold:
                reason = 1
                break
            answer = p.argmax().item()
            same = same + 1 if answer == before else 0
            before = answer
            if same >= self.patience:
                reason = 2
                break
        else:
            reason = 0
        self.exits[i] += 1
        return p, i, reason, entropy, torch.tensor(self.exits)


@program(seeded(3, 4, seed=1), seeded(3, 4, seed=2) * 5, seeded(3, 4, seed=3) * 0)
class TokenPonder(nn.Module):
    """Graves' adaptive computation time of several tokens at once."""

    def __init__(self, limit=6, eps=0.05):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.halt = nn.Linear(4, 1)
        for i, p in enumerate(self.parameters()):
            p.data = seeded(*p.shape, seed=i + 3)
        self.limit, self.eps = limit, eps
        self.steps_total = 0

    def forward(self, x):
        h = torch.zeros_like(x)
        total = x.new_zeros(len(x))
        out = torch.zeros_like(x)
        updates = torch.zeros(len(x), dtype=torch.long)
        step = 0
        while (running := total < 1 - self.eps).any() and step < self.limit:
            h = torch.where(running[:, None], self.cell(x, h), h)
            p = self.halt(h).sigmoid().squeeze(-1) * running
            over = running & (total + p > 1 - self.eps)
            if over.any():
                p = torch.where(over, 1 - total, p)
            total = total + p
            out += p[:, None] * h
            updates[running] += 1
            step += 1
        self.steps_total += step
        ponder = updates.float().mean() if step else 0.0
        return out, updates, ponder, self.steps_total


# --- streams


class Ring:
    """A ring of the last `size` values, which knows how many it has."""

    def __init__(self, size):
        self.data = [0.0] * size
        self.at = 0
        self.count = 0

    def __len__(self):
        return self.count

    def __iter__(self):
        start = self.at - self.count
        return (self.data[(start + i) % len(self.data)] for i in range(self.count))

    def push(self, value):
        self.data[self.at] = value
        self.at = (self.at + 1) % len(self.data)
        self.count = min(self.count + 1, len(self.data))


@program(
    T([0.1, 0.2, 0.1, 0.1]),
    T([0.9, 0.8, 0.9, 0.1]),
    T([0.1, 0.1, 0.1, 0.1]),
    T([0.9, 0.9, 0.9, 0.9]),
    T([0.9, 0.1, 0.0, 0.0]),
    T([2.0, 0.1, 0.0, 0.0]),
)
class HangoverVad(nn.Module):
    """Voice activity with an onset that needs two frames and a hangover of three."""

    ONSET, HANGOVER = 2, 3

    def __init__(self):
        super().__init__()
        self.ring = Ring(3)
        self.active = False
        self.loud = self.quiet = 0
        self.frame = 0
        self.started = None

    def smooth(self, p):
        self.ring.push(p)
        return sum(self.ring) / len(self.ring)

    def forward(self, probabilities):
        events = torch.zeros(4, dtype=torch.long)
        longest = 0
        for i, p in enumerate(probabilities.tolist()):
            if not 0 <= p <= 1:
                raise ValueError(f"frame {self.frame}: {p}")
            self.frame += 1
            voiced = self.smooth(p) > 0.5
            self.loud = self.loud + 1 if voiced else 0
            self.quiet = 0 if voiced else self.quiet + 1
            if not self.active and self.loud >= self.ONSET:
                self.active, self.started = True, self.frame - self.ONSET
                events[i] = 1
            elif self.active and self.quiet >= self.HANGOVER:
                longest = max(longest, self.frame - self.started)
                self.active, self.started = False, None
                events[i] = -1
        return events, self.active, longest, self.frame


@dataclass
class Word:
    token: int
    start: int
    score: float = 0.0
    frames: int = 1

    @property
    def mean(self):
        return self.score / self.frames


@program(
    seeded(5, 4, seed=1) * 3,
    seeded(5, 4, seed=2) * 3,
    T([[9.0, 0, 0, 0]]).repeat(5, 1),
    T([[0.0, 9, 0, 0]]).repeat(5, 1),
    seeded(5, 4, seed=7) * 3,
)
class StreamingCtc(nn.Module):
    """CTC by chunks: the open word goes on in the next chunk."""

    def __init__(self, blank=0):
        super().__init__()
        self.blank = blank
        self.previous = blank
        self.frame = 0

    def forward(self, logits):
        words = []
        for p in logits.softmax(-1):
            score, token = p.max(-1)
            token = token.item()
            if token == self.blank:
                pass
            elif token != self.previous or not words:
                words.append(Word(token, self.frame, score.item()))
            else:
                words[-1].score += score.item()
                words[-1].frames += 1
            self.previous = token
            self.frame += 1
        kept = [w for w in words if w.mean > 0.5]
        best = max((w.mean for w in kept), default=0.0)
        return len(words), len(kept), best, sum(w.token for w in kept), words[-1].start if words else -1


@program(T([1.0, 2, 3]), T([1e6, 2, 3]), T([1.0, 2, 4]), T([2.0, 2, 2]), T([math.nan, 2, 2]), T([0.0, 0, 1]))
class OnlineNormalizer(nn.Module):
    """Welford's statistics that skip outliers after a warmup, and refuse NaN."""

    def __init__(self, warmup=2, clip=3.0):
        super().__init__()
        self.n = 0
        self.mean = torch.zeros(3)
        self.m2 = torch.zeros(3)
        self.skipped = 0
        self.warmup, self.clip = warmup, clip

    @property
    def std(self):
        if self.n < 2:
            return torch.ones(3)
        return (self.m2 / (self.n - 1)).sqrt().clamp(min=1e-3)

    def update(self, x):
        self.n += 1
        delta = x - self.mean
        self.mean = self.mean + delta / self.n
        self.m2 = self.m2 + delta * (x - self.mean)

    def forward(self, x):
        if torch.isnan(x).any():
            raise ValueError("NaN in the features")
        z = (x - self.mean) / self.std
        if self.n >= self.warmup and z.abs().max() > self.clip * 1000:
            self.skipped += 1
        else:
            self.update(x)
            z = (x - self.mean) / self.std
        return z.clamp(-self.clip, self.clip), self.n, self.skipped


@program((T(0.0), T(0)), (T(1.0), T(0)), (T(1.0), T(1)), (T(0.2), T(2)), (T(0.5), T(7)), (T(0.9), T(1)))
class UCB(nn.Module):
    """A bandit that is told what its last arm gave; untried arms first."""

    def __init__(self, arms=3, c=1.4):
        super().__init__()
        self.pulls = [0] * arms
        self.values = [0.0] * arms
        self.c = c

    def score(self, arm):
        n = self.pulls[arm]
        if n == 0:
            return math.inf
        return self.values[arm] + self.c * math.sqrt(math.log(sum(self.pulls)) / n)

    def forward(self, reward, arm):
        arm = arm.item()
        if arm >= len(self.pulls):
            raise IndexError(f"no arm {arm}")
        self.pulls[arm] += 1
        self.values[arm] += (reward.item() - self.values[arm]) / self.pulls[arm]
        chosen = max(range(len(self.pulls)), key=self.score)
        return chosen, torch.tensor(self.values), self.pulls[chosen]


@program(seeded(2, seed=1), seeded(2, seed=2), seeded(2, seed=3), seeded(2, seed=4), seeded(2, seed=5))
class Reservoir(nn.Module):
    """A sample of a stream by a linear congruential generator; a batch once there are enough."""

    def __init__(self, size=3):
        super().__init__()
        self.register_buffer("items", torch.zeros(size, 2))
        self.seen = 0
        self.seed = 12345

    def random(self, n):
        self.seed = (1103515245 * self.seed + 12345) % 2**31
        return self.seed // 65536 % n

    def __len__(self):
        return min(self.seen, len(self.items))

    def forward(self, x):
        self.seen += 1
        if self.seen <= len(self.items):
            self.items[self.seen - 1] = x
        elif (place := self.random(self.seen)) < len(self.items):
            self.items[place] = x
        if len(self) < 2:
            return self.items.mean(0), 0
        first, second = self.random(len(self)), self.random(len(self))
        while second == first:
            second = (second + 1) % len(self)
        return (self.items[first] + self.items[second]) / 2, self.seen


# --- trackers


class LostTrack(Exception):
    def __init__(self, misses):
        super().__init__(f"lost after {misses} misses")
        self.misses = misses


@dataclass
class Kalman:
    x: torch.Tensor
    P: torch.Tensor
    misses: int = 0
    hits: int = 0

    F = T([[1.0, 1.0], [0.0, 1.0]])
    H = T([[1.0, 0.0]])

    def predict(self):
        self.x = self.F @ self.x
        self.P = self.F @ self.P @ self.F.T + 0.1 * torch.eye(2)

    def update(self, z, gate=9.0):
        y = z - self.H @ self.x
        S = self.H @ self.P @ self.H.T + 0.5
        if (y * y / S[0, 0]).item() > gate:
            self.misses += 1
            return False
        K = (self.P @ self.H.T) / S
        self.x = self.x + (K @ y.unsqueeze(-1)).squeeze(-1)
        self.P = (torch.eye(2) - K @ self.H) @ self.P
        self.misses, self.hits = 0, self.hits + 1
        return True


@program(
    T([1.0, 2, 3]),
    T([4.0, 50, 6]),
    T([100.0, 100, 100]),
    T([1.0, 2, 3]),
    T([math.nan, 2.5, 3]),
    T([3.0, 4, 5]),
)
class GatedKalman(nn.Module):
    """A Kalman filter with a gate, which starts anew when the track is lost."""

    def __init__(self):
        super().__init__()
        self.track = None
        self.restarts = 0

    def step(self, z):
        if self.track is None:
            self.track = Kalman(torch.stack([z, torch.zeros(())]), torch.eye(2))
            return
        self.track.predict()
        if not self.track.update(z.reshape(1)) and self.track.misses > 1:
            raise LostTrack(self.track.misses)

    def forward(self, zs):
        accepted = 0
        for z in zs:
            if z.isnan():
                continue
            try:
                self.step(z)
            except LostTrack as lost:
                self.restarts += lost.misses
                self.track = None
            else:
                accepted += self.track.misses == 0
        x = self.track.x if self.track is not None else torch.zeros(2)
        return x, accepted, self.restarts


class Detection(NamedTuple):
    center: torch.Tensor
    score: float


@program(
    (T([[0.0, 0], [5, 5], [9, 9]]), T([0.9, 0.8, 0.1])),
    (T([[0.5, 0], [5, 6], [9, 9]]), T([0.9, 0.8, 0.9])),
    (T([[0.5, 1], [5, 6], [9, 8]]), T([0.2, 0.2, 0.9])),
    (T([[0.5, 1], [5, 6], [9, 8]]), T([0.1, 0.1, 0.1])),
    (T([[20.0, 1], [5, 6], [9, 8]]), T([0.9, 0.9, 0.9])),
)
class SlotMatcher(nn.Module):
    """Four slots of tracks: the nearest pairs are matched first, what is left takes free slots."""

    def __init__(self, slots=4, reach=3.0):
        super().__init__()
        self.register_buffer("places", torch.zeros(slots, 2))
        self.ids = [-1] * slots
        self.age = [0] * slots
        self.ticket = itertools.count()
        self.next_id = 0
        self.reach = reach

    def pairs(self, detections):
        for slot, owner in enumerate(self.ids):
            if owner < 0:
                continue
            for d, detection in enumerate(detections):
                distance = torch.dist(self.places[slot], detection.center).item()
                if distance < self.reach:
                    yield distance, slot, d

    def forward(self, centers, scores):
        detections = [Detection(c, s) for c, s in zip(centers, scores.tolist()) if s > 0.3]
        taken, used = set(), set()
        for _, slot, d in sorted(self.pairs(detections)):
            if slot in taken or d in used:
                continue
            taken.add(slot)
            used.add(d)
            self.places[slot] = detections[d].center
            self.age[slot] = 0
        for slot in range(len(self.ids)):
            if self.ids[slot] >= 0 and slot not in taken:
                self.age[slot] += 1
                if self.age[slot] > 1:
                    self.ids[slot] = -1
        for d, detection in enumerate(detections):
            if d in used:
                continue
            if -1 not in self.ids:
                break
            slot = self.ids.index(-1)
            self.ids[slot], self.age[slot] = self.next_id, 0
            self.places[slot] = detection.center
            self.next_id += 1
        return torch.tensor(self.ids), self.places.clone(), len(taken)


# --- solvers


def stiff(t, y):
    return -4 * y + torch.sin(t * 3)


@program((T([1.0]), T(1.0)), (T([5.0]), T(0.2)), (T([1.0]), T(0.0)), (T([1e4]), T(1.0)))
def heun_with_pi_controller(y, end):
    """Heun's method with a controller of the step, as a generator of accepted steps."""

    def steps(y, t=0.0, h=0.1, before=1.0):
        rejected = 0
        while t < end:
            h = min(h, (end - t).item())
            k1 = stiff(torch.as_tensor(t), y)
            k2 = stiff(torch.as_tensor(t + h), y + h * k1)
            error = (h * (k2 - k1) / 2).abs().max().item() / 1e-2
            if error > 1 and h > 1e-3:
                h *= max(0.2, 0.9 / error**0.5)
                rejected += 1
                continue
            y = y + h * (k1 + k2) / 2
            t += h
            h *= min(2.0, 0.9 * (1 / max(error, 1e-6)) ** 0.35 * before**0.2)
            before = max(error, 1e-4)
            yield t, y, rejected

    count, t, rejected = 0, 0.0, 0
    for t, y, rejected in steps(y):
        count += 1
        if count >= 40:
            break
    return y, t, rejected, count


@program(
    (T([[4.0, 1], [1, 3]]), T([1.0, 2])),
    (T([[1.0, 0], [0, -1]]), T([1.0, 1])),
    (T([[2.0, 0], [0, 2]]), T([0.0, 0])),
    (T([[1.0, 2], [2, 1]]), T([1.0, -1])),
)
class PreconditionedCG(nn.Module):
    """Conjugate gradients with a diagonal preconditioner; negative curvature is an error."""

    def __init__(self, tol=1e-6):
        super().__init__()
        self.tol = tol
        self.history = []
        self.failures = 0

    def forward(self, a, b):
        x = torch.zeros_like(b)
        r = b.clone()
        inverse = 1 / a.diagonal().abs()
        z = inverse * r
        p, rz = z.clone(), r @ z
        residuals = [r.norm()]
        for k in range(2 * len(b)):
            if residuals[-1] < self.tol:
                break
            ap = a @ p
            if (curvature := p @ ap) <= 0:
                self.failures += 1
                raise ArithmeticError(f"negative curvature {curvature:.3f} in iteration {k}")
            alpha = rz / curvature
            x = x + alpha * p
            r = r - alpha * ap
            residuals.append(r.norm())
            z = inverse * r
            rz, old = r @ z, rz
            p = z + rz / old * p
        return x, len(residuals), residuals[-1], self.failures


def rosenbrock(v):
    x, y = v
    return (1 - x) ** 2 + 10 * (y - x * x) ** 2


@program(T([0.0, 0]), T([1.0, 1]), T([-1.2, 1]), T([30.0, -40]), T([math.inf, 1]))
def damped_newton(start):
    """Newton's method with a line search, whose `else` gives up."""
    v, status, evaluations = start, "running", 0
    for iteration in range(8):
        x, y = v
        grad = torch.stack([-2 * (1 - x) - 40 * x * (y - x * x), 20 * (y - x * x)])
        if not torch.isfinite(grad).all():
            status = "diverged"
            break
        if grad.norm() < 1e-4:
            status = "converged"
            break
        hess = torch.stack(
            [torch.stack([2 - 40 * y + 120 * x * x, -40 * x]), torch.stack([-40 * x, torch.full((), 20.0)])]
        )
        step = torch.linalg.solve(hess, -grad)
        if step @ grad >= 0:
            step = -grad
        scale, f0 = 1.0, rosenbrock(v)
        while scale > 1e-3:
            evaluations += 1
            if rosenbrock(v + scale * step) <= f0 + 1e-4 * scale * (step @ grad):
                v = v + scale * step
                break
            scale /= 2
        else:
            status = "stalled"
            break
    return v, iteration, evaluations, ["running", "converged", "stalled", "diverged"].index(status)


@program(T([1.0, 0, -2]), T([1.0, 0, 2]), T([0.0, 1, -50]), T([0.0, 1, 0]), T([-1.0, 0, 300]))
def bracket_then_bisect(coefficients):
    """Widens a bracket until the sign changes, then halves it."""
    a, b, c = coefficients.tolist()
    f = lambda x: (a * x + b) * x + c  # noqa: E731
    low, high, widened = 0.0, 1.0, 0
    while f(low) * f(high) > 0:
        high *= 2
        widened += 1
        if widened > 6:
            raise ValueError(f"no change of sign in [{low}, {high}]")
    if f(low) == 0:
        return low, widened, 0
    trips = 0
    while high - low > 1e-3:
        trips += 1
        middle = (low + high) / 2
        if (value := f(middle)) == 0:
            low = high = middle
        elif (value > 0) == (f(high) > 0):
            high = middle
        else:
            low = middle
    return (low + high) / 2, widened, trips


class SinkhornResult(NamedTuple):
    plan: torch.Tensor
    trips: int
    converged: bool


@program(
    seeded(3, 4, seed=1).abs(), seeded(3, 4, seed=2).abs() * 20, torch.zeros(3, 4), seeded(3, 4) * math.nan
)
class LogSinkhorn(nn.Module):
    """Sinkhorn in the log domain until the margin holds, with a colder start of each next trial."""

    def solve(self, cost, eps, max_iter=30):
        log_a = torch.full((3,), -math.log(3))
        log_b = torch.full((4,), -math.log(4))
        f, g = torch.zeros(3), torch.zeros(4)
        for it in range(max_iter):
            f = eps * (log_a - torch.logsumexp((g[None] - cost) / eps, 1))
            g = eps * (log_b - torch.logsumexp((f[:, None] - cost) / eps, 0))
            plan = ((f[:, None] + g[None] - cost) / eps).exp()
            error = (plan.sum(1) - log_a.exp()).abs().sum()
            if error.isnan():
                raise FloatingPointError("Sinkhorn went NaN")
            if error < 1e-3:
                return SinkhornResult(plan, it + 1, True)
        return SinkhornResult(plan, max_iter, False)

    def forward(self, cost):
        eps, used = 0.1, 0
        while True:
            result = self.solve(cost, eps)
            used += result.trips
            if result.converged or eps > 5:
                break
            eps *= 4
        return result.plan, used, eps, result.converged


# --- batches, tokens and texts


@dataclass(order=True)
class Bin:
    room: int
    index: int = field(compare=False)
    used: int = field(default=0, compare=False)


@program(T([3, 5, 2, 6]), T([8, 8, 8, 8]), T([1, 1, 1, 1]), T([4, 9, 1, 1]), T([5, 4, 4, 3]))
def best_fit_decreasing(lengths, capacity=8):
    """Packs sequences into rows, the tightest row first, and gives each token its position."""
    order = torch.argsort(lengths, descending=True, stable=True).tolist()
    bins = []
    where = [0] * len(order)
    for i in order:
        n = lengths[i].item()
        if n > capacity:
            raise ValueError(f"sequence {i} has {n} tokens")
        fitting = [b for b in bins if b.room >= n]
        if fitting:
            chosen = min(fitting)
        else:
            chosen = Bin(capacity, len(bins))
            bins.append(chosen)
        where[i] = chosen.index * capacity + chosen.used
        chosen.used += n
        chosen.room -= n
    waste = sum(b.room for b in bins)
    return torch.tensor(where), len(bins), waste


@program(T(3), T(7), T(2), T(4), T(15), T(6), T(1), T(40), T(8))
class BucketBatcher(nn.Module):
    """Puts lengths into buckets, and gives a batch out when one is full."""

    BOUNDS = (4, 8, 16)

    def __init__(self, size=2):
        super().__init__()
        self.size = size
        self.waiting = defaultdict(list)
        for i in range(len(self.BOUNDS)):
            self.waiting[i] = []
        self.batches = 0

    def forward(self, length):
        b = bisect.bisect_left(self.BOUNDS, length.item())
        if b == len(self.BOUNDS):
            raise ValueError("too long")
        self.waiting[b].append(length.item())
        if len(self.waiting[b]) < self.size:
            return -1, 0, self.batches
        batch = self.waiting[b]
        padding = sum(max(batch) - n for n in batch)
        self.waiting[b] = []
        self.batches += 1
        return self.BOUNDS[b], padding, self.batches


@program(T([0, 0, 1, 1, 1, 0]), T([1, 1, 1, 1, 1, 1]), T([0, 1, 0, 1, 0, 1]), T([2, 2, 0, 0, 1, 1]))
def mask_to_rle(mask):
    """COCO's run lengths of a mask, begun with zeros, and the mask made again of them."""
    if mask.max() > 1:
        raise TypeError("a mask has zeros and ones")
    counts = []
    current = 0
    for value, group in itertools.groupby(mask.tolist()):
        if value != current:
            counts.append(0)
            current = value
        counts.append(len(list(group)))
        current = 1 - current
    back = torch.zeros_like(mask)
    at = 0
    for i, n in enumerate(counts):
        if i % 2:
            back[at : at + n] = 1
        at += n
    assert torch.equal(back, mask)
    return back, len(counts), max(counts[1::2], default=0)


@program(
    (T([1, 2, 3, 4]), T([1, 2, 3, 4])),
    (T([1, 2, 3, 4]), T([2, 3, 4, 5])),
    (T([1, 1, 1, 1]), T([2, 2, 2, 2])),
    (T([1, 2, 3, 4]), T([1, 3, 3, 4])),
)
def banded_levenshtein(a, b, limit=2):
    """The edit distance in a band, given up when a row is over the limit."""
    n, m = len(a), len(b)
    row = list(range(m + 1))
    for i in range(1, n + 1):
        new = [i] + [limit + 1] * m
        for j in range(max(1, i - limit), min(m, i + limit) + 1):
            if a[i - 1] == b[j - 1]:
                new[j] = row[j - 1]
            else:
                new[j] = 1 + min(row[j - 1], row[j], new[j - 1])
        if min(new) > limit:
            return None if n == 0 else -1, i
        row = new
    return row[m], n


@program(
    (T([0.0, 1, 2]), T([5.0, 0, 1, 2, 5, 0])),
    (T([0.0, 1, 2]), T([9.0, 9, 9, 9, 9, 9])),
    (T([0.0, 0, 0]), T([1.0, 0, 0, 0, 0, 0])),
)
class SubsequenceDtw(nn.Module):
    """The best place of a query in a longer series, with windows abandoned early."""

    def __init__(self):
        super().__init__()
        self.abandoned = 0

    def distance(self, q, s, best):
        inf = float("inf")
        prev = [0.0] + [inf] * len(s)
        for i, x in enumerate(q):
            cur = [inf]
            for j, y in enumerate(s, start=1):
                cur.append((x - y).abs().item() + min(prev[j - 1], prev[j], cur[j - 1]))
            if min(cur) >= best:
                self.abandoned += 1
                return None
            prev = cur
        return prev[-1]

    def forward(self, query, series):
        best, place = 6.0, -1
        for start in range(len(series) - len(query) + 1):
            d = self.distance(query, series[start : start + len(query)], best)
            if d is None:
                continue
            if d < best:
                best, place = d, start
        return best, place, self.abandoned


@program(
    T([72, 105, 32, 49]), T([32, 32, 57, 65]), T([200, 32, 49, 50]), T([10, 9, 97, 126]), T([0, 1, 2, 300])
)
class ByteTokenizer(nn.Module):
    """Classes of bytes by `match`, with words joined and digits counted."""

    def __init__(self):
        super().__init__()
        self.unknown = 0

    def kind(self, byte):
        match byte:
            case 32 | 9 | 10:
                return 0
            case b if 48 <= b <= 57:
                return 1
            case b if chr_range(b):
                return 2
            case b if b > 255:
                raise UnicodeError("not a byte")
            case _:
                self.unknown += 1
                return 3

    def forward(self, ids):
        tokens, previous = [], None
        for byte in ids.tolist():
            kind = self.kind(byte)
            if kind and kind == previous:
                tokens[-1] = tokens[-1] * 256 + byte
            elif kind:
                tokens.append(byte)
            previous = kind
        return len(tokens), sum(tokens), self.unknown


def chr_range(b):
    return 65 <= b <= 90 or 97 <= b <= 122


# --- graphs


@program(
    T([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]),
    torch.ones(4, 4).long() - torch.eye(4).long(),
    torch.zeros(4, 4).long(),
    T([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]),
)
def two_coloring(adjacency):
    """Colors a graph by breadth-first search, and tells the first edge that cannot be."""
    n = len(adjacency)
    color = [-1] * n
    components = 0
    for source in range(n):
        if color[source] >= 0:
            continue
        components += 1
        color[source] = 0
        queue = deque([source])
        while queue:
            u = queue.popleft()
            for v in range(n):
                if not adjacency[u, v]:
                    continue
                if color[v] < 0:
                    color[v] = 1 - color[u]
                    queue.append(v)
                elif color[v] == color[u]:
                    return torch.tensor(color), components, False
    return torch.tensor(color), components, True


@program(
    T([[0.0, 2, 9], [2, 0, 1], [9, 1, 0]]),
    T([[0.0, 2, 0], [2, 0, 0], [0, 0, 0]]),
    T([[0.0, 5, 1], [5, 0, 1], [1, 1, 0]]),
)
def prim(weights):
    """A minimal spanning tree by Prim; zero is no edge."""
    n = weights.shape[0]
    inside = {0}
    parent = [-1] * n
    total = 0.0
    while len(inside) < n:
        best = (math.inf, -1, -1)
        for u in range(n):
            if u not in inside:
                continue
            for v in range(n):
                if v not in inside and 0 < weights[u, v] < best[0]:
                    best = (weights[u, v].item(), u, v)
        w, u, v = best
        if v < 0:
            raise ValueError("the graph is not connected")
        inside.add(v)
        parent[v] = u
        total += w
    return torch.tensor(parent), total


@program(
    T([[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1], [0, 0, 0, 0]]),
    torch.zeros(4, 4).long(),
    T([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]),
    T([[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]]),
)
def strong_components(adjacency):
    """Strongly connected components by Kosaraju, with a recursive visit."""
    n = len(adjacency)
    seen, order = [False] * n, []
    label = [-1] * n

    def visit(u):
        seen[u] = True
        for v in range(n):
            if adjacency[u, v] and not seen[v]:
                visit(v)
        order.append(u)

    def assign(u, root):
        label[u] = root
        for v in range(n):
            if adjacency[v, u] and label[v] < 0:
                assign(v, root)

    for u in range(n):
        if not seen[u]:
            visit(u)
    count = 0
    for u in reversed(order):
        if label[u] < 0:
            assign(u, count)
            count += 1
    return torch.tensor(label), count


@program(
    T([[1, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 1]]),
    torch.zeros(3, 4).long(),
    torch.ones(3, 4).long(),
    T([[1, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1]]),
)
def label_by_propagation(image):
    """Labels of connected pixels, spread until nothing changes; the largest component's size."""
    h, w = image.shape
    labels = torch.arange(1, h * w + 1).reshape(h, w) * image
    sweeps = 0
    changed = True
    while changed:
        before = labels.clone()
        padded = torch.nn.functional.pad(labels, (1, 1, 1, 1))
        for dy, dx in ((0, 1), (1, 0), (-1, 0), (0, -1)):
            shifted = padded[1 + dy : 1 + dy + h, 1 + dx : 1 + dx + w]
            labels = torch.where(image > 0, torch.maximum(labels, shifted), labels)
        changed = not torch.equal(labels, before)
        sweeps += 1
    sizes = Counter(v for v in labels.flatten().tolist() if v)
    if not sizes:
        return labels, 0, 0, sweeps
    (label, size), *rest = sizes.most_common()
    return labels, label, size, len(rest)


# --- matching


def area_of_union(a, b):
    lt, rb = torch.maximum(a[:2], b[:2]), torch.minimum(a[2:], b[2:])
    inter = (rb - lt).clamp(min=0).prod()
    return (inter / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - inter)).item()


@dataclass
class Fused:
    box: torch.Tensor
    weight: float
    count: int = 1

    def __iadd__(self, other):
        box, score = other
        self.box = (self.box * self.weight + box * score) / (self.weight + score)
        self.weight += score
        self.count += 1
        return self


@program(
    (T([[0.0, 0, 4, 4], [0, 0, 4, 5], [8, 8, 9, 9]]), T([0.9, 0.8, 0.7])),
    (T([[0.0, 0, 4, 4], [0, 0, 4, 4], [0, 0, 4, 4]]), T([0.5, 0.8, 0.7])),
    (T([[0.0, 0, 1, 1], [2, 2, 3, 3], [8, 8, 9, 9]]), T([0.1, 0.2, 0.05])),
    (T([[0.0, 0, 1, 1], [2, 2, 3, 3], [8, 8, 9, 9]]), T([0.9, 0.95, 0.8])),
)
def weighted_boxes_fusion(boxes, scores):
    """Boxes that overlap are averaged by their scores, instead of being suppressed."""
    fused = []
    for i in scores.argsort(descending=True).tolist():
        if scores[i] < 0.15:
            break
        for cluster in fused:
            if area_of_union(cluster.box, boxes[i]) > 0.5:
                cluster += (boxes[i], scores[i].item())
                break
        else:
            fused.append(Fused(boxes[i], scores[i].item()))
    if not fused:
        return torch.zeros(4), 0.0, 0
    top = max(fused, key=lambda c: c.weight / c.count)
    return top.box, top.weight, len(fused)


@program(
    seeded(3, 3, seed=1), torch.ones(3, 3), T([[9.0, 1, 1], [9, 8, 1], [9, 8, 7]]), seeded(3, 3, seed=4) * 10
)
def auction_assignment(value):
    """Bertsekas' auction: persons bid for objects until each has one."""
    n = len(value)
    prices = torch.zeros(n)
    owner = {}
    waiting = deque(range(n))
    bids = 0
    while waiting and bids < 30:
        person = waiting.popleft()
        (best, second), (item, _) = (v[:2] for v in (value[person] - prices).topk(2))
        item = item.item()
        prices[item] += best - second + 0.1
        bids += 1
        if item in owner:
            waiting.append(owner[item])
        owner[item] = person
    total = sum(value[p, i].item() for i, p in sorted(owner.items()))
    return torch.tensor([owner.get(i, -1) for i in range(n)]), total, bids


# --- services


@contextlib.contextmanager
def loss_scale(owner):
    owner.scale_uses += 1
    before = owner.scale
    try:
        yield owner.scale
    except OverflowError:
        owner.scale = max(before / 2, 1.0)
        owner.good = 0
    else:
        owner.good += 1
        if owner.good % 2 == 0:
            owner.scale = min(before * 2, 2.0**10)
    finally:
        owner.scale_uses -= 1


@program(T([1.0, 2]), T([1e38, 2]), T([0.5, 0.5]), T([0.25, 0.5]), T([math.nan, 0.5]))
class ScaledStepper(nn.Module):
    """A step whose scale a context manager changes when the gradient overflows."""

    def __init__(self):
        super().__init__()
        self.scale = 4.0
        self.good = 0
        self.scale_uses = 0
        self.weight = torch.zeros(2)

    def forward(self, grad):
        stepped = False
        with loss_scale(self) as scale:
            scaled = grad * scale
            if not torch.isfinite(scaled).all():
                raise OverflowError("gradient")
            self.weight = self.weight - 0.1 * scaled / scale
            stepped = True
        return self.weight, self.scale, stepped, self.scale_uses


def counted(fn):
    calls = {"n": 0}

    @functools.wraps(fn)
    def wrapper(self, *args, limit=3, **kwargs):
        calls["n"] = 0
        for attempt in range(limit):
            calls["n"] += 1
            try:
                return fn(self, *args, attempt=attempt, **kwargs), calls["n"]
            except (ValueError, ZeroDivisionError) as error:
                last = error
        raise RuntimeError("gave up") from last

    return wrapper


@program(T([1.0, 2, 3]), T([0.0, 0, 0]), T([0.0, 0, 4]), T([-1.0, -2, -3]), T([-4.0, 0, 0]))
class RetriedQuery(nn.Module):
    """A query that is tried on the next replica when it fails, with breakers."""

    def __init__(self):
        super().__init__()
        self.failures = [0, 0, 0]

    @counted
    def query(self, x, *, attempt, floor=0.0):
        if self.failures[attempt] >= 2:
            raise ValueError("breaker is open")
        v = x[attempt].item()
        try:
            if v < floor:
                raise ValueError("negative")
            answer = 1 / v
        except (ValueError, ZeroDivisionError):
            self.failures[attempt] += 1
            raise
        else:
            self.failures[attempt] = 0
        return answer

    def forward(self, x):
        answer, attempts = self.query(x, floor=-0.5)
        return answer, attempts, torch.tensor(self.failures)


@program(T([5, 0, 3]), T([1, 1, 1]), T([0, 0, 0]), T([9, 9, 9]), T([2, 7, 0]), T([0, 0, 2]))
class FairScheduler(nn.Module):
    """Deficit round robin of three queues with quanta, whose turn goes on in the next call."""

    def __init__(self):
        super().__init__()
        self.deficit = [0] * 3
        self.backlog = [0] * 3
        self.turn = 0

    @property
    def idle(self):
        return not any(self.backlog)

    def admit(self, arrivals):
        for q, n in enumerate(arrivals.tolist()):
            if n and self.backlog[q] + n > 12:
                raise OverflowError(f"queue {q} is full")
            self.backlog[q] += n

    def forward(self, arrivals):
        self.admit(arrivals)
        served = [0] * 3
        budget = 6
        visits = 0
        while budget > 0 and not self.idle and visits < 9:
            q = self.turn
            visits += 1
            if self.backlog[q]:
                self.deficit[q] += 2
                n = min(self.deficit[q], self.backlog[q], budget)
                served[q] += n
                self.backlog[q] -= n
                self.deficit[q] = self.deficit[q] - n if self.backlog[q] else 0
                budget -= n
            self.turn = (q + 1) % 3
        return torch.tensor(served), torch.tensor(self.backlog), self.turn
