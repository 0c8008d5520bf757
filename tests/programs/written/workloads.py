"""Decoders, solvers, trackers, schedulers and parsers, with the Python that comes to hand."""

# ruff: noqa: B007, B904, B905, PYI024, TRY301  # as people write it

from __future__ import annotations

import dataclasses
import enum
import functools
import heapq
import itertools
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple

import torch
from torch import nn

from tests.programs.written import program, seeded

T = torch.tensor


# --- decoding


class StopDecoding(Exception):
    def __init__(self, reason, at):
        super().__init__(reason)
        self.at = at


@program(T([1, 2]), T([0, 3]), T([4, 4]))
class PreallocatedDecoder(nn.Module):
    """Greedy decoding into a preallocated buffer, which a stop token leaves by an exception."""

    def __init__(self, vocab=6, dim=4, limit=8):
        super().__init__()
        self.embed = nn.Parameter(seeded(vocab, dim, seed=3))
        self.out = nn.Parameter(seeded(dim, vocab, seed=4))
        self.limit = limit
        self.generated = 0

    def step(self, ids, cur):
        hidden = self.embed[ids[:cur]].mean(0)
        token = (hidden @ self.out).argmax()
        if token == ids[cur - 1]:
            raise StopDecoding("repeat", cur)
        return token

    def forward(self, prompt):
        ids = torch.full((self.limit,), -1, dtype=torch.long)
        n = prompt.shape[0]
        ids[:n] = prompt
        cur = n
        reason = 0
        try:
            while cur < self.limit:
                ids[cur] = self.step(ids, cur)
                cur += 1
                self.generated += 1
                if ids[cur - 1] == 0:
                    reason = 1
                    break
            else:
                reason = 2
        except StopDecoding as stop:
            reason = 3
            cur = stop.at
        return ids, cur, reason, self.generated


@program(
    seeded(6, 4, seed=11), seeded(6, 4, seed=12) * 3, T([[9.0, 0, 0, 0]]).repeat(6, 1), seeded(6, 4, seed=15)
)
def ctc_align_backtrack(logits):
    """The best alignment of a fixed target, with backtracking through a list of lists."""
    target = [1, 2, 1]
    labels = [0]
    for t in target:
        labels += [t, 0]
    logp = logits.log_softmax(-1)
    frames, states = logp.shape[0], len(labels)
    score = [-math.inf] * states
    score[0], score[1] = logp[0, 0].item(), logp[0, labels[1]].item()
    back = []
    for t in range(1, frames):
        new, choice = [], []
        for s in range(states):
            cands = [(score[s], s)]
            if s > 0:
                cands.append((score[s - 1], s - 1))
            if s > 1 and labels[s] != 0 and labels[s] != labels[s - 2]:
                cands.append((score[s - 2], s - 2))
            best, arg = max(cands)
            new.append(best + logp[t, labels[s]].item())
            choice.append(arg)
        score = new
        back.append(choice)
    s = states - 1 if score[-1] > score[-2] else states - 2
    path = [s]
    for choice in reversed(back):
        s = choice[s]
        path.append(s)
    path.reverse()
    return torch.tensor(path), score[path[-1]]


@program(
    (T([1, 2, 3, 4]), T([1, 2, 3, 4])), (T([1, 2, 3, 4]), T([1, 5, 3, 4])), (T([4, 2, 3, 1]), T([0, 2, 3, 1]))
)
class Speculator(nn.Module):
    """Accepts a draft up to the first difference, and changes its length by the rate of late."""

    def __init__(self):
        super().__init__()
        self.length = 4
        self.history = deque(maxlen=3)

    def forward(self, draft, target):
        accepted = 0
        for d, t in zip(draft[: self.length], target):
            if d != t:
                break
            accepted += 1
        self.history.append(accepted / self.length)
        rate = sum(self.history) / len(self.history)
        if rate > 0.8:
            self.length = min(self.length + 1, 4)
        elif rate < 0.3:
            self.length = max(self.length - 1, 1)
        out = target.clone()
        out[accepted + 1 :] = -1
        return out, accepted, self.length


# --- solvers


@dataclasses.dataclass
class StepResult:
    y: torch.Tensor
    error: float
    ok: bool = True

    def __bool__(self):
        return self.ok


class StepTooSmall(ArithmeticError):
    pass


