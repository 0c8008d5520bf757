"""Decoding, search, trackers and solvers, as an engineer writes them for a review."""

# ruff: noqa: E731, N806, PYI024, RUF005  # as people write it

from __future__ import annotations

import bisect
import enum
import heapq
import math
from collections import defaultdict, deque, namedtuple
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.written import program, seeded

T = torch.tensor
inf, nan = float("inf"), float("nan")


class GreedyWithEOS(nn.Module):
    """Greedy decoding of a bigram table, with a repeat limit and a plain list."""

    EOS = 0

    def __init__(self, vocab=5, max_len=8):
        super().__init__()
        self.table = nn.Parameter(seeded(vocab, vocab, seed=3))
        self.max_len = max_len

    def forward(self, start, temperature):
        if temperature <= 0:
            raise ValueError("temperature must be positive")
        tokens = [int(start)]
        logprob = 0.0
        while len(tokens) < self.max_len:
            logits = self.table[tokens[-1]] / temperature
            if len(tokens) >= 2 and tokens[-1] == tokens[-2]:
                logits[tokens[-1]] = -inf
            lp = F.log_softmax(logits, dim=-1)
            nxt = int(lp.argmax())
            logprob += lp[nxt].item()
            tokens.append(nxt)
            if nxt == self.EOS:
                break
        return torch.tensor(tokens), logprob / len(tokens)


program((T(1), T(1.0)), (T(4), T(0.5)), (T(2), T(-1.0)), (T(7), T(1.0)), (T(0), T(2.0)))(GreedyWithEOS)


@program(
    (seeded(4, 3, seed=1), T(0.5)),
    (seeded(4, 3, seed=5), T(0.0)),
    (torch.zeros(4, 3), T(2.0)),
    (-seeded(4, 3), T(9.0)),
)
def beam_with_length_penalty(logits, alpha):
    steps, vocab = logits.shape
    logp = torch.log_softmax(logits, -1)
    beams = [(0.0, [], False)]
    for t in range(steps):
        candidates = []
        for score, seq, done in beams:
            if done:
                candidates.append((score, seq, True))
                continue
            for v in range(vocab):
                s = score + float(logp[t, v])
                candidates.append((s, seq + [v], v == 0))
        candidates.sort(key=lambda c: c[0] / (len(c[1]) + 1) ** float(alpha), reverse=True)
        beams = candidates[:2]
        if all(done for _, _, done in beams):
            break
    best = max(beams, key=lambda b: b[0] / max(len(b[1]), 1) ** float(alpha))
    out = torch.full((steps,), -1)
    for i, v in enumerate(best[1]):
        out[i] = v
    return out, best[0]


TRIE = {1: {2: {3: {}}, 4: {}}, 2: {3: {}}, 5: {0: {1: {}}}}


@program(seeded(4, 6, seed=2), seeded(4, 6, seed=4), -seeded(4, 6, seed=2), torch.zeros(4, 6))
def constrained_decode(logits):
    """Takes the best allowed token at each step and walks down the trie."""
    node = TRIE
    out = []
    for row in logits:
        if not node:
            break
        best, best_score = None, -math.inf
        for token in node:
            if row[token] > best_score:
                best, best_score = token, row[token]
        out.append(best)
        node = node[best]
    while len(out) < 4:
        out.append(-1)
    return torch.tensor(out)


@program(
    (T([1, 2, 3, 4]), seeded(5, 5, seed=7)),
    (T([0, 0, 0, 0]), seeded(5, 5, seed=8)),
    (T([4, 4, 1, 2]), torch.eye(5)),
    (T([3, 1, 2, 9]), seeded(5, 5, seed=7)),
)
def speculative_greedy(draft, target):
    """Accepts the prefix of the draft that the target agrees with, then the target's own token."""
    accepted = []
    prev = 0
    for token in draft.tolist():
        wanted = target[prev].argmax().item()
        if token != wanted:
            accepted.append(wanted)
            break
        accepted.append(token)
        prev = token
    else:
        accepted.append(target[prev].argmax().item())
    n_ok = len(accepted) - 1
    return F.pad(torch.tensor(accepted), (0, 5 - len(accepted)), value=-1), n_ok


