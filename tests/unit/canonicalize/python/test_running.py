"""What a region of Python takes from outside, writes and leaves."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from aotpipe.canonicalize.python import running
from aotpipe.canonicalize.python.values import Variables


def test_a_region_is_seen_and_leaves_nothing():
    held = [torch.zeros(2)]
    with FakeTensorMode():
        read, written, other = torch.ones(2), torch.ones(2), torch.ones(2)
        variables = Variables(
            lambda: tuple(held), lambda values: held.__setitem__(0, values[0]), ("y",), tuple
        )
        before = held[0]

        def body():
            held[0] = read * 2
            written.add_(held[0])

        seen = running.seen_of(body, variables, variables.get())
    assert held[0] is before
    assert seen.after[0] is not before
    assert {id(each) for each in seen.outer} >= {id(read), id(written)}
    assert id(other) not in {id(each) for each in seen.outer}
    assert [each is written for each in seen.written] == [True]


def test_ops_take_the_operands_in_place_of_what_is_outside():
    outside, operand = torch.zeros(2), torch.ones(2)
    with running.replaced([outside], [operand], []) as now:
        assert torch.equal(outside + 1, torch.full((2,), 2.0))
        assert now(outside) is operand
    assert torch.equal(outside + 1, torch.ones(2))


def test_what_is_written_is_a_copy_of_the_operand():
    outside, operand = torch.zeros(2), torch.ones(2)
    with running.replaced([outside], [operand], [outside]) as now:
        outside.add_(1)
        written = now(outside)
    assert torch.equal(operand, torch.ones(2))
    assert torch.equal(written, torch.full((2,), 2.0))
    assert torch.equal(outside, torch.zeros(2))
