"""Samplers, caches, trackers, aligners and stream filters, as their authors would check them in."""

# ruff: noqa: B905, C420, F841, FURB187, RUF012  # as people write it

from __future__ import annotations

import bisect
import heapq
from collections import OrderedDict, deque
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.written import program, seeded

T = torch.tensor


# --- decoding


@program(
    (T([2.0, 1.0, 0.5, 0.1, -1.0, -3.0]), T([0.1, 0.5, 0.95])),
    (T([5.0, 0.0, 0.0, 0.0, 0.0, 0.0]), T([0.99, 0.2, 0.7])),
    (T([1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), T([0.0, 0.34, 0.999])),
    (T([-9.0, 3.0, -9.0, 2.9, -9.0, 2.8]), T([0.5, 0.9, 0.2])),
)
def nucleus_sampler(logits, uniforms):
    """Draws tokens by top-k, then top-p, with given uniforms; each drawn token is penalised."""
    top_k, top_p = 4, 0.8
    tokens = []
    logits = logits.clone()
    for u in uniforms:
        values, indices = torch.topk(logits, top_k)
        probs = F.softmax(values, dim=-1)
        keep = 0
        mass = 0.0
        for p in probs.tolist():
            keep += 1
            mass += p
            if mass >= top_p:
                break
        probs = probs[:keep] / probs[:keep].sum()
        cdf = probs.cumsum(0)
        choice = keep - 1
        for i in range(keep):
            if u < cdf[i]:
                choice = i
                break
        token = indices[choice].item()
        tokens.append(token)
        logits[token] -= 2.0
    return torch.tensor(tokens), logits


@program(
    (T([1, 2, 0]), seeded(3, 4, seed=1), seeded(4, 4, seed=2), T([0.1, 0.2, 0.3, 0.4])),
    (T([3, 3, 3]), seeded(3, 4, seed=3) * 3, seeded(4, 4, seed=4) * 3, T([0.9, 0.95, 0.99, 0.5])),
    (T([0, 1, 2]), torch.zeros(3, 4), torch.zeros(4, 4), T([0.5, 0.5, 0.5, 0.9])),
    (T([0, 0, 0]), torch.zeros(3, 4), T([[-9.0, 1, 1, 1]] * 4), T([0.5, 0.5, 0.5, 0.1])),
)
class SpeculativeVerifier(nn.Module):
    """Accepts draft tokens by the ratio of probabilities, resamples at the first rejection, keeps a rate."""

    def __init__(self):
        super().__init__()
        self.proposed = 0
        self.accepted = 0
        self.history = []

    def resample(self, p, q, u):
        residual = (p - q).clamp(min=0)
        total = residual.sum()
        if total <= 0:
            residual, total = p, p.sum()
        cdf = (residual / total).cumsum(0)
        return int((cdf < u).sum().clamp(max=len(cdf) - 1))

    def forward(self, draft, draft_logits, target_logits, uniforms):
        q = draft_logits.softmax(-1)
        p = target_logits.softmax(-1)
        out = []
        for i, token in enumerate(draft.tolist()):
            self.proposed += 1
            ratio = p[i, token] / q[i, token]
            if uniforms[i] <= ratio:
                out.append(token)
                self.accepted += 1
            else:
                out.append(self.resample(p[i], q[i], uniforms[-1]))
                break
        else:
            out.append(self.resample(p[-1], torch.zeros_like(p[-1]), uniforms[-1]))
        n = len(out)
        out += [-1] * (len(draft) + 1 - n)
        return torch.tensor(out), n, self.accepted / self.proposed


@dataclass
class HitterState:
    keys: torch.Tensor
    scores: torch.Tensor
    length: int = 0
    evictions: int = 0


@program(
    seeded(4, seed=5),
    seeded(4, seed=6),
    seeded(4, seed=7) * 3,
    torch.zeros(4),
    seeded(4, seed=8) * 2,
    torch.ones(4),
    -torch.ones(4),
    seeded(4, seed=9),
)
class H2OCache(nn.Module):
    """A cache of five keys: the sink and the two latest stay, of the others the one least attended goes."""

    def __init__(self, capacity=5, recent=2, sink=1):
        super().__init__()
        self.cache = HitterState(torch.zeros(capacity, 4), torch.zeros(capacity))
        self.capacity, self.recent, self.sink = capacity, recent, sink

    def evict(self):
        cache = self.cache
        candidates = cache.scores[self.sink : self.capacity - self.recent]
        victim = self.sink + int(candidates.argmin())
        keep = [i for i in range(self.capacity) if i != victim]
        cache.keys[: self.capacity - 1] = cache.keys[keep].clone()
        cache.scores[: self.capacity - 1] = cache.scores[keep].clone()
        cache.length -= 1
        cache.evictions += 1

    def forward(self, query):
        cache = self.cache
        if cache.length == self.capacity:
            self.evict()
        cache.keys[cache.length] = query
        cache.scores[cache.length] = 0.0
        cache.length += 1
        attention = torch.softmax(cache.keys[: cache.length] @ query, dim=0)
        cache.scores[: cache.length] += attention
        if attention.max() > 0.95:
            cache.scores.mul_(0.5)
        return attention @ cache.keys[: cache.length], cache.length, cache.evictions


@program(
    (T([[1.0, 0.2, 0.1], [0.3, 0.9, 0.2], [0.5, 0.1, 0.8], [0.2, 0.75, 0.6]]), T(4)),
    (seeded(4, 3, seed=10), T(3)),
    (torch.zeros(4, 3), T(2)),
    (seeded(4, 3, seed=11) * 4, T(1)),
)
class CRFDecoder(nn.Module):
    """The two best label paths of a CRF with forbidden transitions, for a length that the call gives."""

    def __init__(self):
        super().__init__()
        self.transitions = nn.Parameter(T([[0.5, -0.2, 0.1], [-0.1, 0.6, -0.3], [0.0, 0.2, 0.4]]))
        self.forbidden = {(0, 2), (2, 1)}

    def forward(self, emissions, length):
        n_labels = emissions.shape[1]
        beams = [[(emissions[0, y].item(), [y])] for y in range(n_labels)]
        for t in range(1, emissions.shape[0]):
            if t >= length:
                break
            new_beams = []
            for y in range(n_labels):
                candidates = []
                for prev in range(n_labels):
                    if (prev, y) in self.forbidden:
                        continue
                    for score, path in beams[prev]:
                        step = score + self.transitions[prev, y].item() + emissions[t, y].item()
                        candidates.append((step, [*path, y]))
                candidates.sort(key=lambda c: c[0], reverse=True)
                new_beams.append(candidates[:2])
            beams = new_beams
        final = sorted((hyp for beam in beams for hyp in beam), key=lambda c: -c[0])[:2]
        scores = [score for score, _ in final]
        best = final[0][1]
        return torch.tensor(scores), torch.tensor(best), scores[0] - scores[1] > 0.5


# --- tracking


@dataclass
class Track:
    center: torch.Tensor
    hits: int = 1
    missed: int = 0
    confirmed: bool = False


@program(
    T([[0.0, 0.0], [5.0, 5.0]]),
    T([[0.1, 0.1], [9.0, 0.0]]),
    T([[0.2, 0.2], [9.1, 0.1]]),
    T([[50.0, 50.0], [60.0, 60.0]]),
    T([[50.0, 50.1], [60.0, 60.2]]),
)
class DictTracker(nn.Module):
    """Tracks by id in a dict; the nearest detection in reach updates one, others begin or are let go."""

    def __init__(self):
        super().__init__()
        self.tracks = {}
        self.next_id = 0

    def forward(self, detections):
        unmatched = list(range(len(detections)))
        for tid, track in list(self.tracks.items()):
            best, best_distance = None, 1.0
            for i in unmatched:
                distance = torch.dist(track.center, detections[i])
                if distance < best_distance:
                    best, best_distance = i, distance
            if best is None:
                track.missed += 1
                if track.missed > 1:
                    del self.tracks[tid]
                continue
            unmatched.remove(best)
            track.center = 0.5 * track.center + 0.5 * detections[best]
            track.hits += 1
            track.missed = 0
            track.confirmed = track.hits >= 3
        for i in unmatched:
            self.tracks[self.next_id] = Track(detections[i].clone())
            self.next_id += 1
        confirmed = sum(1 for t in self.tracks.values() if t.confirmed)
        return len(self.tracks), confirmed, self.next_id


# --- graphs


@program(
    T([[0, 1], [2, 3], [1, 2], [4, 4]]),
    T([[0, 0], [0, 0], [0, 0], [0, 0]]),
    T([[5, 4], [4, 3], [3, 2], [2, 1]]),
    T([[0, 5], [1, 4], [0, 5], [5, 1]]),
)
def connected_components(edges):
    """Union-find with path halving and union by size; groups by root in a dict of lists."""
    n = 6
    parent = list(range(n))
    size = [1] * n

    def find(x):
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    merged = 0
    for a, b in edges.tolist():
        ra, rb = find(a), find(b)
        if ra == rb:
            continue
        if size[ra] < size[rb]:
            ra, rb = rb, ra
        parent[rb] = ra
        size[ra] += size[rb]
        merged += 1
    groups = {}
    for node in range(n):
        groups.setdefault(find(node), []).append(node)
    largest = max(groups.values(), key=len)
    return torch.tensor([find(i) for i in range(n)]), len(groups), len(largest), merged


@program(
    (T([[0, 1, 4, 0], [0, 0, 2, 6], [0, 0, 0, 3], [0, 0, 0, 0]]), T(0), T(3)),
    (T([[0, 9, 1, 0], [0, 0, 0, 1], [0, 1, 0, 9], [0, 0, 0, 0]]), T(0), T(3)),
    (T([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]), T(1), T(2)),
    (T([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]), T(2), T(2)),
)
def dijkstra_with_path(weights, source, target):
    """Dijkstra by a heap with lazy deletion, and the path by a dict of predecessors."""
    source, target = source.item(), target.item()
    n = len(weights)
    distance = {source: 0}
    previous = {}
    done = set()
    queue = [(0, source)]
    while queue:
        d, u = heapq.heappop(queue)
        if u in done:
            continue
        done.add(u)
        if u == target:
            break
        for v in range(n):
            w = weights[u, v].item()
            if w == 0:
                continue
            if v not in distance or d + w < distance[v]:
                distance[v] = d + w
                previous[v] = u
                heapq.heappush(queue, (d + w, v))
    if target not in distance:
        return -1, 0, len(done)
    path = [target]
    while path[-1] != source:
        path.append(previous[path[-1]])
    return distance[target], len(path), len(done)


# --- sequences


@program(
    T([1, 1, 1, 2, 2, 3]),
    T([0, 0, 0, 0, 0, 0]),
    T([1, 2, 3, 4, 5, 6]),
    T([2, 2, 1, 1, 2, 2]),
    T([7, 7, 7, 7, 7, 8]),
)
def run_length_roundtrip(values):
    """Run-length encoding with runs of at most four, then its decoding by a generator of generators."""
    runs = []
    for v in values.tolist():
        if runs and runs[-1][0] == v and runs[-1][1] < 4:
            runs[-1][1] += 1
        else:
            runs.append([v, 1])

    def expand(value, count):
        for _ in range(count):
            yield value

    def decode(pairs):
        for value, count in pairs:
            yield from expand(value, count)

    decoded = list(decode(runs))
    longest = max(runs, key=lambda run: run[1])
    return torch.tensor(decoded), len(runs), longest[0], longest[1]


@program(
    (T([1, 2, 3, 4]), T([1, 3, 4, 4])),
    (T([1, 1, 1, 1]), T([2, 2, 2, 2])),
    (T([5, 6, 7, 8]), T([5, 6, 7, 8])),
    (T([1, 2, 3, 4]), T([4, 3, 2, 1])),
)
def edit_script(source, target):
    """The edit distance by a table of lists, and the counts of each operation by a walk back."""
    a, b = source.tolist(), target.tolist()
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) + 1):
        table[i][0] = i
    for j in range(len(b) + 1):
        table[0][j] = j
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            if x == y:
                table[i][j] = table[i - 1][j - 1]
            else:
                table[i][j] = 1 + min(table[i - 1][j], table[i][j - 1], table[i - 1][j - 1])
    counts = {"keep": 0, "replace": 0, "insert": 0, "delete": 0}
    i, j = len(a), len(b)
    while i > 0 or j > 0:
        if i > 0 and j > 0 and a[i - 1] == b[j - 1]:
            op, i, j = "keep", i - 1, j - 1
        elif i > 0 and j > 0 and table[i][j] == table[i - 1][j - 1] + 1:
            op, i, j = "replace", i - 1, j - 1
        elif i > 0 and table[i][j] == table[i - 1][j] + 1:
            op, i = "delete", i - 1
        else:
            op, j = "insert", j - 1
        counts[op] += 1
    return table[-1][-1], torch.tensor(list(counts.values()))


