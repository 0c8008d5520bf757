"""Linear layers in int8, in eager: their numbers, and which layers become such."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from aotpipe.errors import SpecInvalid
from aotpipe.model.quantization import QuantizedLinear, quantized


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(64, 64)
        self.small = nn.Linear(8, 8)
        self.hooked = nn.utils.parametrizations.weight_norm(nn.Linear(64, 64))
        self.attention = nn.MultiheadAttention(64, 2)
        self.again = self.wide
        self.tied = nn.Embedding(64, 64)
        self.head = nn.Linear(64, 64, bias=False)
        self.head.weight = self.tied.weight


@given(rows=st.integers(1, 5), inputs=st.integers(2, 64), outputs=st.integers(1, 64), seed=st.integers(0, 9))
def test_it_is_off_by_at_most_half_a_step_of_each_operand(rows: int, inputs: int, outputs: int, seed: int):
    torch.manual_seed(seed)
    weight, bias, x = torch.randn(outputs, inputs), torch.randn(outputs), torch.randn(rows, inputs)
    found = QuantizedLinear(weight, bias)(x)
    step_x, step_w = x.abs().amax(1, keepdim=True) / 127, weight.abs().amax(1) / 127
    off = inputs * (step_x * weight.abs().amax(1) + step_w * x.abs().amax(1, keepdim=True) + step_x * step_w)
    assert ((found - nn.functional.linear(x, weight, bias)).abs() <= off / 2 + 1e-5).all()


def test_rows_of_zeros_give_the_bias_and_what_is_no_number_is_none():
    layer = QuantizedLinear(torch.randn(3, 4), torch.arange(3.0))
    assert layer(torch.zeros(2, 4)).tolist() == [[0.0, 1.0, 2.0]] * 2
    x = torch.ones(3, 4)
    x[0, 1], x[1, 2] = math.nan, math.inf
    found = layer(x)
    assert not found[:2].isfinite().any()
    assert found[2].isfinite().all()


def test_rows_do_not_change_each_other():
    layer, x = QuantizedLinear(torch.randn(5, 16), None), torch.randn(2, 3, 16)
    x[0] *= 1e6
    assert torch.equal(layer(x)[1, 2], layer(x[1, 2]))


def test_weights_of_zeros_and_least_numbers_stay():
    weight = torch.zeros(2, 4)
    weight[1] = torch.finfo(torch.float32).tiny
    assert QuantizedLinear(weight, None)(torch.ones(1, 4))[0, 0] == 0


def test_layers_are_taken_that_are_called_and_large():
    torch.manual_seed(0)
    model = Mixed().eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = quantized(model)
    made = found.model
    assert isinstance(made.wide, QuantizedLinear)
    assert made.again is made.wide
    assert isinstance(made.head, QuantizedLinear)
    assert made.tied.weight is model.tied.weight
    assert found.layers == len({made.wide, made.head, made.hooked} & set(made.modules()))
    assert set(found.kept) == {"small", "attention.out_proj"}
    assert isinstance(model.wide, nn.Linear)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    x = torch.randn(2, 64)
    for name in ("wide", "head", "hooked"):
        want = model.get_submodule(name)(x)
        got = made.get_submodule(name)(x)
        assert 0 < (got - want).abs().max() < 0.03 * want.abs().max()


def test_a_layer_with_a_hook_stays():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model[0].register_forward_hook(lambda *_: None)
    found = quantized(model)
    assert (found.layers, found.kept) == (1, ("0",))


def test_layers_of_transformers_have_their_weight_the_other_way_round():
    conv1d = pytest.importorskip("transformers.pytorch_utils").Conv1D(96, 64)
    nn.init.normal_(conv1d.weight)
    found = quantized(nn.Sequential(conv1d))
    x = torch.randn(3, 64)
    assert found.layers == 1
    assert (found.model(x) - conv1d(x)).abs().max() < 0.03 * conv1d(x).abs().max()


def test_an_encoder_layer_calls_its_layers():
    layer = nn.TransformerEncoderLayer(64, 2, 64, batch_first=True).eval()
    found, x = quantized(layer), torch.randn(2, 5, 64)
    called = []
    for name in ("linear1", "linear2"):
        found.model.get_submodule(name).register_forward_hook(lambda *_, name=name: called.append(name))
    with torch.no_grad():
        off = (found.model(x) - layer(x)).abs().max()
    assert called == ["linear1", "linear2"]
    assert 0 < off < 0.1


def test_a_layer_of_one_input_stays():
    found = quantized(nn.ModuleList([nn.Linear(1, 4096), nn.Linear(64, 64)]))
    assert (found.layers, found.kept) == (1, ("0",))


def test_the_model_may_be_a_layer():
    layer = nn.Linear(64, 64)
    assert isinstance(quantized(layer).model, QuantizedLinear)


def test_code_that_reads_a_weight_gets_floats():
    weight = torch.randn(4, 8)
    assert (QuantizedLinear(weight, None).weight - weight).abs().max() <= weight.abs().max() / 254 + 1e-6


def test_a_model_without_such_layers_is_refused():
    with pytest.raises(SpecInvalid, match="no linear layer of at least 4096 weights") as caught:
        quantized(nn.Sequential(nn.Linear(8, 8)))
    assert "--dtype bf16" in caught.value.hint


def test_a_model_that_cannot_be_copied_is_refused():
    class Alone(nn.Linear):
        def __deepcopy__(self, memo: object) -> object:
            raise TypeError("there is one of me")

    with pytest.raises(SpecInvalid, match="Alone cannot be copied") as caught:
        quantized(Alone(64, 64))
    assert "there is one of me" in caught.value.reason
