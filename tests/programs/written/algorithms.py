"""Decoders, solvers, halting, routers, suppression, replay, trees, schedules and retries."""

# ruff: noqa: B007, B905, E731, E741, N803, N806, RUF005  # as people write it

from __future__ import annotations

import bisect
import enum
import math
import operator
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.written import program, seeded

T = torch.tensor
inf, nan = float("inf"), float("nan")


@program(seeded(5, 4, seed=1) * 3, seeded(5, 4, seed=2) * 3, torch.zeros(5, 4))
def ctc_prefix_beam(logits, width=2, blank=0):
    probs = logits.softmax(-1)
    beams = {(): (1.0, 0.0)}
    for frame in probs[:3]:
        new = defaultdict(lambda: (0.0, 0.0))
        for prefix, (pb, pnb) in beams.items():
            for s, p in enumerate(frame.tolist()):
                if s == blank:
                    b, nb = new[prefix]
                    new[prefix] = (b + p * (pb + pnb), nb)
                    continue
                last = prefix[-1] if prefix else None
                ext = prefix + (s,)
                b, nb = new[ext]
                if s == last:
                    new[ext] = (b, nb + p * pb)
                    b2, nb2 = new[prefix]
                    new[prefix] = (b2, nb2 + p * pnb)
                else:
                    new[ext] = (b, nb + p * (pb + pnb))
        beams = dict(sorted(new.items(), key=lambda kv: -sum(kv[1]))[:width])
    best, (pb, pnb) = next(iter(beams.items()))
    return torch.tensor(len(best)), torch.tensor(pb + pnb)


class RepetitionGuard(nn.Module):
    """Greedy decoding with a repetition penalty, a minimum length and stop on repeated bigrams."""

    def __init__(self, vocab=6, eos=0):
        super().__init__()
        torch.manual_seed(11)
        self.emb = nn.Embedding(vocab, 5)
        self.head = nn.Linear(5, vocab)
        self.eos = eos

    @torch.no_grad()
    def forward(self, start, penalty):
        tokens = [int(start)]
        bigrams = set()
        h = torch.zeros(5)
        reason = "length"
        while len(tokens) < 7:
            h = torch.tanh(h + self.emb(torch.tensor(tokens[-1])))
            logits = self.head(h)
            for t in set(tokens):
                logits[t] = logits[t] / penalty if logits[t] > 0 else logits[t] * penalty
            if len(tokens) < 3:
                logits[self.eos] = -inf
            nxt = logits.argmax().item()
            if nxt == self.eos:
                reason = "eos"
                break
            if (tokens[-1], nxt) in bigrams:
                reason = "loop"
                break
            bigrams.add((tokens[-1], nxt))
            tokens.append(nxt)
        out = F.pad(torch.tensor(tokens), (0, 7 - len(tokens)), value=-1)
        return out, torch.tensor({"length": 0, "eos": 1, "loop": 2}[reason])


program((T(1), T(1.2)), (T(3), T(1.0)), (T(5), T(4.0)), (T(2), T(1.0)))(RepetitionGuard)


@program(
    (seeded(4, 3, seed=3).softmax(-1), T([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])),
    (torch.full((4, 3), 1 / 3), torch.eye(3)),
    (T([[1.0, 0, 0]] * 4), T([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])),
)
def viterbi_log_or_raise(obs, trans):
    """Viterbi over logs where a dead end raises."""
    log = lambda p: math.log(p) if p > 0 else -math.inf
    n = obs.shape[1]
    best = [log(p) for p in obs[0].tolist()]
    back = []
    for row in obs[1:].tolist():
        cur, ptr = [], []
        for j in range(n):
            scores = [best[i] + log(trans[i, j].item()) for i in range(n)]
            i = max(range(n), key=scores.__getitem__)
            cur.append(scores[i] + log(row[j]))
            ptr.append(i)
        if all(v == -math.inf for v in cur):
            raise ValueError("dead end")
        best = cur
        back.append(ptr)
    state = max(range(n), key=best.__getitem__)
    path = [state]
    for ptr in back[::-1]:
        state = ptr[state]
        path.insert(0, state)
    return torch.tensor(path), torch.tensor(max(best))


