"""Models that keep state in plain Python, unedited: the first call and the fifth give what eager gives."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import aotpipe
from aotpipe.backends import legalization
from aotpipe.backends.iree.lower import importer
from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.model.spec import EntryPoint, as_spec
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.passes import legalize
from tests.programs import through
from tests.sweep import sweep

X = torch.tensor([0.5, -1.0, 2.0, 0.25])
CALLS = [X, -X, X * 2, X.flip(0), X + 0.5]


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Alternating(Counter):
    """A counter that steers."""

    def forward(self, x):
        self.calls += 1
        if self.calls % 2 == 0:
            return x * 2
        return x - 1


class Totals(nn.Module):
    """Numbers that are returned, and that promote as Python's do."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.total = 0.0
        self.odd = False

    def forward(self, x):
        self.calls += 1
        self.total += 0.1
        self.odd = not self.odd
        return x + self.total / self.calls, self.calls, self.total, self.odd


class Half(nn.Module):
    """A Python float beside float16 and beside integers."""

    def __init__(self):
        super().__init__()
        self.scale = 1.0

    def forward(self, x):
        self.scale = self.scale * 0.5
        return x.half() * self.scale, x.half().sum() * self.scale


class OldCount(nn.Module):
    """A number that is read before it is changed stays what it was."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        before = self.calls
        self.calls += 1
        return x * before


class FirstCall(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = False

    def forward(self, x):
        if self.seen:
            return x + 1
        self.seen = True
        return x


class PlainTensor(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = torch.zeros(4)

    def forward(self, x):
        self.h = self.h * 0.5 + x
        return self.h + 1


class WrittenInPlace(PlainTensor):
    def forward(self, x):
        self.h += x
        return self.h * 2


class Swapped(nn.Module):
    """Two tensors that change places."""

    def __init__(self):
        super().__init__()
        self.a = torch.zeros(4)
        self.b = torch.ones(4)

    def forward(self, x):
        self.a, self.b = self.b, self.a
        return x + self.a


class TwoNames(nn.Module):
    """One tensor under two names."""

    def __init__(self):
        super().__init__()
        self.a = torch.zeros(4)
        self.both = {"a": self.a}

    def forward(self, x):
        self.a += x
        return self.both["a"] * 2


class LateCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = None

    def forward(self, x):
        if self.cache is None:
            self.cache = torch.zeros_like(x)
        self.cache = self.cache * 0.9 + x
        return self.cache * 1


class LateAttribute(nn.Module):
    """An attribute that is not there before the first call."""

    def __init__(self):
        super().__init__()
        self.started = False

    def forward(self, x):
        if not self.started:
            self.h = x * 1
            self.started = True
        else:
            self.h = self.h * 0.5 + x
        return self.h + 0


class LateBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("h", None)

    def forward(self, x):
        self.h = x if self.h is None else self.h * 0.5 + x
        return self.h * 1


class Layers(nn.Module):
    """A list of tensors, one for each layer."""

    def __init__(self):
        super().__init__()
        self.hs = [torch.zeros(4), torch.zeros(4)]

    def forward(self, x):
        for i in range(2):
            self.hs[i] = torch.tanh(self.hs[i] + x)
            x = self.hs[i]
        return x * 1


class Window(nn.Module):
    def __init__(self):
        super().__init__()
        self.window = deque([torch.zeros(4)] * 3, maxlen=3)

    def forward(self, x):
        self.window.append(x)
        return torch.stack(list(self.window)).mean(0)


class Filling(Window):
    """A window that is filled by the first calls."""

    def __init__(self):
        super().__init__()
        self.window = deque(maxlen=2)


class LateKey(nn.Module):
    def __init__(self):
        super().__init__()
        self.state = {}

    def forward(self, x):
        h = self.state.get("h")
        if h is None:
            h = torch.zeros_like(x)
        h = h * 0.5 + x
        self.state["h"] = h
        return h * 1


class Tuples(nn.Module):
    """A new tuple in every call, none at first."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTMCell(4, 4)
        self.hc = None

    def forward(self, x):
        self.hc = self.lstm(x[None], self.hc)
        return self.hc[0]


@dataclass
class Statistics:
    count: int = 0
    mean: torch.Tensor | None = None


class Nested(nn.Module):
    """Objects, dicts and submodules that hold state."""

    def __init__(self):
        super().__init__()
        self.statistics = Statistics()
        self.table = {"steps": 0}
        self.counter = Counter()

    def forward(self, x):
        stats = self.statistics
        stats.count += 1
        stats.mean = x if stats.mean is None else stats.mean + (x - stats.mean) * 0.5
        self.table["steps"] += 2
        return self.counter(x) + self.counter(x) + stats.mean * stats.count + self.table["steps"]


class Best(nn.Module):
    """State that is created late and kept where a tensor decides."""

    def __init__(self):
        super().__init__()
        self.best = None

    def forward(self, x):
        if self.best is None or x.max() > self.best.max():
            self.best = x * 1
        return self.best + 0


