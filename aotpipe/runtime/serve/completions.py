"""Requests for text and their answers: OpenAI's completions and chats, and OIP's generate extension.

`completion`, `chat` and `generate` read a request into an `Ask`, and refuse what is not supported by name.
`pieces` runs it; a `Form` writes what comes, as a whole or as server-sent events.

Raises:
    RequestInvalid: It is no such request, or asks for what is not supported.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from aotpipe.errors import RequestInvalid
from aotpipe.runtime.serve.generation import Choice, Finish
from aotpipe.runtime.serve.text import Reader

if TYPE_CHECKING:
    from aotpipe.runtime.serve.repository import Model

Kind = Literal["generate", "completion", "chat"]

_MOST_STOPS: Final = 16
_FEW_TOKENS: Final = 16
"""What OpenAI's completions give where a request does not say how many."""
_COMMON: Final = frozenset("max_tokens temperature top_p seed stop stream".split())
_OPENAI: Final = _COMMON | frozenset("model stream_options user metadata store".split())
_KNOWN: Final[Mapping[Kind, frozenset[str]]] = {
    "generate": _COMMON | {"text_input", "input_ids", "id"},
    "completion": _OPENAI | {"prompt"},
    "chat": _OPENAI | {"messages", "max_completion_tokens"},
}
# What a client may send without asking for anything.
_WITHOUT_EFFECT: Final[Mapping[str, tuple[object, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False,),  # 0 asks for that of each token
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "response_format": ({"type": "text"},),
}
EVENT_END: Final = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request asks for.

    Attributes:
        stops: Texts before which the answer ends.
        gives_ids: Whether the answer has token ids beside its text.
        gives_usage: Whether a stream ends with the numbers of tokens.
    """

    kind: Kind
    prompt: tuple[int, ...]
    choice: Choice
    stops: tuple[str, ...] = ()
    is_stream: bool = False
    gives_ids: bool = False
    gives_usage: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer; `finish` is given with the last one."""

    text: str = ""
    tokens: tuple[int, ...] = ()
    finish: Finish | None = None


async def read(kind: Kind, data: Mapping[str, Any], model: Model, *, is_stream: bool | None = None) -> Ask:
    """Read a request; `is_stream` says how it is answered where its path does.

    A thread of its own makes tokens of the text: a long one takes seconds, in which others are answered.

    Raises:
        RequestInvalid: It is no such request, or asks for what is not supported.
    """
    generator = model.require_generator()
    if kind == "generate":
        parameters = data.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise RequestInvalid("the parameters are no JSON object")
        data = {**{name: value for name, value in data.items() if name != "parameters"}, **parameters}
    given = {name: value for name, value in data.items() if value is not None}
    for name, value in given.items():
        if name not in _KNOWN[kind] and not any(
            value == each and isinstance(value, bool) == isinstance(each, bool)  # False == 0
            for each in _WITHOUT_EFFECT.get(name, ())
        ):
            raise RequestInvalid(f"{name[:80]}={str(value)[:80]} is not supported", hint="leave it out")
    prompt, gives_ids = await asyncio.to_thread(_prompt, kind, given, model, generator.sizes.prompt)
    left = generator.sizes.cache - len(prompt)
    default = _FEW_TOKENS if kind != "chat" else left
    most = given.get("max_completion_tokens", given.get("max_tokens", min(default, max(left, 1))))
    if type(most) is not int:
        raise RequestInvalid("max_tokens is no whole number")
    stream = given.get("stream", False)
    options = given.get("stream_options", {})
    if not isinstance(stream, bool) or not isinstance(options, dict):
        raise RequestInvalid("stream is no bool, or stream_options no JSON object")
    ask = Ask(
        kind=kind,
        prompt=prompt,
        choice=Choice(
            most=most,
            temperature=_number(given, "temperature", 0.0 if kind == "generate" else 1.0, 2.0),
            top_p=_number(given, "top_p", 1.0, 1.0),
            seed=_seed(given),
        ),
        stops=_stops(given),
        is_stream=stream if is_stream is None else is_stream,
        gives_ids=gives_ids,
        gives_usage=options.get("include_usage") is True,
        name=_name(given),
    )
    generator.require(prompt, most)
    return ask


async def pieces(ask: Ask, model: Model, timeout_s: float | None) -> AsyncGenerator[Piece]:
    """The parts of an answer, as its tokens come.

    Raises:
        AotpipeError: The text is refused, or fails.
    """
    reader = Reader(model.tokenizer, ask.stops)
    async with aclosing(model.require_generator().tokens(ask.prompt, ask.choice, timeout_s)) as events:
        async for event in events:
            if not isinstance(event, int):
                yield Piece(reader.rest(), (), "stop" if reader.is_stopped else event)
                return
            text = reader.add(event)
            if reader.is_stopped:
                yield Piece(text, (event,), "stop")
                return
            yield Piece(text, (event,))


@dataclass(slots=True)
class Form:
    """Writes the answer to one request."""

    ask: Ask
    model: Model
    made: int = 0
    _is_first: bool = True
    _created: int = field(default_factory=lambda: int(time.time()))
    _id: str = field(default_factory=lambda: secrets.token_hex(12))

    def whole(self, parts: list[Piece]) -> dict[str, Any]:
        """The answer of all parts."""
        tokens = tuple(token for part in parts for token in part.tokens)
        self.made = len(tokens)
        piece = Piece("".join(part.text for part in parts), tokens, parts[-1].finish)
        return self._written(piece, is_chunk=False)

    def events(self, piece: Piece) -> bytes:
        """The server-sent events of a part."""
        self.made += len(piece.tokens)
        if not piece.text and piece.finish is None and not self.ask.gives_ids and not self._is_first:
            return b""
        found = [self._written(piece, is_chunk=True)]
        if piece.finish and self.ask.gives_usage and self.ask.kind != "generate":
            found.append({**found[0], "choices": [], "usage": self._usage()})
        self._is_first = False
        text = b"".join(map(event, found))
        return text + EVENT_END if piece.finish and self.ask.kind != "generate" else text

    def _written(self, piece: Piece, *, is_chunk: bool) -> dict[str, Any]:
        ids = {"token_ids": piece.tokens} if self.ask.gives_ids else {}
        if self.ask.kind == "generate":
            return {
                **({"id": self.ask.name} if self.ask.name else {}),
                "model_name": self.model.name,
                "model_version": self.model.version,
                "text_output": piece.text,
                **ids,
                **({"details": {"finish_reason": piece.finish}} if piece.finish else {}),
            }
        kind, name = "text_completion", "cmpl"
        said: dict[str, Any] = {"text": piece.text}
        if self.ask.kind == "chat":
            kind, name = "chat.completion.chunk" if is_chunk else "chat.completion", "chatcmpl"
            role = {"role": "assistant"} if self._is_first or not is_chunk else {}
            said = {"delta" if is_chunk else "message": {**role, "content": piece.text}}
        choice = {"index": 0, **said, **ids, "logprobs": None, "finish_reason": piece.finish}
        return {
            "id": f"{name}-{self._id}",
            "object": kind,
            "created": self._created,
            "model": self.model.name,
            "choices": [choice],
            **({} if is_chunk else {"usage": self._usage()}),
        }

    def _usage(self) -> dict[str, int]:
        read = len(self.ask.prompt)
        return {"prompt_tokens": read, "completion_tokens": self.made, "total_tokens": read + self.made}


def event(data: object) -> bytes:
    """A server-sent event."""
    return b"data: " + orjson.dumps(data) + b"\n\n"


def _prompt(kind: Kind, given: Mapping[str, Any], model: Model, most: int) -> tuple[tuple[int, ...], bool]:
    """The tokens of a prompt, and whether they came as such; one that has more than `most` may be refused."""
    if kind == "chat":
        return model.tokenizer.chat(_messages(given.get("messages"), most), most), False
    names = ("text_input", "input_ids") if kind == "generate" else ("prompt",)
    found = [given[name] for name in names if name in given]
    if len(found) == 1:
        [prompt] = found
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            [prompt] = prompt
        if isinstance(prompt, str):
            return model.tokenizer.tokens(prompt, most), False
        if isinstance(prompt, list) and len(prompt) > most:
            raise RequestInvalid(
                f"the prompt has {len(prompt)} tokens; it may have {most}", hint="shorten it"
            )
        if isinstance(prompt, list) and all(type(token) is int for token in prompt):
            return tuple(prompt), True
    raise RequestInvalid(
        f"the request lacks one {' or '.join(names)}: a text, or a list of token ids",
        hint="send a request for each prompt",
    )


def _messages(given: object, most: int) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not given:
        raise RequestInvalid('the request lacks its list of "messages"')
    if len(given) > most:
        raise RequestInvalid(f"the chat has {len(given)} messages; a prompt may have {most} tokens")
    found = []
    for each in given:
        content = each.get("content") if isinstance(each, dict) else None
        if isinstance(content, list) and all(
            isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
            for part in content
        ):
            content = "".join(part["text"] for part in content)
        if not isinstance(content, str) or not isinstance(each.get("role"), str):
            raise RequestInvalid("a message has no role, or a content that is no text")
        found.append({**each, "content": content})
    return found


def _number(given: Mapping[str, Any], name: str, default: float, most: float) -> float:
    value = given.get(name, default)
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise RequestInvalid(f"{name} is no number from 0 to {most:g}")
    return float(value)


def _seed(given: Mapping[str, Any]) -> int:
    seed = given.get("seed", secrets.randbits(63))
    if type(seed) is not int or not -(1 << 63) <= seed < 1 << 63:
        raise RequestInvalid("seed is no whole number of 64 bits")
    return seed % (1 << 64)


def _stops(given: Mapping[str, Any]) -> tuple[str, ...]:
    stops = given.get("stop", [])
    stops = [stops] if isinstance(stops, str) else stops
    if (
        not isinstance(stops, list)
        or len(stops) > _MOST_STOPS
        or not all(isinstance(stop, str) and stop for stop in stops)
    ):
        raise RequestInvalid(f"stop is no text, and no list of at most {_MOST_STOPS} texts")
    return tuple(stops)


def _name(given: Mapping[str, Any]) -> str:
    if not isinstance(name := given.get("id", ""), str) or len(name) > 256:
        raise RequestInvalid("the id is no text of at most 256 characters")
    return name
