"""Programs under a precision policy: what is stored, what is computed in which dtype, and how exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from aotpipe.backends import legalization
from aotpipe.backends.iree.lower import importer
from aotpipe.canonicalize import canonicalize
from aotpipe.core.precision import Precision
from aotpipe.core.stages import Canonical, Dialect, Legal
from aotpipe.errors import SpecInvalid
from aotpipe.export import export
from aotpipe.model import spec
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.passes import hops, legalize, precision
from aotpipe.validate.eager.eager import Eager
from tests.programs import through

BF16, F32 = torch.bfloat16, torch.float32
Inputs = tuple[torch.Tensor, ...]


def made(
    module: torch.nn.Module, inputs: Inputs, policy: Precision, dialect: Dialect = "torch"
) -> tuple[Canonical, Legal]:
    through.forget_traces()
    canonical = canonicalize(spec.as_spec(module.eval(), args=inputs))
    return canonical, legalize(precision.lower(export(canonical), policy), legalization(dialect), cheap=-1)


def check(module: torch.nn.Module, *inputs: torch.Tensor, dtype: str = "bfloat16", calls: int = 1) -> Legal:
    """Compare a program's first output with eager under the same policy, and its dtypes with the model's."""
    policy = Precision(dtype)
    canonical, legal = made(module, inputs, policy)
    signature = legal.entries[0].signature
    named = {leaf.name: view_numpy(each) for leaf, each in zip(signature.tensor_inputs, inputs, strict=True)}
    eager = Eager(canonical.entries, policy=policy)
    wide = Eager(canonical.entries, precision="float64")
    with through.load(legal, importer.lower(legal)) as runner:
        for _ in range(calls):
            got, want, true = runner.infer(named), eager.infer(named), wide.infer(named)
            for spec_ in signature.tensor_outputs:
                assert got[spec_.name].dtype.name == spec_.dtype
                if spec_.dtype == "float32":
                    mine = np.abs(got[spec_.name] - true[spec_.name]).max()
                    eagers = np.abs(want[spec_.name].astype(np.float64) - true[spec_.name]).max()
                    assert mine <= 4 * eagers + 1e-6, (spec_.name, mine, eagers)
    return legal


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(10, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.linear = torch.nn.Linear(8, 8)
        self.scale = torch.nn.Parameter(torch.ones(8))
        self.register_buffer("frequencies", torch.rand(8))

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.embed(ids)
        x = x + F.gelu(self.linear(self.norm(x))) * self.scale * self.frequencies
        return torch.softmax(x @ self.embed.weight.t(), -1), x.argmax(-1), x.double().sum()


def test_weights_of_products_are_stored_in_fewer_bits_and_no_others() -> None:
    legal = check(Block(), torch.arange(6).view(2, 3))
    dtypes = {name: tensor.dtype for name, tensor in legal.weights.items()}
    assert {name for name, dtype in dtypes.items() if dtype is BF16} == {
        *("embed.weight", "linear.weight", "linear.bias")
    }
    assert {dtypes[name] for name in ("norm.weight", "norm.bias", "scale", "frequencies")} == {F32}
    assert [spec.dtype for spec in legal.entries[0].signature.tensor_outputs] == [
        "float32",
        "int64",
        "float64",
    ]


@pytest.mark.slow
def test_float16() -> None:
    legal = check(Block(), torch.arange(6).view(2, 3), dtype="float16")
    assert legal.weights["linear.weight"].dtype is torch.float16


class Regions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = torch.nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        start = torch.zeros((), dtype=torch.int64)
        _, h = torch._higher_order_ops.while_loop(
            lambda i, h: i < k, lambda i, h: (i + 1, torch.tanh(self.cell(h))), (start, x)
        )
        self.seen.mul_(0.5)
        self.seen[0] = h.mean(0)
        y = torch.cond(h.sum() > 0, lambda y: self.cell(y), lambda y: y - 1, (h,))
        return y + self.seen.sum()


@pytest.mark.slow
def test_bodies_are_cast_and_read_the_stored_weights() -> None:
    legal = check(Regions(), torch.randn(3, 4), torch.tensor(3), calls=3)
    assert legal.weights["cell.weight"].dtype is BF16
    assert legal.initial_state["seen"].dtype is F32
    products = [
        node.meta["val"].dtype
        for graph in hops.walk(legal.entries[0].graph)
        for node in graph.graph.nodes
        if node.target is torch.ops.aten.mm.default
    ]
    assert products == [BF16, BF16]


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = torch.nn.Linear(4, 4)
        self.layer = torch.nn.LSTM(4, 3, batch_first=True)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, (h, _) = self.layer(self.inner(x))
        return self.norm(y.mT), h.var(-1)


@pytest.mark.slow
def test_recurrent_layers_stay_in_float32() -> None:
    legal = check(Recurrent(), torch.randn(2, 5, 4))
    assert {dtype for name, dtype in ((n, t.dtype) for n, t in legal.weights.items()) if "layer" in name} == {
        F32
    }


OPS: dict[str, Any] = {
    "linear": lambda x, w: F.linear(x, w),
    "matmul": lambda x, w: x @ w,
    "einsum": lambda x, w: torch.einsum("ij,jk->ik", x, w),
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], w[None], w[None], x[:, :4][None]),
    "conv1d": lambda x, w: F.conv1d(x[None], w[:, :, None]),
    "layer_norm": lambda x, w: F.layer_norm(x @ w, (4,)),
    "softmax": lambda x, w: torch.softmax(x @ w, 0),
    "sum": lambda x, w: (x @ w).sum(0),
    "var_mean": lambda x, w: torch.var_mean(x @ w, 0)[1],
    "loss": lambda x, w: F.mse_loss(x @ w, x),
    "promoted": lambda x, w: torch.cat([x @ w, x]) + torch.where(x.sum() > 0, (x @ w).sum(), x.sum()),
    "written": lambda x, w: (x @ w).index_put((torch.tensor([0]),), x[:1]),
    "in_place": lambda x, w: (x @ w).relu_().add_(x),
    "asked": lambda x, w: torch.softmax(x @ w, 0, dtype=torch.float32).to(torch.float32) @ w,
    "counted": lambda x, w: torch.bucketize(x @ w, torch.tensor([-1.0, 0.0, 1.0])) * 1.0,
}


class Op(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = OPS[name]
        self.weight = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.weight)


@pytest.mark.parametrize("name", ["attention", "written", "promoted", "counted"])
def test_ops_that_refuse_operands_of_two_dtypes_get_those_of_one(name: str) -> None:
    _, legal = made(Op(name), (torch.randn(4, 4),), Precision("bfloat16"), "stablehlo")
    assert legal.entries[0].signature.tensor_outputs[0].dtype == "float32"
    assert legal.weights["weight"].dtype is BF16


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OPS if name != "counted"])
def test_each_op_s_program_is_as_exact_as_eager_under_the_policy(name: str) -> None:
    check(Op(name), torch.randn(4, 4))


def test_what_is_kept_stays_in_float32() -> None:
    policy = Precision("bfloat16", ("linear",))
    _, legal = made(torch.nn.Linear(4, 4), (torch.ones(1, 4),), policy)
    assert {tensor.dtype for tensor in legal.weights.values()} == {F32}


def test_what_is_no_op_cannot_be_kept() -> None:
    with pytest.raises(SpecInvalid, match="'layernorm'") as caught:
        made(torch.nn.Linear(4, 4), (torch.ones(1, 4),), Precision("bfloat16", ("layernorm",)))
    assert "layer_norm" in caught.value.hint
