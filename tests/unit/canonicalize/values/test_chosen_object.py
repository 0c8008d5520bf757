"""Texts, members of enums, modules and functions of which a tensor decides which one a variable is."""

from __future__ import annotations

import enum
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aotpipe.canonicalize import canonicalize
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check

N = torch.tensor
CASES = [(N([1.0, 2.0, 3.0]),), (N([-1.0, 2.0, -3.0]),), (N([3.0, 3.0, 3.0]),), (N([-9.0, 0.0, 0.0]),)]


class Phase(enum.Enum):
    IDLE = 0
    RUN = 1
    DONE = 2


def machine(x):
    phase, n = Phase.IDLE, 0
    for v in x:
        if phase is Phase.IDLE and v > 0:
            phase = Phase.RUN
        elif phase is Phase.RUN:
            n += 1
            if v < 0:
                phase = Phase.DONE
    return n, phase.value, 1 if phase in (Phase.IDLE, Phase.DONE) else 0


def counted(x):
    """A text is a key of a dict that is changed, and is carried by a loop."""
    mode, n, counts = "start", 0, {"start": 0, "up": 0, "down": 0}
    for v in x:
        counts[mode] += 1
        if mode == "start":
            mode = "up" if v > 0 else "down"
        elif mode == "up" and v < 0:
            mode = "down"
        elif mode != "down":
            n += 1
    k = {"start": 1.0, "up": 2.0, "down": 3.0}[mode]
    while n > 0:
        n -= 3
        mode = "end"
    return n, k, counts["start"], counts["up"], counts["down"], 1 if mode == "end" else 0


def maybe_none(x):
    m = None
    if x.sum() > 0:
        m = "pos"
    if x.sum() > 8:
        m = "big"
    if m is None:
        return x * 0
    return x * (2 if m.startswith("p") else 3) * len(m)


def matched(x):
    phase = Phase.IDLE if x[0] < 0 else (Phase.RUN if x[0] < 2 else Phase.DONE)
    match phase:
        case Phase.IDLE:
            return x
        case Phase.RUN:
            return x * 2
        case _:
            return x * 3


def given_to_a_library(x):
    return F.mse_loss(x, x * 2, reduction="sum" if x[0] > 0 else "mean")


def missing_key(x):
    key = "a" if x[0] > 0 else "c"
    try:
        found = {"a": 1.0, "b": 2.0}[key]
    except KeyError:
        found = -1.0
    return found, {"a": 1.0}.get(key, 5.0)


def raised(x):
    mode = "sum" if x.sum() > 3 else "none"
    if mode == "sum":
        return x.sum()
    raise ValueError(mode)


def _is_running(phase: Phase) -> int:
    return 1 if phase is Phase.RUN else 2


def asked_elsewhere(x):
    """Python's own `is`, in a function that decides on no tensor, would take it for another object."""
    return x * _is_running(Phase.RUN if x[0] > 0 else Phase.IDLE)


def functions(x):
    act = torch.relu if x.sum() > 3 else torch.tanh
    other = F.gelu
    if x[0] > 2:
        other = F.silu
    return act(x), other(x)


@pytest.mark.parametrize(
    "model",
    [
        slow(machine),
        counted,
        maybe_none,
        slow(matched),
        given_to_a_library,
        missing_key,
        raised,
        asked_elsewhere,
        slow(functions),
    ],
)
def test_it_is_what_it_is_in_eager(model: Any) -> None:
    check(model, *CASES)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.named = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 1), "c": nn.Linear(3, 1)})
        self.names = ["a", "b", "c"]

    def forward(self, x: torch.Tensor) -> Any:
        layer = self.first if x[0] > 0 else self.second
        name = self.names[int(x.argmax())]
        return layer(x), layer.weight * 2, self.named[name](x)


def test_modules_are_called_and_read() -> None:
    check(Layers().eval(), *CASES)


class Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.phase = Phase.IDLE

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0 and self.phase is Phase.IDLE:
            self.phase = Phase.RUN
        return x * 2 if self.phase is Phase.RUN else x


def test_a_model_may_keep_it_between_calls() -> None:
    program = export(canonicalize(as_spec(Kept(), args=(N([-1.0]),)))).entries[0].program.module()
    for value, expected in ((-1.0, -1.0), (3.0, 6.0), (-1.0, -2.0)):
        assert program(N([value])).item() == expected


class Level(enum.IntEnum):
    LOW = 0
    MID = 1
    HIGH = 2


def of_numbers(x):
    level, count = Level.LOW, 0
    for v in x:
        if level == Level.LOW and v > 1:
            level = Level.MID
        elif level is Level.MID and v < 2.5:
            level = Level.HIGH
        count = count + level
    table = {Level.LOW: 1.0, Level.MID: 2.0, Level.HIGH: 3.0}
    found = x * int(level) + (level + 1) * 2 - level % 2, level >= Level.MID, 2 - level, -level
    return *found, table[level], table[Level(int(x[0] > 0))], level == 2, level < 1


def of_no_member(x):
    return x * (Level(int(x[0])) == Level.MID)


@pytest.mark.parametrize("model", [of_numbers, of_no_member])
def test_members_of_an_int_enum_are_numbers(model) -> None:
    check(model, *CASES, (N([0.0, 2.0, 3.0]),))


def returned(x):
    return x, "sum" if x[0] > 0 else "mean"


def hashed(x):
    return x, len(frozenset(["sum" if x[0] > 0 else "mean"]))


@pytest.mark.parametrize(
    ("model", "said"), [(returned, "one of several objects"), (hashed, "'sum' or 'mean'")]
)
def test_what_no_program_can_give_is_refused_at_its_line(model: Any, said: str) -> None:
    with pytest.raises(ExportFailed, match=said) as caught:
        export(canonicalize(as_spec(model, args=CASES[0])))
    assert caught.value.where is not None