class LargeOnes(nn.Module):
    """A counter that the example input does not move."""

    def __init__(self):
        super().__init__()
        self.large = 0

    def forward(self, x):
        if x.max() > 2.4:
            self.large += 1
        return x * self.large


class EveryThird(nn.Module):
    """What changes for the first time in the third call."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.offset = 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 3 == 0:
            self.offset += 10
        return x + self.offset


class Noted(nn.Module):
    """What is written and not read is no state."""

    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        self.last = x * 2
        return self.last + 1


class Modes(nn.Module):
    """Strings take turns."""

    def __init__(self):
        super().__init__()
        self.mode = "add"

    def forward(self, x):
        if self.mode == "add":
            self.mode = "multiply"
            return x + 3
        self.mode = "add"
        return x * 3


class ClassDefault(nn.Module):
    """An attribute of the class, until the first call."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Longer(Counter):
    """A loop that is one trip longer in each call."""

    def forward(self, x):
        self.calls += 1
        for _ in range(self.calls):
            x = x * 1.1
        return x


class Helping(nn.Module):
    """A method that counts, called where a tensor decides."""

    def __init__(self):
        super().__init__()
        self.positive = 0
        self.t = 0

    def count(self):
        self.positive += 1

    def forward(self, x):
        if x.sum() > 0:
            self.count()
        self.t += 1
        return x / (1 - 0.9**self.t), x * self.t**2, x * (self.t % 3) + self.positive, x - self.t // 2


class MaybeKept(nn.Module):
    """What a tensor decides to keep for the first time."""

    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, x):
        if x.max() > 2.4:
            self.kept = x * 2
        if self.kept is None:
            return x
        return x + self.kept


class Experts(nn.Module):
    """A mixture of experts that counts the tokens which found no room."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.router = nn.Linear(1, 2)
        self.experts = nn.ModuleList(nn.Linear(1, 1) for _ in range(2))
        self.capacity = 2
        self.overflow = 0
        self.steps = 0

    def forward(self, x):
        tokens = x[:, None]
        chosen = self.router(tokens).argmax(-1)
        out = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            mine = chosen == index
            place = mine.long().cumsum(0)
            kept = mine & (place <= self.capacity)
            self.overflow += (mine.sum() - kept.sum()).item()
            out = out + torch.where(kept[:, None], expert(tokens), 0.0)
        self.steps += 1
        return out[:, 0], self.overflow, self.overflow / self.steps


class Streaming(nn.Module):
    """A voice detector as people stream it: its state is made by the first chunk, and kept with its size."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.encoder = nn.Conv1d(1, 8, 3, padding=1)
        self.lstm = nn.LSTM(8, 8)
        self.head = nn.Linear(8, 1)
        self.reset_states()

    def reset_states(self, batch=1):
        self._h = torch.zeros(1, batch, 8)
        self._c = torch.zeros(1, batch, 8)
        self._context = torch.zeros(0)
        self._last_batch = 0
        self._triggered = False
        self._silent_for = 0

    def forward(self, x):
        if not self._last_batch or self._last_batch != 1:
            self.reset_states(1)
        if not len(self._context):
            self._context = torch.zeros(2)
        chunk = torch.cat([self._context, x])
        features = self.encoder(chunk[None, None]).relu().permute(2, 0, 1)
        out, (self._h, self._c) = self.lstm(features, (self._h, self._c))
        self._context = chunk[-2:]
        self._last_batch = 1
        speech = torch.sigmoid(self.head(out[-1])).squeeze()
        if speech > 0.52:
            self._triggered = True
            self._silent_for = 0
        elif self._triggered:
            self._silent_for += 1
            if self._silent_for >= 2:
                self._triggered = False
        return speech, self._triggered, self._silent_for


class Spiking(nn.Module):
    """Leaky neurons whose membranes and last spikes are kept between calls."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.membranes = [None, None]
        self.spikes = 0

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            current = layer(x)
            membrane = self.membranes[index]
            membrane = current if membrane is None else membrane * 0.8 + current
            fired = (membrane > 0.5).float()
            self.membranes[index] = membrane - fired * 0.5
            self.spikes += int(fired.sum())
            x = fired
        return x, self.spikes


class Ring(nn.Module):
    """A ring buffer, and the place to write next."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(3, 4))
        self.at = 0

    def forward(self, x):
        self.rows[self.at] = x
        self.at = (self.at + 1) % 3
        return self.rows.sum(0), self.rows[self.at]


class RunningMean(nn.Module):
    """A Python float of a tensor's value."""

    def __init__(self):
        super().__init__()
        self.mean = 0.0
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.mean = self.mean + (x.mean().item() - self.mean) / self.calls
        return x - self.mean


