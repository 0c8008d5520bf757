"""Programs become pure functions: state, weights, mutated inputs and numbers at the edges."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aotpipe.backends import legalization
from aotpipe.core.signature import Constant
from aotpipe.core.stages import Legal
from aotpipe.errors import ExportFailed, LowerFailed
from aotpipe.model import spec
from aotpipe.passes import legalize
from tests.unit.passes.legal import Runner, check, exported, legal, model, targets

X = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)


def _names(program: Legal) -> list[str]:
    return [leaf.name for leaf in program.entries[0].signature.outputs]


def test_a_counter_keeps_its_count() -> None:
    def forward(self, x):
        self.count.add_(1)
        return x * self.count

    program = check(model(forward, count=torch.zeros(())), [X], [X], [X])
    (leaf,) = program.entries[0].signature.state
    assert str(leaf) == "count: float32[]"
    assert program.initial_state["count"] == 0


def test_a_cache_is_written_through_a_view() -> None:
    def forward(self, x, at):
        self.cache.view(-1, 4)[at] = x[0]
        return self.cache.sum(0), self.cache[1]

    module = model(forward, cache=torch.zeros(2, 3, 4))
    check(module, [X, torch.tensor([1])], [X + 1, torch.tensor([5])], [X, torch.tensor([-6])])


def test_a_buffer_that_is_assigned_anew() -> None:
    def forward(self, x):
        self.last = self.last + x
        return self.last * 2

    check(model(forward, last=torch.zeros(3, 4)), [X], [X])


def test_the_initial_state_stays_when_the_model_runs() -> None:
    def forward(self, x):
        self.count.add_(1)
        return x + self.count

    module = model(forward, count=torch.zeros(()))
    program = legal(module, [X])
    module(X)
    assert program.initial_state["count"] == 0


def test_an_input_that_is_written_to_is_an_output() -> None:
    def forward(self, x, y):
        x.add_(1)
        return x * y

    program = check(model(forward), [X, X + 1], [X, X + 2])
    assert _names(program) == ["output", "mutated.x"]


def test_tied_weights_have_one_key() -> None:
    def forward(self, x):
        return self.second(self.linear(x))

    module = model(forward)
    module.second = torch.nn.Linear(4, 4)
    module.second.weight = module.linear.weight
    program = check(module, [X])
    assert set(program.weights) == {"linear.weight", "linear.bias", "second.bias"}
    assert len(program.entries[0].weights) == 3


def test_views_of_one_storage_keep_their_own_values() -> None:
    def forward(self, x):
        return x * self.low + self.high.t()[0, 0]

    whole = torch.arange(16.0).reshape(4, 4)
    check(model(forward, low=whole[:3], high=whole[2:].t()), [X])


def test_unused_weights_are_left_out() -> None:
    program = check(model(lambda self, x: x * self.linear.bias), [X])
    assert list(program.weights) == ["linear.bias"]


class Sparse(nn.Module):
    def __init__(self, *, is_used: bool) -> None:
        super().__init__()
        self.is_used = is_used
        self.linear = nn.Linear(4, 4)
        self.register_buffer("heads", torch.eye(4).to_sparse())

    def forward(self, x):
        return torch.sparse.mm(self.heads, self.linear(x).T) if self.is_used else self.linear(x)


def test_a_sparse_buffer_is_left_out_or_refused() -> None:
    """whisper's models hold one, which only their alignment reads."""
    program = check(Sparse(is_used=False), [X])
    assert "heads" not in program.weights
    with pytest.raises(LowerFailed, match="uses `heads`, which is sparse"):
        legal(Sparse(is_used=True), [X])


def test_weights_are_contiguous_and_not_copied() -> None:
    def forward(self, x):
        return x @ self.turned + self.linear.bias

    module = model(forward, turned=torch.randn(4, 4).t())
    program = check(module, [X])
    assert all(weight.is_contiguous() for weight in program.weights.values())
    assert program.weights["linear.bias"].data_ptr() == module.linear.bias.data_ptr()


def test_small_uniform_constants_are_written_out() -> None:
    program = check(model(lambda self, x: x * torch.tensor(2.0) + torch.tensor([1.0, 2.0, 3.0, 4.0])), [X])
    assert "aten.full.default" in targets(program)
    assert [weight.numel() for weight in program.weights.values()] == [4]