class ACTBlock(nn.Module):
    """Adaptive computation with a ponder cost, per element of the batch."""

    def __init__(self, dim=3, max_steps=6, eps=0.01):
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.Linear(dim, dim)
        self.halt = nn.Linear(dim, 1)
        self.max_steps = max_steps
        self.threshold = 1.0 - eps
        self.register_buffer("avg_steps", torch.zeros(()))

    def forward(self, h):
        batch = h.shape[0]
        p_sum = h.new_zeros(batch)
        remainders = h.new_zeros(batch)
        n_updates = h.new_zeros(batch)
        out = torch.zeros_like(h)
        step = 0
        while step < self.max_steps and (p_sum < self.threshold).any():
            h = torch.tanh(self.cell(h))
            p = torch.sigmoid(self.halt(h)).squeeze(-1)
            running = (p_sum < self.threshold).float()
            new_halted = ((p_sum + p * running) > self.threshold).float() * running
            running = running - new_halted
            p_sum = p_sum + p * running
            remainders = remainders + new_halted * (1 - p_sum)
            p_sum = p_sum + new_halted * remainders
            n_updates = n_updates + running + new_halted
            weight = (p * running + new_halted * remainders).unsqueeze(-1)
            out = out + weight * h
            step += 1
        if self.avg_steps == 0:
            self.avg_steps.copy_(n_updates.mean())
        else:
            self.avg_steps.mul_(0.9).add_(0.1 * n_updates.mean())
        return out, n_updates + remainders, step


program(seeded(2, 3), 50 * seeded(2, 3, seed=1), torch.zeros(2, 3))(ACTBlock)


class CapacityRouter(nn.Module):
    """Top-1 routing with a capacity per expert; overflow goes to the second choice, then dropped."""

    def __init__(self, experts=3, capacity=2):
        super().__init__()
        self.experts, self.capacity = experts, capacity
        self.weight = nn.Parameter(seeded(4, experts, seed=11))
        self.scale = [1.0, -2.0, 0.5]
        self.dropped = 0
        self.load = [0] * experts

    def forward(self, x):
        probs = torch.softmax(x @ self.weight, -1)
        counts = [0] * self.experts
        out = torch.zeros_like(x)
        for i in range(x.shape[0]):
            order = torch.argsort(probs[i], descending=True).tolist()
            for e in order[:2]:
                if counts[e] < self.capacity:
                    counts[e] += 1
                    out[i] = probs[i, e] * self.scale[e] * x[i]
                    break
            else:
                self.dropped += 1
        for e, c in enumerate(counts):
            self.load[e] += c
        return out, torch.tensor(counts), self.dropped, max(self.load) - min(self.load)


program(seeded(5, 4, seed=1), seeded(1, 4).expand(5, 4).clone(), -seeded(5, 4, seed=9), torch.zeros(5, 4))(
    CapacityRouter
)


class SolverFailed(Exception):
    def __init__(self, reason, at):
        super().__init__(f"{reason} at {at}")
        self.reason = reason
        self.at = at


def safe_newton(f, df, x, tol=1e-5, limit=20):
    for i in range(limit):
        fx = f(x)
        if abs(fx) < tol:
            return x, i
        slope = df(x)
        if abs(slope) < 1e-8:
            raise SolverFailed("flat", i)
        x = x - fx / slope
        if not math.isfinite(x):
            raise SolverFailed("diverged", i)
    raise SolverFailed("no convergence", limit)


@program((T(3.0), T(1.0)), (T(-2.0), T(1.0)), (T(2.0), T(0.0)), (T(0.0), T(5.0)), (T(9.0), T(-4.0)))
def newton_or_bisect(c, x0):
    """Solves x**3 = c by Newton, falling back to bisection where it fails."""
    f = lambda v: v**3 - c.item()
    try:
        root, n = safe_newton(f, lambda v: 3 * v * v, x0.item())
        method = 0
    except SolverFailed as e:
        lo, hi = -10.0, 10.0
        n = 0
        while hi - lo > 1e-4:
            mid = (lo + hi) / 2
            if f(lo) * f(mid) <= 0:
                hi = mid
            else:
                lo = mid
            n += 1
        root, method = (lo + hi) / 2, 1 if e.reason == "flat" else 2
    return root, n, method


