"""Text to tokens and back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.errors import RequestInvalid, ServeError
from aotpipe.runtime.bundle import files
from aotpipe.runtime.serve.text import Reader, Tokenizer


class Bytes:
    """A tokenizer whose tokens are the bytes of UTF-8."""

    def text(self, tokens: list[int]) -> str:
        return bytes(tokens).decode(errors="replace")


def reader(*stops: str) -> Reader:
    return Reader(Bytes(), stops)  # type: ignore[arg-type]


@given(st.text(max_size=80))
def test_the_parts_of_a_text_are_the_text_whatever_its_characters(said: str) -> None:
    read = reader()
    parts = [read.add(token) for token in said.encode()]
    assert "".join(parts) + read.rest() == said
    assert not any("�" in part for part in parts) or "�" in said


@given(st.text("abc", max_size=40), st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3))
def test_a_text_ends_before_the_first_stop_text(said: str, stops: list[str]) -> None:
    read, found = reader(*stops), ""
    for token in said.encode():
        found += read.add(token)
        if read.is_stopped:
            break
    found += read.rest()
    # What a later token completes may begin before what an earlier one did.
    ends = [said[: place + len(stop)] for stop in stops if (place := said.find(stop)) >= 0]
    first = min(ends, key=len, default=said)
    assert found == min((first[: first.find(stop)] for stop in stops if stop in first), key=len, default=said)


def bundle(monkeypatch: pytest.MonkeyPatch, **contents: bytes) -> Any:
    names = {f"{name}.json": content for name, content in contents.items()}
    monkeypatch.setattr(files, "content", lambda _, name: SimpleNamespace(tobytes=lambda: names[name]))
    return SimpleNamespace(manifest=SimpleNamespace(files=names))


def test_a_model_without_a_tokenizer_takes_ids_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer(bundle(monkeypatch))
    assert tokenizer.text([1, 2]) == ""
    with pytest.raises(RequestInvalid, match="no tokenizer"):
        tokenizer.tokens("a", 9)
    with pytest.raises(RequestInvalid, match="no template"):
        tokenizer.chat([{"role": "user", "content": "a"}], 9)


def test_a_text_is_read_only_where_its_tokens_could_be_few_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "aa": 1, "á": 2}, [("a", "a")]))
    model.normalizer = tokenizers.normalizers.NFC()
    tokenizer = Tokenizer(bundle(monkeypatch, tokenizer=model.to_str().encode()))
    assert tokenizer.tokens("a" * 6, 3) == (1, 1, 1)
    assert tokenizer.tokens("a\u0301" * 3, 3) == (2, 2, 2)  # six characters become three
    with pytest.raises(RequestInvalid, match="25 characters; more than 24 are not read"):
        tokenizer.tokens("a" * 25, 3)


def test_a_file_that_is_no_tokenizer_is_refused_when_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ServeError, match="no tokenizer"):
        Tokenizer(bundle(monkeypatch, tokenizer=b"{}"))
    with pytest.raises(ServeError, match="chat template"):
        Tokenizer(bundle(monkeypatch, tokenizer_config=b'{"chat_template": "{% if %}"}'))


@pytest.mark.parametrize(
    "config",
    [
        b"{",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"eos_token": 5}',
        b'{"eos_token": {}}',
        b'{"bos_token": {"content": 5}}',
    ],
)
def test_a_malformed_config_is_refused_when_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, config: bytes
) -> None:
    with pytest.raises(ServeError, match=r"tokenizer_config\.json"):
        Tokenizer(bundle(monkeypatch, tokenizer_config=config))


def test_what_a_template_cannot_do_with_a_message_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    template = b'{"chat_template": "{% for call in messages[0].tool_calls %}{% endfor %}"}'
    tokenizer = Tokenizer(bundle(monkeypatch, tokenizer_config=template))
    with pytest.raises(RequestInvalid, match="refuses the chat") as refused:
        tokenizer.chat([{"role": "user", "content": "a", "tool_calls": 5}], 9)
    assert refused.value.reason == "TypeError: 'int' object is not iterable"


def test_a_text_that_a_tokenizer_cannot_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="?"))
    tokenizer = Tokenizer(bundle(monkeypatch, tokenizer=model.to_str().encode()))
    assert tokenizer.tokens("a", 9) == (0,)
    with pytest.raises(RequestInvalid, match="refuses the text"):
        tokenizer.tokens("b", 9)


def test_a_template_reaches_nothing_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    template = b'{"chat_template": "{{ messages.__class__.__mro__ }}"}'
    tokenizer = Tokenizer(bundle(monkeypatch, tokenizer_config=template))
    with pytest.raises(RequestInvalid, match="refuses the chat"):
        tokenizer.chat([{"role": "user", "content": "a"}], 9)