@program(
    (T([1.0, 0.0]), T(1.0)), (T([2.0, 1.0]), T(30.0)), (T([0.5, -0.5]), T(400.0)), (T([1.0, 1.0]), T(0.1))
)
def rkf_with_rejections(y, stiffness):
    """An embedded pair whose step is rejected by an object's truth, and fails below a least step."""

    def f(t, y):
        return torch.stack([y[1], -stiffness * y[0]])

    def attempt(t, y, h):
        k1 = f(t, y)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + h, y - h * k1 + 2 * h * k2)
        low = y + h * k2
        high = y + h / 6 * (k1 + 4 * k2 + k3)
        err = (high - low).norm().item()
        return StepResult(high, err, err < 1e-2)

    t, h = 0.0, 0.25
    steps = rejections = 0
    while t < 1.0 and steps < 40:
        steps += 1
        h = min(h, 1.0 - t)
        if not (result := attempt(t, y, h)):
            rejections += 1
            h /= 2
            if h < 1e-3:
                raise StepTooSmall(f"step {h}")
            continue
        t += h
        y = result.y
        if result.error < 1e-3:
            h *= 1.5
    return y, t, steps, rejections


@program((T(2.0), T(0.0)), (T(9.0), T(0.0)), (T(-1.0), T(0.0)), (T(0.25), T(1.0)))
def solve_by_preference(target, mode):
    """Tries solvers in order; each may raise, and the last one's failure is the caller's."""

    class Diverged(RuntimeError):
        pass

    def fixed_point(x):
        for _ in range(12):
            new = 0.5 * (x + target / x)
            if not torch.isfinite(new):
                raise Diverged("not finite")
            if (new - x).abs() < 1e-4:
                return new
            x = new
        raise Diverged("no fixed point")

    def newton(x):
        for i in range(12):
            g = x * x - target
            d = 2 * x
            if d.abs() < 1e-6:
                raise ZeroDivisionError("flat")
            x = x - g / d
            if g.abs() < 1e-4:
                return x
        raise Diverged("newton")

    errors = 0
    for number, solver in enumerate((newton, fixed_point)):
        try:
            root = solver(mode)
        except ZeroDivisionError:
            errors += 1
            mode = mode + 1.0
        except Diverged:
            errors += 10
        else:
            return root, number, errors
        finally:
            errors += 100
    raise ValueError("no solver worked")


@program(
    seeded(4, 4, seed=5), T([[2.0, 0, 0, 0], [0, 3.0, 0, 0], [0, 0, 0.0, 0], [0, 0, 0, 1.0]]), torch.eye(4)
)
def gauss_jordan_inverse(m):
    """The inverse by elimination with partial pivoting, in place; singular matrices have a pseudo result."""
    n = m.shape[0]
    a = torch.cat([m, torch.eye(n)], dim=1)
    swaps = 0
    for col in range(n):
        pivot = max(range(col, n), key=lambda r: abs(a[r, col].item()))
        if abs(a[pivot, col]) < 1e-6:
            return torch.full((n, n), math.nan), col
        if pivot != col:
            a[[col, pivot]] = a[[pivot, col]]
            swaps += 1
        a[col] /= a[col, col].clone()
        for row in range(n):
            if row != col and a[row, col] != 0:
                a[row] -= a[row, col].clone() * a[col]
    return a[:, n:], swaps


# --- halting and routing


@program(seeded(3, 4, seed=6), seeded(3, 4, seed=7) * 4, torch.zeros(3, 4))
class HaltingBlocks(nn.Module):
    """Adaptive computation time by rows, with a remainder and a ponder cost, and statistics by step."""

    def __init__(self, steps=5):
        super().__init__()
        self.w = nn.Parameter(seeded(4, 4, seed=8) * 0.5)
        self.p = nn.Parameter(seeded(4, seed=9))
        self.steps = steps
        self.used = Counter()

    def forward(self, x):
        batch = x.shape[0]
        halting = torch.zeros(batch)
        remainders = torch.zeros(batch)
        updates = torch.zeros(batch)
        state = x
        accumulated = torch.zeros_like(x)
        step = 0
        while step < self.steps and (running := halting < 1.0 - 1e-2).any():
            p = torch.sigmoid(state @ self.p)
            new_halted = (halting + p * running > 0.99) & running
            still = (halting + p * running <= 0.99) & running
            halting = halting + p * still
            remainders = remainders + new_halted * (1 - halting)
            halting = halting + new_halted * remainders
            updates = updates + still + new_halted
            weight = (p * still + new_halted * remainders)[:, None]
            state = torch.tanh(state @ self.w)
            accumulated = accumulated * (1 - weight) + state * weight
            step += 1
        self.used[step] += 1
        return accumulated, updates, self.used[step], self.used.total()


