"""No index leaves its table: inferred input ranges, guards, and what needs none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from aotpipe.core.dims import Dim
from aotpipe.core.signature import TensorSpec
from aotpipe.core.stages import Legal
from aotpipe.passes import hops, index_bounds
from tests.unit.passes.legal import Runner, check, legal, model, targets

X = torch.linspace(-1.0, 2.0, 30).reshape(3, 10)
IDS = torch.tensor([[1, 2, 9]])


def _range(program: Legal, name: str) -> Any:
    leaves = {leaf.name: leaf for leaf in program.entries[0].signature.inputs}
    leaf = leaves[name]
    assert isinstance(leaf, TensorSpec)
    return leaf.value_range


def _is_guarded(program: Legal) -> bool:
    return "aten.minimum.default" in targets(program)


class TestInferredRanges:
    def test_of_an_embedding(self) -> None:
        program = check(model(lambda self, ids: self.table(ids)), [IDS])
        assert _range(program, "ids") == (0, 9)
        assert not _is_guarded(program)

    def test_of_an_index_counts_from_the_end(self) -> None:
        program = check(model(lambda self, x, at: x[at.reshape(-1)]), [X, torch.tensor([[0, -1]])])
        assert _range(program, "at") == (-3, 2)
        assert not _is_guarded(program)

    def test_the_smallest_table_counts(self) -> None:
        def forward(self, ids):
            return self.table(ids) + torch.ones(7, 4).cumsum(0)[ids]

        assert _range(check(model(forward), [IDS % 7]), "ids") == (0, 6)

    def test_a_declared_range_stays(self) -> None:
        module = model(lambda self, ids: self.table(ids))
        program = check(module, [IDS], value_ranges={"ids": (1, 20)})
        assert _range(program, "ids") == (1, 20)
        assert _is_guarded(program)

    def test_a_part_of_an_input_says_nothing_of_the_rest(self) -> None:
        program = check(model(lambda self, ids: self.table(ids[:, :2])), [IDS])
        assert _range(program, "ids") is None
        assert _is_guarded(program)

    def test_an_index_of_a_branch_says_nothing_of_other_calls(self) -> None:
        def forward(self, x, ids):
            def first(x, ids):
                return x + self.table(ids).sum()

            return torch.cond(x.sum() > 0, first, lambda x, ids: x * ids.sum(), (x, ids))

        assert _range(check(model(forward), [X, IDS]), "ids") is None


def _positions(self, x, ids):
    return self.table(torch.arange(ids.shape[1])), self.table(torch.arange(5) + 4)


def _argmax(self, x, ids):
    return self.table(x.argmax(1)), x.gather(1, x.argmin(1, keepdim=True))


def _remainder(self, x, ids):
    return self.table(ids % 10), self.table((ids * 3).remainder(5) + 5), self.table(ids & 7)


def _sorted(self, x, ids):
    return x.gather(1, x.topk(2).indices), x.gather(1, x.sort(1)[1]), x[x[:, 0].argsort()]


def test_positions_of_sorts_and_extrema_never_fail() -> None:
    # How these are decomposed decides whether their positions need a guard; no guard may fail.
    for forward in (_sorted, _argmax):
        check(model(forward), [X, IDS], [-X, IDS])


def _clamped(self, x, ids):
    return self.table(ids.clamp(0, 9)), self.table(ids.clamp(min=0).clamp(max=9))


def _counted(self, x, ids):
    return self.table((ids > 2).long().cumsum(1)), self.table((x > 0).sum(1).clamp(max=9))


def _from_the_end(self, x, ids):
    at = x.argmax(1) - 10
    return self.table(torch.where(at < 0, at + 10, at)), x[:, at]


def _held(self, x, ids):
    return self.table(self.places[:2]), self.table(torch.tensor([3, 1, 4, 1, 5]))


def _nonzero(self, x, ids):
    rows, columns = (x > 0).nonzero().unbind(1)
    return x[rows, columns], self.table(columns)


def _resized(self, x, ids):
    image = x.reshape(1, 1, 3, 10)
    return torch.nn.functional.interpolate(image, size=(7, 13), mode="nearest")


def _by_loop(self, x, ids):
    def body(i, y):
        return i + 1, y + x.index_select(1, i.reshape(1))[:, 0]

    return while_loop(lambda i, y: i < 10, body, (torch.tensor(0), x[:, 0].clone()))


def _by_loop_downwards(self, x, ids):
    def body(i, y):
        return i - 1, y + x.index_select(1, i.reshape(1))[:, 0]

    return while_loop(lambda i, y: i >= 0, body, (torch.tensor(9), x[:, 0].clone()))


def _by_loop_over_a_ring(self, x, ids):
    def body(i, y):
        return (i + 3) % 10, y + x.index_select(1, i.reshape(1))[:, 0] + 1

    return while_loop(lambda i, y: y.sum() < 30, body, (torch.tensor(0), x[:, 0].clone()))


@pytest.mark.parametrize(
    "forwards",
    [
        [_positions, _remainder, _clamped, _counted, _from_the_end, _held, _nonzero, _resized],
        [_by_loop, _by_loop_downwards, _by_loop_over_a_ring],
    ],
    ids=["computed", "loops"],
)
def test_what_is_proven_has_no_assert(forwards: list[Any]) -> None:
    def forward(self, x, ids):
        return [proven(self, x, ids) for proven in forwards]

    program = check(model(forward, places=torch.tensor([9, 0, 3])), [X, IDS])
    assert program.entries[0].asserts == ()


def _computed(self, x, ids):
    return self.table(ids * 2 - 8)


def _from_floats(self, x, ids):
    return self.table((x[:, 0] * 3 + 3).long())


def _after_a_count(self, x, ids):
    return self.table(ids.cumsum(1) // 2)


def _written(self, x, ids):
    return torch.zeros(10, 4).index_put([ids.sum(0) - 1], torch.ones(3, 4)), x.scatter(1, ids * 1, 0.0)


def _picked(self, x, ids):
    return x[:, ids.sum().item() - 12]


def _in_a_branch(self, x, ids):
    return torch.cond(
        x.sum() > 0,
        lambda x, ids: x + self.table(ids * 1 - 0 + x.sum().long() * 0).sum(),
        lambda x, ids: x * 1,
        (x, ids),
    )


def _in_a_loop(self, x, ids):
    def body(i, y):
        return i + 1, y + self.table(ids * i).sum()

    return while_loop(lambda i, y: i < 2, body, (torch.tensor(0), x.sum()))


@pytest.mark.parametrize(
    "forward",
    [_computed, _from_floats, _after_a_count, _written, _picked, _in_a_branch, _in_a_loop],
    ids=lambda forward: forward.__name__.strip("_"),
)
def test_what_is_not_proven_is_asserted_and_clamped(forward: Any) -> None:
    given = [X + 0.5, torch.tensor([[4, 4, 4]])]
    program = check(model(forward), given)
    run = Runner(program)
    for bad in ([X + 40, torch.tensor([[4, 90, 4]])], [X + 40, torch.tensor([[4, -90, 4]])]):
        # torch's own kernels do check, so that a clamp that fails to hold would raise here.
        run(bad)
        failed = [message for message, holds in run.asserts.items() if not holds]
        assert failed
        assert all(message.startswith("index out of range: ") for message in failed)


def test_a_state_that_counts_past_its_table() -> None:
    def forward(self, x):
        self.at.add_(1)
        self.rows.index_put_([self.at.reshape(1)], x[:1])
        return self.rows.sum()

    module = model(forward, at=torch.tensor(-1), rows=torch.zeros(2, 10))
    run = Runner(check(module, [X], [X]))
    held = []
    for _ in range(3):
        run([X])
        held.append(all(run.asserts.values()))
    assert held == [True, True, False]


def test_tables_whose_size_varies() -> None:
    rows = {"x": {0: Dim("rows", min=1, max=8)}, "at": {0: Dim("count", min=1, max=8)}}
    at = torch.tensor([0, -1, 1, 2])
    program = check(model(lambda self, x, at: x[at]), [X, at], dynamic_shapes=rows)
    run = Runner(program)
    run([X, torch.tensor([0, 3, -1])])
    assert not all(run.asserts.values())
    run([X, torch.tensor([0, 2, -3])])
    assert all(run.asserts.values())
    assert _range(program, "at") is None


def test_positions_along_a_size_that_varies_are_proven() -> None:
    def forward(self, x):
        return x[torch.arange(x.shape[0])], x[torch.arange(x.shape[0]) - x.shape[0]]

    program = check(model(forward), [X], [X[:2]], dynamic_shapes={"x": {0: Dim("rows", max=8)}})
    assert program.entries[0].asserts == ()
    assert not _is_guarded(program)


def test_negative_indices_are_counted_from_the_end_in_the_graph() -> None:
    program = check(model(lambda self, x, at: x.index_put([at], x[:2])), [X, torch.tensor([-1, 0])])
    assert _range(program, "at") == (-3, 2)
    assert {"aten.where.self", "aten.lt.Scalar"} <= targets(program)


def test_every_access_that_is_left_is_guarded() -> None:
    program = legal(model(_computed), [X, IDS * 0 + 5])
    (entry,) = program.entries
    for module in hops.walk(entry.graph):
        for node in module.graph.nodes:
            for position in index_bounds.accesses(node):
                assert position.index(node).target is torch.ops.aten.minimum.default


def test_a_size_that_is_found_to_be_one_number_is_that_number() -> None:
    """The places of counts: a view of them says how many there are, after their tensor was made."""

    def forward(self, x):
        rows = x.unsqueeze(-1)
        outside = (rows < 0).any(-1).logical_or((rows > 1).any(-1))
        places = (rows[~outside] * 6).long().clip(max=torch.as_tensor(6) - 1)
        weights = places.new_tensor((6, 1))[1:].cumprod(0)
        return (places * weights).sum(-1).bincount(minlength=6).reshape([6]) + x.sum()

    program = check(model(forward), [X.flatten()], dynamic_shapes={"x": {0: Dim("n", min=2, max=64)}})
    assert "<built-in function sub>" not in targets(program)
