"""Recurrent layers are one loop over time: equal to eager in all their forms, for any batch and time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from aotpipe import Dim
from aotpipe.canonicalize import recurrent_layers
from aotpipe.errors import ExportFailed, TrainMode
from tests.programs.through import check, legal
from tests.unit.passes import legal as graphs

ATEN = torch.ops.aten
OPS = {
    "LSTM": ATEN.lstm.input,
    "GRU": ATEN.gru.input,
    "tanh": ATEN.rnn_tanh.input,
    "relu": ATEN.rnn_relu.input,
}
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no bias": {"bias": False},
    "two layers": {"num_layers": 2},
    "both directions": {"bidirectional": True},
    "batch first": {"batch_first": True},
    "all": {"num_layers": 3, "bidirectional": True, "batch_first": True, "bias": False},
}
DYNAMIC = {"x": {0: Dim("batch", min=1, max=8), 1: Dim("time", min=1, max=40)}}


def layer(kind: str, size: int = 6, **form: Any) -> nn.RNNBase:
    torch.manual_seed(0)
    if kind in ("LSTM", "GRU"):
        return getattr(nn, kind)(size, 8, **form).eval()
    return nn.RNN(size, 8, nonlinearity=kind, **form).eval()


def states(module: nn.RNNBase, batch: int) -> Any:
    count = module.num_layers * (2 if module.bidirectional else 1)
    hidden = torch.randn(count, batch, module.proj_size or module.hidden_size)
    return [hidden, torch.randn(count, batch, module.hidden_size)] if module.mode == "LSTM" else hidden


# The quick run has torch run the legal graph; compiled layers are in the programs below.
BY = [graphs.check, pytest.param(check, marks=pytest.mark.slow)]


class Net(nn.Module):
    def __init__(self, inner: nn.RNNBase) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor, state: Any = None) -> Any:
        return self.inner(x, state)


@pytest.mark.parametrize("time", [1, 5, 23])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("kind", OPS)
def test_a_kernel_gives_what_the_op_gives(kind: str, form: dict[str, Any], time: int) -> None:
    module = layer(kind, **form)
    x = torch.randn(3, time, 6) if module.batch_first else torch.randn(time, 3, 6)
    _compare(kind, module, x)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_projection(bias: bool, bidirectional: bool) -> None:
    module = layer("LSTM", proj_size=3, num_layers=2, bias=bias, bidirectional=bidirectional)
    _compare("LSTM", module, torch.randn(4, 2, 6))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", OPS)
def test_another_dtype(kind: str, dtype: torch.dtype) -> None:
    _compare(kind, layer(kind).to(dtype), torch.randn(5, 2, 6, dtype=dtype))


def _compare(kind: str, module: nn.RNNBase, x: torch.Tensor) -> None:
    state = states(module, x.shape[0 if module.batch_first else 1])
    state = torch.utils._pytree.tree_map(lambda leaf: leaf.to(x.dtype), state)
    with torch.no_grad():
        call = (x, state, module._flat_weights, module.bias, module.num_layers, 0.5, False)
        call = (*call, module.bidirectional, module.batch_first)
        wanted, given = OPS[kind](*call), recurrent_layers.KERNELS[OPS[kind]](*call)
    for one, other in zip(given, wanted, strict=True):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
        tolerance = 2e-2 if x.dtype is torch.bfloat16 else 1e-5
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def targets(graph: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("kind", "layers"),
    [("tanh", 1), *(pytest.param(kind, 2, marks=pytest.mark.slow) for kind in ("LSTM", "GRU", "tanh"))],
)
def test_a_long_sequence_makes_no_longer_program(kind: str, layers: int) -> None:
    module = layer(kind, num_layers=layers, bidirectional=True, batch_first=True)
    long, short = (legal(Net(module), (torch.randn(2, time, 6),)).entries[0].graph for time in (500, 20))
    assert targets(long).count("scan") == 2 * layers
    assert targets(long) == targets(short)


@pytest.mark.parametrize(("time", "loops"), [(1, 0), (7, 1)])
def test_a_single_step_has_no_loop(time: int, loops: int) -> None:
    graph = legal(Net(layer("tanh")), (torch.randn(time, 2, 6),)).entries[0].graph
    assert targets(graph).count("scan") == loops


@pytest.mark.parametrize(
    ("kind", "form", "time", "compare"),
    [
        ("GRU", FORMS["batch first"], 15, graphs.check),
        pytest.param("GRU", FORMS["batch first"], 15, check, marks=pytest.mark.slow),
        *(pytest.param(kind, FORMS["all"], 23, check, marks=pytest.mark.slow) for kind in ("LSTM", "GRU")),
    ],
)
def test_a_program_of_a_fixed_length(kind: str, form: dict[str, Any], time: int, compare: Any) -> None:
    compare(Net(layer(kind, **form)), (torch.randn(2, time, 6),))


@pytest.mark.parametrize(
    ("kind", "layers"),
    [("relu", 1), *(pytest.param(kind, 2, marks=pytest.mark.slow) for kind in ("LSTM", "GRU", "relu"))],
)
def test_a_program_for_any_batch_and_time(kind: str, layers: int) -> None:
    module = layer(kind, num_layers=layers, bidirectional=True, batch_first=True)
    calls = [(torch.randn(batch, time, 6),) for batch, time in ((3, 5), (1, 1), (8, 40), (2, 1), (1, 7))]
    check(Net(module), *calls, dynamic_shapes=DYNAMIC)


def test_a_program_that_is_given_the_state() -> None:
    module = layer("LSTM", proj_size=3)
    calls = [(torch.randn(time, 2, 6), tuple(states(module, 2))) for time in (4, 9)]
    shapes = {"x": {0: Dim("time", min=1, max=16)}}
    check(Net(module), *calls, dynamic_shapes=shapes)


@pytest.mark.parametrize("compare", BY)
def test_an_unbatched_sequence(compare: Any) -> None:
    compare(Net(layer("tanh", bidirectional=True)), (torch.randn(2, 6),), (torch.randn(2, 6),))


@pytest.mark.parametrize("compare", BY)
def test_a_layer_in_a_branch(compare: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # torch refuses the layer's own module in a branch.
            self.weights = nn.ParameterList(layer("tanh").parameters())

        def run(self, x: torch.Tensor) -> torch.Tensor:
            state = x.new_zeros(1, 2, 8)
            return torch.rnn_tanh(x, state, [*self.weights], True, 1, 0.0, False, False, False)[0]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, self.run, lambda x: self.run(-x) * 2, (x,))

    compare(Model().eval(), (torch.ones(2, 2, 6),), (-torch.ones(2, 2, 6),))


def test_dropout_between_layers_is_refused_in_train_mode() -> None:
    from aotpipe import canonicalize
    from aotpipe.model import spec

    module = Net(layer("LSTM", num_layers=2, dropout=0.5).train())
    with pytest.raises(TrainMode):
        canonicalize(spec.as_spec(module, args=(torch.randn(2, 2, 6),)))


def test_torchs_own_kernels_are_back_afterwards() -> None:
    before = [dict(op.py_kernels) for op in recurrent_layers.KERNELS]

    def fail() -> None:
        with recurrent_layers.scanned():
            assert [dict(op.py_kernels) for op in recurrent_layers.KERNELS] != before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [dict(op.py_kernels) for op in recurrent_layers.KERNELS] == before


@pytest.mark.parametrize("lengths", [[5, 3], torch.tensor([5, 3])], ids=["static", "data"])
def test_a_packed_sequence_is_refused_with_its_line(lengths: Any) -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layer("LSTM")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
            return nn.utils.rnn.pad_packed_sequence(self.inner(packed)[0])[0]

    with pytest.raises(ExportFailed, match="packed sequence") as caught:
        legal(Packed(), (torch.randn(5, 2, 6),))
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_recurrent_layers.py")
    assert "padded" in caught.value.hint
