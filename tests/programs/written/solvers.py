"""Solvers: roots, integrators, optimizers, fits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import nn

from tests.programs.written import program, seeded


@program(*((torch.tensor(v),) for v in (2.0, 100.0, 0.25, 1.0)))
def newton_square_root(a):
    x, steps = a, 0
    while abs(x * x - a) > 1e-4:
        x = 0.5 * (x + a / x)
        steps += 1
        if steps > 30:
            raise RuntimeError("did not converge")
    return x, steps


@program(*((torch.tensor(a), torch.tensor(b)) for a, b in ((0.0, 2.0), (1.0, 3.0), (2.0, 3.0), (0.0, 8.0))))
def bisection(low, high):
    def f(x):
        return x * x - 2

    if f(low) * f(high) > 0:
        raise ValueError("no change of sign")
    for _ in range(40):
        middle = (low + high) / 2
        if (high - low) < 1e-3:
            break
        if f(low) * f(middle) <= 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2


@program(*((torch.tensor(v),) for v in (1.0, 0.1, 5.0)))
def adaptive_integrator(rate):
    """Heun's method with Euler's as its error estimate."""
    t, y, h, rejected = 0.0, torch.tensor(1.0), 0.5, 0
    while t < 1.0 and rejected < 20:
        h = min(h, 1.0 - t)
        k1 = -rate * y
        k2 = -rate * (y + h * k1)
        error = (h / 2 * (k2 - k1)).abs()
        if error < 0.05:
            t, y = t + h, y + h / 2 * (k1 + k2)
            h = h * 1.5
        else:
            h = h / 2
            rejected += 1
    return y, rejected


@dataclass(frozen=True)
class Step:
    t: float
    y: torch.Tensor
    count: int = 0


@program(*((seeded(2, seed=n),) for n in range(3)))
def runge_kutta_until_settled(y):
    state = Step(0.0, y)
    while state.count < 12:
        k1 = -state.y
        k2 = -(state.y + 0.25 * k1)
        new = state.y + 0.5 * k2
        if (new - state.y).norm() < 0.05:
            break
        state = replace(state, t=state.t + 0.5, y=new, count=state.count + 1)
    return state.y, state.count, state.t


@program(*((seeded(3, 3, seed=n),) for n in range(3)))
def power_iteration(a):
    a = a @ a.T
    v = torch.ones(3)
    for i in range(50):  # noqa: B007
        w = a @ v
        w = w / w.norm()
        if (w - v).norm() < 1e-3:
            break
        v = w
    return w @ a @ w, i


@program(*((seeded(4, seed=n), torch.tensor(0.1 * (n + 1))) for n in range(3)))
def gradient_descent_with_backtracking(x, rate):
    def loss(v):
        return (v * v).sum() + (v - 1).pow(4).sum()

    for _ in range(5):
        g = 2 * x + 4 * (x - 1) ** 3
        step = rate * 4
        for _ in range(6):
            if loss(x - step * g) < loss(x) - 0.1 * step * (g @ g):
                break
            step = step / 2
        x = x - step * g
    return x, loss(x)


@program(*((seeded(3, 3, seed=n) + 3 * torch.eye(3), seeded(3, seed=n)) for n in range(3)))
def conjugate_gradient(a, b):
    a = a @ a.T
    x = torch.zeros(3)
    r = b - a @ x
    p, rs = r, r @ r
    steps = 0
    while rs.sqrt() > 1e-3 and steps < 6:
        ap = a @ p
        alpha = rs / (p @ ap)
        x = x + alpha * p
        r = r - alpha * ap
        new = r @ r
        p = r + new / rs * p
        rs = new
        steps += 1
    return x, steps


@program((seeded(12, 2), torch.tensor(2)), (seeded(12, 2, seed=3), torch.tensor(5)))
def k_means(points, start):
    centers = points[[0, 1, 2]] + start
    labels = torch.zeros(12, dtype=torch.long)
    for i in range(8):
        new = torch.cdist(points, centers).argmin(1)
        if i > 0 and torch.equal(new, labels):
            break
        labels = new
        for k in range(3):
            mask = labels == k
            if mask.any():
                centers[k] = points[mask].mean(0)
    return centers, labels, i


@program(
    *(
        (seeded(10, seed=n), torch.randint(0, 10, (6, 2), generator=torch.Generator().manual_seed(n)))
        for n in range(3)
    )
)
def ransac_line(y, pairs):
    x = torch.arange(10.0)
    best, inliers = (0.0, 0.0), -1
    for i, j in pairs.tolist():
        if i == j:
            continue
        slope = (y[j] - y[i]) / (x[j] - x[i])
        offset = y[i] - slope * x[i]
        count = int(((slope * x + offset - y).abs() < 0.5).sum())
        if count > inliers:
            best, inliers = (slope, offset), count
    return best[0], best[1], inliers


@program(*((torch.tensor([float(v) for v in r]),) for r in ((9, 7, 5, 3), (1, 2, 3, 4), (5, 5, 5, 5))))
def early_stopping(losses):
    best, patience, stopped = float("inf"), 0, -1
    for epoch, loss in enumerate(losses.tolist()):
        if loss < best - 1e-3:
            best, patience = loss, 0
        else:
            patience += 1
            if patience >= 2:
                stopped = epoch
                break
    return best, stopped


@program(*((torch.tensor(v),) for v in (10, 27, 1, 97)))
def collatz(n):
    n, steps = int(n), 0
    while n != 1 and steps < 200:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@program(*((torch.tensor(a), torch.tensor(b)) for a, b in ((48, 36), (17, 5), (0, 3), (7, 0))))
def greatest_common_divisor(a, b):
    a, b = a.item(), b.item()
    while b:
        a, b = b, a % b
    return a


@program(*((torch.tensor(v),) for v in (4.0, 0.0, -1.0, 1e-3)))
def guarded_logarithm(x):
    value = x.item()
    try:
        return math.log(value), 0
    except ValueError:
        return 0.0, 1


@program(*((seeded(4, seed=n), seeded(3, seed=n)) for n in range(4)))
class AdaptiveComputation(nn.Module):
    """Graves' adaptive computation time."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.halt = nn.GRUCell(4, 3), nn.Linear(3, 1)

    def forward(self, x, h):
        total, remainder, output, n = 0.0, 1.0, torch.zeros(3), 0
        while n < 8:
            h = self.cell(x[None], h[None])[0]
            p = self.halt(h).sigmoid().squeeze()
            n += 1
            if total + p > 0.95:
                output = output + remainder * h
                break
            output = output + p * h
            total, remainder = total + p, remainder - p
        return output, n


@program(*((seeded(8, seed=n) * s,) for n, s in enumerate((1.0, 3.0, 0.01))))
class DeepEquilibrium(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        z, residuals = torch.zeros(8), []
        for _ in range(10):
            new = torch.tanh(0.5 * self.layer(z) + x)
            residuals.append((new - z).norm())
            z = new
            if residuals[-1] < 1e-2:
                break
        return z, len(residuals), torch.stack(residuals).min()
