"""The server's HTTP: an ASGI application that answers the Open Inference Protocol v2 and its extensions.

Each path of `_ROUTES` is answered by one method of `Application`. A typed error becomes its status and
`{"error": ...}`; what is no typed error is a fault of the server's own, and its traceback goes to the log.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import re
import sys
import time
import traceback
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson

from aotpipe import __version__
from aotpipe.errors import AotpipeError, RequestInvalid, RequestTooLarge
from aotpipe.runtime.serve import completions, metrics, openapi, protocol
from aotpipe.runtime.serve.repository import Repository

if TYPE_CHECKING:
    from aotpipe.runtime.serve.traces import Spans, Traces

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
T = TypeVar("T")
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_BEARER: Final = (b"www-authenticate", b"Bearer")
_NO_CACHE: Final = ((b"cache-control", b"no-cache"),)
_RETRY_AFTER: Final = {429, 503}
_JSON_LENGTH: Final = b"inference-header-content-length"
_POLICY: Final = (
    b"default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
)
_JSON: Final = "application/json"
_BINARY: Final = "application/octet-stream"
_EVENTS: Final = "text/event-stream"
_OPENAI: Final = "/v1/"
"""What the paths of OpenAI's API begin with."""
_OPEN: Final = ("/", "/v2/health/live", "/v2/health/ready")
"""What is answered without a token: a supervisor asks whether the server lives; the page asks its reader."""
_MODEL: Final = r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?"
_ROUTES: Final = tuple(
    (method, re.compile(pattern), name)
    for method, pattern, name in (
        ("POST", rf"{_MODEL}/infer", "infer"),
        ("POST", rf"{_MODEL}/generate(?P<stream>_stream)?", "generate"),
        ("POST", r"/v1/completions", "completions"),
        ("POST", r"/v1/chat/completions", "chat"),
        ("GET", r"/v1/models(?:/(?P<model>[^/]+))?", "models"),
        ("GET", r"/v2/health/live", "live"),
        ("GET", r"/v2/health/ready", "ready"),
        ("GET", r"/v2/?", "server"),
        ("GET", _MODEL, "metadata"),
        ("GET", rf"{_MODEL}/ready", "model_ready"),
        ("GET", rf"{_MODEL}/example", "example"),
        ("POST", r"/v2/repository/index", "index"),
        ("POST", r"/v2/repository/models/(?P<model>[^/]+)/load", "load"),
        ("POST", r"/v2/repository/models/(?P<model>[^/]+)/unload", "unload"),
        ("GET", r"/", "page"),
        ("GET", r"/metrics", "metrics"),
        ("GET", r"/openapi\.json", "openapi"),
    )
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its status, the parts of its body, and headers; `stream` has the parts that are to come."""

    status: int
    parts: list[Any]
    type: str = _JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    stream: AsyncGenerator[bytes] | None = None


@dataclass(slots=True)
class _Request:
    """What a handler reads of a request."""

    scope: Scope
    receive: Receive
    headers: Mapping[bytes, bytes]
    matched: Mapping[str, str]
    spans: Spans | None


class Application:
    """The ASGI application.

    Args:
        repository: The models.
        max_body_bytes: How large the body of a request may be, also once it is decompressed.
        timeout_s: How long a call may wait unless its request says so; None for ever.
        token: What a request has to bear; none where it is empty.
        model_control: Whether a request may load and unload models.
        access_log: Whether a line of JSON is written to stderr for each request.
        traces: Where requests are traced; None where they are not.
    """

    def __init__(
        self,
        repository: Repository,
        counted: metrics.Metrics,
        *,
        max_body_bytes: int,
        timeout_s: float | None,
        token: str = "",
        model_control: bool = False,
        access_log: bool = False,
        traces: Traces | None = None,
    ) -> None:
        self._repository = repository
        self._counted = counted
        self._traces = traces
        self._max_body_bytes = max_body_bytes
        self._timeout_s = timeout_s
        self._token = f"Bearer {token}".encode() if token else b""
        self._access_log = access_log
        self.model_control = model_control
        self.is_draining = False
        self.active = 0
        """How many requests are being answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        start = time.perf_counter()
        self.active += 1
        spans, status = self._spans(scope) if self._traces else None, 0
        try:
            answer = await self._answer(scope, receive, spans)
            length = sum(map(len, answer.parts))
            headers = [(b"content-type", answer.type.encode()), *answer.headers]
            if answer.stream is None:
                headers.append((b"content-length", str(length).encode()))
            if self.is_draining:
                headers.append((b"connection", b"close"))
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            if answer.stream is not None:
                length = await _streamed(answer.stream, receive, send)
            for part in answer.parts[:-1]:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            last = answer.parts[-1] if answer.parts and scope["method"] != "HEAD" else b""
            await send({"type": "http.response.body", "body": last})
            status = answer.status
        finally:
            self.active -= 1
            if spans:
                spans.end({"http.response.status_code": status} if status else {}, status)
        if self._access_log:
            self._log(scope, answer, length, time.perf_counter() - start)

    def _spans(self, scope: Scope) -> Spans | None:
        """Spans of a call of a model; what only looks at the server is not traced."""
        if scope["method"] != "POST" or self._traces is None:
            return None
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        said = {"http.request.method": "POST", "url.path": scope["path"], "url.scheme": scope["scheme"]}
        return self._traces.begin("POST", headers, said)

    async def _answer(self, scope: Scope, receive: Receive, spans: Spans | None) -> Answer:
        headers = dict(scope["headers"])
        path = scope["path"]
        try:
            if self._token and path not in _OPEN and not self._bears_token(headers):
                return _error(401, "the request bears no token, or another one", (_BEARER,))
            allowed = []
            for method, pattern, name in _ROUTES:
                if (found := pattern.fullmatch(path)) is None:
                    continue
                if scope["method"] == method or (scope["method"] == "HEAD" and method == "GET"):
                    matched = {key: value for key, value in found.groupdict().items() if value is not None}
                    if spans:
                        spans.rename(f"POST {name}")
                    answer: Answer = await getattr(self, f"_{name}")(
                        _Request(scope, receive, headers, matched, spans)
                    )
                    return answer
                allowed.append(method)
            if allowed:
                return _error(
                    405, f"{path} takes {', '.join(allowed)}", ((b"allow", ", ".join(allowed).encode()),)
                )
            return _error(404, f"there is no {path[:200]}")
        except AotpipeError as error:
            status = protocol.status(error)
            extra = ((b"retry-after", b"1"),) if status in _RETRY_AFTER else ()
            if path.startswith(_OPENAI):
                return Answer(status, [orjson.dumps(_openai_error(error))], headers=extra)
            return _error(status, protocol.told(error), extra)
        except Exception:  # noqa: BLE001  # one request's fault is not the end of the others
            traceback.print_exc()
            return _error(500, "a fault of the server's own; its log has the traceback")

    def _bears_token(self, headers: Mapping[bytes, bytes]) -> bool:
        return hmac.compare_digest(headers.get(b"authorization", b""), self._token)

    async def _infer(self, request: _Request) -> Answer:
        name, version = request.matched["model"], request.matched.get("version", "")
        with self._repository.model(name, version).metrics.counting_failures():
            body = await self._body(request)
            # Asked for again: it may have been loaded anew while the body came.
            model = self._repository.model(name, version)
            read = protocol.read(
                body, _json_length(request.headers), model.entries, timeout_s=self._timeout_s
            )
            read.call.spans = request.spans
            outputs = await model.answer(read.call)
            parts, json_bytes = protocol.written(read, model.name, model.version, outputs)
        if json_bytes is None:
            return _compressed(Answer(200, parts), request.headers)
        headers = ((_JSON_LENGTH, str(json_bytes).encode()),)
        return _compressed(Answer(200, parts, _BINARY, headers), request.headers)

    async def _generate(self, request: _Request) -> Answer:
        return await self._written("generate", request, is_stream="stream" in request.matched)

    async def _completions(self, request: _Request) -> Answer:
        return await self._written("completion", request)

    async def _chat(self, request: _Request) -> Answer:
        return await self._written("chat", request)

    async def _models(self, request: _Request) -> Answer:
        name = request.matched.get("model")
        models = (
            [self._repository.model(name)] if name else [each for each in self._repository if each.generates]
        )
        rows = [{"id": each.name, "object": "model", "created": 0, "owned_by": "aotpipe"} for each in models]
        return _json(rows[0] if name else {"object": "list", "data": rows})

    async def _written(
        self, kind: completions.Kind, request: _Request, *, is_stream: bool | None = None
    ) -> Answer:
        """Text that a model goes on with, whole or as events."""
        start = time.perf_counter()
        data = await self._json_body(request)
        version = request.matched.get("version", "")
        if not isinstance(name := request.matched.get("model", data.get("model")), str):
            raise RequestInvalid("the request does not name its model")
        model = self._repository.model(name, version)
        with model.metrics.counting_failures():
            ask = await completions.read(kind, data, model, is_stream=is_stream)
            while (now := self._repository.model(name, version)) is not model:  # loaded anew meanwhile
                model, ask = now, await completions.read(kind, data, now, is_stream=is_stream)
            form = completions.Form(ask, model)
            pieces = completions.pieces(ask, model, self._timeout_s)
            if ask.is_stream:
                # What is refused has a status of its own, so that the first part comes before it.
                first = await _unless_gone(anext(pieces), request.receive)
                return Answer(200, [], _EVENTS, _NO_CACHE, _events(form, first, pieces, start))
            found = await _unless_gone(_all(pieces), request.receive)
        model.metrics.finished(time.perf_counter() - start)
        return _compressed(_json(form.whole(found)), request.headers)

    async def _live(self, request: _Request) -> Answer:  # noqa: ARG002
        return _json({"live": True})

    async def _ready(self, request: _Request) -> Answer:  # noqa: ARG002
        if self._repository.is_ready and not self.is_draining:
            return _json({"ready": True})
        rows = [row for row in self._repository.index() if row["state"] != "READY"]
        why = "; ".join(f"{row['name']}: {row['reason']}" for row in rows)
        return _error(503, "the server is ending" if self.is_draining else f"not every model is ready: {why}")

    async def _server(self, request: _Request) -> Answer:  # noqa: ARG002
        return _json({"name": "aotpipe", "version": __version__, "extensions": protocol.EXTENSIONS})

    async def _metadata(self, request: _Request) -> Answer:
        model = self._repository.model(request.matched["model"], request.matched.get("version", ""))
        return _json(model.described())

    async def _model_ready(self, request: _Request) -> Answer:
        model = self._repository.model(request.matched["model"], request.matched.get("version", ""))
        return (
            _json({"name": model.name, "ready": True})
            if model.is_ready
            else _error(503, f"{model.name} is not ready: {model.pool.reason}")
        )

    async def _example(self, request: _Request) -> Answer:
        model = self._repository.model(request.matched["model"], request.matched.get("version", ""))
        return _json(model.example())

    async def _page(self, request: _Request) -> Answer:  # noqa: ARG002
        return Answer(200, [_page()], "text/html; charset=utf-8", ((b"content-security-policy", _POLICY),))

    async def _index(self, request: _Request) -> Answer:
        options = await self._json_body(request)
        rows = self._repository.index()
        return _json(
            [row for row in rows if row["state"] == "READY"] if options.get("ready") is True else rows
        )

    async def _load(self, request: _Request) -> Answer:
        await self._json_body(request)
        self._require_control()
        await self._repository.reload(request.matched["model"])
        return Answer(200, [b""])

    async def _unload(self, request: _Request) -> Answer:
        await self._json_body(request)
        self._require_control()
        await self._repository.unload(request.matched["model"])
        return Answer(200, [b""])

    def _require_control(self) -> None:
        if not self.model_control:
            raise protocol.no_control()

    async def _metrics(self, request: _Request) -> Answer:  # noqa: ARG002
        return Answer(200, [self._counted.text()], metrics.CONTENT_TYPE)

    async def _openapi(self, request: _Request) -> Answer:  # noqa: ARG002
        return _json(openapi.document())

    async def _json_body(self, request: _Request) -> Mapping[str, Any]:
        body = await self._body(request)
        try:
            options = orjson.loads(body) if body.strip() else {}
        except orjson.JSONDecodeError as error:
            raise RequestInvalid("the request is no JSON", reason=str(error)) from error
        if not isinstance(options, dict):
            raise RequestInvalid("the request is no JSON object")
        return options

    async def _body(self, request: _Request) -> bytes:
        limit = self._max_body_bytes
        said = request.headers.get(b"content-length", b"0")
        if said.isdigit() and int(said) > limit:
            raise RequestTooLarge(
                f"the body has more than {limit} bytes", hint="serve with a larger --max-body-bytes"
            )
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise RequestInvalid("the client is gone")
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > limit:
                raise RequestTooLarge(
                    f"the body has more than {limit} bytes", hint="serve with a larger --max-body-bytes"
                )
            if not message.get("more_body"):
                break
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        encoding = request.headers.get(b"content-encoding", b"")
        return _decompressed(body, encoding.decode("latin-1").strip().lower(), limit) if encoding else body

    def _log(self, scope: Scope, answer: Answer, length: int, seconds: float) -> None:
        row = {
            "time": time.time(),
            "client": (scope.get("client") or [""])[0],
            "method": scope["method"],
            "path": scope["path"],
            "status": answer.status,
            "bytes": length,
            "ms": round(seconds * 1000, 3),
        }
        sys.stderr.buffer.write(orjson.dumps(row) + b"\n")
        sys.stderr.flush()


async def _all(pieces: AsyncIterator[T]) -> list[T]:
    return [piece async for piece in pieces]


async def _gone(receive: Receive) -> None:
    """Wait until the client is gone, of a request whose body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _unless_gone(work: Awaitable[T], receive: Receive) -> T:
    """The result of work that nobody needs once the client is gone.

    Raises:
        RequestInvalid: It is.
    """
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise RequestInvalid("the client is gone")
    finally:
        gone.cancel()
        if working.cancel():
            with suppress(asyncio.CancelledError):
                await working


async def _events(
    form: completions.Form, first: completions.Piece, pieces: AsyncGenerator[completions.Piece], start: float
) -> AsyncGenerator[bytes]:
    """The events of an answer; an error is the last one."""
    try:
        yield form.events(first)
        with form.model.metrics.counting_failures():
            async for piece in pieces:
                yield form.events(piece)
        form.model.metrics.finished(time.perf_counter() - start)
    except AotpipeError as error:
        yield completions.event(
            _openai_error(error) if form.ask.kind != "generate" else {"error": protocol.told(error)}
        )
    finally:
        await pieces.aclose()


async def _streamed(events: AsyncGenerator[bytes], receive: Receive, send: Send) -> int:
    """Send events until they end or the client is gone; gives how many bytes they had."""
    sent = 0
    with suppress(RequestInvalid):
        sent = await _unless_gone(_sent(events, send), receive)
    return sent


async def _sent(events: AsyncGenerator[bytes], send: Send) -> int:
    size = 0
    async with aclosing(events) as each:
        async for data in each:
            if data:
                size += len(data)
                await send({"type": "http.response.body", "body": data, "more_body": True})
    return size


def _openai_error(error: AotpipeError) -> dict[str, Any]:
    status = protocol.status(error)
    kind = "invalid_request_error" if status < 429 else "server_error"
    return {"error": {"message": protocol.told(error), "type": kind, "param": None, "code": status}}


@cache
def _page() -> bytes:
    return Path(__file__).with_name("page.html").read_bytes()


def _json(value: object) -> Answer:
    return Answer(200, [orjson.dumps(value)])


def _error(status: int, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    return Answer(status, [orjson.dumps({"error": message})], headers=headers)


def _json_length(headers: Mapping[bytes, bytes]) -> int | None:
    if (text := headers.get(_JSON_LENGTH)) is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise RequestInvalid("Inference-Header-Content-Length is no number")
    return int(text)


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "deflate"):
        raise RequestInvalid(
            f"the content-encoding {encoding[:40]!r} is not supported", hint="use gzip or deflate"
        )
    reader = zlib.decompressobj(zlib.MAX_WBITS | 32)  # either header
    try:
        data = reader.decompress(body, limit + 1)
    except zlib.error as error:
        raise RequestInvalid(f"the body is no {encoding}", reason=str(error)) from error
    if len(data) > limit:
        raise RequestTooLarge(f"the body has more than {limit} bytes once it is decompressed")
    if not reader.eof or reader.unused_data:
        raise RequestInvalid(f"the body is no whole {encoding} stream")
    return data


def _compressed(answer: Answer, headers: Mapping[bytes, bytes]) -> Answer:
    """The answer as the client accepts it; only gzip and deflate where it asks for one of them."""
    accepted = headers.get(b"accept-encoding", b"")
    if not accepted:
        return answer
    offers = [offer.replace(b" ", b"").lower().partition(b";q=") for offer in accepted.split(b",")]
    names = {name for name, _, weight in offers if weight.strip(b"0.") or not weight}
    body = b"".join(answer.parts)
    if b"gzip" in names:
        name, data = b"gzip", gzip.compress(body, 1, mtime=0)
    elif b"deflate" in names:
        name, data = b"deflate", zlib.compress(body, 1)
    else:
        return answer
    extra = (*answer.headers, (b"content-encoding", name), (b"vary", b"accept-encoding"))
    return Answer(answer.status, [data], answer.type, extra)
