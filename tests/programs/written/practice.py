"""What models do around their tensors: adaptive steps, trackers, filters, caches, scopes, dispatch."""

# ruff: noqa: B007, B905, FURB136, PERF401, PYI024, UP042  # as people write it

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import typing

import torch
from torch import nn

from tests.programs.written import program, seeded

T = torch.tensor


@program(T([1.0, 0.5]), T([-2.0, 8.0]), T([0.0, 0.0]))
def adaptive_heun(y):
    t, h, rejected = 0.0, 0.5, 0
    while t < 1.0:
        h = min(h, 1.0 - t)
        k1 = -2.0 * y
        k2 = -2.0 * (y + h * k1)
        err = (0.5 * h * (k2 - k1)).abs().max().item()
        if err > 0.1 and h > 0.05:
            h *= 0.5
            rejected += 1
            continue
        y = y + 0.5 * h * (k1 + k2)
        t += h
        if err < 0.01:
            h *= 2
    return y, torch.tensor(rejected)


@dataclasses.dataclass
class Track:
    position: torch.Tensor
    age: int = 0
    missed: int = 0
    alive: bool = True

    def update(self, z):
        if (z - self.position).abs() < 1.0:
            self.position = 0.5 * (self.position + z)
            self.missed = 0
        else:
            self.missed += 1
            self.alive = self.missed < 2
        self.age += 1


@program(T([0.0, 0.5, 0.9]), T([0.0, 5.0, 6.0]), T([0.0, 5.0, 0.2]))
def tracker_with_dataclass(z):
    track = Track(z[0])
    for v in z[1:]:
        track.update(v)
        if not track.alive:
            track = Track(v)
    return track.position, torch.tensor([track.age, track.missed, int(track.alive)])


@dataclasses.dataclass
class SearchState:
    lo: float
    hi: float
    steps: int = 0


@program(T(2.0), T(9.0), T(0.5), T(0.0))
def bisection_with_state_object(x):
    s = SearchState(0.0, max(1.0, x.item()))
    while s.hi - s.lo > 1e-3 and s.steps < 30:
        mid = (s.lo + s.hi) / 2
        if mid * mid > x:
            s.hi = mid
        else:
            s.lo = mid
        s.steps += 1
    return torch.tensor([s.lo, float(s.steps)])


class KVCache:
    def __init__(self):
        self.keys = None
        self.length = 0

    def update(self, k):
        if self.keys is None:
            self.keys = torch.zeros(6, 2)
        self.keys[self.length] = k
        self.length += 1
        return self.keys[: self.length]


class CachedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = KVCache()

    def forward(self, q):
        k = self.cache.update(q)
        w = torch.softmax(k @ q, 0)
        if w.max() > 0.8:
            return k[int(w.argmax())]
        return w @ k


program(*[seeded(2, seed=i) * 2 for i in range(3)])(CachedAttention)


@program((seeded(8), T(0.3)), (torch.ones(8), T(0.0)), (seeded(8, seed=2), T(2.0)))
def particle_filter_step(particles, z):
    w = torch.exp(-0.5 * (particles - z) ** 2)
    w = w / w.sum()
    if 1.0 / (w**2).sum() < 4.0:
        positions = (torch.arange(8) + 0.5) / 8
        c = torch.cumsum(w, 0)
        idx = []
        i = j = 0
        while i < 8:
            if j == 7 or positions[i] < c[j]:
                idx.append(j)
                i += 1
            else:
                j += 1
        particles = particles[torch.tensor(idx)]
        w = torch.full((8,), 1 / 8)
    return particles, (w * particles).sum()


class Phase(str, enum.Enum):
    WARMUP = "warmup"
    COSINE = "cosine"
    DONE = "done"


