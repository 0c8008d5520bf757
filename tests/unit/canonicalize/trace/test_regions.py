"""Python's control flow on tensors in torch.export's graph: what the graph gives is what eager gives."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from aotpipe import Dim
from aotpipe.canonicalize import canonicalize
from aotpipe.core.stages import Exported
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from tests.sweep import slow, sweep

UP, DOWN, NONE = torch.full((2, 3), 0.7), torch.full((2, 3), -0.7), torch.zeros(2, 3)
SIGNS = ((UP,), (DOWN,), (NONE,))
TRIPS = tuple((UP, torch.tensor(n)) for n in (3, 0, 1, 7))


def exported(model: Any, *args: torch.Tensor, **settings: Any) -> Exported:
    return export(canonicalize(as_spec(model, args=args, **settings)))


def check(model: Any, *cases: tuple[torch.Tensor, ...], **settings: Any) -> Exported:
    """Compare the program with eager on every case; the first one is the example."""
    program = exported(model, *cases[0], **settings)
    run = program.entries[0].program.module()
    for case in cases:
        with torch.no_grad():
            want, got = model(*case), run(*case)
        flat, spec = pytree.tree_flatten(want)
        others, other_spec = pytree.tree_flatten(got)
        assert spec == other_spec
        for mine, other in zip(flat, others, strict=True):
            if isinstance(mine, torch.Tensor):
                torch.testing.assert_close(other, mine)
            else:
                assert torch.as_tensor(other).item() == pytest.approx(mine)
    return program


@dataclass(frozen=True)
class Case:
    function: Callable[..., Any]
    inputs: tuple[tuple[torch.Tensor, ...], ...]


CASES: list[Any] = []


def case(*inputs: tuple[torch.Tensor, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(pytest.param(Case(function, inputs), id=function.__name__))
        return function

    return add


@case(*SIGNS)
def both_return(x):
    if x.sum() > 0:
        return x.sin()
    return x.cos()


@case(*SIGNS)
def branches_of_branches(x):
    if x.sum() > 1:
        y = x + 1
    elif x.sum() < -1:
        y = x - 1
        if y.max() < -1:
            y = y * 2
    else:
        y = x
    return y


@case(*SIGNS)
def assigned_on_one_path(x):
    scale = 1
    if x.sum() > 0:
        scale = 2.5
    return x * scale, scale


@case(*SIGNS)
def first_assigned_on_one_path(x):
    if x.sum() > 0:
        offset = x.max()
    y = x * 2
    if x.sum() > 0:
        y = y + offset
    return y


@case(*SIGNS)
def several_kinds_of_values(x):
    pair = (x, 1)
    if x.sum() > 0:
        pair = (x * 2, 5)
    named = {"a": x}
    if x.sum() < 0:
        named = {"a": x * 3}
    return pair[0] + pair[1], named["a"]


@case(*SIGNS)
def dtypes_are_promoted(x):
    y = (x > 0.5).to(torch.int32)
    if x.sum() > 0:
        y = y * 0.5
    return y * 1.0


@case(*SIGNS)
def written_in_place(x):
    y = x.clone()
    z = y
    if x.sum() > 0:
        y += 1
        z[0] = 5.0
    return y, z * 2


@case(*SIGNS)
def created_and_written_inside(x):
    if x.sum() > 0:
        y = torch.zeros(2, 3)
        y[0] = x[1]
    else:
        y = x.clone()
        y.mul_(2)
    return y


@case(*SIGNS)
def returns_its_input(x):
    return x if x.sum() > 0 else x + 1


@case(*SIGNS)
def truth_of_several(x):
    if (x.sum() > 0 and not x.max() > 2) or -2 < x.min() < -0.5:
        return x + 1
    return x - 1


@case(*SIGNS)
def value_of_and_and_or(x):
    return (x.sum() > 0 and x.max() < 5), (x.sum() or x.max() + 1), (x.sum() and x.min())


@case(*SIGNS)
def closures_and_lambdas(x):
    w = x * 3

    def inner(y):
        if y.sum() > 0:
            return y + w
        return y - w

    return inner(x) + (lambda a: a * w)(x)


@case(((torch.tensor([4.0, 3.0])),), (torch.tensor([100.0, 3.0]),), (torch.tensor([0.1, 0.1]),))
def newton(a):
    target = a.abs().sum()
    x, iterations = target, 0
    while iterations < 20:
        new = 0.5 * (x + target / x)
        if (new - x).abs() < 1e-3:
            break
        x = new
        iterations += 1
    else:
        iterations = -1
    return x, iterations


@case(*TRIPS)
def halved_until_small(x, n):
    count = 0
    x = x * n
    while x.abs().max() > 1:
        x = x / 2
        count += 1
    return x, count


@case(*TRIPS)
def ranges_of_tensors(x, n):
    y = torch.zeros_like(x)
    for i in range(n):
        if i % 2 == 0:
            continue
        y = y + x * i
    return y


@case(*TRIPS)
def ranges_with_bounds(x, n):
    total = 0
    for i in range(n, 0, -2):
        total += i
    for i in range(1, n):
        total = total + x.sum() * i
    return total


@case(*TRIPS)
def left_early(x, n):
    for i in range(n):
        if (x * i).sum() > 6:
            return x * i
    return -x


@case(*TRIPS)
def loops_in_loops(x, n):
    total = x.sum() * 0
    i = 0
    while i < n:
        j = 0
        while j < i:
            total = total + x.sum() * j
            j += 1
        i += 1
    return total, i


@case(*TRIPS)
def a_branch_in_a_loop_in_a_branch(x, n):
    y = x
    if n > 0:
        for i in range(n):
            if i > 2:
                y = y * 2
                y = y + i
            else:
                y = y + 1
    else:
        y = y - 1
    return y


@case(*TRIPS)
def written_out_until_a_tensor_stops_it(x, n):
    y = x
    for k in [1, 2, 3, 4]:
        if k > n:
            break
        y = y + k
    return y


@case(*TRIPS)
def a_loop_that_writes_in_place(x, n):
    y = x.clone()
    for _ in range(n):
        y += x
    return y


@case(*SIGNS)
def written_in_place_without_a_second_name(x):
    y = x * 2
    if x.sum() > 0:
        y = y * 3
    y += 1
    n = 0
    while y.sum() > 4 and n < 3:
        y = y * 0.5
        n += 1
    y[0] = 2.0
    return y


@case(*TRIPS)
def numbers_have_no_aliases(x, n):
    count = before = 0
    while count < n:
        before = count
        count += 1
    first = count
    count += 5
    return before, first, count, x


SLOW = {
    "a_branch_in_a_loop_in_a_branch",
    "newton",
    "branches_of_branches",
    "first_assigned_on_one_path",
    "halved_until_small",
    "loops_in_loops",
    "ranges_of_tensors",
    "written_in_place_without_a_second_name",
    "written_out_until_a_tensor_stops_it",
}


@pytest.mark.parametrize("made", sweep(CASES, quick=0, always={made.id for made in CASES} - SLOW))
def test_the_graph_gives_what_eager_gives(made: Case) -> None:
    check(made.function, *made.inputs)


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("best", torch.zeros(()))
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        if x.sum() > self.best:
            self.seen += 1
            self.best = x.sum()
            return self.inner(x)
        return x


def test_buffers_and_submodules_inside_of_branches():
    model = Counting().eval()
    program = exported(copy.deepcopy(model), UP).entries[0].program.module()
    for x in (UP, DOWN, UP * 2, UP):
        torch.testing.assert_close(program(x), model(x))
    assert (program.seen.item(), program.best.item()) == (model.seen.item(), model.best.item())


def test_what_is_called_is_rewritten_too():
    class Inner(torch.nn.Module):
        def forward(self, x):
            return _clipped(x) if x.mean() > 0 else x

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            y = self.inner(x)
            while y.sum() > 1:
                y = y * 0.5
            return y

    program = check(Outer().eval(), *SIGNS)
    told = [found.message for found in program.findings if found.code == "control-flow-in-graph"]
    assert len(told) == 3
    assert any("_clipped" in message for message in told)


_DOUBLED = lambda x: x * 2 if x.sum() > 0 else x  # noqa: E731


def test_lambdas_that_decide_wherever_they_stand():
    class Model(torch.nn.Module):
        shrunk = lambda self, x: x / 2 if x.max() > 1 else x  # noqa: E731

        def __init__(self, by: float) -> None:
            super().__init__()
            self.least, self.other = (lambda x: x if x.min() < -by else x - by), (lambda x: x.abs())

        def forward(self, x):
            called = self.other(self.shrunk(self.least(_DOUBLED(x))))
            rows = x.mean(1)
            reduced = functools.reduce(lambda one, other: one if one > other else other - 1, rows)
            return called, reduced, max(rows, key=lambda each: each.abs())

    check(Model(0.3).eval(), *SIGNS)


def _clipped(x):
    if x.max() > 0.6:
        return x * 0.9
    return x


def test_sizes_that_vary():
    def model(x):
        if x.sum() > 0:
            return x * x.shape[0]
        n = 0
        while (x + n).sum() < 0 and n < x.shape[0] - 1:
            n += 1
        return x + n

    cases = [(torch.linspace(-1.0, end, size),) for size in (4, 6, 3) for end in (-0.5, 0.5, 3.0)]
    check(model, *cases, dynamic_shapes={"x": {0: Dim("n", min=2, max=8)}})


def test_a_model_that_needs_none_of_it_is_traced_as_before():
    program = check(lambda x: x * 2 if x.shape[0] > 1 else x, (UP,))
    assert not [found for found in program.findings if found.code == "control-flow-in-graph"]


def test_the_users_functions_are_as_before():
    code = both_return.__code__
    check(both_return, *SIGNS)
    assert both_return.__code__ is code


def shapes_that_differ(x):
    y = x
    if x.sum() > 0:
        y = x[0]
    return y


def results_that_differ(x):
    if x.sum() > 0:
        return x
    return x[0]


class Remembering(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls: set[int] = set()

    def note(self) -> None:
        self.calls.add(int(self.at))

    def forward(self, x):
        self.at = x.argmax()
        if x.sum() > 0:
            self.note()
        return x * len(self.calls)


def grows_in_every_trip(x):
    while x.sum() < 10:
        x = torch.cat([x, x])
    return x


def takes_from_an_iterator(x):
    items = reversed([1.0, 2.0, 4.0])
    if x.sum() > 0:
        x = x + next(items)
    return x + next(items)


def takes_from_a_generator(x):
    items = (float(number) for number in range(9))
    pairs = zip(items, "abcdefghi", strict=True)
    if x.sum() > 0:
        x = x + next(pairs)[0]
    return x + next(items)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (takes_from_an_iterator, "takes from an iterator: items"),
        (takes_from_a_generator, "takes from an iterator: "),
        (shapes_that_differ, "`y` has the shapes (2, 3) and (3)"),
        (results_that_differ, "what is returned has the shapes"),
        (grows_in_every_trip, "`x` gets longer in every iteration"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_has_no_form_in_a_graph_is_refused_at_its_line(model: Any, said: str):
    with pytest.raises(ExportFailed) as caught:
        exported(model, UP)
    assert said in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_regions.py")


def test_what_a_region_changed_is_taken_back():
    model = Remembering().eval()
    exported(model, UP)
    assert model.calls == set()


def newton_by_hand(x):
    def going(value, step):
        return step.abs().max() > 1e-3

    def iteration(value, step):
        return value * 0.5, value * 0.5 - value

    return torch.while_loop(going, iteration, (x, torch.tensor(1.0)))[0]


def test_what_a_while_loop_carries_may_get_dims_in_the_first_trip():
    program = exported(newton_by_hand, torch.tensor([5.0]))
    run = program.entries[0].program.module()
    for start in (5.0, 0.0, -3.0):
        value = torch.tensor([start])
        while (value * 0.5).abs() > 1e-3:
            value = value * 0.5
        assert torch.allclose(run(torch.tensor([start])), value * 0.5)


def a_long_range_with_a_jump(x):
    for i in range(1000):
        x = x * 0.9 + i * 0
        if x.abs().max() < 0.1:
            break
    return x


def test_a_range_with_a_jump_is_a_loop_of_the_graph():
    program = check(a_long_range_with_a_jump, (UP,), (DOWN,), (NONE,))
    assert len(list(program.entries[0].program.graph.nodes)) < 60


def sizes_alone(x, y):
    rows = y[y > 0]
    out, i = y.sum(), 0
    out = out * x.shape[0] + len(rows) if out > 0 else out - x.shape[0] * rows.shape[0]
    while out < 30 and i < 9:
        out = out + x.shape[0] + y.abs().sum()
        if i > 1:
            out = out + len(rows) * 2
        i = i + 1
    return out


def test_a_region_computes_with_sizes_of_tensors_that_it_does_not_take():
    cases = [
        (torch.ones(size, 2), sign * torch.tensor([1.0, -0.5, 2.0])) for size in (4, 2, 6) for sign in (1, -1)
    ]
    check(sizes_alone, *cases, dynamic_shapes={"x": {0: Dim("n", min=2, max=8)}, "y": None})


def a_flag_from_outside(x):
    flag = x.sum() > 0
    y = x * 1
    if x.max() > 0.5:  # noqa: SIM102  # no op of the outer branch reads the flag
        if flag:
            y = x * 2
    return y


def a_loop_with_returns(x):
    while True:
        if x.sum() > 0:
            break
        return x * 2
    else:
        return x * 3
    return x * 4


def a_variable_of_one_path(x):
    if x.sum() < 0:
        return x
    if x.max() > 0.5:  # noqa: SIM108  # branches that assign it
        y = x * 2
    else:
        y = x + 1
    return y + 1


@pytest.mark.parametrize("model", [a_flag_from_outside, a_variable_of_one_path, slow(a_loop_with_returns)])
def test_a_branch_in_a_branch_decides_by_a_flag_that_nothing_else_reads(model: Any):
    program = check(model, *SIGNS).entries[0].program
    assert not any(
        "_tensor_constant" in name for module in program.graph_module.modules() for name in vars(module)
    )