MODELS: list[Any] = [
    Counter,
    Alternating,
    Totals,
    Half,
    OldCount,
    FirstCall,
    PlainTensor,
    WrittenInPlace,
    Swapped,
    TwoNames,
    LateCache,
    LateAttribute,
    LateBuffer,
    Layers,
    Window,
    Filling,
    LateKey,
    Tuples,
    Nested,
    Best,
    LargeOnes,
    EveryThird,
    Noted,
    Modes,
    ClassDefault,
    Longer,
    Helping,
    MaybeKept,
    Experts,
    Streaming,
    Spiking,
    Ring,
    RunningMean,
]


def expected(model: nn.Module, calls: Sequence[torch.Tensor]) -> list[list[np.ndarray]]:
    fresh = copy.deepcopy(model)
    with torch.no_grad():
        return [
            [
                leaf.clone().numpy() if isinstance(leaf, torch.Tensor) else np.array(leaf)
                for leaf in pytree.tree_leaves(fresh(call.clone()))
            ]
            for call in calls
        ]


def compare(got: Sequence[dict[str, np.ndarray]], want: list[list[np.ndarray]]) -> None:
    for number, (mine, others) in enumerate(zip(got, want, strict=True)):
        for one, other in zip(mine.values(), others, strict=True):
            assert one.dtype == other.dtype, number
            tolerance = 1e-3 if one.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance, err_msg=f"call {number}")


class Several(through.Together):
    def forward(self, x):  # type: ignore[override]  # by the name that the calls give
        return super().forward(x)


# Several models as one: a compile costs more than what is in them.
GROUPS: dict[str, list[Any]] = {
    "numbers": [Counter, Totals, Half, OldCount, LargeOnes, Longer, RunningMean],
    "tensors": [PlainTensor, WrittenInPlace, Swapped, Layers, Window, Noted, Ring],
    "of the first call": [FirstCall, LateCache, LateAttribute, LateBuffer, LateKey, Tuples, ClassDefault],
}


@pytest.mark.parametrize(
    "kind",
    [
        *sweep(MODELS, quick=0, always=[TwoNames, Filling]),
        *(
            pytest.param(lambda kinds=kinds: Several(kind() for kind in kinds), id=name)
            for name, kinds in GROUPS.items()
        ),
    ],
)
def test_five_calls_and_a_reset(kind: Any) -> None:
    model = kind().eval()
    want = expected(model, CALLS)
    program = through.legal(model, (X,))
    with through.load(program, importer.lower(program)) as runner:
        for _ in range(2):
            compare([runner.infer({"x": view_numpy(call)}) for call in CALLS], want)
            runner.reset()
    # The model itself is as it was.
    assert all(np.array_equal(a, b) for a, b in zip(expected(model, [X])[0], want[0], strict=True))


class Decoder(nn.Module):
    """Two methods over one state, in a tensor and in numbers."""

    def __init__(self):
        super().__init__()
        self.length = 0
        self.rows = torch.zeros(4, 4)

    def prefill(self, x):
        self.rows = torch.stack([x, x, x, x]) * 0.5
        self.length = 2
        return self.rows.sum(0)

    def forward(self, x):
        self.length += 1
        self.rows = self.rows * 0.9 + x
        return self.rows.sum(0) * self.length


def test_entry_points_share_their_state() -> None:
    model = Decoder().eval()
    entries = {"prefill": EntryPoint(args=(X,), method="prefill"), "decode": EntryPoint(args=(X,))}
    exported = export(canonicalize(as_spec(model, entry_points=entries)))
    assert "state-in-python" in {finding.code for finding in exported.findings}
    program = legalize(exported, legalization())
    names = [[leaf.name for leaf in entry.signature.state] for entry in program.entries]
    assert set(names[0]) | set(names[1]) == {"length", "rows"}
    steps = ["decode", "prefill", "decode", "decode", "prefill", "decode"]
    with through.load(program, importer.lower(program)) as runner, torch.no_grad():
        fresh = copy.deepcopy(model)
        for step in steps:
            [got] = runner.infer({"x": view_numpy(X)}, entry_point=step).values()
            want = (fresh.prefill if step == "prefill" else fresh)(X)
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-5)


def test_the_hundredth_call() -> None:
    model = Totals().eval()
    program = through.legal(model, (X,))
    with through.load(program, importer.lower(program)) as runner:
        calls = [X] * 100
        compare([runner.infer({"x": view_numpy(call)}) for call in calls], expected(model, calls))


def test_a_build_judges_the_sequence_of_calls(tmp_path: Path) -> None:
    bundle = aotpipe.build(
        LateCache().eval(), args=(X,), targets=["iree-cpu-host"], out=tmp_path / "bundle", latency=False
    )
    [row] = bundle.report.targets
    assert row.status == "executed", row.reason
    with aotpipe.load(bundle.path, target="iree-cpu-host") as runner:
        assert {leaf.name for leaf in runner.signature.state} == {"cache", "phase"}
