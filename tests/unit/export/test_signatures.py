"""Signatures of exported programs; the stage's tests hold the rest."""

from __future__ import annotations

import torch

from aotpipe.core.dims import AUTO, Dim
from aotpipe.core.signature import Signature, Symbol
from tests.unit.export.models import exported


def test_value_ranges_of_the_spec_stand_in_the_signature() -> None:
    found = exported(lambda ids: ids + 1, torch.zeros(3, dtype=torch.long), ranges={"ids": (0, 9)})
    assert [str(leaf) for leaf in found.entries[0].signature.inputs] == ["ids: int64[3] in [0, 9]"]


def test_names_of_symbols_do_not_collide() -> None:
    found = exported(
        lambda x, y: x[:, None] + y,
        torch.ones(3),
        torch.ones(4),
        shapes={"x": {0: AUTO}, "y": {0: Dim("x_0", max=9)}},
    )
    signature = found.entries[0].signature
    assert signature.symbols == (Symbol("x_0_1", 1, None), Symbol("x_0", 1, 9))
    assert str(signature.outputs[0]) == "output: float32[x_0_1, x_0]"


def test_one_value_dependent_size_in_two_outputs_has_one_name() -> None:
    def f(x: torch.Tensor) -> dict[str, torch.Tensor]:
        rows = x.nonzero()
        return {"rows": rows, "twice": torch.cat([rows, rows])}

    signature = exported(f, torch.ones(5)).entries[0].signature
    assert [str(leaf) for leaf in signature.outputs] == [
        "rows: int64[rows_0, 1]",
        "twice: int64[2*rows_0, 1]",
    ]
    assert signature.symbols == (Symbol("rows_0", 0, 5),)


def test_a_number_with_auto_has_the_range_that_the_model_leaves() -> None:
    signature = exported(lambda x, n: x * n, torch.ones(3), 4, shapes={"n": AUTO}).entries[0].signature
    assert str(signature.inputs[1]).startswith("n: int64[] in [")
    assert signature.symbols[0].name == "n"


def test_two_exports_give_one_signature_that_json_keeps() -> None:
    first, second = (
        exported(lambda x: x + 1, torch.ones(3), shapes={"x": {0: Dim("b")}}).entries[0].signature
        for _ in range(2)
    )
    assert first == second
    assert Signature.from_json(first.to_json()) == first