@program(seeded(8, 4, seed=10), seeded(8, 4, seed=13), torch.ones(8, 4))
class OverflowRouter(nn.Module):
    """Top-1 routing with capacity; a token of a full expert goes to the next that has room, or is dropped."""

    def __init__(self, experts=3, capacity=3):
        super().__init__()
        self.gate = nn.Parameter(seeded(4, experts, seed=14))
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(experts))
        for at, each in enumerate(self.experts):
            nn.init.constant_(each.weight, 0.1 * (at + 1))
            nn.init.zeros_(each.bias)
        self.capacity = capacity
        self.dropped = 0

    def forward(self, tokens):
        probs = (tokens @ self.gate).softmax(-1)
        order = probs.argsort(dim=-1, descending=True)
        load = [0] * len(self.experts)
        assigned = {}
        for i in range(tokens.shape[0]):
            for e in order[i].tolist():
                if load[e] < self.capacity:
                    load[e] += 1
                    assigned[i] = e
                    break
            else:
                self.dropped += 1
        out = torch.zeros_like(tokens)
        for i, e in assigned.items():
            out[i] = probs[i, e] * self.experts[e](tokens[i])
        return out, torch.tensor(load), self.dropped


# --- geometry


Box = namedtuple("Box", "x1 y1 x2 y2 score label")


def area(b):
    return max(b.x2 - b.x1, 0) * max(b.y2 - b.y1, 0)


def box_iou(a, b):
    inter = Box(max(a.x1, b.x1), max(a.y1, b.y1), min(a.x2, b.x2), min(a.y2, b.y2), 0, 0)
    union = area(a) + area(b) - area(inter)
    return area(inter) / union if union > 0 else 0.0


@program(
    T([[0, 0, 2, 2, 0.9, 0], [0, 0, 2, 1.9, 0.8, 0], [3, 3, 5, 5, 0.7, 1], [0, 0, 2, 2, 0.6, 1.0]]),
    T([[0, 0, 1, 1, 0.3, 0], [5, 5, 6, 6, 0.4, 0], [5, 5, 6, 6.1, 0.5, 0], [0, 0, 0, 0, 0.9, 1.0]]),
    T([[0, 0, 1, 1, 0.05, 0], [5, 5, 6, 6, 0.01, 0], [5, 5, 6, 6.1, 0.02, 0], [0, 0, 0, 0, 0.03, 1.0]]),
)
def nms_by_label(detections):
    """Suppression by label over named tuples that a score filters, `sorted(key=)` and a dict of lists."""
    boxes = [Box(*row.tolist()) for row in detections]
    boxes = sorted((b for b in boxes if b.score > 0.1), key=lambda b: -b.score)
    kept = defaultdict(list)
    for box in boxes:
        if all(box_iou(box, other) < 0.5 for other in kept[int(box.label)]):
            kept[int(box.label)].append(box)
    scores = [b.score for label in (0, 1) for b in kept[label]]
    return torch.tensor(scores), len(kept[0]), len(kept[1])


@program(
    T([[0.0, 0.0], [1.0, 1.0], [2.0, 2.1], [3.0, 9.0], [4.0, 4.0], [5.0, -3.0]]),
    T([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0], [1.0, 0.0], [2.0, 1.0], [3.0, 2.0]]),
    T([[0.0, 5.0], [1.0, -5.0], [2.0, 8.0], [3.0, -9.0], [4.0, 1.0], [5.0, -30.0]]),
)
def ransac_pairs(points):
    """RANSAC over all pairs in turn, with an early end, and least squares over the inliers."""
    best, best_count = None, 0
    tried = 0
    for i, j in itertools.combinations(range(len(points)), 2):
        p, q = points[i], points[j]
        dx = (q[0] - p[0]).item()
        if dx == 0:
            continue
        tried += 1
        slope = (q[1] - p[1]).item() / dx
        offset = p[1].item() - slope * p[0].item()
        residual = (points[:, 1] - (slope * points[:, 0] + offset)).abs()
        inliers = residual < 0.3
        count = int(inliers.sum())
        if count > best_count:
            best, best_count = inliers, count
        if best_count >= 4:
            break
    if best is None or best_count < 3:
        raise LookupError("no consensus")
    x, y = points[best].unbind(1)
    mx, my = x.mean(), y.mean()
    slope = ((x - mx) * (y - my)).sum() / ((x - mx) ** 2).sum()
    return slope, my - slope * mx, best_count, tried