@program((T([1.0, 1.0]), T(0.1)), (T([5.0, -3.0]), T(1.0)), (T([0.0, 0.0]), T(0.5)), (T([1.0, 2.0]), T(-1.0)))
def wolfe_descent(x, step0):
    """Gradient descent on Rosenbrock-like bowl with backtracking and a history of values."""
    if step0 <= 0:
        raise ValueError(f"step must be positive, got {step0:.2f}")

    def value(v):
        return (v[0] - 1) ** 2 + 5 * (v[1] - v[0]) ** 2

    def grad(v):
        return torch.stack([2 * (v[0] - 1) - 10 * (v[1] - v[0]), 10 * (v[1] - v[0])])

    history = [value(x)]
    for _ in range(10):
        g = grad(x)
        gg = g @ g
        if gg < 1e-6:
            break
        step = step0
        for _ in range(12):
            trial = x - step * g
            if value(trial) <= history[-1] - 0.3 * step * gg:
                break
            step = step * 0.5
        else:
            break
        x = trial
        history.append(value(x))
        if len(history) > 2 and abs(history[-2] - history[-1]) < 1e-4:
            break
    return x, history[-1], len(history)


Box = namedtuple("Box", "x1 y1 x2 y2")


def iou(a, b):
    w = max(0.0, min(a.x2, b.x2) - max(a.x1, b.x1))
    h = max(0.0, min(a.y2, b.y2) - max(a.y1, b.y1))
    inter = w * h
    union = (a.x2 - a.x1) * (a.y2 - a.y1) + (b.x2 - b.x1) * (b.y2 - b.y1) - inter
    return inter / union if union > 0 else 0.0


@dataclass
class Trk:
    id: int
    box: Box
    hits: int = 1
    misses: int = 0


class SortTracker(nn.Module):
    """A fixed number of slots, greedy matching by IoU, ids that are never reused."""

    def __init__(self, slots=2, min_iou=0.3, max_age=1):
        super().__init__()
        self.slots = [None] * slots
        self.next_id = 1
        self.min_iou, self.max_age = min_iou, max_age

    def forward(self, dets):
        boxes = [Box(*row) for row in dets.tolist()]
        used = [False] * len(boxes)
        for s, trk in enumerate(self.slots):
            if trk is None:
                continue
            best, best_j = self.min_iou, -1
            for j, b in enumerate(boxes):
                if used[j]:
                    continue
                o = iou(trk.box, b)
                if o > best:
                    best, best_j = o, j
            if best_j >= 0:
                used[best_j] = True
                trk.box = boxes[best_j]
                trk.hits += 1
                trk.misses = 0
            else:
                trk.misses += 1
                if trk.misses > self.max_age:
                    self.slots[s] = None
        for j, b in enumerate(boxes):
            if used[j] or b.x2 <= b.x1:
                continue
            for s in range(len(self.slots)):
                if self.slots[s] is None:
                    self.slots[s] = Trk(self.next_id, b)
                    self.next_id += 1
                    break
        ids = [t.id if t is not None else 0 for t in self.slots]
        hits = [t.hits if t is not None else 0 for t in self.slots]
        return torch.tensor(ids), torch.tensor(hits), self.next_id


program(
    T([[0.0, 0, 2, 2], [5, 5, 7, 7]]),
    T([[0.1, 0, 2.1, 2], [9, 9, 11, 11]]),
    T([[9.0, 9, 11, 11], [0, 0, 0, 0]]),
    T([[9.0, 9, 11, 11], [0, 0, 0, 0]]),
)(SortTracker)


