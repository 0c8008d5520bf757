"""The strategies of exporting, and their order."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotpipe.canonicalize.state import discovery
from aotpipe.core.dims import Dim
from aotpipe.core.signature import admits
from aotpipe.errors import ExportFailed, StaticDim
from aotpipe.export import strategies
from tests.sweep import slow
from tests.unit.export.models import codes, entry_of, exported, run

B = Dim("b", max=64)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[strategies.Strategy]:
    found: list[strategies.Strategy] = []
    real = strategies._export

    def spy(entry: Any, strategy: strategies.Strategy, *module: Any) -> Any:
        found.append(strategy)
        return real(entry, strategy, *module)

    monkeypatch.setattr(strategies, "_export", spy)
    return found


def test_without_dims_it_is_plain_export(tried: list[strategies.Strategy]) -> None:
    strategies.trace(entry_of(lambda x: x + 1, torch.ones(2)))
    assert tried == [strategies.Strategy(changed={})]


def test_with_dims_sizes_of_zero_and_one_are_ordinary_first(tried: list[strategies.Strategy]) -> None:
    strategies.trace(entry_of(lambda x: x[1:], torch.ones(2), shapes={"x": {0: B}}))
    assert tried == [strategies.Strategy(all_sizes=True, changed={})]


def test_the_examples_own_sizes_come_after_those_inside() -> None:
    strategy, inside = strategies.Strategy, {"b": 4}
    assert list(strategies._strategies(dynamic=True, changed=inside)) == [
        strategy(all_sizes=True, changed=inside),
        strategy(all_sizes=True, changed={}),
        strategy(assumes_sizes=True, changed=inside),
        strategy(assumes_sizes=True, changed={}),
        strategy(strict=True, assumes_sizes=True, changed=inside),
        strategy(strict=True, assumes_sizes=True, changed={}),
    ]


def test_strict_mode_is_not_tried_when_the_dims_are_to_blame(tried: list[strategies.Strategy]) -> None:
    with pytest.raises(ExportFailed):
        strategies.trace(entry_of(lambda x: x + torch.ones(4), torch.ones(4), shapes={"x": {0: B}}))
    assert not any(strategy.strict for strategy in tried)


def test_strict_mode_comes_last(tried: list[strategies.Strategy]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() + 1)

    traced = strategies.trace(entry_of(f, torch.ones(3)))
    assert [strategy.strict for strategy in tried] == [False, True]
    [finding] = traced.findings
    assert finding.code == "strict-export"
    assert "numpy" in finding.message


READS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "bool": lambda x: x * bool(x.sum() > 1),
    "power": lambda x: x ** int(x.sum()),
    "remainder": lambda x: x * (int(x.sum()) % 3),
    "shift": lambda x: x + (int(x.max()) << 1),
    "square": lambda x: x * float(x.max()) ** 2,
}


@pytest.mark.parametrize("name", READS)
def test_numbers_read_from_data_are_staged_before_strict_mode(
    tried: list[strategies.Strategy], name: str
) -> None:
    """In strict mode `%`, `**` and `<<` of Python stay in the graph, where no backend lowers them."""
    strategies.trace(entry_of(READS[name], torch.tensor([1.0, 2.0])))
    assert not any(strategy.strict for strategy in tried)


def test_the_greater_of_whole_numbers_needs_no_rewriting(tried: list[strategies.Strategy]) -> None:
    def f(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        n = k.item()
        torch._check(n >= 0)
        torch._check(n <= 4)
        return x[: max(1, n)]

    assert strategies.trace(entry_of(f, torch.ones(4), torch.tensor(2))).findings == ()
    assert len(tried) == 1


class Logged(torch.nn.Module):
    """Takes NumPy's way, which only strict mode takes, and keeps what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.last: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.from_numpy(x.numpy() + 1)
        self.last[:] = [found]
        return found


def test_what_strict_mode_would_lose_is_refused() -> None:
    with pytest.raises(ExportFailed, match="does not see"):
        strategies._stateless(entry_of(Logged().eval(), torch.ones(3)))


