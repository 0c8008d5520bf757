"""What a user types as a precision, and which ops it is of."""

from __future__ import annotations

import pytest

from aotpipe.core.precision import ISLANDS, PRODUCTS, Precision
from aotpipe.errors import SpecInvalid


@pytest.mark.parametrize(
    ("typed", "dtype"),
    [("bf16", "bfloat16"), ("bfloat16", "bfloat16"), ("f16", "float16"), ("float16", "float16")],
)
def test_a_dtype_has_a_short_name_and_torch_s(typed: str, dtype: str) -> None:
    assert Precision.of(typed, ("gelu", "conv", "gelu")) == Precision(dtype, ("conv", "gelu"))


@pytest.mark.parametrize("typed", [None, "", "f32", "float32"])
def test_float32_is_no_policy(typed: str | None) -> None:
    assert Precision.of(typed) is None
    with pytest.raises(SpecInvalid, match="kept in float32") as caught:
        Precision.of(typed, ("gelu",))
    assert "--dtype" in caught.value.hint


def test_another_dtype_is_refused() -> None:
    with pytest.raises(SpecInvalid, match="'int8'") as caught:
        Precision.of("int8")
    assert caught.value.hint == "take bf16 or f16"


def test_an_op_is_a_product_an_island_or_neither() -> None:
    policy = Precision("bfloat16")
    assert [policy.kind(op) for op in ("linear", "native_layer_norm", "gelu", "")] == [
        *("product", "island", "other", "other")
    ]


def test_what_is_kept_is_an_island_by_op_and_by_group() -> None:
    policy = Precision("bfloat16", ("attention", "gelu"))
    assert policy.kind("gelu") == "island"
    assert {policy.kind(op) for op in PRODUCTS["attention"]} == {"island"}
    assert policy.kind("conv2d") == "product"
    assert policy.unknown(lambda name: name == "gelu") == []
    assert Precision("bfloat16", ("geluu",)).unknown(lambda name: False) == ["geluu"]


def test_no_op_is_in_both_tables() -> None:
    products = {op for ops in PRODUCTS.values() for op in ops}
    assert not products & {op for ops in ISLANDS.values() for op in ops}


def test_its_text_names_what_stays() -> None:
    assert str(Precision("float16", ("gelu",))).startswith("float16, with float32 in layer_norm")
    assert str(Precision("float16", ("gelu",))).endswith("and gelu")