@program(
    (seeded(4, 4, seed=3).abs() * 10, T([0.9, 0.8, 0.7, 0.6])),
    (T([[0.0, 0, 4, 4], [1, 1, 5, 5], [0, 0, 4, 4.1], [8, 8, 9, 9]]), T([0.5, 0.9, 0.6, 0.1])),
    (T([[0.0, 0, 4, 4]] * 4), T([0.1, 0.2, 0.2, 0.4])),
)
def class_nms(boxes, scores):
    order = sorted(range(4), key=lambda i: -scores[i])
    keep = []
    while order:
        i = order.pop(0)
        if scores[i] < 0.15:
            break
        keep.append(i)
        rest = []
        for j in order:
            lt = torch.maximum(boxes[i, :2], boxes[j, :2])
            rb = torch.minimum(boxes[i, 2:], boxes[j, 2:])
            wh = (rb - lt).clamp(min=0)
            inter = wh[0] * wh[1]
            area = lambda b: (b[2] - b[0]) * (b[3] - b[1])
            if inter / (area(boxes[i]) + area(boxes[j]) - inter) <= 0.5:
                rest.append(j)
        order = rest
    mask = torch.zeros(4, dtype=torch.bool)
    for k in keep:
        mask[k] = True
    return mask, len(keep)


@program(T([3, 5, 2, 4, 1]), T([8, 8, 8, 8, 8]), T([1, 1, 1, 1, 1]), T([3, 9, 1, 1, 1]), T([4, 4, 4, 4, 0]))
def first_fit_packing(lengths):
    """Packs sequences in bins of 8 tokens; gives the bin and the offset of each."""
    room = 8
    bins = []
    where, offset = [], []
    for n in lengths.tolist():
        if n > room:
            raise ValueError(f"sequence of {n} tokens does not fit in {room}")
        if n <= 0:
            where.append(-1)
            offset.append(0)
            continue
        for b, used in enumerate(bins):
            if used + n <= room:
                where.append(b)
                offset.append(used)
                bins[b] += n
                break
        else:
            where.append(len(bins))
            offset.append(0)
            bins.append(n)
    waste = sum(room - used for used in bins)
    return torch.tensor(where), torch.tensor(offset), waste


@program(seeded(4, 3, seed=6), seeded(4, 3, seed=16), torch.zeros(4, 3), 5 * seeded(4, 3, seed=26))
def ctc_prefix_dict(logits):
    """Prefix search with a dict from prefix tuples to (blank, non blank) probabilities."""
    probs = torch.softmax(logits, -1)
    beams = {(): (1.0, 0.0)}
    for t in range(probs.shape[0]):
        nxt = defaultdict(lambda: (0.0, 0.0))
        for prefix, (pb, pnb) in beams.items():
            for c in range(3):
                p = float(probs[t, c])
                if c == 0:
                    b, nb = nxt[prefix]
                    nxt[prefix] = (b + p * (pb + pnb), nb)
                    continue
                last = prefix[-1] if prefix else None
                new = prefix + (c,)
                b, nb = nxt[new]
                if c == last:
                    nxt[new] = (b, nb + p * pb)
                    b0, nb0 = nxt[prefix]
                    nxt[prefix] = (b0, nb0 + p * pnb)
                else:
                    nxt[new] = (b, nb + p * (pb + pnb))
        beams = nxt
    best = max(beams.items(), key=lambda kv: sum(kv[1]))
    return torch.tensor(list(best[0]) + [0] * (4 - len(best[0]))), sum(best[1])


@program(
    (T([0, 1, 2, 1]), T(3)),
    (T([2, 2, 0, 0]), T(1)),
    (T([0, 0, 0, 0]), T(4)),
    (T([1, 5, 1, 1]), T(4)),
    (T([1, 0, 1, 0]), T(0)),
)
def hmm_viterbi_steps(obs, n):
    """Viterbi in log space over the first n observations, with lists of back pointers."""
    start = [math.log(0.6), math.log(0.4)]
    trans = [[math.log(0.7), math.log(0.3)], [math.log(0.4), math.log(0.6)]]
    emit = [[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]]
    if n == 0:
        raise ValueError("no observations")
    seq = obs.tolist()[: int(n)]
    v = [start[s] + math.log(emit[s][seq[0]]) for s in range(2)]
    back = []
    for o in seq[1:]:
        ptr, nv = [], []
        for s in range(2):
            cand = [v[r] + trans[r][s] for r in range(2)]
            r = cand.index(max(cand))
            ptr.append(r)
            nv.append(cand[r] + math.log(emit[s][o]))
        back.append(ptr)
        v = nv
    state = v.index(max(v))
    path = [state]
    for ptr in reversed(back):
        state = ptr[state]
        path.append(state)
    path.reverse()
    return sum(p * 2**i for i, p in enumerate(path)), max(v)


