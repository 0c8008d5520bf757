"""Models as people write them in plain PyTorch, Python deciding on tensors: solvers, searches, detectors."""

from __future__ import annotations

import torch
from torch import nn

from tests.programs.cases import Models, uniform


class BeamSearch(nn.Module):
    def __init__(self, width=3, steps=5, words=7):
        super().__init__()
        self.width, self.steps, self.words = width, steps, words
        self.embed = nn.Embedding(words, 8)
        self.cell = nn.GRUCell(8, 8)
        self.out = nn.Linear(8, words)

    def forward(self, h):
        beams = torch.zeros(self.width, self.steps, dtype=torch.int64)
        scores = torch.tensor([0.0] + [-1e9] * (self.width - 1))
        state = h.expand(self.width, -1)
        token = torch.zeros(self.width, dtype=torch.int64)
        for step in range(self.steps):
            state = self.cell(self.embed(token), state)
            total = scores[:, None] + self.out(state).log_softmax(-1)
            scores, index = total.flatten().topk(self.width)
            parent = index // self.words
            token = index % self.words
            beams = beams[parent]
            beams[:, step] = token
            state = state[parent]
            if (token == 2).all() or scores[0] < -20:
                break
        return beams, scores


class AdaptiveComputation(nn.Module):
    """Graves' adaptive computation time for one state."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 6)
        self.halt = nn.Linear(6, 1)

    def forward(self, x, h):
        total, steps = 0.0, 0
        mean = torch.zeros_like(h)
        while total < 0.99 and steps < 12:
            h = self.cell(x, h)
            p = torch.sigmoid(self.halt(h)).squeeze()
            if total + p > 0.99:
                p = 1.0 - total
            mean = mean + p * h
            total = total + p
            steps += 1
        return mean, steps


class Refinement(nn.Module):
    """Updates a flow until it settles, as RAFT does, at most eight times."""

    def __init__(self):
        super().__init__()
        self.update = nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, image, flow):
        for _ in range(8):
            delta = 0.2 * torch.tanh(self.update(torch.cat([image, flow], 1)))
            flow = flow + delta
            if delta.abs().mean() < 0.05:
                break
        return flow


class SpeculativeAcceptance(nn.Module):
    """How many of a draft's tokens a model accepts, and the first that it puts in place of one."""

    def forward(self, draft, draft_p, target_p, u):
        accepted = 0
        for i in range(draft.shape[0]):
            token = draft[i]
            if u[i] < target_p[i, token] / draft_p[i, token]:
                accepted += 1
            else:
                break
        if accepted == draft.shape[0]:
            return accepted, torch.tensor(-1)
        rest = (target_p[accepted] - draft_p[accepted]).clamp(min=0)
        return accepted, rest.argmax()


class NonMaximumSuppression(nn.Module):
    def forward(self, boxes, scores):
        order = scores.argsort(descending=True)
        kept = torch.zeros(boxes.shape[0], dtype=torch.bool)
        for i in range(boxes.shape[0]):
            box = boxes[order[i]]
            left = torch.maximum(box[:2], boxes[:, :2])
            right = torch.minimum(box[2:], boxes[:, 2:])
            overlap = (right - left).clamp(min=0).prod(-1)
            area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
            union = area[order[i]] + area - overlap
            if not ((overlap / union > 0.5) & kept).any():
                kept[order[i]] = True
        return kept


class ConjugateGradient(nn.Module):
    def forward(self, a, b):
        x = torch.zeros_like(b)
        r = b - a @ x
        p = r.clone()
        rs = r @ r
        n = 0
        while rs.sqrt() > 1e-4:
            ap = a @ p
            alpha = rs / (p @ ap)
            x = x + alpha * p
            r = r - alpha * ap
            new = r @ r
            p = r + (new / rs) * p
            rs = new
            n += 1
            if n >= 20:
                break
        return x, n


class Bisection(nn.Module):
    """A root of x**3 - c, with numbers of Python."""

    def forward(self, c):
        low, high = -10.0, 10.0
        for _ in range(60):
            middle = (low + high) / 2
            if middle**3 < c:
                low = middle
            else:
                high = middle
            if high - low < 1e-4:
                break
        return (low + high) / 2 * torch.ones(1)


class RayMarch(nn.Module):
    """Marches to a sphere's surface, at most 32 steps."""

    def forward(self, origin, direction):
        t = torch.zeros(())
        hit = False
        for _ in range(32):
            point = origin + t * direction
            distance = point.norm() - 1.0
            if distance < 1e-3:
                hit = True
                break
            if t > 10:
                break
            t = t + distance
        return t, hit


