"""`aotpipe serve`: answers requests over HTTP with a bundle's programs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from aotpipe.cli import options
from aotpipe.errors import ServeError


@click.command()
@click.argument("bundles", nargs=-1, required=True, metavar="[NAME=]BUNDLE...")
@click.option("-t", "--target", metavar="TARGET", help="Which program. [default: the best that runs here]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 for any free one."
)
@click.option("--grpc-port", type=click.IntRange(0, 65535), help="gRPC too; 0 for any free port.")
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes of each model."
)
@click.option("--threads", type=click.IntRange(1), help="Of each process. [default: as the runtime chooses]")
@options.batching
@click.option(
    "--max-body-bytes", type=click.IntRange(1), default=64 << 20, show_default=True, help="Of a request."
)
@click.option(
    "--max-sessions", type=click.IntRange(1), default=64, show_default=True, help="Of a model with state."
)
@click.option(
    "--session-idle-s",
    type=click.FloatRange(0),
    default=300.0,
    show_default=True,
    help="Until a session is closed.",
)
@click.option(
    "--timeout-s", type=click.FloatRange(0), default=30.0, show_default=True, help="A call waits so long."
)
@click.option(
    "--call-timeout-s",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="A call runs so long before its worker is killed.",
)
@click.option(
    "--drain-s", type=click.FloatRange(0), default=0.5, show_default=True, help="After SIGTERM, at least."
)
@click.option(
    "--tls-cert", type=click.Path(path_type=Path, exists=True), help="A certificate chain, for HTTPS."
)
@click.option("--tls-key", type=click.Path(path_type=Path, exists=True), help="Its key.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, exists=True),
    help="A file of the token that requests must bear.",
)
@click.option(
    "--require-signature",
    type=click.Path(path_type=Path, exists=True),
    metavar="PUBLIC_KEY",
    help="Serve only bundles that were signed with its private key.",
)
@click.option("--model-control", is_flag=True, help="Let requests load and unload models.")
@click.option("--access-log", is_flag=True, help="Write a line of JSON to stderr for each request.")
@click.option("--traces", is_flag=True, help="Export OpenTelemetry spans, as OTEL_* in the environment say.")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="What runs it: this process, or replicas of Ray Serve on the cluster that RAY_ADDRESS names.",
)
@click.option("--replicas", type=click.IntRange(1), help="Of Ray Serve. [default: 1]")
@click.option(
    "--max-replicas", type=click.IntRange(1), help="Ray scales up to so many. [default: --replicas]"
)
@click.option(
    "--target-ongoing-requests", type=click.FloatRange(0, min_open=True), help="Of a replica. [default: 8]"
)
@options.islands
def serve(
    *,
    bundles: tuple[str, ...],
    target: str | None,
    workers: int,
    threads: int | None,
    max_batch_size: int,
    preferred_batch_size: tuple[int, ...],
    max_queue_delay_us: int,
    max_queue_size: int,
    max_sessions: int,
    session_idle_s: float,
    call_timeout_s: float,
    token_file: Path | None,
    islands: tuple[str, ...],
    require_signature: Path | None,
    engine: str,
    replicas: int | None,
    max_replicas: int | None,
    target_ongoing_requests: float | None,
    **listen: object,
) -> None:
    """Answer the Open Inference Protocol v2 over HTTP with the programs of bundles; needs no torch.

    A BUNDLE may be a folder of versions, named by numbers, of which the highest is served.
    """
    if bool(listen["tls_cert"]) != bool(listen["tls_key"]):
        raise click.UsageError("--tls-cert and --tls-key belong together")
    scale = {
        name: value
        for name, value in (
            ("replicas", replicas),
            ("most_replicas", max_replicas),
            ("ongoing_requests", target_ongoing_requests),
        )
        if value is not None
    }
    if scale and engine != "ray":
        raise click.UsageError(
            "--replicas, --max-replicas and --target-ongoing-requests belong to --engine ray"
        )
    opening = _imported("opening")
    # The bundles are read while the server is imported.
    with opening.Opening([opening.named(each)[1] for each in bundles], require_signature) as reading:
        serving = _imported("serving")
        models = _imported("repository").Options(
            target=target,
            workers=workers,
            threads=threads,
            islands=islands,
            require_signature=require_signature,
            limits=_imported("scheduler").Limits(
                max_batch_size=max_batch_size,
                preferred_batch_size=preferred_batch_size,
                max_queue_delay_s=max_queue_delay_us / 1e6,
                max_queue_size=max_queue_size,
                max_sessions=max_sessions,
                session_idle_s=session_idle_s,
                call_timeout_s=call_timeout_s,
            ),
        )
        where = serving.Listen(**listen, token=_token(token_file) if token_file else "")
        if engine == "ray":
            on_ray = _imported("ray_engine", extra="ray")
            on_ray.run(bundles, reading, models, where, on_ray.Scale(**scale))
        else:
            serving.run(bundles, reading, models, where)


def _imported(module: str, extra: str = "serve") -> Any:
    try:
        return import_module(f"aotpipe.runtime.serve.{module}")
    except ModuleNotFoundError as error:
        raise ServeError(f"{error.name} is not installed", hint=f"pip install 'aotpipe[{extra}]'") from error


def _token(file: Path) -> str:
    if not (token := file.read_text(encoding="utf-8").strip()):
        raise ServeError(f"{file} holds no token")
    return token