@program(
    (T([1, 3, 4]), T(6)),
    (T([2, 5, 7]), T(3)),
    (T([3, 3, 3]), T(7)),
    (T([0, 1, 2]), T(4)),
    (T([1, 2, 5]), T(11)),
)
def coin_change(coins, amount):
    """Fewest coins by a table, and the coins themselves by walking back."""
    if (coins <= 0).any():
        raise ValueError("coins must be positive")
    n = int(amount)
    INF = 10**6
    dp = [0] + [INF] * 11
    take = [-1] * 12
    for a in range(1, 12):
        for c in coins.tolist():
            if c <= a and dp[a - c] + 1 < dp[a]:
                dp[a] = dp[a - c] + 1
                take[a] = c
    if dp[n] == INF:
        return -1, 0
    used = 0
    first = take[n]
    while n > 0:
        used += take[n] * take[n]
        n -= take[n]
    return dp[int(amount)], used + first


@program(
    T([5.0, 1.0, 3.0, 2.0, 4.0]),
    T([1.0, 1.0, 1.0, 1.0, 1.0]),
    T([-1.0, 2.0, 0.0, 9.0, -5.0]),
    T([0.0, nan, 1.0, 2.0, 3.0]),
)
def job_scheduler(durations):
    """Shortest job goes to the machine that is free first; a heap of machines."""
    if bool(torch.isnan(durations).any()) or durations.min() < 0:
        raise ValueError("bad duration")
    machines = [(0.0, 0), (0.0, 1)]
    heapq.heapify(machines)
    done = [0.0] * 5
    for i in sorted(range(5), key=lambda k: durations[k].item()):
        free, m = heapq.heappop(machines)
        finish = free + durations[i].item()
        done[i] = finish
        heapq.heappush(machines, (finish, m))
    makespan = max(t for t, _ in machines)
    return torch.tensor(done), makespan, min(machines)[1]


class UnionFind:
    def __init__(self, n):
        self.parent = list(range(n))
        self.size = [1] * n
        self.count = n

    def find(self, x):
        while self.parent[x] != x:
            self.parent[x] = self.parent[self.parent[x]]
            x = self.parent[x]
        return x

    def union(self, a, b):
        ra, rb = self.find(a), self.find(b)
        if ra == rb:
            return False
        if self.size[ra] < self.size[rb]:
            ra, rb = rb, ra
        self.parent[rb] = ra
        self.size[ra] += self.size[rb]
        self.count -= 1
        return True


@program(
    T([3.0, 1.0, 2.0, 9.0, 0.5]),
    T([1.0, 1.0, 1.0, 1.0, 1.0]),
    T([9.0, 9.0, 0.0, 9.0, 9.0]),
    T([inf, inf, inf, inf, inf]),
)
def kruskal(weights):
    edges = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)]
    uf = UnionFind(4)
    total, chosen = 0.0, []
    for k in torch.argsort(weights, stable=True).tolist():
        if math.isinf(weights[k]):
            break
        a, b = edges[k]
        if uf.union(a, b):
            total += weights[k].item()
            chosen.append(k)
    if uf.count > 1:
        return total, uf.count, torch.zeros(5, dtype=torch.bool)
    mask = torch.zeros(5, dtype=torch.bool)
    mask[torch.tensor(chosen)] = True
    return total, uf.count, mask


class Cascade(nn.Module):
    """Stages that may accept, reject, or defer to the next."""

    class Verdict(enum.Enum):
        ACCEPT = 1
        REJECT = 2
        DEFER = 3

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.stages = nn.ModuleList(nn.Linear(3, 2) for _ in range(3))
        self.exits = [0, 0, 0]

    def judge(self, logits):
        p = logits.softmax(-1)
        if p[0] > 0.8:
            return self.Verdict.ACCEPT, p[0]
        if p[1] > 0.8:
            return self.Verdict.REJECT, p[1]
        return self.Verdict.DEFER, p.max()

    def forward(self, x):
        for i, stage in enumerate(self.stages):
            verdict, confidence = self.judge(stage(x))
            if verdict is not self.Verdict.DEFER:
                self.exits[i] += 1
                return verdict.value, confidence, i
        return self.Verdict.DEFER.value, confidence, len(self.stages)


