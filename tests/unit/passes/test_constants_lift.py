"""Constants of control-flow bodies become `full` or operands, on every level."""

from __future__ import annotations

import torch
from torch._higher_order_ops.while_loop import while_loop

from aotpipe.passes import constants, hops
from tests.unit.passes.legal import check, exported, model

X = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)


def _branches(self, x):
    return torch.cond(
        x.sum() > 0, lambda x: x * torch.tensor(2.0), lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), (x,)
    )


def _nested(self, x):
    offset = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def body(i, x):
        row = torch.tensor([[1.0, 2.0, 3.0, 5.0]])

        def positive(x):
            scale = torch.tensor([4.0, 5.0, 6.0, 7.0])
            scale[0] = 2
            return x * scale + offset

        return i + torch.tensor(1), torch.cond(x.sum() > 0, positive, lambda x: x.sin() + row, (x,))

    return while_loop(lambda i, x: i < torch.tensor([1, 2]).sum(), body, (torch.tensor(0), x))


def test_constants_of_branches() -> None:
    program = check(model(_branches), [X], [-X])
    assert [tuple(weight.shape) for weight in program.weights.values()] == [(4,)]


def test_constants_of_a_branch_in_a_loop() -> None:
    check(model(_nested), [X], [-X])


def test_no_constant_is_left_in_a_body() -> None:
    (entry,) = exported(model(_nested), [X]).entries
    lifted = constants.lift(entry.program)
    for body in list(hops.walk(lifted.graph_module))[1:]:
        assert not dict(body.named_buffers(recurse=False))


def test_a_body_without_operands() -> None:
    def forward(self):
        weight = self.linear.weight
        return torch.cond(
            weight.sum() > 0,
            lambda: weight * torch.tensor([1.0, 2.0, 3.0, 4.0]),
            lambda: weight - torch.tensor([4.0, 3.0, 2.0, 1.0]),
        )

    check(model(forward), [])


def test_a_program_without_constants_is_given_back() -> None:
    (entry,) = exported(model(lambda self, x: x + 1), [X]).entries
    assert constants.lift(entry.program) is entry.program