# --- packing and streams


@program(T([3, 5, 2, 7, 1]), T([8, 8, 8, 1, 1]), T([1, 1, 1, 1, 1]), T([9, 1, 1, 1, 1]))
def pack_best_fit(lengths):
    """Best fit of lengths into rows of eight, longest first; the layout as segment ids and positions."""
    width = 8
    free = []
    place = [None] * len(lengths)
    for index, length in sorted(enumerate(lengths.tolist()), key=lambda pair: (-pair[1], pair[0])):
        if length > width:
            raise OverflowError(f"sequence {index} is too long")
        fits = [(room - length, row) for row, room in enumerate(free) if room >= length]
        if fits:
            _, row = min(fits)
        else:
            row = len(free)
            free.append(width)
        place[index] = (row, width - free[row])
        free[row] -= length
    segments = torch.zeros(len(lengths), width, dtype=torch.long)
    for index, (row, start) in enumerate(place):
        segments[row, start : start + lengths[index]] = index + 1
    return segments, len(free)


class Phase(enum.Enum):
    SILENCE = "silence"
    ONSET = "onset"
    SPEECH = "speech"


@program(T(0.1), T(0.9), T(0.8), T(0.05), T(0.0), T(0.02), T(0.7))
class StreamingEndpoint(nn.Module):
    """A voice endpoint with hysteresis, a lookback of frames and a count of segments, `match` on a tuple."""

    def __init__(self):
        super().__init__()
        self.phase = Phase.SILENCE
        self.hang = 0
        self.lookback = deque(maxlen=2)
        self.segments = 0

    def forward(self, energy):
        loud = bool(energy > 0.5)
        emitted = 0.0
        match (self.phase, loud):
            case (Phase.SILENCE, True):
                self.phase = Phase.ONSET
                emitted = sum(self.lookback)
            case (Phase.ONSET, True):
                self.phase = Phase.SPEECH
                self.hang = 2
            case (Phase.ONSET, False):
                self.phase = Phase.SILENCE
            case (Phase.SPEECH, True):
                self.hang = 2
            case (Phase.SPEECH, False):
                self.hang -= 1
                if self.hang == 0:
                    self.phase = Phase.SILENCE
                    self.segments += 1
            case _:
                pass
        self.lookback.append(energy.item())
        return emitted, self.phase is Phase.SPEECH, self.segments, self.hang


@program(seeded(6, seed=16), T([9.0, 9, 9, 0, 0, 0]), torch.zeros(6))
class MedianLimiter(nn.Module):
    """Clips what is far from the median of a window; a manager counts blocks and failures."""

    class _Timing:
        def __init__(self, owner):
            self.owner = owner

        def __enter__(self):
            self.owner.blocks += 1
            return self

        def __exit__(self, kind, value, tb):
            if kind is not None:
                self.owner.failed += 1
            return False

    def __init__(self):
        super().__init__()
        self.window = [0.0] * 5
        self.blocks = 0
        self.failed = 0

    def forward(self, x):
        out = torch.empty_like(x)
        with self._Timing(self):
            if not x.abs().sum() > 0:
                raise ValueError("empty block")
            for i, v in enumerate(x.tolist()):
                self.window.pop(0)
                self.window.append(v)
                median = sorted(self.window)[2]
                limit = abs(median) + 1.0
                out[i] = v if -limit <= v <= limit else math.copysign(limit, v)
        return out, self.blocks, self.failed


# --- tracking


@dataclasses.dataclass
class Target:
    ident: int
    position: float
    velocity: float = 0.0
    misses: int = 0


@program(T([1.0, 5.0]), T([1.2, 5.1]), T([1.4, 9.0]), T([20.0, 9.1]), T([20.1, 30.0]))
class SlotTracker(nn.Module):
    """Targets in fixed slots, matched to the nearest detection, predicted, and born anew."""

    def __init__(self):
        super().__init__()
        self.next_id = 2
        self.targets = [Target(0, 1.0), Target(1, 5.0)]

    def forward(self, detections):
        taken = set()
        for target in self.targets:
            predicted = target.position + target.velocity
            best, best_d = None, 1.0
            for k in range(detections.shape[0]):
                if k in taken:
                    continue
                d = abs(detections[k].item() - predicted)
                if d < best_d:
                    best, best_d = k, d
            if best is None:
                target.misses += 1
                target.position = predicted
            else:
                taken.add(best)
                target.velocity = 0.5 * target.velocity + 0.5 * (detections[best].item() - target.position)
                target.position = detections[best].item()
                target.misses = 0
        for target in self.targets:
            if target.misses >= 2:
                free = [k for k in range(detections.shape[0]) if k not in taken]
                if free:
                    k = free[0]
                    taken.add(k)
                    target.ident, self.next_id = self.next_id, self.next_id + 1
                    target.position, target.velocity, target.misses = detections[k].item(), 0.0, 0
        return [t.ident for t in self.targets], torch.tensor([t.position for t in self.targets])


