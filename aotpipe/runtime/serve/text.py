"""Text to tokens and back: the tokenizer of a bundle, the form of a chat, and where an answer stops.

The package `tokenizers` reads `tokenizer.json`, `jinja2` a chat's template; both are imported when a model
that has them is loaded.

Raises:
    RequestInvalid: The model has no tokenizer, or no template, or the template refuses a chat.
    ServeError: A package is missing, or a file is none that it reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, Final

from aotpipe.errors import RequestInvalid, ServeError
from aotpipe.runtime.bundle import files
from aotpipe.runtime.bundle.files import Bundle
from aotpipe.runtime.bundle.manifest import TOKENIZER, TOKENIZER_CONFIG

# Characters of a text that a normalizer may make one of: NFC composes a letter and its marks.
_COMPOSED: Final = 4
_UNFINISHED: Final = "\N{REPLACEMENT CHARACTER}"


class Tokenizer:
    """What a bundle says of text; all of it may be missing."""

    def __init__(self, bundle: Bundle) -> None:
        self._tokenizer: Any = None
        self._template: Any = None
        self._special: dict[str, str] = {}
        if TOKENIZER in bundle.manifest.files:
            try:
                self._tokenizer = _imported("tokenizers").Tokenizer.from_buffer(_read(bundle, TOKENIZER))
            except ValueError as error:
                raise ServeError(f"{TOKENIZER} is no tokenizer", reason=str(error)) from error
            # What a file says of a fixed length is of no use to a decoder.
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()
        if TOKENIZER_CONFIG in bundle.manifest.files:
            self._read_config(_read(bundle, TOKENIZER_CONFIG))

    def _read_config(self, content: bytes) -> None:
        try:
            config = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ServeError(f"{TOKENIZER_CONFIG} is no JSON", reason=str(error)) from error
        if not isinstance(config, dict):
            raise ServeError(f"{TOKENIZER_CONFIG} is no JSON object")
        for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
            token = config.get(name)
            said = token.get("content") if isinstance(token, dict) else token or ""
            if not isinstance(said, str):
                raise ServeError(f"{name} in {TOKENIZER_CONFIG} is no text, and no object with a content")
            self._special[name] = said
        if isinstance(template := config.get("chat_template"), str):
            sandbox = _imported("jinja2.sandbox")
            environment = sandbox.ImmutableSandboxedEnvironment(
                trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
            )
            environment.globals["raise_exception"] = _refuse
            try:
                self._template = environment.from_string(template)
            except Exception as error:  # of the template's own; jinja2 lets some of Python's through
                raise ServeError(
                    f"the chat template of {TOKENIZER_CONFIG} is none", reason=str(error)
                ) from error

    @cached_property
    def _longest(self) -> int:
        """The most characters of one token."""
        return max(map(len, self._tokenizer.get_vocab()), default=1)

    def tokens(self, text: str, most: int, *, special: bool = True) -> tuple[int, ...]:
        """The tokens of a text.

        Args:
            text: The text.
            most: How many tokens are of use: a text that must have more is refused unread.
            special: Whether the tokenizer adds those that begin a text.

        Raises:
            RequestInvalid: The model has no tokenizer, or it refuses the text, or the text is too long.
        """
        if self._tokenizer is None:
            raise RequestInvalid(
                "the model has no tokenizer",
                hint="give the prompt as token ids, or build it with --tokenizer tokenizer.json",
            )
        if len(text) > (limit := _COMPOSED * self._longest * most):
            raise RequestInvalid(
                f"the prompt has {len(text)} characters; more than {limit} are not read",
                reason=f"a prompt may have {most} tokens, of {self._longest} characters at most",
                hint="shorten it",
            )
        try:
            # That of many texts lets other threads run.
            [encoding] = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)
        except Exception as error:  # tokenizers has no narrower one
            raise RequestInvalid("the tokenizer refuses the text", reason=_reason(error)) from error
        return tuple(encoding.ids)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of some tokens; empty without a tokenizer."""
        return str(self._tokenizer.decode(list(tokens))) if self._tokenizer else ""

    def chat(self, messages: list[dict[str, Any]], most: int) -> tuple[int, ...]:
        """The tokens of a chat that the model is to go on with; `most` is that of `tokens`.

        Raises:
            RequestInvalid: The model has no template of a chat, or it refuses this one.
        """
        if self._template is None:
            raise RequestInvalid(
                "the model has no template of a chat",
                hint="ask for /v1/completions, or build it with the tokenizer_config.json of a chat model "
                "beside tokenizer.json",
            )
        try:
            said = self._template.render(messages=messages, add_generation_prompt=True, **self._special)
        except Exception as error:  # whatever the template does with what the messages have
            raise RequestInvalid("the template refuses the chat", reason=_reason(error)) from error
        return self.tokens(said, most, special=False)


class Reader:
    """The text of tokens as they come, up to the first of the stop texts."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._stops = stops
        self._tokens: list[int] = []
        self._begin = 0
        self._said = 0
        """How many characters of the tokens from `_begin` on were given."""
        self._held = ""
        """What may be the beginning of a stop text."""
        self.is_stopped = False

    def add(self, token: int) -> str:
        """The text that is sure once this token is there."""
        self._tokens.append(token)
        text = self._tokenizer.text(self._tokens[self._begin :])
        if text.endswith(_UNFINISHED):
            return ""  # a character of which more bytes follow
        new, self._said = text[self._said :], len(text)
        if len(self._tokens) - self._begin > _WINDOW:
            # How a token reads depends on the one before it.
            self._begin = len(self._tokens) - 1
            self._said = len(self._tokenizer.text(self._tokens[self._begin :]))
        return self._sure(new)

    def rest(self) -> str:
        """What is left when no more tokens come."""
        text = self._tokenizer.text(self._tokens[self._begin :])[self._said :]
        found = self._sure(text)
        held, self._held = self._held, ""
        return found + ("" if self.is_stopped else held)

    def _sure(self, new: str) -> str:
        text = self._held + new
        found = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            self.is_stopped, self._held = True, ""
            return text[: min(found)]
        longest = max(
            (
                size
                for stop in self._stops
                for size in range(1, min(len(stop), len(text) + 1))
                if text.endswith(stop[:size])
            ),
            default=0,
        )
        self._held = text[len(text) - longest :]
        return text[: len(text) - longest]


_WINDOW: Final = 32


def _read(bundle: Bundle, name: str) -> bytes:
    return files.content(bundle, name).tobytes()


def _refuse(message: str) -> None:
    raise _imported("jinja2").TemplateError(message)


def _reason(error: Exception) -> str:
    """What an error says; the message of one of Python's own is little without its name."""
    return str(error) if type(error).__module__ != "builtins" else f"{type(error).__name__}: {error}"


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ServeError(
            f"{error.name} is not installed, and the model has text", hint="pip install 'aotpipe[generate]'"
        ) from error