class CosineSchedule(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("step", torch.tensor(0))

    @property
    def phase(self):
        n = self.step.item()
        if n < 2:
            return Phase.WARMUP
        return Phase.COSINE if n < 4 else Phase.DONE

    def forward(self, x):
        phase = self.phase
        if phase is Phase.WARMUP:
            lr = 0.1 * (self.step.item() + 1)
        elif phase == "cosine":
            lr = 0.1 * (1 + math.cos(math.pi * (self.step.item() - 2) / 2))
        else:
            lr = 0.0
        self.step += 1
        return x * lr


program(*[T([1.0])] * 5)(CosineSchedule)


@program(T([4.0, 2.0]), T([0.5, 0.1]), T([-1.0, 0.0]))
def retry_with_fallbacks(x):
    def solve(eps):
        d = x[0] - 3.0 + eps
        if d.abs() < 0.2 or x[0] < 0:
            raise ValueError("singular")
        return x[1] / d

    for eps in (0.0, 0.5, 1.0):
        try:
            out = solve(eps)
        except ValueError:
            continue
        else:
            break
    else:
        out = torch.full((), float("nan"))
    return out, torch.tensor(eps)


@program(T([1.0, 2.0, 3.0]), T([-1.0, 2.0, 3.0]))
def exit_stack(x):
    log = []

    @contextlib.contextmanager
    def scaled(by):
        log.append(by)
        try:
            yield by * 2
        finally:
            log.append(-by)

    with contextlib.ExitStack() as stack:
        a = stack.enter_context(scaled(1))
        b = stack.enter_context(scaled(2))
        y = x * a if x.sum() > 5 else x * b
    return y, torch.tensor(log)


@program(T([1.0, 2.0, 3.0]), T([-1.0, -2.0, 3.0]))
def contextmanager_with_value(x):
    @contextlib.contextmanager
    def clipped(v, limit):
        if v.abs().max() > limit:
            v = v.clamp(-limit, limit)
        yield v

    with clipped(x, 2.5) as y:
        if y.min() < 0:
            y = y + 1
    return y


class _Scope:
    def __init__(self, stats):
        self.stats = stats

    def __enter__(self):
        self.stats["depth"] += 1
        return self

    def __exit__(self, kind, value, traceback):
        self.stats["depth"] -= 1
        if kind is ValueError:
            self.stats["caught"] += 1
            return True
        return False


@program(T([1.0]), T([-1.0]))
def scope_that_swallows(x):
    stats = {"depth": 0, "caught": 0}
    with _Scope(stats):
        if x[0] < 0:
            raise ValueError("no")
        x = x * 2
    return x, torch.tensor([stats["depth"], stats["caught"]])


Box = collections.namedtuple("Box", ["x1", "x2", "score"])


@program(
    (T([0.0, 0.5, 3.0]), T([0.9, 0.8, 0.7])),
    (T([0.0, 2.0, 4.0]), T([0.1, 0.8, 0.7])),
    (T([0.0, 0.1, 0.2]), T([0.1, 0.8, 0.9])),
)
def nms_of_namedtuples(starts, scores):
    boxes = [Box(s, s + 1, c) for s, c in zip(starts.tolist(), scores.tolist())]
    kept = []
    for box in sorted(boxes, key=lambda b: b.score, reverse=True):
        for other in kept:
            overlap = min(box.x2, other.x2) - max(box.x1, other.x1)
            if overlap > 0.5:
                break
        else:
            kept.append(box)
    return torch.tensor(len(kept)), torch.tensor(sum(b.score for b in kept))


class Registry(nn.Module):
    handlers: typing.ClassVar[dict] = {}

    def forward(self, x):
        kind = "neg" if x.sum() < 0 else "big" if x.max() > 10 else "usual"
        return getattr(self, f"on_{kind}", self.on_usual)(x)

    def on_neg(self, x):
        return -x

    def on_usual(self, x):
        return x

    def on_big(self, x):
        return x / x.max()


program(T([1.0, 2.0]), T([-1.0, -2.0]), T([1.0, 20.0]))(Registry)


class Dispatch(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.experts = nn.ModuleDict({"small": nn.Linear(2, 2), "large": nn.Linear(2, 2)})
        self.counts = collections.defaultdict(int)

    def forward(self, x):
        name = "large" if x.norm() > 2 else "small"
        self.counts[name] += 1
        return self.experts[name](x), torch.tensor(self.counts["small"] - self.counts["large"])


program(T([1.0, 1.0]), T([3.0, 1.0]), T([0.0, 1.0]))(Dispatch)


@program(T([1, 1, 2, 2, 2, 3]), T([1, 2, 3, 4, 5, 6]), T([7, 7, 7, 7, 7, 7]))
def run_lengths_groupby(x):
    lengths = [len(list(g)) for _, g in itertools.groupby(x.tolist())]
    return torch.tensor(max(lengths)), torch.tensor(len(lengths))


@program(T([1.0, 5.0, 2.0]), T([-1.0, -5.0, 2.0]))
def reduce_with_lambda(x):
    best = functools.reduce(lambda a, b: a if a > b else b, x)
    total = functools.reduce(lambda acc, v: acc + v if v > 0 else acc, x.tolist(), 0.0)
    return best, torch.tensor(total)


@program(T([0.5, 3.0, -2.0]), T([0.0, 0.0, 0.0]))
def takewhile_and_chain(x):
    head = list(itertools.takewhile(lambda v: v > 0, x))
    rest = list(itertools.dropwhile(lambda v: v > 0, x))
    total = torch.zeros(())
    for v in itertools.chain(head, rest):
        total = total * 0.5 + v
    return total, torch.tensor(len(head))


class Momentum(nn.Module):
    """Remembers by parameter name, as optimizers do."""

    def __init__(self):
        super().__init__()
        self.state = {}
        self.w = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, g):
        for name, p in self.named_parameters():
            state = self.state.setdefault(name, {"step": 0, "m": torch.zeros_like(p)})
            state["step"] += 1
            state["m"].mul_(0.9).add_(g)
            if g.norm() > 5:
                state["m"].zero_()
                continue
            p.sub_(0.1 * state["m"] / state["step"])
        return self.w.clone()


program(T([1.0, 2.0]), T([10.0, 2.0]), T([1.0, -1.0]))(Momentum)


class EarlyStopper(nn.Module):
    def __init__(self, patience=2):
        super().__init__()
        self.patience, self.bad, self.best, self.stopped = patience, 0, None, False

    def forward(self, loss):
        value = loss.item()
        if self.stopped:
            raise StopIteration("stopped")
        match (self.best, value):
            case (None, v):
                self.best = v
            case (b, v) if v < b - 0.1:
                self.best, self.bad = v, 0
            case _:
                self.bad += 1
                self.stopped = self.bad >= self.patience
        return torch.tensor([self.best, float(self.bad)])


program(T(3.0), T(2.0), T(2.5), T(2.0))(EarlyStopper)


@program(T([2, 5, 0, 1]), T([0, 0, 0, 0]), T([9, 9, 9, 9]))
def tokens_with_sentinel(ids):
    words = {0: "<eos>", 1: "a", 2: "b"}
    out = []
    for token in (words.get(i, "<unk>") for i in ids.tolist()):
        if token == "<eos>":
            break
        out.append(len(token))
    return torch.tensor(sum(out)), torch.tensor(len(out))


@program(T([3.0, 1.0]), T([-3.0, 1.0]), T([0.0, 1.0]))
def generator_with_return(x):
    def steps(v):
        n = 0
        while v.abs() > 0.5 and n < 5:
            v = v / 2
            n += 1
            yield v
        return n

    def outer(v):
        n = yield from steps(v)
        yield torch.tensor(float(n))

    total = torch.zeros(())
    for s in outer(x[0]):
        total = total + s
    return total


class Recorder(nn.Module):
    """Counts what its submodule saw by a hook."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 2)
        self.seen = {"max": 0.0, "calls": 0}
        self.layer.register_forward_hook(self.note)

    def note(self, module, args, out):
        self.seen["calls"] += 1
        top = out.max().item()
        if top > self.seen["max"]:
            self.seen["max"] = top

    def forward(self, x):
        y = self.layer(x)
        while y.norm() > 1.0 and self.seen["calls"] % 5:
            y = self.layer(y * 0.5)
        return y, torch.tensor([self.seen["max"], float(self.seen["calls"])])


program(T([1.0, 1.0]), T([5.0, -9.0]), T([0.0, 0.1]))(Recorder)


@program((seeded(6, 2), T([[0.0, 0.0], [1.0, 1.0]])), (seeded(6, 2, seed=1), T([[9.0, 9.0], [0.0, 0.0]])))
def kmeans_with_empty_clusters(x, centers):
    for it in range(4):
        assign = torch.cdist(x, centers).argmin(1)
        new = centers.clone()
        for k in range(len(centers)):
            members = x[assign == k]
            if len(members) == 0:
                continue
            new[k] = members.mean(0)
        if torch.allclose(new, centers):
            break
        centers = new
    return centers, torch.tensor(it)


@program(T([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]), T([[0.1, 0.9], [0.6, 0.4], [0.3, 0.7]]))
def beam_of_two(probs):
    beams = [([], 0.0)]
    for row in probs.log():
        candidates = []
        for seq, score in beams:
            for token in range(2):
                candidates.append(([*seq, token], score + row[token].item()))
        candidates.sort(key=lambda c: -c[1])
        beams = candidates[:2]
    best, score = beams[0]
    return torch.tensor(best), torch.tensor(score)


@program(T([1.0, 2.0]), T([-1.0, 2.0]), T([-1.0, -2.0]))
def finally_and_return(x):
    log = []

    def work(v):
        try:
            if v < 0:
                return v * 10
            return v
        finally:
            log.append(v + 1)

    return torch.stack([work(v) for v in x]), torch.stack(log)


class Ponder(nn.Module):
    """Adaptive computation: the rows halt one by one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.cell = nn.RNNCell(3, 3)
        self.halt = nn.Linear(3, 1)

    def forward(self, x):
        h = torch.zeros_like(x)
        total = torch.zeros(x.shape[0])
        out = torch.zeros_like(x)
        running = torch.ones(x.shape[0], dtype=torch.bool)
        steps = 0
        while running.any() and (steps := steps + 1) < 6:
            h = torch.where(running[:, None], self.cell(x, h), h)
            p = self.halt(h).sigmoid().squeeze(-1)
            p[~running] = 0.0
            over = (total + p > 0.95) & running
            p[over] = 1 - total[over]
            total += p
            out[running] += p[running, None] * h[running]
            running &= ~over
        else:
            if steps >= 6:
                out[running] += (1 - total[running])[:, None] * h[running]
        return out, torch.tensor(steps)


program(seeded(3, 3), seeded(3, 3, seed=5) * 4)(Ponder)


@program(T([1.0, 2.0, 3.0]), T([4.0, -1.0, 3.0]), T([-4.0, -1.0, -3.0]))
def contextmanager_with_list(x):
    total = []

    @contextlib.contextmanager
    def scope():
        log = []
        yield log
        total.append(T(float(len(log))))
        if x.sum() > 0:
            total.append(x.max())
        else:
            total.append(x.min())

    with scope() as log:
        for v in x:
            if v > 0:
                log.append(v)
    return torch.stack(total), torch.tensor(len(log))


@program(T([1.0, 2.0, 3.0]), T([4.0, -1.0, 3.0]), T([-4.0, -1.0, -3.0]))
def contextmanager_in_branch(x):
    log = []

    @contextlib.contextmanager
    def scope(a):
        log.append(a)
        y = x * a
        try:
            yield y
        finally:
            log.append(-a)
        if y.sum() > 3:
            y.mul_(2)

    if x.sum() > 0:
        with scope(1.0) as r:
            if x.max() > 3:
                r += 1
    else:
        with scope(2.0) as r:
            r[1:].sub_(1)
    return r, torch.tensor(log)


@program(T([1.0, 2.0]), T([-1.0, 2.0]), T([20.0, 2.0]))
def texts_of_choices(x):
    size = "big" if x.max() > 10 else "small"
    sign = "neg" if x[0] < 0 else "pos"
    table = {"pos_small": 1.0, "neg_small": 2.0, "pos_big": 3.0}
    return x * table[f"{sign}_{size}"], torch.tensor(f"{size:>6}!" == " small!")
