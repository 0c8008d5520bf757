"""The table has the loops in place of torch's own entries, for exported programs that hold the ops."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from aotpipe.canonicalize import recurrent_layers
from aotpipe.passes import decompositions
from tests.sweep import sweep
from tests.unit.backends.iree.decompositions.agree import decomposed


@pytest.mark.parametrize("op", recurrent_layers.KERNELS, ids=str)
def test_the_table_takes_the_loop(op: torch._ops.OpOverload) -> None:
    assert decompositions.table()[op] is recurrent_layers.KERNELS[op]


@pytest.mark.parametrize("kind", sweep([nn.LSTM, nn.GRU, nn.RNN], quick=0, always=[nn.RNN]))
def test_an_exported_program_gets_loops(kind: type[nn.RNNBase]) -> None:
    module = kind(4, 5, num_layers=2).eval()
    x = torch.randn(19, 2, 4)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = decomposed(module, (x,))
        wanted, given = module(x), program.module()(x)
    assert [str(node.target) for node in program.graph.nodes].count("scan") == 2
    torch.testing.assert_close(given, wanted)