def test_a_model_that_no_way_takes_is_staged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = strategies.staged
    monkeypatch.setattr(
        strategies, "staged", lambda *args, **given: calls.append(args) or real(*args, **given)
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + len(str(x.sum().item()))

    with pytest.raises(ExportFailed):
        strategies.trace(entry_of(f, torch.ones(1), shapes={"x": {0: B}}))
    assert len(calls) == 1


def test_the_model_stays_as_it_was() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            self.calls += 1
            return x + self.count

    model = Counter().eval()
    strategies.trace(entry_of(model, torch.ones(3)))
    assert model.calls == 0
    assert model.count == 0
    assert type(model.count) is torch.Tensor


class Capacity(torch.nn.Module):
    """A capacity of the number of rows, rounded by Python in a function of its own."""

    def __init__(self, *, counts: bool) -> None:
        super().__init__()
        self.counts = counts
        self.dropped = 0

    def capacity(self, rows: int) -> int:
        return int(rows * 1.25 / 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        capacity = self.capacity(x.shape[0])
        place = (x > 0).cumsum(0) - 1
        if self.counts:
            self.dropped += int((place >= capacity).sum().item())
        return torch.where(place < capacity, x, 0.0), torch.ones(capacity)


@pytest.mark.parametrize("counts", [pytest.param(False, marks=pytest.mark.slow), True])
def test_what_python_rounds_of_a_size_follows_the_size(counts: bool) -> None:
    model = Capacity(counts=counts).eval()
    entry = entry_of(model, torch.linspace(-1, 4, 12), shapes={"x": {0: Dim("rows", min=1, max=64)}})
    program = strategies.trace(entry).program.module()
    for rows in (1, 3, 4, 12, 64):
        x = torch.linspace(-1, 4, rows)
        for mine, other in zip(program(x), Capacity(counts=counts)(x), strict=True):
            torch.testing.assert_close(mine, other)


class Hooked(torch.nn.Module):
    """Its first call registers a hook, which no program can keep."""

    def __init__(self, *, counts_the_first: bool) -> None:
        super().__init__()
        self.part = torch.nn.Linear(3, 3)
        self.hooks: list[Any] = []
        self.seen: torch.Tensor | None = None
        self.counts_the_first = counts_the_first
        self.table: torch.Tensor | None = None

    def _hook(self, _module: Any, _inputs: Any, output: torch.Tensor) -> None:
        self.seen = output

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.hooks:
            self.hooks.append(self.part.register_forward_hook(self._hook))
            self.table = torch.arange(3.0)
            if self.counts_the_first:
                self.table = x[0]
        y = self.part(x) + self.table
        seen, self.seen = self.seen, None
        return y + seen * 2


def test_what_the_first_call_registers_is_there_from_the_start() -> None:
    model = Hooked(counts_the_first=False).eval()
    found = exported(model, torch.randn(2, 3), shapes={"x": {0: B}})
    assert "state-recomputed" in codes(found)
    assert not model.hooks
    x = torch.randn(5, 3)
    torch.testing.assert_close(found.entries[0].program.module()(x), model(x))


def test_what_the_first_call_keeps_of_its_values_is_refused() -> None:
    with pytest.raises(ExportFailed, match=r"test_strategies.py:\d+"):
        exported(Hooked(counts_the_first=True).eval(), torch.randn(2, 3))


class Tables(torch.nn.Module):
    """Keeps tables for the size of the last call; or, of a call of another size, a mean of its values."""

    def __init__(self, *, of_values: bool) -> None:
        super().__init__()
        self.of_values = of_values
        self.size: int | None = None
        self.table = torch.zeros(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] != self.size:
            self.size = x.shape[0]
            self.table = torch.arange(x.shape[0], dtype=x.dtype)
            if self.of_values:
                self.table = self.table + x.mean()
        y = x * self.table
        if y.sum() > 0:
            y = y + 1
        return y


@pytest.mark.parametrize("size", [2, 5])
def test_a_model_that_was_called_keeps_no_size_of_that_call(size: int) -> None:
    """The example's size took the kept tables, and the program held for that size alone."""
    model = Tables(of_values=False).eval()
    model(torch.ones(size))
    kept = model.table
    found = exported(model, torch.randn(5), shapes={"x": {0: Dim("n", min=2, max=9)}})
    assert model.size == size
    assert model.table is kept
    for x in (torch.randn(5), torch.randn(9), torch.ones(2)):
        taking = [each for each in found.entries if admits(each.signature, {"n": x.shape[0]})]
        torch.testing.assert_close(taking[0].program.module()(x), model(x))


class Filled(torch.nn.Module):
    """Fills a table as far as the largest size of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.filled = 0
        self.register_buffer("table", torch.zeros(9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[0]
        if size > self.filled:
            self.table[:size] = torch.arange(size, dtype=x.dtype)
            self.filled = size
        y = x + self.table[:size]
        if y.sum() > 0:
            y = y + 1
        return y


@pytest.mark.parametrize("size", [slow(0), 5])
def test_a_table_that_a_call_fills_is_not_taken_for_filled(size: int) -> None:
    """What a call of another size wrote was put back, also in the program made after it."""
    model = Filled().eval()
    if size:
        model(torch.ones(size))
    found = exported(model, torch.randn(5), shapes={"x": {0: Dim("n", min=2, max=9)}})
    for x in (torch.randn(5), torch.randn(9), torch.ones(2)):
        taking = [each for each in found.entries if admits(each.signature, {"n": x.shape[0]})]
        torch.testing.assert_close(taking[0].program.module()(x), copy.deepcopy(model)(x))


def test_what_is_kept_of_the_values_of_a_call_is_refused() -> None:
    model = Tables(of_values=True).eval()
    model(torch.ones(5))
    with pytest.raises(ExportFailed):
        exported(model, torch.randn(5), shapes={"x": {0: Dim("n", min=2, max=9)}})


class HookedAndRemembering(Hooked):
    """A hook beside a set that only some first calls add to."""

    def __init__(self) -> None:
        super().__init__(counts_the_first=False)
        self.calls: set[str] = set()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if "positive" in self.calls and x.sum() < -1000:
            y = y * 2
        if x.sum() > 0:
            self.calls.add("positive")
        return y


def test_what_only_some_first_calls_leave_is_refused() -> None:
    with pytest.raises(ExportFailed, match=r"test_strategies.py:\d+"):
        exported(HookedAndRemembering().eval(), torch.ones(2, 3), shapes={"x": {0: B}})


def test_an_input_that_should_have_varied_too_is_named() -> None:
    entry = entry_of(lambda x, mask: x * mask, torch.ones(6, 2), torch.ones(6, 2), shapes={"x": {0: B}})
    with pytest.raises(StaticDim) as caught:
        strategies.trace(entry)
    assert caught.value.hint.startswith("give mask the Dim 'b' too, which is 6 in its dim 0; or ")
    both = {"x": {0: B}, "mask": {0: B}}
    strategies.trace(entry_of(lambda x, mask: x * mask, torch.ones(6, 2), torch.ones(6, 2), shapes=both))


def test_numbers_of_no_input_are_read_while_it_is_traced() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for power in (2 ** torch.arange(3)).tolist():
            x = x + power
        return x[: torch.tensor([2, 3]).prod().item()]

    found = exported(f, torch.randn(8, 2))
    reads = found.entries[0].program.graph.find_nodes(op="call_function", target=torch.ops.aten.item.default)
    assert not reads
    x = torch.randn(8, 2)
    torch.testing.assert_close(found.entries[0].program.module()(x), f(x))


def test_a_function_that_each_call_makes_anew_is_rewritten_in_its_maker() -> None:
    """Its maker has returned when it decides, and is no frame of the error."""

    def solver(limit):
        def solve(x):
            if x.sum() > limit:
                return x * 2
            return x - limit

        class Solver:
            @staticmethod
            def apply(x):
                return solve(x)

        return Solver.apply

    def model(x: torch.Tensor) -> torch.Tensor:
        return solver(1.0)(x) + 1

    program = exported(model, torch.ones(3)).entries[0].program
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(program.module()(x), model(x))


class KeepsItsShape(torch.nn.Module):
    """Its first call makes an object that keeps a tensor and the tensor's shape."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("points", torch.arange(3.0))
        self.kept: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kept is None:
            self.kept = Kept(self.points * 2)
        return x.unsqueeze(1) - self.kept.value.expand(*x.shape, *self.kept.shape)


class Kept:
    def __init__(self, value: torch.Tensor) -> None:
        self.value, self.shape = value, value.shape


def test_a_shape_that_is_kept_is_the_same_in_each_trace() -> None:
    x = torch.randn(4)
    found = exported(KeepsItsShape(), x, shapes={"x": {0: Dim("n", min=2, max=8)}})
    torch.testing.assert_close(run(found, x), KeepsItsShape()(x))


class KeepsItsInput(KeepsItsShape):
    """Later calls answer by what the first one was given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = self.kept or Kept(x + 1)
        return x + self.kept.value


def test_what_is_new_in_each_trace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "_MOST_STATES", 0)
    with pytest.raises(ExportFailed, match=r"kept.*something new in each") as raised:
        exported(KeepsItsInput(), torch.randn(4))
    assert raised.value.where is not None
    assert "make objects once" in raised.value.hint


class Percentile(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten().kthvalue(1 + round(0.99 * (x.numel() - 1))).values


def test_a_place_that_is_rounded_of_two_sizes_is_within_them() -> None:
    rows, columns = Dim("rows", min=2, max=20), Dim("columns", min=2, max=20)
    found = exported(Percentile(), torch.randn(5, 7), shapes={"x": {0: rows, 1: columns}})
    for shape in ((2, 2), (5, 7), (20, 19)):
        x = torch.randn(shape)
        torch.testing.assert_close(run(found, x), Percentile()(x))


def _remembering(function: Callable[[int], torch.Tensor]) -> Callable[[int], torch.Tensor]:
    size: int | None = None
    value: torch.Tensor | None = None

    def wrapper(n: int) -> torch.Tensor:
        nonlocal size, value
        if size != n or value is None:
            size, value = n, function(n)
        return value

    return wrapper


@_remembering
def _places(n: int) -> torch.Tensor:
    return torch.arange(n).flip(0)


class Places:
    def of(self, x: torch.Tensor) -> torch.Tensor:
        return x[_places(x.shape[0])]


class Remembering(torch.nn.Module):
    """Takes what a function outside of it remembers of the last size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[_places(x.shape[0])]


class ThroughObject(torch.nn.Module):
    """The same, which a method of an object reaches, and not a module's."""

    def __init__(self) -> None:
        super().__init__()
        self.places = Places()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.places.of(x)


class Untraceable(ThroughObject):
    """Refused for another reason, once the function was called."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * float(str(x.sum().item()))


@pytest.mark.parametrize("kind", [Remembering, ThroughObject, Untraceable])
def test_a_trace_leaves_no_tensor_of_its_own_outside_of_the_model(kind: type[torch.nn.Module]) -> None:
    model = kind()
    x = torch.randn(2, 2)  # a bound, so that it is traced with another size
    with pytest.raises(ExportFailed):
        exported(model, x, shapes={"x": {0: Dim("rows", min=2, max=12)}})
    for size in (3, 2, 3):
        x = torch.randn(size, 2)
        found = model(x)
        assert type(found) is torch.Tensor
        torch.testing.assert_close(found, x.flip(0) * (x.sum() if kind is Untraceable else 1))


def test_what_a_trace_changed_is_refused_and_meanwhile_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entry_of(Remembering(), torch.randn(2, 2))
    before = _remembered()

    def leaving(*_: Any) -> strategies.Traced:
        with discovery.tracing():
            _places(7)
        assert _remembered() == before
        return None  # type: ignore[return-value]  # which nobody looks at

    monkeypatch.setattr(strategies, "_traced", leaving)
    with pytest.raises(ExportFailed, match="changes the variable `size`"):
        strategies.trace(entry)
    assert _remembered() == before


def _remembered() -> object:
    names, cells = _places.__code__.co_freevars, _places.__closure__ or ()
    return dict(zip(names, cells, strict=True))["size"].cell_contents


def test_a_row_that_only_a_run_knows_is_written_by_its_index() -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = x.clone()
        rows[y.argmax().item() - 1] = y
        return rows

    found = exported(write, torch.ones(3, 5), torch.eye(5)[1])
    for at in (0, 3):
        call = torch.ones(3, 5), torch.eye(5)[at]
        assert torch.equal(run(found, *call), write(*call))
    with pytest.raises(IndexError):
        run(found, torch.ones(3, 5), torch.eye(5)[4])


def test_what_decides_is_rewritten_before_the_second_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = []
    real = strategies._export
    monkeypatch.setattr(strategies, "_export", lambda *args: traces.append(args) or real(*args))
    found = exported(lambda x: x + 1 if x.sum() > 0 else x - 1, torch.ones(2))
    assert len(traces) == 2
    assert torch.equal(run(found, -torch.ones(2)), torch.full((2,), -2.0))