@program(
    (T([0.0, 1.0, 2.0, 3.0]), T([0.0, 2.0, 3.0])),
    (T([1.0, 1.0, 1.0, 1.0]), T([5.0, 5.0, 5.0])),
    (T([0.0, 3.0, 0.0, 3.0]), T([3.0, 0.0, 3.0])),
)
def dtw_path(x, y):
    """Dynamic time warping with a band, and its path by `min` of tuples with a tie broken by order."""
    n, m, band = len(x), len(y), 2
    inf = float("inf")
    cost = torch.full((n + 1, m + 1), inf)
    cost[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(max(1, i - band), min(m, i + band) + 1):
            d = (x[i - 1] - y[j - 1]).abs()
            cost[i, j] = d + torch.min(torch.stack([cost[i - 1, j], cost[i, j - 1], cost[i - 1, j - 1]]))
    path = [(n - 1, m - 1)]
    i, j = n, m
    while (i, j) != (1, 1):
        _, i, j = min(
            (cost[i - 1, j - 1].item(), i - 1, j - 1),
            (cost[i - 1, j].item(), i - 1, j),
            (cost[i, j - 1].item(), i, j - 1),
        )
        path.append((i - 1, j - 1))
    path = path[::-1]
    return cost[n, m], torch.tensor(path), len(path)


# --- streams with state


@program(T(1.0), T(2.0), T(100.0), T(3.0), T(float("nan")), T(2.5), T(-100.0), T(2.0))
class OutlierGate(nn.Module):
    """Welford statistics that start anew after two outliers in a row, and a NaN that raises after a count."""

    def __init__(self):
        super().__init__()
        self.reset()
        self.resets = 0
        self.bad = 0

    def reset(self):
        self.n = 0
        self.mean = torch.zeros(())
        self.m2 = torch.zeros(())
        self.streak = 0

    @property
    def std(self):
        return (self.m2 / (self.n - 1)).sqrt() if self.n > 1 else torch.tensor(float("inf"))

    def forward(self, x):
        if torch.isnan(x):
            self.bad += 1
            raise ValueError(f"sample {self.n} is not a number")
        outlier = self.n >= 2 and (x - self.mean).abs() > 3 * self.std + 1
        if outlier:
            self.streak += 1
            if self.streak >= 2:
                self.reset()
                self.resets += 1
            return self.mean, self.n, self.resets, self.bad
        self.streak = 0
        self.n += 1
        delta = x - self.mean
        self.mean = self.mean + delta / self.n
        self.m2 += delta * (x - self.mean)
        return self.mean, self.n, self.resets, self.bad


@program(
    (T([1.0, 2.0, 3.0]), T(2)),
    (T([4.0, 5.0, 6.0]), T(3)),
    (T([7.0, 8.0, 9.0]), T(0)),
    (T([1.0, 1.0, 1.0]), T(1)),
)
class AudioRing(nn.Module):
    """A ring buffer that takes as many samples as are valid; the last four come out, latest first."""

    def __init__(self, size=5):
        super().__init__()
        self.register_buffer("ring", torch.zeros(size))
        self.head = 0
        self.filled = 0
        self.size = size

    def push(self, sample):
        self.ring[self.head] = sample
        self.head = (self.head + 1) % self.size
        self.filled = min(self.filled + 1, self.size)

    def latest(self, n):
        for k in range(1, n + 1):
            if k > self.filled:
                return
            yield self.ring[self.head - k]

    def forward(self, chunk, valid):
        for sample in chunk[: int(valid)]:
            self.push(sample)
        out = list(self.latest(4))
        total = sum(out) if out else torch.zeros(())
        return total, len(out), self.head, self.ring.clone()


@program(
    (T(1), T(0.5)),
    (T(2), T(2.0)),
    (T(3), T(0.0)),
    (T(2), T(-1.0)),
    (T(0), T(1.0)),
    (T(4), T(9.0)),
    (T(1), T(0.1)),
)
class ModeMachine(nn.Module):
    """A controller whose mode is a string; commands by `match`, limits by mode in a dict."""

    LIMITS = {"idle": 0.0, "run": 1.0, "boost": 3.0, "fault": 0.0}

    def __init__(self):
        super().__init__()
        self.mode = "idle"
        self.integral = 0.0
        self.log = deque(maxlen=3)

    def transition(self, command):
        match (self.mode, command):
            case ("fault", 0):
                return "idle"
            case ("fault", _):
                return "fault"
            case (_, 1):
                return "run"
            case ("run" | "boost", 2):
                return "boost"
            case ("idle", 2):
                return "run"
            case (_, 3):
                return "idle"
            case (mode, c) if c > 3:
                raise ValueError("bad command")
            case _:
                return self.mode

    def forward(self, command, error):
        try:
            new = self.transition(command.item())
        except ValueError:
            new = "fault"
        if new != self.mode:
            self.log.append(self.LIMITS[new])
            if new == "idle":
                self.integral = 0.0
        self.mode = new
        limit = self.LIMITS[self.mode]
        self.integral = max(-limit, min(limit, self.integral + error.item()))
        return self.integral, sum(self.log), self.mode == "boost"


# --- halting and routing


@program(seeded(3, 4, seed=15), seeded(3, 4, seed=16) * 5, torch.zeros(3, 4), -torch.ones(3, 4))
class RowPonder(nn.Module):
    """Halts each row by itself; `for`/`else` counts rows that never halt; closures keep the statistics."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 4)
        self.cell.weight.data, self.cell.bias.data = seeded(4, 4, seed=17) * 0.6, torch.zeros(4)
        self.halt = nn.Parameter(seeded(4, seed=18))
        self.unhalted = 0

    def forward(self, x):
        steps = []
        ponder = 0.0

        def account(p, still):
            nonlocal ponder
            if still <= 0:
                return False
            ponder += p * still
            return True

        outputs = []
        for row in x:
            still, acc = 1.0, torch.zeros_like(row)
            for step in range(5):
                row = torch.tanh(self.cell(row))
                p = torch.sigmoid(row @ self.halt).item()
                if step == 4 or still - p < 0.05:
                    p = still
                acc = acc + p * row
                account(p, still)
                still -= p
                if still < 1e-6 and step < 4:
                    break
            else:
                self.unhalted += 1
            steps.append(step + 1)
            outputs.append(acc)
        return torch.stack(outputs), torch.tensor(steps), ponder, self.unhalted


# --- containers


@program(
    (T(1), T(1.0)),
    (T(2), T(2.0)),
    (T(1), T(3.0)),
    (T(3), T(-1.0)),
    (T(3), T(4.0)),
    (T(4), T(5.0)),
    (T(2), T(0.0)),
)
class PrefixCache(nn.Module):
    """An LRU of tensors with a `try`/`finally` around the computation, which a negative value ends."""

    def __init__(self, capacity=2):
        super().__init__()
        self.entries = OrderedDict()
        self.capacity = capacity
        self.stats = {"hit": 0, "miss": 0, "error": 0}
        self.active = 0

    def compute(self, value):
        if value < 0:
            raise ValueError("negative")
        return torch.stack([value, value * value])

    def forward(self, key, value):
        k = key.item()
        self.active += 1
        try:
            if k in self.entries:
                self.stats["hit"] += 1
                self.entries.move_to_end(k)
                return self.entries[k] * 1.0, self.stats["hit"], self.active
            self.stats["miss"] += 1
            result = self.compute(value)
            self.entries[k] = result
            while len(self.entries) > self.capacity:
                self.entries.popitem(last=False)
            return result, self.stats["hit"], self.active
        except ValueError:
            self.stats["error"] += 1
            raise
        finally:
            self.active -= 1


@dataclass
class Batch:
    ids: list = field(default_factory=list)
    tokens: int = 0


@program(T([3, 5, 2, 7]), T([8, 8, 8, 8]), T([1, 1, 1, 1]), T([4, 9, 4, 1]))
def pack_requests(lengths):
    """Packs requests into batches of at most eight tokens, by length with ties as they came."""
    limit = 8
    order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
    batches, rejected = [], []
    for i in order:
        length = lengths[i].item()
        if length > limit:
            rejected.append(i)
            continue
        for batch in batches:
            if batch.tokens + length <= limit:
                batch.ids.append(i)
                batch.tokens += length
                break
        else:
            batches.append(Batch([i], length))
    which = torch.full((len(lengths),), -1)
    for b, batch in enumerate(batches):
        for i in batch.ids:
            which[i] = b
    return which, len(batches), sum(b.tokens for b in batches), len(rejected)


@program(
    (T([0.1, 0.9, 0.5, 0.7]), T([0, 1, 0, 1])),
    (T([0.9, 0.9, 0.9, 0.9]), T([2, 2, 2, 2])),
    (T([0.0, 0.0, 0.0, 0.0]), T([0, 1, 2, 0])),
    (T([0.6, 0.2, 0.6, 0.2]), T([1, 0, 1, 2])),
)
class PerLabelMetrics(nn.Module):
    """Counts and means by label name, by dict comprehensions; thresholds adapt, best labels by `sorted`."""

    NAMES = ("cat", "dog", "bird")

    def __init__(self):
        super().__init__()
        self.totals = dict.fromkeys(self.NAMES, 0)
        self.sums = {name: 0.0 for name in self.NAMES}
        self.threshold = 0.5

    def forward(self, scores, labels):
        for score, label in zip(scores, labels.tolist()):
            name = self.NAMES[label]
            self.totals[name] += 1
            self.sums[name] += score.item()
        means = {name: self.sums[name] / n for name, n in self.totals.items() if n}
        ranked = sorted(means, key=lambda name: (-means[name], name))
        if len(means) == len(self.NAMES) and means[ranked[0]] > self.threshold:
            self.threshold = min(0.9, self.threshold + 0.1)
        positive = sum(m > self.threshold for m in means.values())
        return torch.tensor([means.get(n, -1.0) for n in self.NAMES]), positive, self.threshold, len(ranked)


@program(
    (T([5.0, 1.0, 3.0]), T(2.0)),
    (T([2.0, 2.0, 2.0]), T(2.0)),
    (T([-1.0, -5.0, 9.0]), T(0.0)),
    (T([0.0, 0.0, 1.0]), T(7.0)),
)
class RunningMedian(nn.Module):
    """The median by a sorted window with `bisect`; a view of the buffer is clipped in place."""

    def __init__(self, size=6):
        super().__init__()
        self.window = deque()
        self.ordered = []
        self.size = size
        self.register_buffer("clipped", torch.zeros(4))

    def forward(self, values, limit):
        for v in values.tolist():
            if len(self.window) == self.size:
                old = self.window.popleft()
                self.ordered.pop(bisect.bisect_left(self.ordered, old))
            self.window.append(v)
            bisect.insort(self.ordered, v)
        n = len(self.ordered)
        middle = n // 2
        median = self.ordered[middle] if n % 2 else (self.ordered[middle - 1] + self.ordered[middle]) / 2
        tail = self.clipped[1:]
        if median > limit:
            tail += values
            tail.clamp_(max=4.0)
        elif (head := self.clipped[:2]).sum() > 0:
            head.zero_()
        return median, n, self.clipped.clone()


@program(
    T([4.0, 2.0, 8.0, 6.0, 1.0]),
    T([1.0, 1.0, 1.0, 1.0, 1.0]),
    T([5.0, 4.0, 3.0, 2.0, 1.0]),
    T([0.0, -1.0, 0.0, 1.0, 0.0]),
)
def peaks_and_valleys(signal):
    """Alternating extremes by `reversed`, `zip` of slices and negative steps, and an early return."""

    def kind(a, b, c):
        if b > a and b > c:
            return 1
        if b < a and b < c:
            return -1
        return 0

    found = []
    for at, (a, b, c) in enumerate(zip(signal, signal[1:], signal[2:]), 1):
        if (k := kind(a, b, c)) != 0:
            if not found or found[-1][1] != k:
                found.append((at, k, b))
            elif (b - found[-1][2]) * k > 0:
                found[-1] = (at, k, b)
    amplitude = torch.zeros(())
    for (_, _, late), (_, _, early) in zip(found[::-1], found[-2::-1]):
        amplitude = amplitude + (late - early).abs()
    last = next((at for at, k, _ in reversed(found) if k == 1), -1)
    backwards = signal.flip(0)[::2]
    for v in backwards:
        if v > signal.mean():
            return amplitude, len(found), last, v
    return amplitude, len(found), last, signal.new_tensor(-1.0)


@program(
    (seeded(6, 4, seed=19), T([1.0, 0.0, 1.0, 0.0, 1.0, 1.0])),
    (seeded(6, 4, seed=20), T([0.0, 0.0, 0.0, 0.0, 0.0, 0.0])),
    (torch.zeros(6, 4), T([1.0, 1.0, 1.0, 1.0, 1.0, 1.0])),
    (seeded(6, 4, seed=21) * 3, T([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])),
)
class SlidingWindowKV(nn.Module):
    """Attention with sinks over a sliding window in lists; masked tokens are not kept."""

    def __init__(self, window=3, sinks=1):
        super().__init__()
        self.window, self.sinks = window, sinks
        self.keys = []
        self.left = 0

    def forward(self, x, mask):
        outs = []
        for t, token in enumerate(x.unbind(0)):
            if not mask[t]:
                outs.append(torch.zeros_like(token))
                continue
            self.keys.append(token)
            if len(self.keys) > self.window + self.sinks:
                self.keys.pop(self.sinks)
                self.left += 1
            k = torch.stack(self.keys)
            outs.append(torch.softmax(k @ token, 0) @ k)
        return torch.stack(outs), len(self.keys), self.left
