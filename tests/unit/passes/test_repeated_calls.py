"""What is decomposed once for many calls is what torch makes of each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.export import ExportedProgram

from aotpipe.backends import legalization
from aotpipe.passes import decompositions, ops, repeated_calls
from tests.sweep import examples
from tests.unit.passes.legal import Runner, exported, legal

# torch's tracing warns of its own deprecated calls.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

TABLE: dict[Any, Callable[..., Any]] = dict(legalization().decompositions())


class Layers(torch.nn.Module):
    """The same layer over and over, with weights of its own in each."""

    def __init__(self, layer: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor], count: int) -> None:
        super().__init__()
        self.layer = layer
        self.parts = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(count))
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = self.norm(self.layer(part, x))
        return x


def attention(part: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    # The strides of what attention gives are other ones when it is decomposed, and the view follows them.
    q = part(x).view(2, 6, 2, 4).transpose(1, 2)
    y = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    return y.transpose(1, 2).reshape(2, 6, 8) + x


def inplace(part: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = part(x)
    y.relu_()
    y += x
    return y * y


def split(part: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    low, high = part(x).chunk(2, -1)
    values, indices = torch.cat([low * 2, high], -1).max(-1, keepdim=True)
    return x * values + indices


def cast(part: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return part(x.to(torch.float16).exp().to(torch.float32))


def same_twice(part: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = part(x)
    return torch.where(y > 0, y * y, y * x) + 1 + 1.0 + True


def program_of(model: torch.nn.Module, *inputs: torch.Tensor) -> ExportedProgram:
    return exported(model.eval(), inputs).entries[0].program


def lines(program: ExportedProgram) -> list[str]:
    """Each node by its op, arguments, value and the user's line."""
    # What is asserted of a dtype is said in one of two ways, and taken away by the first pass.
    nodes = [node for node in program.graph.nodes if node.target is not ops.ASSERT_METADATA]
    numbers = {node: f"%{index}" for index, node in enumerate(nodes)}
    return [
        f"{numbers[node]} {node.op} {node.target if node.op == 'call_function' else ''} "
        f"{torch.fx.node.map_arg((node.args, node.kwargs), numbers.__getitem__)} "
        f"{_kind(node.meta.get('val'))} {node.meta.get('stack_trace')} {node.meta.get('original_aten')}"
        for node in nodes
    ]


def _kind(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.stride()}"
    return str(type(value))


@pytest.mark.parametrize("layer", [attention, split, cast, same_twice])
def test_it_is_what_torch_makes_of_the_whole(layer: Any) -> None:
    # So few calls as are decomposed each once.
    program = program_of(Layers(layer, 6 if layer is cast else 5), torch.randn(2, 6, 8))
    before = str(program)
    found = repeated_calls.decompose(program, TABLE)
    assert found is not None
    want = program.run_decompositions(TABLE)
    assert lines(found) == lines(want)
    assert [spec.arg.name for spec in found.graph_signature.input_specs] == [
        spec.arg.name for spec in want.graph_signature.input_specs
    ]
    assert found.graph_signature.output_specs[0].arg.name == found.graph.output_node().args[0][0].name
    assert str(program) == before


def test_a_tensor_that_nothing_else_sees_is_written_to_by_making_another() -> None:
    model, x = Layers(inplace, 8), torch.randn(2, 6, 8)
    found = repeated_calls.decompose(program_of(model, x), TABLE)
    assert found is not None
    assert not any(schema.is_mutable for node in found.graph.nodes if (schema := ops.schema(node)))
    assert torch.allclose(found.module()(x), model(x), atol=1e-5)


def test_torch_traces_each_kind_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[int] = []
    whole = decompositions.decompose

    def run(program: ExportedProgram, table: Any) -> ExportedProgram:
        traced.append(sum(node.op == "call_function" for node in program.graph.nodes))
        return whole(program, table)

    monkeypatch.setattr(decompositions, "decompose", run)
    program = program_of(Layers(attention, 8), torch.randn(2, 6, 8))
    assert repeated_calls.decompose(program, TABLE) is not None
    assert sum(traced) < 20


