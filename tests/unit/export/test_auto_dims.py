"""What becomes of AUTO sizes."""

from __future__ import annotations

import torch

from aotpipe.core.dims import AUTO, Dim
from aotpipe.core.signature import Symbol
from tests.unit.export.models import codes, exported, run

ones = torch.ones


def test_sizes_that_vary_are_called_after_their_input() -> None:
    found = exported(
        lambda x, w: x @ w, ones(3, 4), ones(4, 5), shapes={"x": {0: AUTO, 1: AUTO}, "w": [AUTO, AUTO]}
    )
    signature = found.entries[0].signature
    assert [str(leaf) for leaf in signature.inputs] == ["x: float32[x_0, x_1]", "w: float32[x_1, w_1]"]
    assert signature.symbols == tuple(Symbol(name, 1, None) for name in ("x_0", "x_1", "w_1"))
    assert run(found, ones(1, 1), ones(1, 1)).shape == (1, 1)


def test_a_size_of_one_in_the_example_still_varies() -> None:
    found = exported(lambda x: x * 2, ones(1, 4), shapes={"x": {0: AUTO}})
    assert str(found.entries[0].signature.inputs[0]) == "x: float32[x_0, 4]"
    assert not found.findings


def test_a_size_of_zero_in_the_example_is_in_the_range() -> None:
    found = exported(lambda x: x.sum(1), torch.zeros(0, 4), shapes={"x": {0: AUTO, 1: AUTO}})
    assert found.entries[0].signature.symbols == (Symbol("x_0", 0, None), Symbol("x_1", 1, None))
    assert run(found, ones(3, 2)).shape == (3,)


def test_a_constant_is_named_with_its_line() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + ones(4, 8)  # the line

    found = exported(f, ones(4, 8), shapes={"x": {0: AUTO}})
    [finding] = found.findings
    assert (finding.code, finding.severity) == ("auto-dim-static", "warning")
    assert "x.shape[0] is fixed at 4" in finding.message
    assert finding.where is not None
    assert finding.where.line == f.__code__.co_firstlineno + 1
    assert found.entries[0].signature.symbols == ()


def test_a_constant_is_a_number_in_the_program() -> None:
    """It was a symbol that stands for one, and the compilers took the size for one that varies."""
    found = exported(lambda x: torch.view_as_complex(x), ones(5, 2), shapes={"x": {0: AUTO, 1: AUTO}})
    [node] = found.entries[0].program.graph.find_nodes(op="placeholder")
    assert [type(size) for size in node.meta["val"].shape] == [torch.SymInt, int]
    assert type(node.meta["val"].stride(0)) is int


def test_bounds_are_kept_and_narrowed() -> None:
    def small(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] <= 5 else x

    for auto, low, high in ((AUTO, 1, 5), (AUTO(min=2, max=4), 2, 4), (AUTO(min=0, max=9), 0, 5)):
        found = exported(small, ones(3), shapes={"x": {0: auto}})
        assert found.entries[0].signature.symbols == (Symbol("x_0", low, high),)


def test_a_branch_on_size_one_raises_the_minimum() -> None:
    found = exported(lambda x: x * 2 if x.shape[0] == 1 else x, ones(3), shapes={"x": {0: AUTO}})
    assert found.entries[0].signature.symbols == (Symbol("x_0", 2, None),)


def test_a_multiple_becomes_a_derived_size() -> None:
    found = exported(lambda x: x.view(-1, 4, 8), ones(16, 2), shapes={"x": {0: AUTO}})
    signature = found.entries[0].signature
    assert str(signature.inputs[0]) == "x: float32[16*x_0, 2]"
    assert "auto-dim-multiple" in codes(found)
    assert run(found, ones(48, 2)).shape == (3, 4, 8)


def test_a_multiple_is_shared_by_sizes_that_are_equal() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y).view(-1, 4)

    found = exported(f, ones(8), ones(8), shapes={"x": {0: AUTO(max=20)}, "y": {0: AUTO(max=20)}})
    signature = found.entries[0].signature
    assert [str(leaf) for leaf in signature.inputs] == ["x: float32[4*x_0]", "y: float32[4*x_0]"]
    assert signature.symbols == (Symbol("x_0", 1, 5),)


def test_a_range_with_one_multiple_is_a_constant() -> None:
    found = exported(lambda x: x.view(-1, 4, 8), ones(16, 2), shapes={"x": {0: AUTO(max=20)}})
    assert str(found.entries[0].signature.inputs[0]) == "x: float32[16, 2]"
    assert codes(found) == ["auto-dim-static"]


def test_a_condition_on_two_sizes_fixes_them() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() if x.shape[0] < y.shape[0] else y.sum()

    found = exported(f, ones(3), ones(5), shapes={"x": {0: AUTO}, "y": {0: AUTO}})
    assert found.entries[0].signature.symbols == ()
    assert codes(found)[:2] == ["auto-dim-static", "auto-dim-static"]
    assert "x.shape[0]" in found.findings[0].message


def test_auto_and_named_dims_stand_side_by_side() -> None:
    found = exported(lambda x: x.flatten(1), ones(2, 3, 4), shapes={"x": {0: Dim("b", max=8), 2: AUTO}})
    signature = found.entries[0].signature
    assert [str(leaf) for leaf in signature.outputs] == ["output: float32[b, 3*x_2]"]
    assert signature.symbols == (Symbol("b", 1, 8), Symbol("x_2", 1, None))
