"""The sizes of a decoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.errors import SpecInvalid
from aotpipe.model.recipe import Recipe


@given(st.integers(2, 1 << 20), st.integers(1, 512), st.integers(2, 1 << 20))
def test_what_is_written_is_read(cache: int, slots: int, prompt: int) -> None:
    recipe = Recipe(cache=cache, slots=slots, prompt=min(prompt, cache))
    assert Recipe.of(str(recipe)) == recipe == Recipe.of(recipe)


def test_a_prompt_may_fill_the_cache_unless_it_is_said() -> None:
    assert Recipe.of("cache=16, slots=2") == Recipe(cache=16, slots=2, prompt=16)


@pytest.mark.parametrize(
    "text", ["", "slots=2", "cache", "cache=-1", "cache=x", "cache=16,size=2", "cache=16,slots=0", "cache=1"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(SpecInvalid) as caught:
        Recipe.of(text)
    assert "cache=1024,slots=8" in caught.value.hint


def test_a_prompt_is_not_longer_than_the_cache() -> None:
    with pytest.raises(SpecInvalid, match="holds no text"):
        Recipe(cache=8, prompt=9)
