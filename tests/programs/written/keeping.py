"""What a model keeps from call to call: counters, caches, windows, state machines."""

from __future__ import annotations

import enum
from collections import deque

import torch
from torch import nn

from tests.programs.written import program, seeded

STREAM = [seeded(3, seed=n) * (1 + n % 3) for n in range(6)]


@program(*STREAM)
class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = self.large = 0

    def forward(self, x):
        self.calls += 1
        if x.abs().max() > 1.5:
            self.large += 1
        return x * self.large / self.calls


@program(*STREAM)
class Clipped(nn.Module):
    """A running maximum that decays, with a warm-up."""

    def __init__(self):
        super().__init__()
        self.peak, self.steps = None, 0

    def forward(self, x):
        peak = x.abs().max()
        self.peak = peak if self.peak is None else torch.maximum(peak, 0.9 * self.peak)
        self.steps += 1
        return x if self.steps <= 2 else x / self.peak


@program(*STREAM)
class Window(nn.Module):
    def __init__(self):
        super().__init__()
        self.window = deque(maxlen=3)

    def forward(self, x):
        self.window.append(x)
        return torch.stack(list(self.window)).mean(0)


class Phase(enum.Enum):
    IDLE = "idle"
    ACTIVE = "active"
    COOLING = "cooling"


@program(*STREAM)
class VoiceActivity(nn.Module):
    def __init__(self):
        super().__init__()
        self.phase, self.quiet = Phase.IDLE, 0

    def forward(self, x):
        loud = x.abs().mean() > 0.9
        match self.phase:
            case Phase.IDLE if loud:
                self.phase = Phase.ACTIVE
            case Phase.ACTIVE if not loud:
                self.phase, self.quiet = Phase.COOLING, 1
            case Phase.COOLING:
                self.quiet += 1
                if loud:
                    self.phase = Phase.ACTIVE
                elif self.quiet > 1:
                    self.phase = Phase.IDLE
        return x * (self.phase is Phase.ACTIVE), self.quiet


@program(*STREAM)
class TrafficLight(nn.Module):
    def __init__(self):
        super().__init__()
        self.light, self.timer = "red", 0

    def forward(self, x):
        self.timer += 1
        if self.light == "red" and x.sum() > 0:
            self.light, self.timer = "green", 0
        elif self.light == "green" and self.timer >= 2:
            self.light, self.timer = "yellow", 0
        elif self.light == "yellow":
            self.light = "red"
        return {"red": 0, "yellow": 1, "green": 2}[self.light], self.timer


@program(*STREAM)
class KeyValueCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(4, 3))
        self.length = 0

    def forward(self, x):
        if self.length == 4:
            self.keys = self.keys.roll(-1, 0)
            self.length = 3
        self.keys[self.length] = x
        self.length += 1
        scores = self.keys[: self.length] @ x
        return scores.softmax(0) @ self.keys[: self.length]


@program(*((torch.tensor(n), seeded(2, seed=n)) for n in (0, 1, 0, 2, 1, 0)))
class Memoized(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = dict.fromkeys(range(3))
        self.misses = 0

    def forward(self, key, x):
        key = int(key)
        found = torch.zeros(2)
        for k in range(3):
            if k == key:
                if self.cache[k] is None:
                    self.cache[k] = x * 2
                    self.misses += 1
                found = self.cache[k]
        return found, self.misses


@program(*((torch.tensor(n),) for n in (0, 1, 0, 2, 1, 0)))
class Histogram(nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = dict.fromkeys(range(3), 0)

    def forward(self, k):
        self.counts[int(k)] += 1
        return max(self.counts.values()), max(self.counts, key=self.counts.get)


@program(*STREAM)
class ExponentialBackoff(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.good = 8.0, 0

    def forward(self, x):
        if not torch.isfinite(x * self.scale).all() or x.abs().max() > 2:
            self.scale, self.good = self.scale / 2, 0
            return torch.zeros_like(x), self.scale
        self.good += 1
        if self.good >= 2:
            self.scale, self.good = self.scale * 2, 0
        return x * self.scale, self.scale


@program(*STREAM[:4], torch.full((3,), float("nan")), STREAM[1])
class Rejecting(nn.Module):
    def __init__(self):
        super().__init__()
        self.accepted, self.total = 0, torch.zeros(3)

    def forward(self, x):
        if torch.isnan(x).any():
            raise ValueError("not a number")
        self.accepted += 1
        self.total += x
        return self.total / self.accepted


@program(*((torch.tensor(v),) for v in (1.0, 5.0, 2.0, 9.0, 3.0)))
class Controller(nn.Module):
    """A PID controller whose integral is limited."""

    def __init__(self):
        super().__init__()
        self.integral, self.last = 0.0, None

    def forward(self, value):
        error = 4.0 - value.item()
        self.integral = max(-5.0, min(5.0, self.integral + error))
        derivative = 0.0 if self.last is None else error - self.last
        self.last = error
        return 0.5 * error + 0.1 * self.integral + 0.2 * derivative


@program(*STREAM)
class Debounced(nn.Module):
    def __init__(self):
        super().__init__()
        self.state, self.pending = False, 0

    def forward(self, x):
        wanted = bool(x.sum() > 0)
        if wanted != self.state:
            self.pending += 1
            if self.pending >= 2:
                self.state, self.pending = wanted, 0
        else:
            self.pending = 0
        return self.state, self.pending


@program(*STREAM)
class BestSoFar(nn.Module):
    def __init__(self):
        super().__init__()
        self.best = {"score": float("-inf"), "value": torch.zeros(3), "step": -1}
        self.step = 0

    def forward(self, x):
        score = x.sum().item()
        if score > self.best["score"]:
            self.best = {"score": score, "value": x, "step": self.step}
        self.step += 1
        return self.best["value"], self.best["step"]


@program(*((torch.tensor(n),) for n in (3, 0, 2, 0, 5)))
class TokenBucket(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = 4

    def forward(self, wanted):
        self.tokens = min(4, self.tokens + 1)
        granted = 0
        while granted < int(wanted) and self.tokens > 0:
            granted += 1
            self.tokens -= 1
        return granted, self.tokens