# --- early exits and exceptions as control flow


@program(seeded(4, seed=17), seeded(4, seed=18) * 5, T([math.nan, 0, 0, 0]), T([0.0, 0, 0, 0]))
class ConfidentExit(nn.Module):
    """Leaves the stages by an exception that carries the answer; a `finally` counts, an `else` falls back."""

    class Done(Exception):
        pass

    def __init__(self):
        super().__init__()
        self.stages = nn.ParameterList(seeded(4, 4, seed=s) * 0.7 for s in (19, 20, 21))
        self.exits = [0, 0, 0, 0]

    def stage(self, at, h):
        h = torch.relu(h @ self.stages[at]) + h
        confidence = h.softmax(0).max().item()
        if math.isnan(confidence):
            raise FloatingPointError("nan")
        if confidence > 0.6:
            raise self.Done(h, at)
        return h

    def forward(self, x):
        h = x
        at = 3
        try:
            for number in range(3):
                h = self.stage(number, h)
        except self.Done as done:
            h, at = done.args
        except FloatingPointError:
            h = torch.zeros_like(x)
            raise ValueError("bad input")
        else:
            h = h / h.norm().clamp(min=1e-6)
        finally:
            self.exits[at] += 1
        return h, at, self.exits[at]


@program(T([3, 1, 2, 0]), T([1, 2, 3, 0]), T([0, 0, 0, 0]), T([9, 0, 0, 0]))
def follow_pointers(nxt):
    """Follows indices by a nested function with `nonlocal`, until it comes round; an index may be bad."""
    seen = {}
    hops = 0

    def visit(node):
        nonlocal hops
        if node in seen:
            return False
        seen[node] = hops
        hops += 1
        return True

    node = 0
    while visit(node):
        try:
            node = nxt[node].item()
            if node >= len(nxt):
                raise IndexError("dangling")
        except IndexError:
            return -1, hops
    return hops - seen[node], hops


# --- containers


@program(
    (T([4, 2, 7, 1]), T([0, 1, 2, 3])), (T([1, 1, 1, 1]), T([3, 2, 1, 0])), (T([9, 8, 7, 6]), T([0, 0, 0, 0]))
)
def job_events(durations, machines):
    """Jobs on machines by a heap of events; a machine that is busy delays the job."""
    heap = [(0, i) for i in range(len(durations))]
    heapq.heapify(heap)
    busy_until = {}
    finished = [0] * len(durations)
    waits = 0
    while heap:
        now, job = heapq.heappop(heap)
        machine = machines[job].item()
        if busy_until.get(machine, 0) > now:
            waits += 1
            if waits > 20:
                break
            heapq.heappush(heap, (busy_until[machine], job))
            continue
        end = now + durations[job].item()
        busy_until[machine] = end
        finished[job] = end
    return torch.tensor(finished), max(busy_until.values()), waits


@program((T(3), T(1.0)), (T(1), T(2.0)), (T(3), T(5.0)), (T(2), T(0.5)), (T(4), T(0.1)), (T(1), T(1.0)))
class LRU(nn.Module):
    """A cache of the last two keys by an OrderedDict, with a walrus and counts of hits and misses."""

    def __init__(self):
        super().__init__()
        self.store = OrderedDict()
        self.hits = self.misses = 0

    def forward(self, key, value):
        k = key.item()
        if (found := self.store.get(k)) is not None:
            self.store.move_to_end(k)
            self.hits += 1
            return found * 1.0, self.hits, self.misses
        self.misses += 1
        self.store[k] = value.item()
        if len(self.store) > 2:
            self.store.popitem(last=False)
        return value, self.hits, self.misses