def test_a_zero_and_its_negative_are_two_numbers() -> None:
    program = check(model(lambda self, x: x[0].copysign(torch.tensor([0.0, -0.0, 0.0, -0.0]))), [X])
    assert [weight.numel() for weight in program.weights.values()] == [4]


def test_outputs_that_are_no_tensors() -> None:
    def forward(self, x):
        return {"x": x, "rows": x.shape[0], "nothing": (None, 3, True), "label": "a"}

    program = check(model(forward), [X], dynamic_shapes={"x": {0: spec.Dim("rows", max=8)}})
    outputs = program.entries[0].signature.outputs
    assert [str(leaf) if not isinstance(leaf, Constant) else leaf.value for leaf in outputs] == [
        "x: float32[rows, 4]",
        "rows: int64[]",
        None,
        3,
        True,
        "a",
    ]


def test_computed_numbers_become_tensors() -> None:
    def forward(self, x):
        return x.sum().item(), x.shape[0] * 2 + 1, x.argmax().item() > 3

    module = model(forward)
    program = check(module, [X], dynamic_shapes={"x": {0: spec.Dim("rows", max=8)}})
    assert [str(leaf) for leaf in program.entries[0].signature.outputs] == [
        "output.0: float64[]",
        "output.1: int64[]",
        "output.2: bool[]",
    ]


def test_a_number_that_varies_is_a_tensor_input() -> None:
    program = check(
        model(lambda self, x, n: (x * n, n + 1)),
        [X, 3],
        [X, 5],
        dynamic_shapes={"n": {0: spec.Dim("n", max=8)}},
    )
    assert program.entries[0].signature.tensor_inputs[1].dims == ()


def test_one_value_as_several_outputs() -> None:
    check(model(lambda self, x: (x, x, self.linear.weight, x.view(-1))), [X])


def test_entry_points_share_state_and_weights() -> None:
    class Cell(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.register_buffer("last", torch.zeros(4))
            self.register_buffer("fixed", torch.ones(4))

        def write(self, x: torch.Tensor) -> torch.Tensor:
            self.last.copy_(self.linear(x)[0])
            return self.last + torch.tensor([1.0, 2.0, 3.0, 4.0])

        def read(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.last + torch.tensor([4.0, 3.0, 2.0, 1.0]) * self.linear.bias + self.fixed

    cell = Cell().eval()
    entries = {name: spec.EntryPoint(args=(X,), method=name) for name in ("write", "read")}
    program = legalize(exported(cell, entry_points=entries), legalization())
    run = Runner(program)
    assert torch.equal(run([X], "write")["output"], cell.write(X))
    assert torch.equal(run([X], "read")["output"], cell.read(X))
    assert torch.equal(run([X], "read")["output"], cell.read(X))
    assert [leaf.name for leaf in run.entry("read").signature.state] == ["last"]
    assert list(program.initial_state) == ["last"]
    assert {"linear.weight", "linear.bias", "fixed"} <= set(program.weights)
    # Both entry points have a constant that torch calls by the same name.
    assert sum(weight.shape == (4,) and not weight.requires_grad for weight in program.weights.values()) >= 4


def test_the_exported_program_is_left_as_it_was() -> None:
    def forward(self, x):
        self.count.add_(1)
        return torch.cond(x.sum() > 0, lambda x: x * torch.tensor([1.0, 2, 3, 4]), lambda x: x.clone(), (x,))

    before = exported(model(forward, count=torch.zeros(())), [X])
    text = str(before.entries[0].program)
    first, second = legalize(before, legalization()), legalize(before, legalization())
    assert str(before.entries[0].program) == text
    assert [str(entry.graph.graph) for entry in first.entries] == [
        str(entry.graph.graph) for entry in second.entries
    ]
    assert all(torch.equal(first.weights[name], weight) for name, weight in second.weights.items())


GENERATOR = torch.Generator()


def test_a_generator_of_the_model_is_refused_with_its_line() -> None:
    def forward(self, x):
        return x + torch.rand(4, generator=GENERATOR)

    with pytest.raises(ExportFailed, match="uses a torch Generator") as caught:
        legalize(exported(model(forward), [X]), legalization())
    assert caught.value.where is not None
    assert caught.value.where.line == forward.__code__.co_firstlineno + 1
    assert "--random state" in caught.value.hint
