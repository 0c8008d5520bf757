"""OpenAI's completions and chats, and OIP's generate extension: what is taken, refused and given."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotpipe.errors import RequestInvalid
from aotpipe.runtime.bundle import files
from aotpipe.runtime.serve.completions import read
from aotpipe.runtime.serve.text import Tokenizer
from tests.unit.runtime.serve.conftest import Server, summed, write_tokenizer

PROMPT = "ab"
TOKENS = [ord(each) - 31 for each in PROMPT]


def text(tokens: list[int]) -> str:
    return "".join("?!" if token == 96 else chr(31 + token) for token in tokens)


def complete(server: Server, **more: Any) -> tuple[int, Any]:
    return server.ask("/v1/completions", {"model": "sum", "prompt": PROMPT, "temperature": 0, **more})


def events(server: Server, path: str, body: dict[str, Any]) -> list[Any]:
    status, found = server.ask(path, {"model": "sum", "temperature": 0, "stream": True, **body})
    assert status == 200, found
    *lines, last = [line.removeprefix("data: ") for line in found.split("\n\n") if line]
    assert last == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_completion_has_its_text_and_counts_its_tokens(served: Server) -> None:
    status, body = complete(served, max_tokens=6)
    assert status == 200
    [choice] = body["choices"]
    want = summed(TOKENS, 6)
    assert (choice["text"], choice["finish_reason"]) == (text(want), "length" if len(want) == 6 else "stop")
    assert body["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": len(want),
        "total_tokens": 2 + len(want),
    }
    assert complete(served)[1]["usage"]["completion_tokens"] <= 16


def test_the_parts_of_a_stream_are_the_whole_text(served: Server) -> None:
    *parts, last, usage = events(
        served,
        "/v1/completions",
        {"prompt": [PROMPT], "max_tokens": 6, "stream_options": {"include_usage": True}},
    )
    said = "".join(part["choices"][0]["text"] for part in (*parts, last))
    assert said == text(summed(TOKENS, 6))
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None] * len(parts)
    assert last["choices"][0]["finish_reason"] == "length"
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 8)


def test_a_text_ends_before_a_stop_text_wherever_tokens_divide_it(served: Server) -> None:
    whole = text(summed(TOKENS, 12))
    stop = whole[4:7]
    _, body = complete(served, max_tokens=12, stop=["never", stop])
    assert body["choices"][0]["text"] == whole[: whole.index(stop)]
    assert body["choices"][0]["finish_reason"] == "stop"
    parts = events(served, "/v1/completions", {"prompt": PROMPT, "max_tokens": 12, "stop": stop})
    assert "".join(part["choices"][0]["text"] for part in parts) == whole[: whole.index(stop)]


def test_a_chat_is_what_its_template_makes_of_it(served: Server) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    ids = [ord(each) - 31 for each in "u:hi;a:"]
    asked = {"model": "sum", "messages": messages, "max_completion_tokens": 5, "temperature": 0}
    status, body = served.ask("/v1/chat/completions", asked)
    assert status == 200, body
    assert body["choices"][0]["message"] == {"role": "assistant", "content": text(summed(ids, 5))}
    first, *rest = events(served, "/v1/chat/completions", {"messages": messages, "max_tokens": 5})
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert all("role" not in part["choices"][0]["delta"] for part in rest)
    said = "".join(part["choices"][0]["delta"]["content"] for part in (first, *rest))
    assert said == text(summed(ids, 5))
    asked["messages"] = [{"role": "x", "content": "hi"}]
    status, body = served.ask("/v1/chat/completions", asked)
    assert (status, "no x" in body["error"]["message"]) == (400, True)


def test_the_generate_extension_gives_text_for_text_and_ids_for_ids(served: Server) -> None:
    want = summed(TOKENS, 4)
    parameters = {"max_tokens": 4}
    status, body = served.ask(
        "/v2/models/sum/versions/1/generate", {"id": "7", "text_input": PROMPT, "parameters": parameters}
    )
    assert status == 200
    assert body == {
        "id": "7",
        "model_name": "sum",
        "model_version": "1",
        "text_output": text(want),
        "details": {"finish_reason": "length"},
    }
    _, body = served.ask("/v2/models/sum/generate", {"input_ids": TOKENS, **parameters})
    assert (body["token_ids"], body["text_output"]) == (want, text(want))


@pytest.mark.parametrize(
    "more",
    [
        {"n": 2},
        {"best_of": 3},
        {"logprobs": 1},
        {"logprobs": 0},
        {"n": True},
        {"echo": True},
        {"presence_penalty": 0.5},
        {"logit_bias": {"5": 1}},
        {"no_such": 1},
        {"temperature": -1},
        {"temperature": "hot"},
        {"temperature": True},
        {"top_p": 1.5},
        {"max_tokens": 1.5},
        {"max_tokens": True},
        {"max_tokens": 1 << 70},
        {"seed": 1 << 64},
        {"stop": ""},
        {"stop": [1]},
        {"stream": 1},
        {"prompt": ["a", "b"]},
        {"prompt": [[1], [2]]},
        {"prompt": [1.5]},
        {"prompt": ""},
        {"prompt": {}},
    ],
)
def test_what_is_not_supported_is_refused_by_name(served: Server, more: dict[str, Any]) -> None:
    status, body = complete(served, **more)
    assert status == 400
    assert body["error"]["type"] == "invalid_request_error"
    assert next(iter(more)) in body["error"]["message"] or "prompt" in more or "max_tokens" in more


def test_others_are_answered_while_a_long_text_becomes_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tokenizer(tmp_path)
    contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(files, "content", lambda _, name: SimpleNamespace(tobytes=lambda: contents[name]))
    bundle: Any = SimpleNamespace(manifest=SimpleNamespace(files=contents))
    tokenizer = Tokenizer(bundle)

    def refused(prompt: tuple[int, ...], most: int) -> None:
        raise RequestInvalid(f"{len(prompt)} tokens")

    generator = SimpleNamespace(sizes=SimpleNamespace(cache=99_999, prompt=99_999), require=refused)
    model: Any = SimpleNamespace(tokenizer=tokenizer, require_generator=lambda: generator)

    async def run() -> int:
        reading = asyncio.ensure_future(read("completion", {"prompt": "a b " * 60_000}, model))
        turns = 0
        while not reading.done():
            turns += 1
            await asyncio.sleep(0.002)
        with pytest.raises(RequestInvalid, match="240000 tokens"):
            await reading
        return turns

    assert asyncio.run(run()) > 20


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("completions", {"prompt": "a" * 10_000_000}),
        ("completions", {"prompt": [1] * 1_000_000}),
        ("chat/completions", {"messages": [{"role": "user", "content": "a" * 10_000_000}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": ""}] * 200_000}),
    ],
    ids=["text", "tokens", "message", "messages"],
)
def test_a_prompt_that_cannot_fit_is_refused_unread(served: Server, path: str, body: dict[str, Any]) -> None:
    status, found = served.ask(f"/v1/{path}", {"model": "sum", **body})
    assert status == 400
    assert "may have 64" in found["error"]["message"]


def test_what_asks_for_nothing_is_taken(served: Server) -> None:
    more = {"n": 1, "echo": False, "logprobs": None, "presence_penalty": 0, "user": "me", "logit_bias": {}}
    assert complete(served, max_tokens=2, **more)[0] == 200


def test_the_models_are_the_decoders(served: Server) -> None:
    assert [row["id"] for row in served.ask("/v1/models")[1]["data"]] == ["sum"]
    assert served.ask("/v1/models/sum")[1]["object"] == "model"
    status, body = served.ask("/v1/completions", {"model": "other", "prompt": "a"})
    assert (status, body["error"]["code"]) == (404, 404)
