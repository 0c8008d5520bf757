"""Serves bundles by Ray Serve: each replica is the server of `serving` without its listener.

Ray starts, spreads, watches and replaces the replicas, scales their number, and has the HTTP proxies that
spread requests over them. A replica has the models, their queues and their workers, and answers as `http`
does; so what a replica that dies had is lost, and no more. Each host of the cluster needs the extra `ray`,
and the bundles at the same paths.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import ray
from ray import serve

from aotpipe.errors import AotpipeError, ServeError
from aotpipe.runtime.serve import serving
from aotpipe.runtime.serve.http import Application
from aotpipe.runtime.serve.metrics import Metrics
from aotpipe.runtime.serve.opening import Opened, Opening
from aotpipe.runtime.serve.repository import Options, Repository, named
from aotpipe.runtime.serve.serving import Listen

NAME: Final = "aotpipe"
"""Of the application and its deployment in Ray Serve."""
_MORE_REQUESTS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many replicas there are.

    Attributes:
        replicas: So many, or the fewest where `most_replicas` is more.
        most_replicas: The most; Ray starts and ends replicas in between.
        ongoing_requests: How many requests of each replica Ray aims at when it does so.
    """

    replicas: int = 1
    most_replicas: int = 0
    ongoing_requests: float = 8.0


class Replica:
    """What Ray runs as an actor: the models, and the application that answers."""

    async def __init__(  # type: ignore[misc]  # Ray awaits it
        self, paths: dict[str, Path], options: Options, listen: Listen
    ) -> None:
        counted = Metrics()
        with Opening(list(paths.values()), options.require_signature) as opening:
            opened = dict(zip(paths, opening.bundles(), strict=True))
        self._repository = Repository(opened, options, counted)
        self._traces = serving.traces() if listen.traces else None
        self._application = Application(
            self._repository,
            counted,
            max_body_bytes=listen.max_body_bytes,
            timeout_s=listen.timeout_s,
            token=listen.token,
            access_log=listen.access_log,
            traces=self._traces,
        )
        for name in paths:
            await self._repository.load(name)

    def __serve_build_asgi_app__(self) -> Application:
        """What Ray hands the requests to."""
        return self._application

    def check_health(self) -> None:
        """Hear from Ray that it asks; it replaces a replica that raises several times in a row.

        Raises:
            ServeError: A model is not ready.
        """
        if not self._repository.is_ready:
            rows = [row for row in self._repository.index() if row["state"] != "READY"]
            raise ServeError("; ".join(f"{row['name']}: {row['reason']}" for row in rows))

    async def __del__(self) -> None:
        await self._repository.close()
        if self._traces is not None:
            self._traces.close()


def run(bundles: tuple[str, ...], opening: Opening, options: Options, listen: Listen, scale: Scale) -> None:
    """Serve until SIGTERM or SIGINT, on the cluster that RAY_ADDRESS names, or else on this host alone.

    Args:
        bundles: `PATH` or `NAME=PATH` of each model: a bundle, or a folder of versions of it.
        opening: The process that reads them.
        options: How models are run in each replica.
        listen: Where Ray's proxies listen, and to whom.
        scale: How many replicas there are.

    Raises:
        ServeError: An option is one that Ray Serve has no counterpart of, or no replica starts.
    """
    opened = named(bundles, opening.bundles())
    _require(opened, listen, scale)
    paths = {name: each.path.resolve() for name, each in opened.items()}
    key = options.require_signature
    options = replace(options, require_signature=key and key.resolve())
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell others that it runs
    is_own = not os.environ.get("RAY_ADDRESS")
    ending = threading.Event()
    try:
        ray.init(**({"include_dashboard": False, "log_to_driver": True} if is_own else {}))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ending.set())
        port = listen.port or _free_port(listen.host)
        tls = (
            {"ssl_certfile": str(listen.tls_cert), "ssl_keyfile": str(listen.tls_key)}
            if listen.tls_cert
            else {}
        )
        serve.start(http_options={"host": listen.host, "port": port, **tls})
        _require_address(listen.host, port)
        serve.run(_deployment(options, scale).bind(paths, options, listen), name=NAME, route_prefix="/")
        scheme = "https" if tls else "http"
        print(f"ready on {scheme}://{listen.host}:{port}", file=sys.stderr, flush=True)
        ending.wait()
        print("aotpipe serve: draining", file=sys.stderr, flush=True)
        serve.delete(NAME)
    except AotpipeError:
        raise
    except Exception as error:  # Ray has many, and no base of them
        raise ServeError("Ray Serve does not serve it", reason=str(error)) from error
    finally:
        if is_own and ray.is_initialized():
            serve.shutdown()
        ray.shutdown()


def _deployment(options: Options, scale: Scale) -> Any:
    number: dict[str, Any] = {"num_replicas": scale.replicas}
    if scale.most_replicas > scale.replicas:
        number = {
            "autoscaling_config": {
                "min_replicas": scale.replicas,
                "max_replicas": scale.most_replicas,
                "target_ongoing_requests": scale.ongoing_requests,
            }
        }
    return serve.deployment(
        name=NAME,
        # What is too much is told so by the replica's own queue.
        max_ongoing_requests=options.limits.max_queue_size + _MORE_REQUESTS,
        ray_actor_options={"num_cpus": options.workers * (options.threads or 1)},
        **number,
    )(serve.ingress()(Replica))


def _require(opened: dict[str, Opened], listen: Listen, scale: Scale) -> None:
    """Refuse what would be silently otherwise."""
    if listen.grpc_port is not None or listen.model_control:
        raise ServeError(
            "--grpc-port and --model-control do not go with --engine ray",
            reason="Ray's proxies take HTTP, and a request that loads a model would reach one replica",
        )
    for name, each in opened.items():
        signatures = each.bundle.manifest.signatures
        has_sessions = (
            any(signature.state for signature in signatures.values()) and "decode" not in signatures
        )
        if has_sessions and max(scale.replicas, scale.most_replicas) > 1:
            raise ServeError(
                f"{name!r} keeps state between calls, and a session's calls would reach several replicas",
                hint="serve it with one replica, or without --engine ray",
            )


def _require_address(host: str, port: int) -> None:
    """Refuse a cluster whose proxies were started elsewhere, where Ray would ignore what is asked for."""
    there = serve.context._get_global_client().http_config  # noqa: SLF001  # nothing public tells it
    if (there.host, there.port) != (host, port):
        raise ServeError(
            f"Ray Serve runs on this cluster already, and listens on {there.host}:{there.port}",
            hint=f"ask for it: --host {there.host} --port {there.port}",
        )


def _free_port(host: str) -> int:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as free:
        return int(free.getsockname()[1])
