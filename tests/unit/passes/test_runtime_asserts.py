"""Asserts, in the top graph and in bodies, become outputs that say what failed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from aotpipe.core.dims import Dim
from aotpipe.errors import UnsupportedOps
from aotpipe.passes import runtime_asserts
from tests.unit.passes.legal import Runner, check, legal, model

X = torch.linspace(1.0, 2.0, 12).reshape(3, 4)


def _failed(forward: Any, good: list[Any], *others: list[Any]) -> list[list[str]]:
    """Compare with eager on good inputs, and give what fails on each of the others."""
    run = Runner(check(model(forward), good))
    failed = []
    for inputs in others:
        run(inputs)
        failed.append([message for message, holds in run.asserts.items() if not holds])
    return failed


def _place(forward: Any, line: int) -> str:
    return f"(test_runtime_asserts.py:{forward.__code__.co_firstlineno + line})"


def test_an_assert_over_a_tensor() -> None:
    def forward(self, x):
        torch._assert_async((x > 0).all(), "all positive")
        return x

    assert _failed(forward, [X], [-X]) == [[f"all positive {_place(forward, 1)}"]]


def test_a_check_of_a_number() -> None:
    def forward(self, x, n):
        k = n.item()
        torch._check(k >= 2)
        torch._check(k <= 8)
        return x * k

    low, high = _failed(forward, [X, torch.tensor(3)], [X, torch.tensor(1)], [X, torch.tensor(9)])
    assert [len(low), len(high)] == [1, 1]
    assert low[0].startswith("a size or number is not as the model needs it: u0 >= 2")
    assert high[0].endswith(_place(forward, 1))


def test_a_squeeze_of_one_row_is_told_with_its_remedy() -> None:
    def forward(self, x):
        rows = (x > 0).nonzero().squeeze()
        return x[rows]

    def mended(self, x):
        rows = (x > 0).nonzero().squeeze(1)
        return x[rows]

    (said,) = _failed(forward, [torch.tensor([1.0, 2.0, -1.0])], [torch.tensor([1.0, -2.0, -1.0])])
    assert any("`squeeze(1)`" in each and each.endswith(_place(forward, 1)) for each in said)
    assert _failed(mended, [torch.tensor([1.0, 2.0, -1.0])], [torch.tensor([1.0, -2.0, -1.0])]) == [[]]


def test_asserts_that_always_hold_are_gone() -> None:
    def forward(self, x):
        torch._check(x.shape[0] >= 1)
        return x.nonzero(), x[x > 0], torch._assert_async(torch.ones(2).sum() > 1)

    program = check(
        model(lambda self, x: forward(self, x)[:2]), [X], dynamic_shapes={"x": {0: Dim("n", max=9)}}
    )
    assert program.entries[0].asserts == ()


def test_in_a_branch() -> None:
    def forward(self, x):
        def positive(x):
            torch._assert_async(x.sum() < 30, "small sum")
            return x + 1

        return torch.cond(x.sum() > 0, positive, lambda x: x * 2, (x,))

    messages, none = _failed(forward, [X], [X * 9], [-9 * X])
    assert [message.split(" (")[0] for message in messages] == ["small sum"]
    assert none == []


def test_in_a_loop_which_then_ends() -> None:
    def forward(self, x):
        def body(i, x):
            torch._assert_async(x.max() < 9, "stays small")
            return i + 1, x * 2

        return while_loop(lambda i, x: i < 2, body, (torch.tensor(0), x))

    def endless(self, x):
        def body(i, x):
            torch._assert_async(i < 5, "ends in time")
            return i + 1, x * 1

        return while_loop(lambda i, x: x.sum() > 0, body, (torch.tensor(0), x))

    [failed] = _failed(forward, [X], [X * 8])
    assert len(failed) == 1
    run = Runner(legal(model(endless), [-X]))
    assert run([-X])["output.0"] == 0
    assert all(run.asserts.values())
    run([X])
    assert not any(run.asserts.values())


def test_in_a_loops_test() -> None:
    def forward(self, x, n):
        def again(i, x, n):
            torch._assert_async(i < 3, "at most three")
            return i < n

        return while_loop(lambda i, x: again(i, x, n), lambda i, x: (i + 1, x + 1), (torch.tensor(0), x))

    # The test is evaluated once more after the last trip.
    good, bad = [X, torch.tensor(2)], [X, torch.tensor(3)]
    failed, none = _failed(forward, good, bad, [X, torch.tensor(-1)])
    assert (len(failed), none) == (1, [])


def test_in_nested_bodies() -> None:
    def forward(self, x):
        def inner(x):
            torch._assert_async(x.max() < 9, "stays small")
            return x + 4

        def body(i, x):
            return i + 1, torch.cond(i > 1, inner, lambda x: x * 1, (x,))

        return while_loop(lambda i, x: i < 4, body, (torch.tensor(0), x))

    failed, none = _failed(forward, [X], [X + 5], [X * 0])
    assert (len(failed), none) == (1, [])


def test_in_a_map_and_a_scan() -> None:
    def mapped(self, x):
        def row(row):
            torch._assert_async(row.sum() < 30, "small rows")
            return row * 2

        return torch_map(row, x)

    def scanned(self, x):
        def step(total, row):
            torch._assert_async(total.sum() < 30, "small total")
            return total + row, total * 2

        return scan(step, torch.zeros(4), x, dim=0)

    bad = X.clone()
    bad[1] = 20
    failed, none = _failed(mapped, [X], [bad], [X * 2])
    assert (len(failed), none) == (1, [])
    [failed] = _failed(scanned, [X], [bad])
    assert len(failed) == 1


def test_an_assert_and_a_buffer_in_one_program() -> None:
    def forward(self, x):
        self.count.add_(1)
        torch._assert_async(self.count < 3, "at most two calls")
        return x

    program = check(model(forward, count=torch.zeros(())), [X], [X])
    run = Runner(program)
    for _ in range(3):
        run([X])
    assert list(run.asserts.values()) == [False]


def test_one_message_is_one_output() -> None:
    def forward(self, x):
        for row in x:
            torch._assert_async(row.sum() > 0, "positive")
        return x

    entry = check(model(forward), [X]).entries[0]
    assert len(entry.asserts) == 1


def test_an_assert_in_an_unordered_scan_is_refused() -> None:
    (entry,) = legal(model(lambda self, x: torch_map(lambda row: row * 2, x)), [X]).entries
    graph = entry.graph
    call = next(node for node in graph.graph.nodes if "map_impl" in str(node.target))
    body = graph.get_submodule(call.args[0].target)
    (operand,) = body.graph.find_nodes(op="placeholder")
    with body.graph.inserting_after(operand):
        flag = body.graph.call_function(torch.ops.aten.any.default, (operand,))
    flag.meta["val"] = operand.meta["val"].any()
    with body.graph.inserting_after(flag):
        body.graph.call_function(torch.ops.aten._assert_async.msg, (flag, "any"))
    call.target = torch.ops.higher_order.associative_scan
    with pytest.raises(UnsupportedOps, match="an assert inside associative_scan"):
        runtime_asserts.raise_up(entry)
