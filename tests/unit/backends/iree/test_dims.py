"""What the compiler is told of an argument's sizes."""

from __future__ import annotations

import pytest
from iree.compiler import ir
from iree.compiler.dialects import func

from aotpipe.backends.iree import dims
from aotpipe.signature import Signature, Symbol, TensorSpec


def emitted(*inputs: str, state: tuple[str, ...] = (), symbols: tuple[str, ...] = ()) -> list[str]:
    """The ops of a function with these arguments, names of values left out."""
    signature = Signature(
        inputs=tuple(map(TensorSpec.parse, inputs)),
        outputs=(),
        state=tuple(map(TensorSpec.parse, state)),
        symbols=tuple(map(Symbol.parse, symbols)),
    )
    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        module = ir.Module.create()
        kinds = [
            ir.Type.parse(
                "!torch.vtensor<["
                + ",".join(str(dim) if isinstance(dim, int) else "?" for dim in spec.dims)
                + "],f32>"
            )
            for spec in (*signature.state, *signature.tensor_inputs)
        ]
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", ir.FunctionType.get(kinds, []))
        with ir.InsertionPoint(block := function.add_entry_block()):
            dims.bind(signature, block.arguments)
            func.ReturnOp([])
        assert module.operation.verify()
        return [str(op).partition(" : !torch.v")[0] for op in block.operations][:-1]


def test_ranges_and_multiples_of_inputs():
    ops = emitted(
        "x: float32[batch, 3, 2*rows + 1]", "y: float32[rows - 1, batch]", symbols=("batch=1..32", "rows=2..")
    )
    assert ops == [
        '%0 = torch.symbolic_int "batch" {min_val = 1, max_val = 32} : !torch.int',
        '%1 = torch.symbolic_int "rows" {min_val = 2, max_val = 9223372036854775807} : !torch.int',
        "torch.bind_symbolic_shape %arg0, [%0, %1], affine_map<()[s0, s1] -> (s0, 3, s1 * 2 + 1)>",
        "torch.bind_symbolic_shape %arg1, [%0, %1], affine_map<()[s0, s1] -> (s1 - 1, s0)>",
    ]


def test_state_comes_before_inputs():
    ops = emitted("x: float32[n]", state=("cache: float32[4]",), symbols=("n=0..8",))
    assert ops[-1] == "torch.bind_symbolic_shape %arg1, [%0], affine_map<()[s0] -> (s0)>"


@pytest.mark.parametrize("dim", ["n//2", "n*m", "2*(n*m)", "Max(n, 2)", "n % 3", "n**2", "unknown"])
def test_what_is_not_affine_is_left_out(dim: str):
    assert not emitted(f"x: float32[{dim}]", symbols=("n=1..8", "m=1..8"))


def test_a_dim_named_as_a_word_of_mlir():
    assert "(s0 * 2)" in emitted("x: float32[2*mod]", symbols=("mod=1..8",))[-1]


def test_static_arguments_get_nothing():
    assert not emitted("x: float32[2, 3]")
