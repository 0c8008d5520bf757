"""Decomposition leaves the entry as it was, and names all that has no lowering at once."""

from __future__ import annotations

import pytest
import torch

from aotpipe.backends import legalization
from aotpipe.errors import UnsupportedOps
from aotpipe.passes.decompose import decompose
from tests.unit.passes.legal import Runner, check, exported, legal, model


def test_the_program_is_functional_and_the_entry_untouched() -> None:
    def forward(self, x):
        y = x + 1
        y.mul_(2)
        return self.linear(y)

    (entry,) = exported(model(forward), [torch.ones(2, 4)]).entries
    before = str(entry.program.graph)
    program = decompose(entry, legalization())
    assert str(entry.program.graph) == before
    assert not [n for n in program.graph.nodes if str(n.target).split(".")[1:2] in (["mul_"], ["linear"])]


def test_all_that_has_no_lowering_is_named_at_once() -> None:
    def forward(self, x):
        factor = torch.linalg.ldl_factor_ex
        return factor(x @ x.T)[0], torch.linalg.eig(x)[0].real, factor(x.T @ x)[0]

    with pytest.raises(UnsupportedOps) as caught:
        legal(model(forward), [torch.randn(3, 3)])
    text = str(caught.value)
    assert "2 ops have no lowering (3 in all)" in text
    assert "linalg_ldl_factor_ex" in text
    assert "linalg_eig" in text
    assert "2 calls, first at" in text
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_decompose.py")


def test_an_op_that_checks_its_result_asserts_it():
    # torch orders the check by a token, which is no tensor.
    runner = Runner(legal(model(lambda self, x: torch.linalg.inv(x)), [torch.eye(3)]))
    runner([torch.eye(3)])
    assert all(runner.asserts.values())
    runner([torch.zeros(3, 3)])
    [text] = [text for text, holds in runner.asserts.items() if not holds]
    assert text.startswith("linalg.inv: the matrix is not invertible")


def test_a_part_of_a_tensor_that_was_written_to_is_returned() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        best = x.clone()
        best[x > 0.5] = 0.0
        row = torch.argmin(best[:, 0])
        return best[row : row + 1], best[row], best[:row]

    x = torch.tensor([[1.0, 2.0], [-1.0, 3.0], [4.0, 5.0]])
    check(model, (x,), (-x,), (x.flip(0),))
