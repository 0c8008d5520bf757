"""The casts of one op."""

from __future__ import annotations

import pytest
import torch

from aotpipe.core.precision import Precision
from aotpipe.passes.precision import Casting, is_mutable, lower_dtype, name_of

BF16, F32, F64, I64 = torch.bfloat16, torch.float32, torch.float64, torch.int64
CASTING = Casting(Precision("bfloat16"))
aten = torch.ops.aten


def first(name: str, *dtypes: torch.dtype, mutable: bool = False) -> tuple[list[torch.dtype], torch.dtype]:
    before, after = next(CASTING.trials(name, dtypes, mutable=mutable))
    return [before(dtype) for dtype in dtypes], after(F32)


@pytest.mark.parametrize(
    ("name", "given", "operands", "result"),
    [
        ("mm", [F32, BF16], [BF16, BF16], F32),
        ("softmax", [BF16], [F32], BF16),
        ("softmax", [F32], [F32], F32),
        ("add", [F32, BF16], [F32, BF16], F32),
        ("mm", [F64, F64], [F64, F64], F32),
        ("mm", [I64, I64], [I64, I64], F32),
    ],
)
def test_the_first_trial(
    name: str, given: list[torch.dtype], operands: list[torch.dtype], result: torch.dtype
) -> None:
    assert first(name, *given) == (operands, result)


def test_what_is_written_to_is_never_cast() -> None:
    assert first("mm", F32, BF16, mutable=True) == ([F32, BF16], F32)
    *_, (before, _) = CASTING.trials("index_copy_", [BF16, I64, F32], mutable=True)
    assert [before(dtype) for dtype in (BF16, I64, F32)] == [BF16, I64, BF16]


def test_ops_are_known_by_their_names() -> None:
    assert name_of(aten.add.Tensor) == "add"
    assert name_of(torch.add) == ""
    assert (is_mutable(aten.add_.Tensor), is_mutable(aten.add.Tensor)) == (True, False)
    assert lower_dtype(Precision("float16")) is torch.float16