@program((T([3, 4, 1, 2, 3, 9]),), (T([1, 2, 1, 2, 1, 2]),), (T([9, 9, 9, 9, 9, 9]),))
def greedy_longest_match(ids):
    """WordPiece: the longest piece of a vocabulary of ids at each position."""
    vocab = {(1, 2): 10, (1, 2, 3): 11, (3,): 12, (4,): 13, (1,): 14, (2,): 15, (3, 4): 16}
    text = tuple(ids.tolist())
    out, i = [], 0
    while i < len(text):
        for size in range(3, 0, -1):
            piece = text[i : i + size]
            if piece in vocab:
                out.append(vocab[piece])
                i += len(piece)
                break
        else:
            out.append(0)
            i += 1
    return torch.tensor(out + [-1] * (6 - len(out))), torch.tensor(len(out))


@dataclass
class Solution:
    x: torch.Tensor
    iterations: int = 0
    converged: bool = False
    residuals: list[float] = field(default_factory=list)


@program(
    (T([[4.0, 1.0], [1.0, 3.0]]), T([1.0, 2.0])),
    (T([[1.0, 0.0], [0.0, -1.0]]), T([1.0, 1.0])),
    (torch.eye(2), T([0.0, 0.0])),
    (T([[100.0, 0.0], [0.0, 0.001]]), T([1.0, 1.0])),
)
def conjugate_gradient_checked(A, b):
    sol = Solution(torch.zeros_like(b))
    r = b - A @ sol.x
    p = r.clone()
    rs = r @ r
    if math.isclose(rs.item(), 0.0, abs_tol=1e-12):
        sol.converged = True
        return sol.x, torch.tensor(0), torch.tensor(True)
    while not sol.converged and sol.iterations < 5:
        Ap = A @ p
        curvature = p @ Ap
        if curvature <= 0:
            raise ArithmeticError(f"negative curvature {curvature.item():.3f}")
        alpha = rs / curvature
        sol.x = sol.x + alpha * p
        r = r - alpha * Ap
        new = r @ r
        sol.residuals.append(new.sqrt().item())
        sol.converged = sol.residuals[-1] < 1e-5
        p = r + (new / rs) * p
        rs = new
        sol.iterations += 1
    return sol.x, torch.tensor(sol.iterations), torch.tensor(sol.converged)


class NewtonWithLineSearch:
    def __init__(self, f, df, *, max_iter=8, tol=1e-4):
        self.f, self.df, self.max_iter, self.tol = f, df, max_iter, tol
        self.evals = 0

    def __call__(self, x):
        for i in range(self.max_iter):
            fx, g = self._eval(x)
            if abs(fx) < self.tol:
                return x, i
            if abs(g) < 1e-9:
                break
            step, t = fx / g, 1.0
            while abs(self.f(x - t * step)) >= abs(fx):
                t /= 2
                if t < 0.05:
                    return x, -i - 1
            x = x - t * step
        return x, None

    def _eval(self, x):
        self.evals += 1
        return self.f(x), self.df(x)


@program((T(2.0), T(1.0)), (T(0.0), T(0.0)), (T(-5.0), T(3.0)), (T(27.0), T(0.01)))
def newton_object(a, x0):
    solver = NewtonWithLineSearch(lambda x: x**3 - a, lambda x: 3 * x * x)
    root, n = solver(x0)
    if n is None:
        return root, torch.tensor(-100), torch.tensor(solver.evals)
    return root, torch.tensor(n), torch.tensor(solver.evals)


@program((T([1.0, 0.0]), T(2.0)), (T([0.0, 0.0]), T(1.0)), (T([30.0, 4.0]), T(1.0)))
def dormand_controller(y, t_end):
    """An embedded pair with a PI controller, dense record and a step budget."""
    f = lambda t, y: torch.stack([y[1], -y[0] - 0.1 * y[1]])
    t, h, prev_err = 0.0, 0.25, 1.0
    ts, rejects = [0.0], 0
    end = float(t_end)
    while (remaining := end - t) > 1e-6:
        if len(ts) + rejects > 14:
            break
        h = min(h, remaining)
        k1 = f(t, y)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + h, y - h * k1 + 2 * h * k2)
        high = y + h / 6 * (k1 + 4 * k2 + k3)
        low = y + h * k2
        err = max((high - low).abs().max().item() / (1e-2 + 1e-2 * y.abs().max().item()), 1e-8)
        factor = min(3.0, max(0.3, 0.9 * err**-0.3 * prev_err**0.1))
        if err <= 1:
            t += h
            y = high
            ts.append(t)
            prev_err = err
        else:
            rejects += 1
        h *= factor
    return y, torch.tensor(len(ts)), torch.tensor(ts[-1]), torch.tensor(rejects)