program(seeded(3), 10 * seeded(3, seed=2), -10 * seeded(3, seed=2), 100 * seeded(3, seed=4), torch.zeros(3))(
    Cascade
)


@program(
    (T([1.0, 0.0]), T(0.5)),
    (T([0.0, 3.0]), T(2.0)),
    (T([0.0, 0.0]), T(0.1)),
    (T([1.0, 1.0]), T(0.0)),
    (T([50.0, 1.0]), T(1.0)),
)
def bogacki_shampine(y, t1):
    """Adaptive third order steps on a damped oscillator; raises after too many rejections."""

    def f(t, v):
        return torch.stack([v[1], -v[0] - 0.3 * v[1] + 0.1 * t])

    t, h = 0.0, 0.25
    end = float(t1)
    accepted = rejected = 0
    k1 = f(t, y)
    while t < end - 1e-6:
        h = min(h, end - t)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + 0.75 * h, y + 0.75 * h * k2)
        new = y + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
        k4 = f(t + h, new)
        err = (h * (-5 * k1 / 72 + k2 / 12 + k3 / 9 - k4 / 8)).norm().item()
        if err <= 1e-2:
            t += h
            y, k1 = new, k4
            accepted += 1
        else:
            rejected += 1
            if rejected > 6:
                raise RuntimeError("too many rejections")
        factor = 0.9 * (1e-2 / max(err, 1e-10)) ** (1 / 3)
        h *= min(3.0, max(0.3, factor))
    return y, accepted, rejected


@program(
    (T([0.2, 0.9, 0.4, 0.7, 0.1]), T(0.6)),
    (T([0.0, 0.0, 0.0, 0.0, 0.0]), T(0.5)),
    (T([5.0, 4.0, 3.0, 2.0, 1.0]), T(0.0)),
    (T([1.0, 2.0, 3.0, 4.0, 5.0]), T(1.5)),
    (T([1.0, 2.0, 2.0, 2.0, 3.0]), T(1.0)),
)
def quantile_insort(x, q):
    """A sorted list kept by insort, and its interpolated quantile after each value."""
    if not 0 <= q <= 1:
        raise ValueError("quantile out of range")
    window = []
    out = []
    for v in x.tolist():
        bisect.insort(window, v)
        if len(window) > 3:
            del window[0]
        pos = q.item() * (len(window) - 1)
        lo = math.floor(pos)
        hi = math.ceil(pos)
        out.append(window[lo] + (window[hi] - window[lo]) * (pos - lo))
    below = bisect.bisect_left(window, out[-1])
    return torch.tensor(out), below


@program(
    (T([[1, 1, 0], [0, 1, 0], [0, 1, 1]]), T(0)),
    (T([[1, 0, 0], [0, 1, 0], [0, 1, 1]]), T(0)),
    (T([[1, 1, 1], [1, 1, 1], [1, 1, 1]]), T(1)),
    (T([[0, 1, 1], [1, 1, 1], [1, 1, 1]]), T(0)),
)
def maze_bfs(grid, allow_diagonal):
    """Breadth first over a 3x3 grid with a deque; the length of the shortest path or -1."""
    moves = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    if allow_diagonal:
        moves = moves + [(1, 1), (-1, -1)]
    if grid[0, 0] == 0:
        return -1, 0
    dist = [[-1] * 3 for _ in range(3)]
    dist[0][0] = 0
    queue = deque([(0, 0)])
    visited = 0
    while queue:
        r, c = queue.popleft()
        visited += 1
        if r == 2 and c == 2:
            return dist[r][c], visited
        for dr, dc in moves:
            nr, nc = r + dr, c + dc
            if 0 <= nr < 3 and 0 <= nc < 3 and grid[nr, nc] == 1 and dist[nr][nc] < 0:
                dist[nr][nc] = dist[r][c] + 1
                queue.append((nr, nc))
    return -1, visited
