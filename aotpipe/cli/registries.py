"""`aotpipe push`, `pull` and `package`: bundles in OCI registries and in other servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aotpipe.cli import options, text

if TYPE_CHECKING:
    from aotpipe.runtime.bundle.packages import Server

_reference = click.argument("reference", metavar="REGISTRY/NAME[:TAG]")
_plain_http = click.option("--plain-http", is_flag=True, help="Speak to the registry without TLS.")


@click.command()
@options.bundle
@_reference
@_plain_http
@options.as_json
def push(*, bundle: Path, reference: str, plain_http: bool, as_json: bool) -> None:
    """Push BUNDLE as an artifact of the CNCF ModelPack layout: each file is a layer, as it is.

    Equal bundles have equal digests. Credentials are those of `docker login`.
    """
    from aotpipe.runtime import bundle as bundles

    found = {"reference": reference, "digest": bundles.push(bundle, reference, plain_http=plain_http)}
    text.show(found, lambda: text.fields(found), as_json=as_json)


@click.command()
@_reference
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="The folder to write.")
@_plain_http
@options.as_json
def pull(*, reference: str, out: Path, plain_http: bool, as_json: bool) -> None:
    """Pull a bundle into a folder, each file checked against the bundle's manifest.

    With NAME@sha256:DIGEST it is the very bundle of which `push` gave the digest.
    """
    from aotpipe.runtime import bundle as bundles

    bundle, digest = bundles.pull(reference, out, plain_http=plain_http)
    found = {"path": str(bundle.path), "digest": digest}
    text.show(found, lambda: text.fields(found), as_json=as_json)


@click.command()
@options.bundle
@click.option(
    "--for", "server", type=click.Choice(["triton", "kserve", "mlflow"]), required=True, help="Which one."
)
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="A new folder.")
@click.option("--image", default="", help="Of KServe: a container image with aotpipe[serve].")
@click.option("--storage-uri", default="", metavar="URI", help="Of KServe: where it finds the bundle.")
@options.as_json
def package(*, bundle: Path, server: Server, out: Path, image: str, storage_uri: str, as_json: bool) -> None:
    """Write what another server loads BUNDLE by, into a new folder.

    A model repository of Triton's Python backend, KServe's ServingRuntime and InferenceService, or an MLflow
    model (pyfunc).
    """
    from aotpipe.runtime import bundle as bundles

    found = {"path": str(bundles.package(bundle, server, out, image=image, storage_uri=storage_uri))}
    text.show(found, lambda: text.fields(found), as_json=as_json)
