"""Control flow compiles and computes what eager computes, over the arguments that are easily got wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch._higher_order_ops import map as torch_map
from torch._higher_order_ops import scan
from torch._higher_order_ops.associative_scan import associative_scan_op

from aotpipe.backends.iree.lower import importer
from aotpipe.core.dims import Dim
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.core.stages import Legal, LegalEntry
from aotpipe.errors import LowerFailed
from tests.programs.through import check, legal
from tests.sweep import sweep

BATCH = Dim("batch", min=1, max=16)
OTHER = Dim("other", min=1, max=9)
ROWS = {"x": {0: BATCH}}
while_loop = torch.while_loop


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def number(value: int) -> torch.Tensor:
    return torch.tensor(value)


def zero() -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64)


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3)
        self.weight = torch.nn.Parameter(torch.randn(3))
        self.square = torch.nn.Parameter(torch.randn(3, 3))


@dataclass(frozen=True)
class Case:
    forward: Callable[..., Any]
    calls: tuple[tuple[Any, ...], ...]
    dynamic: Any = None

    @property
    def name(self) -> str:
        return self.forward.__name__

    def check(self) -> None:
        module = type("Model", (Holder,), {"forward": self.forward})()
        options = {} if self.dynamic is None else {"dynamic_shapes": self.dynamic}
        check(module, *self.calls, **options)


CASES: list[Any] = []


def case(*calls: tuple[Any, ...], dynamic: Any = None, slow: bool = False) -> Callable[..., Any]:
    """Add a function of a module and its inputs to the cases; the first call is the example."""

    def add(forward: Callable[..., Any]) -> Callable[..., Any]:
        made = Case(forward, calls, dynamic)
        CASES.append(pytest.param(made, id=made.name, marks=[pytest.mark.slow] if slow else []))
        return forward

    return add


POSITIVE, NEGATIVE = rows(4, 3).abs(), -rows(4, 3).abs()
TRIPS = ((rows(4, 3), number(3)), (rows(4, 3, seed=1), number(0)), (rows(4, 3, seed=2), number(1)))
TRIPS_OF_SIZES = ((rows(4, 3), number(3)), (rows(1, 3), number(0)), (rows(16, 3), number(2)))
SIZES = ((rows(4, 3),), (rows(1, 3),), (rows(16, 3),))
WITH_VECTOR = ((rows(4, 3), rows(3)), (rows(1, 3), rows(3)), (rows(16, 3), rows(3)))


@case((POSITIVE,), (NEGATIVE,))
def several_results(self, x):
    return torch.cond(x.sum() > 0, lambda x: (self.linear(x), x.sum()), lambda x: (x * 2, x.min()), (x,))


@case((POSITIVE,), (NEGATIVE,), (POSITIVE[:1],), (NEGATIVE[:1],), dynamic=ROWS, slow=True)
def nested_branches(self, x):
    def outer(x):
        return torch.cond(
            x.mean() > 0.1, lambda x: (self.linear(x), x > 0), lambda x: (x + x.shape[0], x < 1), (x,)
        )

    return torch.cond(x.shape[0] > 2, outer, lambda x: (x.sin(), x > 2), (x,))


@case((POSITIVE,), (NEGATIVE,))
def a_branch_returns_its_input(self, x):
    return torch.cond(x.sum() > 0, lambda x: x, lambda x: x.sin(), (x,))


@case((POSITIVE,), (NEGATIVE,), dynamic=ROWS)
def a_branch_gives_one_tensor_twice(self, x):
    return torch.cond(x.sum() > 0, lambda x: (x + 1, x + 1, x * 1), lambda x: (x * 2, x * 3, x + 3), (x,))


@case((POSITIVE,), (NEGATIVE,), slow=True)
def branches_of_two_sizes(self, x):
    return torch.cond(x.sum() > 0, lambda x: x[:1] * 1, lambda x: x * 2, (x,))


@case((POSITIVE,), (NEGATIVE,), slow=True)
def a_branch_is_constant(self, x):
    return torch.cond(x.sum() > 0, lambda x: torch.ones(3), lambda x: x.sum(0), (x,))


@case((rows(4, 3),), slow=True)
def a_predicate_known_at_export(self, x):
    return torch.cond(True, lambda x: x + 1, lambda x: x.sin(), (x,))


@case((rows(4, 3),), (rows(1, 3),), (rows(0, 3),), dynamic={"x": {0: Dim("batch", min=0, max=16)}}, slow=True)
def a_branch_over_no_rows(self, x):
    return torch.cond(x.shape[0] > 1, lambda x: self.linear(x), lambda x: x * 2, (x,))


@case(*TRIPS, slow=True)
def counted(self, x, n):
    return while_loop(lambda i, y, k: i < n, lambda i, y, k: (i + 1, y * 2 + x, k + 1), (zero(), x + 5, 0))


@case(*TRIPS_OF_SIZES, dynamic=ROWS)
def counted_over_any_size(self, x, n):
    return while_loop(lambda i, y: i < n, lambda i, y: (i + 1, self.linear(y) + x), (zero(), x + 5))


@case(*TRIPS_OF_SIZES, dynamic=ROWS)
def a_carry_that_no_trip_reads(self, x, n):
    return while_loop(lambda i, y: i < n, lambda i, y: (i + 1, x * i), (zero(), x + 5))


@case(*TRIPS_OF_SIZES, dynamic=ROWS)
def a_carry_that_no_trip_changes(self, x, n):
    return while_loop(
        lambda i, y, z: i < n, lambda i, y, z: (i + 1, y + z, z.clone()), (zero(), x + 5, x * 2)
    )


@case(*TRIPS_OF_SIZES, dynamic=ROWS, slow=True)
def a_carry_read_for_its_shape_alone(self, x, n):
    return while_loop(
        lambda i, y: i < n, lambda i, y: (i + 1, torch.zeros_like(y) + y.shape[0]), (zero(), x + 5)
    )


@case(*TRIPS_OF_SIZES, dynamic=ROWS, slow=True)
def a_carry_that_becomes_the_same_each_trip(self, x, n):
    return while_loop(lambda i, y, z: i < n, lambda i, y, z: (i + 1, x.sin(), z + y), (zero(), x + 5, x + 6))


@case(*TRIPS_OF_SIZES, dynamic=ROWS)
def carries_that_become_one(self, x, n):
    return while_loop(lambda i, y, z: i < n, lambda i, y, z: (i + 1, y + z, y + z), (zero(), x + 5, x + 6))


@case(*TRIPS, slow=True)
def carries_that_change_places(self, x, n):
    return while_loop(
        lambda i, y, z: i < n, lambda i, y, z: (i + 1, z.clone(), y.clone()), (zero(), x + 5, x * 2)
    )


@case(*TRIPS, slow=True)
def carries_that_start_as_one(self, x, n):
    return while_loop(
        lambda i, y, z: i < n, lambda i, y, z: (i + 1, y + 1, z * 2), (zero(), x.clone(), x.clone())
    )


@case(*TRIPS)
def results_that_nobody_reads(self, x, n):
    return x + while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y.sin()), (zero(), x + 5))[0] * 0


@case(*TRIPS)
def the_condition_is_a_carry(self, x, n):
    return while_loop(
        lambda go, i, y: go.clone(), lambda go, i, y: (i + 1 < n, i + 1, y + x), (n > 0, zero(), x + 5)
    )[2]


@case(*TRIPS)
def carries_of_every_kind(self, x, n):
    return while_loop(
        lambda k, i, h, m, y: i < n,
        lambda k, i, h, m, y: (k + 2, i + 1, h * 0.5, ~m, torch.where(m, y, y * 2)),
        (1, zero(), torch.ones(2, dtype=torch.float16), x > 0, x.double()),
    )


@case(*SIZES, dynamic=ROWS)
def a_number_is_the_counter(self, x):
    return while_loop(lambda i, y: 2 * i < x.shape[0], lambda i, y: (i + 1, y + i), (0, x + 5))


@case(*TRIPS_OF_SIZES, dynamic=ROWS)
def loops_three_deep(self, x, n):
    def outer(i, y):
        def middle(j, z):
            inner = while_loop(lambda k, w: k < 2, lambda k, w: (k + 1, self.linear(w)), (zero(), z))
            return j + 1, inner[1] + 1

        return i + 1, while_loop(lambda j, z: j <= i, middle, (zero(), y))[1]

    return while_loop(lambda i, y: i < n, outer, (zero(), x + 5))


@case(*TRIPS_OF_SIZES, dynamic=ROWS)
def a_branch_in_a_loop(self, x, n):
    def body(i, y):
        return i + 1, torch.cond(i % 2 == 0, lambda y: self.linear(y), lambda y: y - x, (y,))

    return while_loop(lambda i, y: i < n, body, (zero(), x + 5))


@case(*TRIPS_OF_SIZES, dynamic=ROWS, slow=True)
def a_loop_in_a_branch(self, x, n):
    def looped(x):
        return while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 1.5), (zero(), x + 5))[1]

    return torch.cond(n > 1, looped, lambda x: x.sin(), (x,))


@case(
    (rows(4, 3), number(3)),
    (rows(0, 3), number(2)),
    dynamic={"x": {0: Dim("batch", min=0, max=16)}},
    slow=True,
)
def a_loop_over_no_rows(self, x, n):
    return while_loop(lambda i, y: i < n, lambda i, y: (i + 1, self.linear(y)), (zero(), x + 5))


@case(*TRIPS, slow=True)
def a_loop_that_writes_rows(self, x, n):
    return while_loop(
        lambda i, y: i < n, lambda i, y: (i + 1, y.index_put((i.reshape(1),), x[:1] * 2)), (zero(), x + 5)
    )


@case(*WITH_VECTOR, dynamic=ROWS)
def mapped(self, x, w):
    return torch_map(lambda pair, w: (pair[0].cos() + w + self.weight, pair[1].sum() > 0), (x, x * 2), w)


@case(
    (rows(4, 5, 3), rows(3)),
    (rows(1, 1, 3), rows(3)),
    (rows(2, 9, 3), rows(3)),
    dynamic={"x": {0: BATCH, 1: OTHER}},
    slow=True,
)
def mapped_in_a_map(self, x, w):
    return torch_map(lambda r, w: torch_map(lambda q, w: q * w + self.weight, r, w), x, w)


@case(*WITH_VECTOR, dynamic=ROWS, slow=True)
def a_branch_in_a_map(self, x, w):
    return torch_map(
        lambda r, w: torch.cond(r.sum() > 0, lambda a: self.linear(a), lambda a: a * 2, (r,)), x, w
    )


@case(*WITH_VECTOR, dynamic=ROWS)
def scanned(self, x, w):
    return scan(lambda c, r: (c + r * w, c * 2), x[0], x, dim=0)


@case((rows(5, 2, 3),), (rows(1, 2, 3),), dynamic=ROWS)
def scanned_over_what_a_weight_gave_with_another_weight(self, x):
    given = self.linear(x)
    return scan(lambda c, r: (c @ self.square + r, c.sin()), x.new_zeros(2, 3), given, dim=0)


@case((rows(4, 3), number(1)), (rows(4, 3), number(-1)), dynamic=ROWS)
def a_branch_over_what_a_weight_gave_with_another_weight(self, x, n):
    given = self.linear(x)
    return torch.cond(n > 0, lambda: given @ self.square, lambda: given - self.weight)


@case((rows(12, 3), rows(3)))
def scanned_several_trips_at_once(self, x, w):
    return scan(lambda c, r: (c.cumsum(0) * 0.1 + r * w, c * 2), x[0] * 1, x, dim=0)


@case(*WITH_VECTOR, dynamic=ROWS, slow=True)
def scanned_from_the_end(self, x, w):
    return scan(lambda c, r: (c + r * w, c * 2), x[0], x, dim=0, reverse=True)


@case(
    (rows(3, 4), rows(3)), (rows(3, 1), rows(3)), (rows(3, 16), rows(3)), dynamic={"x": {1: BATCH}}, slow=True
)
def scanned_along_columns(self, x, w):
    return scan(lambda c, r: (c + r * w, (c * 2, r.sum())), w * 1, x, dim=1)


@case((rows(5, 4, 3), rows(3)), (rows(5, 16, 3), rows(3)), dynamic={"x": {1: BATCH}})
def scanned_with_rows_of_any_size(self, x, w):
    return scan(lambda c, r: (c + r * w, torch.cat([c, r])), x[0] * 1, x, dim=0)


@case(*WITH_VECTOR, dynamic=ROWS)
def results_of_a_scan_that_nobody_reads(self, x, w):
    return scan(lambda c, r: ((c[0] + r * w, c[1] * 2), (c[1] + r, r * 2)), (x[0], w * 1), x, dim=0)[1][0]


@case(
    (rows(2, 9, 3),), (rows(1, 2, 3),), (rows(5, 4, 3),), dynamic={"x": {0: BATCH, 1: Dim("s", min=2, max=9)}}
)
def scanned_with_a_carry_that_shares_its_allocation(self, x):
    grown = x.exp().unsqueeze(-1).expand(-1, -1, -1, 4) * 1.0

    def step(c, rows):
        c = c * rows[0] + rows[1]
        return c, c * 1.0

    return scan(step, x.new_zeros(x.shape[0], 3, 4), (grown, grown * 0.3), dim=1)


@case(*WITH_VECTOR, dynamic=ROWS)
def branches_and_loops_in_a_scan(self, x, w):
    def step(c, r):
        def test(i, a):
            return i < 2

        def body(i, a):
            return i + 1, (a * 1.5).clone()

        _, grown = torch.while_loop(test, body, (torch.zeros((), dtype=torch.int64), r.clone()))
        (last,) = torch.cond(r.sum() > 0, lambda c: (c + w,), lambda c: (c.sin(),), (c,))
        return last.clone(), c + grown

    return scan(step, x[0] * 1, x, dim=0)


@case(*TRIPS_OF_SIZES, dynamic=ROWS)
def a_scan_in_a_loop(self, x, n):
    def body(i, y):
        last, stacked = scan(lambda c, r: (c + r, c * 0.5), self.weight * 1, y, dim=0)
        return i + 1, stacked * 0.5 + last

    return while_loop(lambda i, y: i < n, body, (zero(), x + 5))


@case(*SIZES, dynamic=ROWS)
def scanned_associatively(self, x):
    return associative_scan_op(lambda a, b, c, d: (a * c, b * c + d), [x, x + 1], ())


# Branches, loops and scans, over sizes and weights; most others take the same paths.
QUICK = {
    "a_branch_gives_one_tensor_twice",
    "a_branch_over_what_a_weight_gave_with_another_weight",
    "a_carry_that_no_trip_changes",
    "a_number_is_the_counter",
    "a_branch_in_a_loop",
    "scanned_with_a_carry_that_shares_its_allocation",
    "scanned_associatively",
}


@pytest.mark.parametrize("made", sweep(CASES, quick=0, always=QUICK))
def test_computes_what_eager_computes(made: Case) -> None:
    made.check()


def _legal(graph: torch.fx.GraphModule) -> Legal:
    inputs = tuple(
        TensorSpec(node.name, "float32", tuple(node.meta["val"].shape))
        for node in graph.graph.find_nodes(op="placeholder")
    )
    entry = LegalEntry(
        name="forward", graph=graph, weights=(), signature=Signature(inputs=inputs, outputs=())
    )
    return Legal(name="model", dialect="torch", entries=(entry,), weights={}, initial_state={})


def test_an_op_without_a_lowering_is_named_with_its_line() -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return x @ x

    program = torch.export.export(Model(), (rows(3, 3),))
    with pytest.raises(LowerFailed, match="wrap_with_autocast") as raised:
        importer.lower(_legal(program.graph_module))
    assert raised.value.exit_code == 30


@pytest.mark.parametrize(("length", "together"), [(12, 6), (11, 1), (40, 10), (7, 7)])
def test_a_scan_of_known_length_has_several_trips_in_an_iteration(length: int, together: int) -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            return scan(lambda c, r: (c.cumsum(0) + r, c * 2), x[0] * 1, x, dim=0)

    text = importer.lower(legal(Model(), (rows(length, 3),))).module.decode()
    assert text.count("torch.aten.cumsum") == together
