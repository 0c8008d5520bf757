"""Starts a server, and ends it as an operator's supervisor expects.

SIGHUP loads the models again from their folders. SIGTERM and SIGINT make the server not ready; what was asked
before and while it drains is answered, with `Connection: close`; then it ends with the exit code 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn

from aotpipe.errors import AotpipeError, ServeError
from aotpipe.runtime.serve.http import Application
from aotpipe.runtime.serve.metrics import Metrics
from aotpipe.runtime.serve.opening import Opened, Opening
from aotpipe.runtime.serve.repository import Options, Repository, named

_POLL_S: Final = 0.02
_GRACE_S: Final = 3600.0
_LAST_ACCEPTED_S: Final = 0.1
_LAST_REQUESTS_S: Final = 1.0
_SO_ATTACH_FILTER: Final = 26
_BACKLOG: Final = 2048
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where a server listens, and to whom.

    Attributes:
        host: The address; only this machine reaches `127.0.0.1`.
        port: The port; any free one where 0.
        grpc_port: That of gRPC; any free one where 0, none where None.
        max_body_bytes: How large the body of a request may be.
        timeout_s: How long a call may wait for a worker unless its request says so; None for ever.
        drain_s: For how long requests are taken after SIGTERM, at least.
        tls_cert: A certificate chain, for HTTPS.
        tls_key: Its key.
        token: What a request has to bear; none where it is empty.
        model_control: Whether a request may load and unload models.
        access_log: Whether a line of JSON is written to stderr for each request.
        traces: Whether OpenTelemetry spans are exported, as OTEL_* say.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    grpc_port: int | None = None
    max_body_bytes: int = 64 << 20
    timeout_s: float | None = 30.0
    drain_s: float = 0.5
    tls_cert: Path | None = None
    tls_key: Path | None = None
    token: str = ""
    model_control: bool = False
    access_log: bool = False
    traces: bool = False


class _Server(uvicorn.Server):
    """A uvicorn whose end this module decides."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(bundles: tuple[str, ...], opening: Opening, options: Options, listen: Listen) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        bundles: `PATH` or `NAME=PATH` of each model: a bundle, or a folder of versions of it.
        opening: The process that reads them.
        options: How models are run.
        listen: Where, and to whom.

    Raises:
        ServeError: The address cannot be used, or two models have one name.
        AotpipeError: A model cannot be loaded.
    """
    opened = named(bundles, opening.bundles())
    with asyncio.Runner(loop_factory=_loop) as runner:
        runner.run(_serve(opened, options, listen))


async def _serve(opened: dict[str, Opened], options: Options, listen: Listen) -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    counted = Metrics()
    tracing = traces() if listen.traces else None
    repository = Repository(opened, options, counted)
    application = Application(
        repository,
        counted,
        max_body_bytes=listen.max_body_bytes,
        timeout_s=listen.timeout_s,
        token=listen.token,
        model_control=listen.model_control,
        access_log=listen.access_log,
        traces=tracing,
    )
    listener = _listener(listen)
    server = _Server(_config(application, listen))
    serving = loop.create_task(server.serve(sockets=[listener]))
    grpc_server = None
    reloads: list[asyncio.Task[None]] = []
    try:
        if listen.grpc_port is not None:
            grpc_server = await _grpc(repository, application, listen, tracing)
        loading = loop.create_task(_load(repository))
        end = loop.create_task(ending.wait())
        await asyncio.wait((loading, end), return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            loading.result()
            loop.add_signal_handler(
                signal.SIGHUP, lambda: reloads.append(loop.create_task(_reload(repository)))
            )
            _say(listener.getsockname()[1], repository, listen)
            await end
        loading.cancel()
        print("aotpipe serve: draining", file=sys.stderr, flush=True)
        application.is_draining = True
        await asyncio.sleep(listen.drain_s)
        _let_none_connect(listener)
        await asyncio.sleep(_LAST_ACCEPTED_S)
        # Those who are connected may be about to ask: on a busy host a request may take its time.
        last = loop.time() + _LAST_REQUESTS_S
        while application.active or (server.server_state.connections and loop.time() < last):
            await asyncio.sleep(_POLL_S)
    finally:
        server.should_exit = True
        await serving
        if grpc_server is not None:
            await grpc_server.stop(_GRACE_S)
        await repository.close()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)


def _let_none_connect(listener: socket.socket) -> None:
    """Drop what comes to the listener, where the kernel can.

    Closing it resets the connections that were made and are not accepted yet, and loses their requests. So no
    more are made, those that wait are accepted and answered, and then it is closed.
    """
    if sys.platform == "linux":
        accept_0_bytes = struct.pack("HBBI", 6, 0, 0, 0)  # the instruction `ret #0` of a packet filter
        memory = ctypes.create_string_buffer(accept_0_bytes)
        program = struct.pack("HL", 1, ctypes.addressof(memory))
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def _listener(listen: Listen) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        return socket.create_server((listen.host, listen.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ServeError(
            f"{listen.host}:{listen.port} cannot be listened on",
            reason=error.strerror or str(error),
            hint="choose another --host or --port",
        ) from error


def traces() -> Any:
    """The traces that OTEL_* say.

    Raises:
        ServeError: The extra `otel` or an exporter is not installed.
    """
    try:
        from aotpipe.runtime.serve.traces import Traces
    except ModuleNotFoundError as error:
        raise ServeError(f"{error.name} is not installed", hint="pip install 'aotpipe[otel]'") from error
    return Traces.from_environment()


async def _grpc(repository: Repository, application: Application, listen: Listen, tracing: Any) -> Any:
    try:
        from aotpipe.runtime.serve import grpc
    except ModuleNotFoundError as error:
        raise ServeError(f"{error.name} is not installed", hint="pip install 'aotpipe[serve]'") from error
    service = grpc.Service(
        repository,
        lambda: application.is_draining,
        timeout_s=listen.timeout_s,
        token=listen.token,
        model_control=listen.model_control,
        traces=tracing,
    )
    tls = None
    if listen.tls_key and listen.tls_cert:
        tls = (listen.tls_key.read_bytes(), listen.tls_cert.read_bytes())
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    address = f"{host}:{listen.grpc_port}"
    server, port = await grpc.start(service, address, max_body_bytes=listen.max_body_bytes, tls=tls)
    print(f"gRPC on {host}:{port}", file=sys.stderr, flush=True)
    return server


async def _reload(repository: Repository) -> None:
    for name in repository.names():
        try:
            await repository.load(name)
            print(f"{name} was loaded again", file=sys.stderr, flush=True)
        except AotpipeError as error:
            print(error, file=sys.stderr, flush=True)


async def _load(repository: Repository) -> None:
    for name in repository.names():
        await repository.load(name)


def _config(application: Any, listen: Listen) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        ssl_certfile=listen.tls_cert,
        ssl_keyfile=listen.tls_key,
    )


def _loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _say(port: int, repository: Repository, listen: Listen) -> None:
    scheme = "https" if listen.tls_cert else "http"
    lines = [f"{model.name} version {model.version}: {model.target}" for model in repository]
    if listen.host not in _LOOPBACK and not listen.token:
        lines.append("warning: whoever reaches this address may call it; --token-file asks for a token")
    lines.append(f"ready on {scheme}://{listen.host}:{port}")
    print("\n".join(lines), file=sys.stderr, flush=True)