def seen_by_a_view(part: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = part(x)
    flat = y.view(-1)
    y.relu_()
    return flat.view(2, 6, 8) + x


def through_a_view(part: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = part(x)
    y[0].relu_()
    return y


def of_another_dtype(part: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = torch.ones_like(x, dtype=torch.float16)
    y += part(x)
    return x + y.sum(dtype=torch.float32)


def of_data(part: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = part(x)
    return y if y.sum() > 0 else y + x


def test_a_write_that_changes_the_dtype_is_left_to_torch() -> None:
    program = program_of(Layers(of_another_dtype, 8), torch.randn(2, 6, 8))
    with pytest.raises(TypeError, match="another kind of tensor"):
        repeated_calls.decompose(program, TABLE)
    want = Layers(of_another_dtype, 8).eval()
    x = torch.randn(2, 6, 8)
    found = Runner(legal(want, [x]))([x])
    assert torch.allclose(found["output"], want(x), atol=1e-3)


def view_without_a_word(part: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = part(x)
    # einsum gives a view here, of which its schema says nothing.
    turned = torch.einsum("abc->acb", y)
    turned.relu_()
    return y


def an_input(part: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = torch.einsum("abc->abc", x)
    y.neg_()
    return x


@pytest.mark.parametrize("layer", [seen_by_a_view, through_a_view, view_without_a_word, an_input, of_data])
def test_what_it_does_not_see_through_is_left_to_torch(layer: Any) -> None:
    # A branch takes the exporter long.
    model = Layers(layer, 12 if layer is of_data else 16)
    assert repeated_calls.decompose(program_of(model, torch.randn(2, 6, 8)), TABLE) is None


def test_few_or_different_calls_are_left_to_torch() -> None:
    assert repeated_calls.decompose(program_of(Layers(attention, 2), torch.randn(2, 6, 8)), TABLE) is None

    class Growing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for size in range(1, 60):
                x = torch.nn.functional.softmax(torch.cat([x, x[:, :1] * size], 1), 1)
            return x

    assert repeated_calls.decompose(program_of(Growing(), torch.randn(2, 6)), TABLE) is None


INPLACE = [torch.Tensor.relu_, torch.Tensor.neg_, torch.Tensor.mul_, operator.iadd]
UNARY = [torch.relu, torch.nn.functional.gelu, torch.Tensor.sigmoid, *INPLACE[:2]]
BINARY = [operator.add, torch.Tensor.sub, torch.maximum, *INPLACE[2:]]
MOVES = [
    lambda y: y.transpose(-1, -2),
    lambda y: y.reshape(y.shape[::-1]),
    lambda y: y.flip(0),
    lambda y: y.softmax(-1),
    lambda y: y.clone(),
    lambda y: y.narrow(0, 1, 2).mean() + y,
]


@examples(quick=2, nightly=8)
@given(
    st.lists(st.tuples(st.sampled_from([*UNARY, *BINARY, *MOVES]), st.integers(0, 2)), min_size=2, max_size=8)
)
def test_any_chain_of_ops_is_what_torch_makes_of_it(steps: list[tuple[Any, int]]) -> None:
    class Chain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            held = [x, x + 1, x * 2]
            for _ in range(12):
                for op, place in steps:
                    y = held[place].clone() if held[place] is x else held[place]
                    other = held[(place + 1) % 3].reshape(y.shape)
                    held[place] = op(y, other) if op in BINARY else op(y)
            return held[0] + held[1].reshape(held[0].shape) + held[2].reshape(held[0].shape)

    program = program_of(Chain(), torch.randn(4, 3))
    try:
        found = repeated_calls.decompose(program, TABLE)
    except TypeError:
        return
    if found is None:
        return
    if not any(op in INPLACE for op, _ in steps):
        assert lines(found) == lines(program.run_decompositions(TABLE))
    x = torch.rand(4, 3)
    assert torch.allclose(found.module()(x), Chain()(x.clone()), equal_nan=True)