@program((T([1.0, -1.0]), T([2.0, 0.5])), (T([0.0, 0.0]), T([1.0, 1.0])), (T([50.0, 50.0]), T([1.0, 10.0])))
def bfgs_small(x, scale):
    def fun(v):
        return (scale * v**2).sum() + (v[0] * v[1]) ** 2 * 0.1

    def grad(v):
        return 2 * scale * v + 0.2 * v[0] * v[1] * v.flip(0)

    H, I = torch.eye(2), torch.eye(2)
    g = grad(x)
    status = "max_iter"
    for k in range(6):
        if g.norm() < 1e-3:
            status = "converged"
            break
        p = -H @ g
        alpha, tries = 1.0, 0
        while fun(x + alpha * p) > fun(x) + 1e-4 * alpha * (g @ p):
            alpha *= 0.5
            tries += 1
            if tries == 10:
                status = "linesearch"
                break
        if status == "linesearch":
            break
        s = alpha * p
        x = x + s
        g_new = grad(x)
        y = g_new - g
        g = g_new
        if (sy := s @ y) > 1e-8:
            rho = 1.0 / sy
            H = (I - rho * torch.outer(s, y)) @ H @ (I - rho * torch.outer(y, s)) + rho * torch.outer(s, s)
    return x, torch.tensor(k), torch.tensor(["max_iter", "converged", "linesearch"].index(status))


class ACTCell(nn.Module):
    """Adaptive computation time for a batch, each row halts for itself."""

    def __init__(self, size=4, eps=0.05, limit=6):
        super().__init__()
        torch.manual_seed(3)
        self.cell = nn.RNNCell(size + 1, size)
        self.halt = nn.Linear(size, 1)
        self.eps, self.limit = eps, limit
        self.register_buffer("total_steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        b = x.size(0)
        h = x.new_zeros(b, 4)
        acc_h = torch.zeros_like(h)
        acc_p = x.new_zeros(b)
        n_updates = x.new_zeros(b)
        step = 0
        while True:
            running = acc_p < 1 - self.eps
            if not running.any() or step >= self.limit:
                break
            flag = x.new_full((b, 1), 1.0 if step == 0 else 0.0)
            h = self.cell(torch.cat([x, flag], 1), h)
            p = torch.sigmoid(self.halt(h)).squeeze(1)
            p = torch.where(acc_p + p > 1 - self.eps, 1 - acc_p, p) * running
            acc_p = acc_p + p
            acc_h = acc_h + p[:, None] * h
            n_updates = n_updates + running.float()
            step += 1
        self.total_steps += step
        ponder = (n_updates + 1 - acc_p).mean()
        if ponder > 4:
            ponder = ponder * 2
        return acc_h, ponder, self.total_steps.clone()


program(seeded(3, 4), seeded(3, 4, seed=2) * 5, torch.full((3, 4), -9.0), torch.zeros(3, 4))(ACTCell)


class PatienceExit(nn.Module):
    """PABEE: leaves when k heads in a row agree."""

    def __init__(self, patience=2):
        super().__init__()
        torch.manual_seed(5)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(5))
        self.heads = nn.ModuleList(nn.Linear(4, 3) for _ in range(5))
        self.patience = patience
        self.exits = [0] * 5

    def forward(self, x):
        streak, last = 0, None
        for i, (block, head) in enumerate(zip(self.blocks, self.heads)):
            x = block(x)
            label = head(x).argmax().item()
            streak = streak + 1 if last == label else 0
            last = label
            if streak >= self.patience:
                self.exits[i] += 1
                return torch.tensor(label), i, sum(self.exits)
        self.exits[-1] += 1
        return torch.tensor(last), len(self.blocks), sum(self.exits)


program(seeded(4), seeded(4, seed=3) * 2, torch.zeros(4), seeded(4, seed=9) * 4)(PatienceExit)


