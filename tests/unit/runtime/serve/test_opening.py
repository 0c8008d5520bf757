"""Bundles that are read by a process which ends."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import aotpipe
from aotpipe.errors import BundleCorrupt, BundleNotFound, ServeError, SignatureInvalid
from aotpipe.runtime.bundle.files import Trusted, open_bundle
from aotpipe.runtime.serve import opening
from aotpipe.runtime.serve.opening import Opening
from tests.unit.runtime.bundle.samples import keys
from tests.unit.runtime.serve.conftest import Server

Start = Callable[..., Server]


def test_the_process_gives_what_reading_here_gives(bundles: Path, tmp_path: Path) -> None:
    aotpipe.archive(bundles / "mlp", tmp_path / "mlp.tar")
    shutil.copytree(bundles / "root", tmp_path / "versions" / "2")
    shutil.copytree(bundles / "mlp", tmp_path / "versions" / "10")
    paths = [bundles / "mlp", tmp_path / "mlp.tar", tmp_path / "versions"]
    with Opening(paths) as reading:
        found = reading.bundles()
    assert found == [opening.read(path) for path in paths]
    assert [each.version for each in found] == ["1", "1", "10"]
    assert found[2].bundle.manifest == open_bundle(bundles / "mlp").manifest


def test_the_first_bundle_that_cannot_be_read_is_the_error(bundles: Path, tmp_path: Path) -> None:
    shutil.copytree(bundles / "mlp", tmp_path / "m")
    manifest = tmp_path / "m" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"float32", b"float64", 1))
    with (
        Opening([bundles / "mlp", tmp_path / "m", tmp_path / "nowhere"]) as reading,
        pytest.raises(BundleCorrupt, match="was changed"),
    ):
        reading.bundles()
    with pytest.raises(BundleNotFound) as caught:
        asyncio.run(opening.opened(tmp_path / "nowhere", None))
    assert caught.value.reason == "no such folder"


def test_a_signature_is_checked_there(bundles: Path, tmp_path: Path) -> None:
    pytest.importorskip("model_signing")
    private, public = keys(tmp_path, "ours")
    shutil.copytree(bundles / "mlp", tmp_path / "m")
    with pytest.raises(SignatureInvalid, match="no signature"):
        asyncio.run(opening.opened(tmp_path / "m", public))
    aotpipe.sign(tmp_path / "m", private)
    assert isinstance(asyncio.run(opening.opened(tmp_path / "m", public)).bundle, Trusted)


def test_a_process_that_dies_is_an_error(bundles: Path) -> None:
    with Opening([bundles / "mlp"]) as reading:
        reading.kill()
        with pytest.raises(ServeError, match="could not be read") as caught:
            reading.bundles()
    assert "-9" in caught.value.reason


def test_a_process_that_is_not_waited_for_is_ended(bundles: Path) -> None:
    with Opening([bundles / "mlp"]) as reading:
        pass
    assert reading._process.returncode == -signal.SIGKILL


def test_a_reader_that_hangs_ends_with_the_server_that_gives_up(
    bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_TIMEOUT_S", 0.001)
    with Opening([bundles / "mlp"]) as reading, pytest.raises(ServeError, match="could not be read in"):
        reading.bundles()
    assert reading._process.returncode == -signal.SIGKILL


def test_a_reading_that_is_cancelled_ends_its_process(bundles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Opening] = []
    begin = Opening.__enter__
    monkeypatch.setattr(Opening, "__enter__", lambda self: (started.append(self), begin(self))[1])

    async def cancelled() -> None:
        reading = asyncio.ensure_future(opening.opened(bundles / "mlp", None))
        await asyncio.sleep(0.01)
        reading.cancel()
        await reading

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert [each._process.returncode for each in started] == [-signal.SIGKILL]


@pytest.mark.skipif(sys.platform != "linux", reason="the memory is read from /proc")
def test_the_server_has_not_imported_what_reads_a_manifest(serve: Start) -> None:
    server = serve("mlp", options=("--model-control",))
    assert server.ask("/v2/repository/models/mlp/load", {})[0] == 200
    assert server.ask("/v2/models/mlp/example")[0] == 200
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "numpy" in maps
    assert "pydantic" not in maps


@pytest.mark.skipif(sys.platform != "linux", reason="the memory is read from /proc")
def test_a_reload_leaves_no_process_behind(serve: Start) -> None:
    server = serve("mlp", options=("--model-control",))
    for _ in range(3):
        assert server.ask("/v2/repository/models/mlp/load", {})[0] == 200
    deadline = time.monotonic() + 20
    while len(server.workers()) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_names_and_paths() -> None:
    assert opening.named("a/b") == ("", Path("a/b"))
    assert opening.named("m=a/b") == ("m", Path("a/b"))
    assert opening.named("m=") == ("m", Path())