class DeepEquilibrium(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        with torch.no_grad():
            self.inner.weight.mul_(0.4)

    def forward(self, x):
        z = torch.zeros_like(x)
        n = 0
        while n < 50:
            new = torch.tanh(self.inner(z) + x)
            if (new - z).norm() < 1e-3:
                return new, n
            z = new
            n += 1
        return z, n


class SpikingNet(nn.Module):
    """Integrates until a neuron fires; counts the spikes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        membrane = torch.zeros(3)
        spikes = torch.zeros(3)
        for t in range(x.shape[0]):
            membrane = 0.9 * membrane + self.linear(x[t]).abs()
            fired = membrane > 1.0
            if fired.any():
                spikes = spikes + fired.float()
                membrane = torch.where(fired, torch.zeros(3), membrane)
        return spikes, membrane


class KMeans(nn.Module):
    def forward(self, points):
        centers = points[:3].clone()
        for _ in range(10):
            distance = (points[:, None] - centers[None]).pow(2).sum(-1)
            label = distance.argmin(-1)
            new = centers.clone()
            for k in range(3):
                mine = label == k
                if mine.any():
                    new[k] = (points * mine[:, None]).sum(0) / mine.sum()
            if (new - centers).abs().max() < 1e-4:
                break
            centers = new
        return centers, label


class VariableLengthRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)

    def forward(self, x, length):
        h = torch.zeros(1, 6)
        c = torch.zeros(1, 6)
        best = None
        for t in range(length):
            h, c = self.cell(x[t : t + 1], (h, c))
            best = h if best is None else torch.maximum(best, h)
        if best is None:
            return h
        return best


class Validated(nn.Module):
    """Raises on what it cannot take, logs, and picks a way by a number."""

    def forward(self, x, mode):
        if not torch.isfinite(x).all():
            raise ValueError(f"not finite: {x.abs().max().item()}")
        n = mode.item()
        if n == 0:
            print("nothing to do", n)
            return x
        match n:
            case 1:
                return x * 2
            case 2 | 3:
                return x.flip(0)
        return -x


def _distribution(*shape: int, seed: int) -> torch.Tensor:
    return uniform(*shape, seed=seed).mul(2).softmax(-1)


def _spd(n: int, seed: int) -> torch.Tensor:
    a = uniform(n, n, seed=seed)
    return a @ a.T + 0.5 * torch.eye(n)


def _boxes(seed: int, spread: float) -> torch.Tensor:
    corner = (uniform(6, 2, seed=seed) + 1) * spread
    return torch.cat([corner, corner + 1 + (uniform(6, 2, seed=seed + 1) + 1) / 4], 1)


def _speculative(seed: int, u: float) -> dict[str, torch.Tensor]:
    return {
        "draft": torch.tensor([1, 0, 3, 2]),
        "draft_p": _distribution(4, 5, seed=seed),
        "target_p": _distribution(4, 5, seed=seed + 9),
        "u": torch.full((4,), u),
    }


MODELS: Models = {
    "beam_search": lambda: (BeamSearch(steps=2), [{"h": uniform(1, 8, seed=s) * 3} for s in range(3)], None),
    "adaptive_computation": lambda: (
        AdaptiveComputation(),
        [{"x": uniform(1, 4, seed=s) * 4, "h": uniform(1, 6, seed=s + 5)} for s in range(3)],
        None,
    ),
    "refinement": lambda: (
        Refinement(),
        [
            {"image": uniform(1, 2, 8, 8, seed=s) * f, "flow": uniform(1, 2, 8, 8, seed=7)}
            for s, f in ((0, 1), (1, 0))
        ],
        None,
    ),
    "speculative_acceptance": lambda: (
        SpeculativeAcceptance(),
        [_speculative(s, u) for s, u in ((0, 0.5), (1, 0.0), (2, 1.0), (3, 0.8))],
        None,
    ),
    "nms": lambda: (
        NonMaximumSuppression(),
        [{"boxes": _boxes(s, w), "scores": uniform(6, seed=s)} for s, w in ((0, 1.0), (3, 0.1), (5, 9.0))],
        None,
    ),
    "conjugate_gradient": lambda: (
        ConjugateGradient(),
        [{"a": _spd(5, s), "b": uniform(5, seed=s) * f} for s, f in ((0, 1), (1, 0), (2, 3))],
        None,
    ),
    "bisection": lambda: (Bisection(), [{"c": torch.tensor(c)} for c in (8.0, -27.3, 0.1)], None),
    "ray_march": lambda: (
        RayMarch(),
        [
            {"origin": torch.tensor([0.0, y, -4.0]), "direction": torch.tensor([0.0, 0.0, 1.0])}
            for y in (0.3, 2.0, 0.0)
        ],
        None,
    ),
    "deep_equilibrium": lambda: (
        DeepEquilibrium(),
        [{"x": uniform(2, 6) * f} for f in (1.0, 0.0, 3.0)],
        None,
    ),
    "spiking_net": lambda: (
        SpikingNet(),
        [{"x": uniform(6, 4, seed=s) * f} for s, f in ((0, 1), (1, 0.1), (2, 3))],
        None,
    ),
    "kmeans": lambda: (KMeans(), [{"points": uniform(9, 2, seed=s)} for s in range(3)], None),
    "variable_length_rnn": lambda: (
        VariableLengthRNN(),
        [{"x": uniform(6, 4), "length": torch.tensor(n)} for n in (4, 0, 1, 6)],
        None,
    ),
    "validated": lambda: (
        Validated(),
        [{"x": uniform(3), "mode": torch.tensor(n)} for n in (1, 0, 2, 3, 4)],
        None,
    ),
}