class ExpertChoice(nn.Module):
    """Each expert takes its best tokens; tokens nobody took go through a shared expert."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.gate = nn.Linear(4, 3, bias=False)
        self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.shared = nn.Linear(4, 4)
        self.orphans = 0

    def forward(self, x, capacity):
        scores = self.gate(x).softmax(0)
        k = min(int(capacity), len(x))
        if k <= 0:
            raise ValueError("capacity must be positive")
        y = torch.zeros_like(x)
        taken = torch.zeros(len(x), dtype=torch.bool)
        for e, expert in enumerate(self.experts):
            top, idx = scores[:, e].topk(k)
            y[idx] += top[:, None] * expert(x[idx])
            taken[idx] = True
        if not taken.all():
            self.orphans += int((~taken).sum())
            y[~taken] = self.shared(x[~taken])
        return y, torch.tensor(self.orphans)


program(
    (seeded(5, 4), T(2)), (seeded(5, 4, seed=1), T(1)), (seeded(5, 4), T(0)), (seeded(5, 4, seed=2), T(9))
)(ExpertChoice)


class HashRouter(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(8)
        self.experts = nn.ModuleDict(
            {"code": nn.Linear(3, 3), "math": nn.Linear(3, 3), "chat": nn.Identity()}
        )
        self.usage = Counter()

    def route(self, x):
        if x[0] > 1:
            return "code"
        return "math" if x[1] < 0 else "chat"

    def forward(self, xs):
        out = []
        for x in xs:
            name = self.route(x)
            self.usage[name] += 1
            out.append(self.experts[name](x))
        name, count = max(self.usage.items(), key=operator.itemgetter(1))
        return torch.stack(out), torch.tensor(count), torch.tensor(self.usage["code"])


program(seeded(3, 3), seeded(3, 3, seed=4) * 2, torch.ones(3, 3) * 2, -torch.ones(3, 3))(HashRouter)


@program(
    (seeded(6, seed=1).sigmoid(), T([[0.0, 2], [1, 3], [5, 7], [5, 6.5], [9, 11], [1.5, 3.2]]), T(0.3)),
    (T([0.9] * 6), T([[0.0, 1]] * 6), T(0.5)),
    (T([0.1] * 6), T([[0.0, 2], [1, 3], [5, 7], [5, 6.5], [9, 11], [1.5, 3.2]]), T(0.3)),
)
def soft_nms_1d(scores, segments, sigma):
    def iou(a, b):
        inter = max(0.0, min(a[1], b[1]) - max(a[0], b[0]))
        union = (a[1] - a[0]) + (b[1] - b[0]) - inter
        return inter / union if union else 0.0

    pool = [(s, tuple(seg)) for s, seg in zip(scores.tolist(), segments.tolist())]
    keep = []
    while pool and len(keep) < 3:
        i = max(range(len(pool)), key=lambda j: pool[j][0])
        score, seg = pool.pop(i)
        if score < 0.2:
            break
        keep.append(score)
        pool = [(s * math.exp(-(iou(seg, o) ** 2) / sigma.item()), o) for s, o in pool]
    return torch.tensor(keep + [0.0] * (3 - len(keep))), torch.tensor(len(keep))


class PrioritizedReplay(nn.Module):
    def __init__(self, capacity=4, alpha=0.5):
        super().__init__()
        self.capacity, self.alpha = capacity, alpha
        self.register_buffer("data", torch.zeros(capacity, 2))
        self.register_buffer("priority", torch.zeros(capacity))
        self.cursor, self.full = 0, False

    def __len__(self):
        return self.capacity if self.full else self.cursor

    def push(self, item, p):
        if not math.isfinite(p):
            raise ValueError("priority")
        self.data[self.cursor] = item
        self.priority[self.cursor] = p
        self.cursor = (self.cursor + 1) % self.capacity
        self.full |= self.cursor == 0

    def sample(self, u):
        weights = self.priority[: len(self)] ** self.alpha
        target = u * weights.sum()
        acc = 0.0
        for i, w in enumerate(weights):
            acc += w
            if acc >= target:
                return i
        return len(self) - 1

    def forward(self, item, td, u):
        self.push(item, abs(td.item()) + 0.01)
        i = self.sample(u)
        return self.data[i].clone(), i, len(self)


program(
    (T([1.0, 2.0]), T(0.5), T(0.1)),
    (T([3.0, 4.0]), T(-2.5), T(0.9)),
    (T([5.0, 4.0]), T(nan), T(0.9)),
    (T([5.0, 6.0]), T(1.5), T(0.5)),
    (T([7.0, 8.0]), T(0.0), T(1.0)),
    (T([9.0, 8.0]), T(3.0), T(0.3)),
)(PrioritizedReplay)


class RunningQuantile(nn.Module):
    """P2-like markers kept sorted in a list, warm-up of five."""

    def __init__(self):
        super().__init__()
        self.values = []
        self.seen = 0

    def forward(self, x):
        v = x.item()
        self.seen += 1
        if len(self.values) < 3:
            bisect.insort(self.values, v)
        elif v < self.values[0]:
            self.values[0] = v
        elif v > self.values[-1]:
            self.values[-1] = v
        else:
            mid = self.values[1]
            self.values[1] = mid + (0.25 if v > mid else -0.25)
            self.values.sort()
        return torch.tensor(self.values[len(self.values) // 2]), torch.tensor(self.seen)


program(T(3.0), T(1.0), T(2.0), T(9.0), T(-1.0), T(2.5), T(2.0))(RunningQuantile)


class Tree(NamedTuple):
    feature: int
    threshold: float
    left: Tree | float
    right: Tree | float


FOREST = [
    Tree(0, 0.5, Tree(1, 0.0, -1.0, 1.0), 3.0),
    Tree(2, 1.0, 0.25, Tree(0, 2.0, Tree(1, 1.0, 5.0, 6.0), 7.0)),
]


@program(T([0.0, 1.0, 0.0]), T([3.0, 0.0, 2.0]), T([1.0, 2.0, 3.0]), T([nan, -1.0, 0.0]))
def decision_forest(x):
    def walk(tree, row):
        if not isinstance(tree, Tree):
            return tree
        v = row[tree.feature]
        if torch.isnan(v):
            raise ValueError("missing feature")
        return walk(tree.left if v <= tree.threshold else tree.right, row)

    votes = [walk(t, x) for t in FOREST]
    return torch.tensor(sum(votes) / len(votes)), torch.tensor(max(votes))


@program(
    (T([[0, 1], [1, 2], [3, 2]]), T([1, 1, 1])),
    (T([[0, 1], [1, 2], [2, 0]]), T([1, 1, 1])),
    (T([[0, 1], [1, 2], [2, 0]]), T([1, 1, 0])),
)
def topological_order(edges, enabled):
    graph = {i: [] for i in range(4)}
    indegree = [0] * 4
    for (a, b), on in zip(edges.tolist(), enabled.tolist()):
        if on:
            graph[a].append(b)
            indegree[b] += 1
    queue = deque(i for i in range(4) if indegree[i] == 0)
    order = []
    while queue:
        node = queue.popleft()
        order.append(node)
        for nxt in graph[node]:
            indegree[nxt] -= 1
            if indegree[nxt] == 0:
                queue.append(nxt)
    if len(order) < 4:
        raise ValueError("cycle")
    return torch.tensor(order)


class Priority(enum.IntEnum):
    LOW = 0
    NORMAL = 1
    HIGH = 2


@dataclass
class Task:
    id: int
    cost: float
    priority: Priority = Priority.NORMAL
    waited: int = 0


@program(
    (T([3.0, 1.0, 2.0]), T([0, 2, 1])), (T([1.0, 1.0, 1.0]), T([1, 1, 1])), (T([5.0, 0.5, 9.0]), T([2, 0, 2]))
)
def schedule_with_aging(costs, priorities):
    tasks = [Task(i, c, Priority(p)) for i, (c, p) in enumerate(zip(costs.tolist(), priorities.tolist()))]
    clock, order = 0.0, []
    while tasks:
        tasks.sort(key=lambda t: (-t.priority, t.cost))
        current = tasks.pop(0)
        clock += current.cost
        order.append(current.id)
        for t in tasks:
            t.waited += 1
            if t.waited >= 2 and t.priority < Priority.HIGH:
                t.priority = Priority(t.priority + 1)
    return torch.tensor(order), torch.tensor(clock)


@program((T([1.0, 2.0, 3.0]), T(1.0)), (T([0.0, -1.0, 4.0]), T(2.0)), (T([1.0, 1.0, nan]), T(0.5)))
def retry_with_backoff(x, rate):
    """A loop of attempts, each of which may fail in one of two ways."""

    class Diverged(RuntimeError):
        pass

    def attempt(lr):
        y = x - lr * x.sign() * x.abs().sqrt() * 2
        if not torch.isfinite(y).all():
            raise FloatingPointError("nan")
        if y.abs().sum() > x.abs().sum():
            raise Diverged(lr)
        return y

    lr, failures = rate.item(), 0
    for _ in range(3):
        try:
            result = attempt(lr)
        except Diverged:
            failures += 1
            lr *= 0.25
        else:
            break
    else:
        raise RuntimeError("gave up")
    return result, torch.tensor(failures)
