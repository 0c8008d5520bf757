"""torch's own control flow stands beside Python's, in one program with eager's answers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.unit.canonicalize.trace.agree import check

CASES = [(torch.tensor(each),) for each in ([1.0, 2.0], [-1.0, 2.0], [-1.0, -2.0])]


def cond_after_if(x):
    if x.sum() > 1:
        x = x * 2
    return torch.cond(x[0] > 0, lambda v: v + 1, lambda v: v - 1, (x,))


def while_after_if(x):
    if x.sum() > 1:
        x = x * 2
    return torch.while_loop(lambda _, i: i < 3, lambda v, i: (v + i, i + 1), (x, torch.tensor(0)))


def if_in_a_body(x):
    def body(v, i):
        if v.sum() > 2:  # noqa: SIM108  # the statement is what is tested
            v = v - 1
        else:
            v = v + 1
        return v, i + 1

    return torch.while_loop(lambda _, i: i < 5, body, (x, torch.tensor(0)))


def structures(x):
    kept = []
    found = torch.cond(
        x[0] > 0, lambda v: {"a": v + 1, "b": (v,)}, lambda v: {"a": v - 1, "b": (v * 2,)}, (x,)
    )
    if found["a"].sum() > 0:
        kept.append(found["b"][0])
    return found["a"], len(kept)


def nested(x):
    rounds = 0
    while x.sum() < 5:
        x, _ = torch.while_loop(lambda _, i: i < 2, lambda v, i: (v + 1, i + 1), (x, torch.tensor(0)))
        rounds += 1
    return torch.cond(
        x[0] > 3, lambda v: torch.cond(v[1] > 3, torch.sin, torch.cos, (v,)), torch.exp, (x,)
    ), rounds


def in_a_handler(x):
    try:
        if x.sum() > 1:
            raise ValueError("too many")  # noqa: TRY301
        return torch.cond(x[0] > 0, lambda v: v + 1, lambda v: v.clone(), (x,))
    except ValueError:
        return torch.cond(x[0] > 0, lambda v: v - 1, lambda v: v.clone(), (x,))


QUICK = (cond_after_if, if_in_a_body)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(each, marks=() if each in QUICK else pytest.mark.slow)
        for each in (cond_after_if, while_after_if, if_in_a_body, structures, nested, in_a_handler)
    ],
)
def test_torchs_control_flow_beside_pythons(function):
    check(function, *CASES)


class Writes(nn.Module):
    """Bodies that write a buffer, one of them a part of it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x):
        if x.sum() > 9:
            x = x + 1

        def up(v):
            self.total.add_(v)
            return v + self.total

        def down(v):
            self.total[0] -= 1
            return v - self.total

        return torch.cond(x[0] > 0, up, down, (x,)), self.total.sum()


def test_what_a_body_writes_is_kept():
    model = Writes().eval()
    spec = as_spec(Writes().eval(), args=CASES[0])
    program = export(canonicalize(spec)).entries[0].program.module()
    for (x,) in (*CASES, *CASES):
        with torch.no_grad(), uncompiled():
            torch.testing.assert_close(program(x), model(x))
        torch.testing.assert_close(program.total, model.total)
