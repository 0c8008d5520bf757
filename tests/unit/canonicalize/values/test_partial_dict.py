"""A dict whose keys may be missing, outside of any graph: its flags are plain tensors here."""

from __future__ import annotations

import pytest
import torch

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.values.optional_values import OptionalValue, Partial, assuming, of_keywords
from aotpipe.canonicalize.values.trace import Trace, started
from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.values.asserting import asserting

FLAG = torch.tensor(True)
X = torch.ones(2)


def partial() -> tuple[Partial, OptionalValue]:
    optional = OptionalValue(FLAG, X, is_key=True)
    return Partial({"x": 1, "m": optional}, {"m"}), optional


def test_in_gives_a_flag_under_which_the_key_is_there():
    batch, optional = partial()
    assert batch.has("x") is True
    assert batch.has("y") is False
    with started(Trace()):
        flag = batch.has("m")
        assert isinstance(flag, torch.Tensor)
        with pytest.raises(RuntimeError, match="data-dependent"):
            assert "m" in batch.keys()  # noqa: SIM118
        with assuming(flag, holds=True):
            assert "m" in batch
            assert batch.get("m") is X
    assert batch.get("m") is optional


def test_reading_a_key_asserts_that_it_is_there():
    with asserting(holds=True) as said:
        batch, _ = partial()
        assert batch["m"] is X
        assert said == ["KeyError: 'm'"]


def test_going_over_all_keys_is_refused():
    batch, _ = partial()
    for over in (batch.items, batch.values, batch.__len__, lambda: len(batch.keys())):
        with pytest.raises(ExportFailed, match="which keys there are"):
            over()
    batch["m"] = 2
    assert dict(batch.items()) == {"x": 1, "m": 2}


def test_copies_and_what_is_put_in_and_taken_out():
    batch, optional = partial()
    copied = batch.copy()
    assert copied.unsure == {"m"}
    assert copied.pop("m", None) is optional
    assert "m" not in copied
    assert copied.setdefault("z", 3) == 3
    effects.fill(batch, {"m": optional})
    assert batch.get("m") is optional
    assert "x" not in batch


def test_keywords_of_which_some_may_be_missing():
    optional = OptionalValue(FLAG, X, is_key=True)
    found = of_keywords({"a": 1, "m": optional})
    assert isinstance(found, Partial)
    assert found.unsure == {"m"}
    assert type(of_keywords({"a": 1, "m": OptionalValue(FLAG, X)})) is dict
