"""A module that takes the model's state from buffers: its exported program, called again and again."""

from __future__ import annotations

import copy
import enum
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.state import lift
from aotpipe.canonicalize.state.slots import State
from aotpipe.errors import ExportFailed
from aotpipe.export import export
from aotpipe.model import spec
from tests.sweep import slow, sweep

X = torch.tensor([1.0, -2.0])


class Level(enum.IntEnum):
    LOW = 0
    HIGH = 1


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.weight = nn.Parameter(torch.ones(2))
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.inner(x) * self.weight * self.calls


class Hooked(Counter):
    """A hook that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.register_forward_hook(lambda module, args, result: module.count(result))

    def count(self, result: torch.Tensor) -> torch.Tensor:
        self.calls += 10
        return result + self.calls

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.calls


class Late(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.cache: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = self.mean * 0.5 + x
        self.cache = x if self.cache is None else self.cache + self.mean
        return self.cache * 1


def programs(model: nn.Module, **options: Any) -> Any:
    exported = export(canonicalize(spec.as_spec(model.eval(), args=(X,), **options)))
    return exported.entries[0].program


def written(program: Any) -> set[str]:
    """The buffers that a program writes to."""
    names = {spec.arg.name: str(spec.target) for spec in program.graph_signature.input_specs}
    copies = program.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    return {names[node.args[0].name] for node in copies}


def _is_alike(program: Any, model: nn.Module, calls: int = 5) -> None:
    # The program holds the model's own buffers.
    run, model = program.module(), copy.deepcopy(model)
    with torch.no_grad():
        for number in range(calls):
            x = X * (number + 1)
            torch.testing.assert_close(run(x), model(x))


@pytest.mark.parametrize("kind", [Counter, Hooked, slow(Late)])
def test_calls_of_the_program_are_calls_of_the_model(kind: Any) -> None:
    model = kind()
    program = programs(model)
    assert getattr(model, "calls", 0) == 0
    _is_alike(program, model)


def test_state_and_weights_have_the_models_own_names() -> None:
    program = programs(Counter())
    assert {str(spec.target) for spec in program.graph_signature.input_specs if spec.target} == {
        "calls",
        "weight",
        "inner.weight",
        "inner.bias",
    }
    assert written(program) == {"calls"}
    assert program.state_dict["calls"].dtype == torch.int64


def test_a_registered_buffer_stays_what_it_is_beside_a_phase() -> None:
    program = programs(Late())
    assert written(program) == {"mean", "cache", "phase"}


def test_what_a_trace_alone_finds_is_asked_for() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.large = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.max() > 1.5:
                self.large += 1
            return x * self.large

    canonical = canonicalize(spec.as_spec(Branching().eval(), args=(X,)))
    assert canonical.entries[0].state is None
    program = export(canonical).entries[0].program
    assert written(program) == {"large"}


class Sometimes(nn.Module):
    """The example assigns the attribute before it is read, other inputs do not."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.ones(2)

    def _rising(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
        for number in range(2):
            if x.sum() > number:
                self.mean = x * 2
            yield x + self.mean

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.max() > 3:
            self.mean = -x
        total = self.mean * 1
        for each in self._rising(x):
            if each.sum() > 4:
                break
            total = total + each
        return total


class Bumped(nn.Module):
    """A method changes what is kept, on a path that the example does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.table, self.held = 0, {"n": 0}, None
        self.inner = nn.Module()
        self.inner.register_buffer("scale", torch.ones(2))

    def bump(self, x: torch.Tensor) -> None:
        self.count += 1
        self.table["n"] += 2
        self.held = x
        setattr(self.inner, "scale", x.abs())  # noqa: B010  # what is not an assignment

    def forward(self, x: torch.Tensor) -> Any:
        if x.max() > 3:
            self.bump(x)
        y = x if self.held is None else x + self.held
        return y * self.inner.scale, self.count + self.table["n"]


def test_what_only_a_method_in_a_branch_changes_is_kept() -> None:
    model = Bumped().eval()
    run = export(canonicalize(spec.as_spec(Bumped().eval(), args=(X,)))).entries[0].program.module()
    with torch.no_grad():
        for value in (-1.0, 4.0, -1.0, 1.0, 5.0, 0.5):
            x = torch.tensor([value, 0.5])
            for mine, other in zip(run(x), model(x), strict=True):
                torch.testing.assert_close(torch.as_tensor(mine), torch.as_tensor(other))


@pytest.mark.parametrize("first", sweep([4.0, 1.0, -1.0], quick=1))
def test_what_only_a_branch_assigns_is_kept(first: float) -> None:
    model = Sometimes().eval()
    canonical = canonicalize(spec.as_spec(model, args=(torch.tensor([first, 0.5]),)))
    run = export(canonical).entries[0].program.module()
    with torch.no_grad():
        for value in (-1.0, 4.0, -1.0, 1.0, -2.0, 0.5):
            x = torch.tensor([value, 0.5])
            torch.testing.assert_close(run(x), model(x))


def test_state_of_a_size_that_varies_is_refused() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            before = x if self.last is None else self.last
            self.last = x
            return x.sum() + before.sum()

    from aotpipe import Dim

    with pytest.raises(ExportFailed, match=r"`last` has the shape .*which varies") as caught:
        programs(Last(), dynamic_shapes={"x": {0: Dim("n", min=2, max=8)}})
    assert caught.value.where is not None


def test_a_model_that_keeps_nothing_is_traced_as_it_is() -> None:
    model = nn.Linear(2, 2).eval()
    with lift.watching(model, None):
        model(X)
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_something_new_is_noticed_and_put_back() -> None:
    model = Counter()
    with pytest.raises(lift.UnknownState) as caught, lift.watching(model, None):
        model(X)
    assert [root.path for root in caught.value.state.roots] == ["calls"]
    assert model.calls == 0
    with lift.watching(model, State((), ((),), ignored=caught.value.state.roots)):
        model(X)


class Growing(nn.Module):
    """Lists, dicts and sets that a tensor makes longer, in forms that the example does not show."""

    def __init__(self) -> None:
        super().__init__()
        self.window: deque[float] = deque([0.5], maxlen=3)
        self.pairs: list[tuple[torch.Tensor, int]] = []
        self.counts: dict[int, int] = {7: 1}
        self.seen: set[int] = set()

    def full(self) -> bool:
        return len(self.window) == 3

    def forward(self, x: torch.Tensor) -> Any:
        if x[0] > 1.5:
            self.window.append(float(x[0]))
            self.pairs.append((x, len(self.pairs)))
            self.counts[int(x[0])] = self.counts.get(int(x[0]), 0) + 1
        if x[0] > 4.5:
            self.pairs.pop(0)
            self.seen.add(int(x[0]))
        first = self.pairs[0][0] if self.pairs else torch.zeros(2)
        total = sum(self.counts.values()) + len(self.seen) * 100
        counted = torch.tensor([self.full(), total, len(self.pairs)])
        return first, torch.tensor(max(self.window)), counted


class Chosen(nn.Module):
    """Members of an enum and texts, one of which changes in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.level, self.turn, self.text = Level.LOW, Level.LOW, "ab"

    def forward(self, x: torch.Tensor) -> Any:
        self.turn = Level.HIGH if self.turn is Level.LOW else Level.LOW
        if x[0] > 1.5:
            self.level = Level(self.level + 1) if self.level < Level.HIGH else Level.LOW
            self.text = "abc" if self.level is Level.LOW else "abcd"
        scale = {Level.LOW: 1.0, Level.HIGH: 3.0}[self.level]
        names = len(self.text) + len(self.level.name) + 100 * (self.turn is Level.HIGH)
        return x * scale, torch.tensor(int(self.level) + names)


class ReadByAHook(nn.Module):
    """The hook decides on no tensor: it is rewritten for what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []
        self.register_forward_hook(lambda module, args, result: result + len(module.log))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x[0] > 1.5:
            self.log.append(1)
        return x


class Overflowing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = [0] * 255

    def forward(self, x: torch.Tensor) -> Any:
        if x[0] > 1.5:
            self.seen.append(1)
        return x * len(self.seen)


def test_what_a_tensor_decides_of_the_state() -> None:
    for model in (Growing(), Chosen(), ReadByAHook()):
        program = programs(model)
        _is_alike(program, model.eval(), calls=8)
    assert {"window.count", "pairs.0", "counts.1"} <= programs(Growing()).state_dict.keys()


def test_a_list_of_the_state_has_room_for_so_many_elements() -> None:
    program = programs(Overflowing()).module()
    assert torch.equal(program(X * 2), X * 2 * 256)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="it has room for 256 elements"):
            program(X * 2)
        assert torch.equal(program(X), X * 256)


class OfTwoNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sum = self.shown = torch.zeros(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sum += x
        if x.sum() > 5:
            self.shown = self.sum.clone()
        return self.shown * 1


def test_a_second_name_that_a_tensor_parts_from_the_first_is_refused_at_its_line() -> None:
    with pytest.raises(ExportFailed, match="`shown` is a second name of a tensor") as caught:
        programs(OfTwoNames())
    assert caught.value.where is not None


class Budget(nn.Module):
    """Raises from the third call of the example on."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 5.0

    def forward(self, x):
        cost = float(x.abs().sum())
        if cost > self.left:
            raise ValueError("nothing is left")
        self.left -= cost
        return x * self.left


def test_a_model_that_refuses_the_example_after_some_calls_keeps_its_state():
    model = Budget()
    program = export(canonicalize(spec.as_spec(Budget(), args=(torch.ones(2),)))).entries[0].program.module()
    for x in (torch.ones(2), torch.ones(2) / 4, torch.ones(2), torch.ones(2) / 8):
        assert torch.equal(model(x), program(x))
    for called in (model, program):
        with pytest.raises((ValueError, RuntimeError), match="nothing is left"):
            called(torch.ones(2))
    assert torch.equal(model(X / 32), program(X / 32))


class WrittenByData(Counter):
    """Its weight is in a list, too, and written in a way that counts no write."""

    def __init__(self) -> None:
        super().__init__()
        self.averaged = [self.weight]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.averaged[0].data.add_(self.calls)
        return x * self.weight


class WrittenInPlace(WrittenByData):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.averaged[0].add_(1)
        return x * self.weight


class WrittenByReference(Counter):
    """As packages of averaged weights keep the parameters of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.averaged = [weakref.ref(self.weight)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parameter = self.averaged[0]()
        assert parameter is not None
        parameter.data.copy_(x)
        return x * self.weight


@pytest.mark.parametrize("model", [WrittenByData, WrittenInPlace, WrittenByReference])
def test_a_parameter_that_is_written_under_a_second_name_is_refused(model: type[Counter]) -> None:
    """Its program kept the second name by itself, and read the parameter as it was."""
    with pytest.raises(ExportFailed, match="`weight` is written under a second name") as caught:
        programs(model())
    assert caught.value.where is not None


class WrittenByItsName(Counter):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.weight.data.add_(self.calls)
        return x * self.weight


def test_a_parameter_that_is_written_through_its_data_is_state() -> None:
    model, program = WrittenByItsName(), programs(WrittenByItsName()).module()
    for _ in range(3):
        assert torch.equal(model(X), program(X))