@program(T([1, 5, 2, 5, 3, 0]), T([0, 5, 5, 5, 5, 5]), T([2, 0, 0, 0, 0, 0]), T([1, 1, 1, 1, 1, 1]))
def stack_machine(code):
    """A small virtual machine: `match` on opcodes, a stack, jumps, and an error for an underflow."""
    stack = [1]
    pc = 0
    fuel = 12
    trace_sum = 0
    while fuel > 0 and 0 <= pc < code.shape[0]:
        fuel -= 1
        op = code[pc].item()
        pc += 1
        match op:
            case 0:
                break
            case 1:
                stack.append(stack[-1] + 1)
            case 2 if len(stack) >= 2:
                a, b = stack.pop(), stack.pop()
                stack.append(a * b)
            case 2:
                raise ArithmeticError("nothing to multiply")
            case 3:
                if stack.pop() % 2 == 0:
                    pc += 1
                if not stack:
                    stack.append(0)
            case 5 | 6:
                stack.append(stack[-1])
            case _:
                trace_sum -= 1
        trace_sum += stack[-1]
    return stack[-1], len(stack), trace_sum, fuel


@program(T([1.0, 2.0, 9.0, 3.0, 2.0]), T([5.0, 4.0, 3.0, 2.0, 1.0]), T([0.0, 0.0, 0.0, 0.0, 0.0]))
def sliding_maximum(x):
    """The maximum of each window of three by a monotonic deque of indices, as a generator gives them."""

    def maxima(values, size):
        window = deque()
        for i, v in enumerate(values):
            while window and values[window[-1]] <= v:
                window.pop()
            window.append(i)
            if window[0] <= i - size:
                window.popleft()
            if i >= size - 1:
                yield values[window[0]]

    return torch.stack(list(maxima(x, 3)))


@program(T([0.2, 0.9, 0.4]), T([0.6, 0.1, 0.7]), T([0.0, 0.0, 0.0]))
def retry_generator(x):
    """A generator with a `finally`, which its consumer leaves early, and closures in a list."""
    log = defaultdict(int)

    def attempts(limit):
        n = 0
        try:
            while n < limit:
                yield n, x[n]
                n += 1
        finally:
            log["closed"] += 1

    callbacks = [lambda v, k=k: v * k for k in (1.0, 2.0, 3.0)]
    result = x.new_tensor(-1.0)
    for n, value in attempts(3):
        log["tried"] += 1
        if value > 0.5:
            result = callbacks[n](value)
            break
    return result, log["tried"], log["closed"]


@program(
    (seeded(5, seed=22), T(2)),
    (seeded(5, seed=23), T(4)),
    (seeded(5, seed=24), T(0)),
    (seeded(5, seed=25), T(3)),
)
class UndoBuffer(nn.Module):
    """Writes into a buffer with an undo of the last writes, and rolls back by hand where a check fails."""

    def __init__(self):
        super().__init__()
        self.register_buffer("data", torch.zeros(5))
        self.undo = []

    def forward(self, x, at):
        before = self.data.clone()
        self.undo.append(before)
        if len(self.undo) > 3:
            self.undo = self.undo[1:]
        try:
            self.data[at] += x[at]
            self.data[:2] *= 0.5
            if self.data.abs().max() > 1.0:
                raise ValueError("too large")
        except ValueError:
            self.data.copy_(before)
            return self.data.clone(), -1
        return self.data.clone(), len(self.undo)


@program(
    (seeded(3, 3, seed=26), T([0, 1, 2])),
    (seeded(3, 3, seed=27), T([2, 2, 0])),
    (seeded(3, 3, seed=28), T([0, 0, 0])),
)
def normalise_in_place(rows, order):
    """Changes its argument through views that a loop chooses, and tells which rows it came to."""
    touched = []
    for i in order.tolist():
        row = rows[i]
        if i in touched:
            row.zero_()
            continue
        norm = row.norm()
        if norm > 1.5:
            row /= norm
            touched.append(i)
        elif row[0] < 0:
            row.neg_()
    return len(touched), rows.sum()


@functools.singledispatch
def describe(value):
    return -1.0


@describe.register
def _(value: float):
    return value


@describe.register
def _(value: tuple):
    return sum(describe(each) for each in value)


@program(T([1.0, -2.0]), T([-1.0, 3.0]), T([0.0, 0.0]))
def dispatch_by_type(x):
    """`singledispatch` over numbers and tuples of numbers that branches choose."""
    first, second = x.tolist()
    value = (first, second) if first > 0 else second
    return describe(value), describe((first, value if isinstance(value, float) else 0.0))
