"""What a region of Python takes from outside, writes and leaves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.module import register_module_buffer_registration_hook

from aotpipe.canonicalize.alias import views
from aotpipe.canonicalize.trace import dry_run
from aotpipe.canonicalize.values.abstract_values import Variables
from tests.unit.canonicalize.trace.agree import check


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

        summary = dry_run.summarize(body, variables, variables.get())
    assert held[0] is before
    assert summary.after[0] is not before
    assert {id(each) for each in summary.outer} >= {id(read), id(written)}
    assert id(other) not in {id(each) for each in summary.outer}
    assert [each is written for each in summary.written] == [True]


def test_ops_take_the_operands_in_place_of_what_is_outside():
    outside, operand = torch.zeros(2), torch.ones(2)
    with dry_run.replaced([outside], [operand], views.shared_memory([outside], [])) as now:
        assert torch.equal(outside + 1, torch.full((2,), 2.0))
        assert now(outside) is operand
    assert torch.equal(outside + 1, torch.ones(2))


def test_what_is_written_is_a_copy_of_the_operand():
    outside, operand = torch.zeros(2), torch.ones(2)
    with dry_run.replaced([outside], [operand], views.shared_memory([outside], [outside])) as now:
        outside.add_(1)
        written = now(outside)
    assert torch.equal(operand, torch.ones(2))
    assert torch.equal(written, torch.full((2,), 2.0))
    assert torch.equal(outside, torch.zeros(2))


def test_hooks_of_buffers_that_are_registered_or_removed_meanwhile() -> None:
    def called(hook: str) -> Callable[..., None]:
        return lambda *_: calls.append(hook)

    calls: list[str] = []
    first, gone = (register_module_buffer_registration_hook(called(each)) for each in ("first", "gone"))
    with dry_run.unhooked():
        torch.nn.Module().register_buffer("x", torch.ones(1))
        gone.remove()
        made = register_module_buffer_registration_hook(called("made"))
    assert not calls
    torch.nn.Module().register_buffer("x", torch.ones(1))
    first.remove()
    made.remove()
    assert calls == ["first", "made"]


def summed(x):
    total = x[0].clone()
    if x.sum() >= 0:
        if x[0] <= 6:
            total += x[0]
        if x[1] <= 6:
            total += x[1]
    return total


def summed_of_rows(x):
    total, parts = 0, [torch.zeros(())]
    for row in torch.outer(x[:2], x[:2]):
        if row.sum() < 0:
            continue
        for v in row:
            if v > 6:
                break
            total += v
            parts[0] += v
    return total, parts[0]


@pytest.mark.parametrize(
    "model", [summed, pytest.param(summed_of_rows, marks=pytest.mark.slow)], ids=lambda model: model.__name__
)
def test_branches_in_a_branch_write_one_tensor_in_place(model):
    given = ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [5.0, -4.0, 0.5], [7.0, 8.0, 0.0])
    check(model, *((torch.tensor(each),) for each in given))


def a_test_that_counts(following):
    hops, node = 0, 0

    def visits() -> bool:
        nonlocal hops
        if node == 0 and hops > 0:
            return False
        hops += 1
        return True

    while visits():
        node = following[node].item()
    return hops, node


def a_test_that_appends(following):
    seen = []

    def visits(node):
        seen.append(node)
        return node != 0 or len(seen) < 2

    node = 0
    while visits(node):
        node = following[node].item()
    return len(seen), node, torch.tensor(seen).sum()


def a_test_that_writes_a_tensor(following):
    total = following.float()
    n = 0

    def goes_on():
        total.add_(1)
        return total.sum() < 30

    while goes_on() and n < 9:
        n += 1
    return n, total


def a_test_that_pops(following):
    stack = following.tolist()
    n = 0
    while stack.pop() != 2:
        n += 1
    return n, len(stack)


def a_generator_that_its_consumer_leaves(following):
    """The flag that ends the loop is a variable of the generator's loop, and of the function around it."""
    log = {"tried": 0, "closed": 0}

    def attempts(limit):
        n = 0
        try:
            while n < limit:
                yield n, following[n]
                n += 1
        finally:
            log["closed"] += 1

    result = torch.tensor(-1)
    for n, value in attempts(4):
        log["tried"] += 1
        if value > 2:
            result = value * n
            break
    return result, log["tried"], log["closed"]


class Walked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.asked = 0

    def goes_on(self, x):
        self.asked += 1
        return x.sum() < 10

    def forward(self, x):
        n = 0
        while self.goes_on(x):
            x = x + 1
            n += 1
        return n, self.asked, x


@pytest.mark.parametrize(
    "model",
    [a_test_that_counts, a_test_that_appends, a_test_that_writes_a_tensor, a_test_that_pops, Walked()],
)
def test_what_the_test_of_a_loop_changes_is_changed_once_for_each_iteration(model):
    """It was changed twice before the first iteration, and never again."""
    check(
        model, *((torch.tensor(each),) for each in ([3, 1, 2, 0], [1, 2, 3, 0], [2, 0, 1, 3], [0, 2, 0, 0]))
    )
