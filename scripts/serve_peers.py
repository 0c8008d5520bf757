"""Other servers of the Open Inference Protocol, with the bundle that `aotpipe serve` is measured with.

Each runs by a Python that has the peer and aotpipe, which a variable of the environment names: TRITON_PYTHON
(`pip install nvidia-pytriton`, whose wheel has Triton's server), MLSERVER_PYTHON (`pip install mlserver`) and
KSERVE_PYTHON (`pip install kserve`). A peer without its variable is left out. All run the same program in one
process of one thread, by `aotpipe.load`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

READY_S: Final = 60.0
_MLSERVER: Final = """\
import aotpipe
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Bundle(MLModel):
    async def load(self):
        self.runner = aotpipe.load(self.settings.parameters.uri)
        return True

    async def predict(self, payload):
        given = {each.name: NumpyCodec.decode_input(each) for each in payload.inputs}
        found = self.runner.infer(given)
        outputs = [NumpyCodec.encode_output(name, array) for name, array in found.items()]
        return InferenceResponse(model_name=self.name, outputs=outputs)
"""
_KSERVE: Final = """\
import sys

import aotpipe
from kserve import InferOutput, InferResponse, Model, ModelServer


class Bundle(Model):
    def load(self):
        self.runner = aotpipe.load(sys.argv[1])
        self.ready = True
        return True

    def predict(self, payload, headers=None, response_headers=None):
        found = self.runner.infer({each.name: each.as_numpy() for each in payload.inputs})
        outputs = []
        for name, array in found.items():
            output = InferOutput(name, list(array.shape), "FP32")
            output.set_data_from_numpy(array, binary_data=False)
            outputs.append(output)
        return InferResponse(payload.id or "1", self.name, outputs)


model = Bundle("m")
model.load()
ModelServer(http_port=int(sys.argv[2]), enable_grpc=False, enable_latency_logging=False).start([model])
"""


class Peer:
    """Another server, in a process of its own.

    Args:
        command: What starts it.
        port: Where it listens.
        log: Where its output goes.
        environment: Variables beside those of this process.

    Raises:
        SystemExit: It did not become ready.
    """

    def __init__(
        self, command: list[str], port: int, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.port = port
        start = time.perf_counter()
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                cwd=log.parent,
                stdout=out,
                stderr=out,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
                start_new_session=True,
            )
        while not self._is_ready():
            if time.perf_counter() - start > READY_S or self.process.poll() is not None:
                self.stop()
                raise SystemExit(f"{command[0]} did not become ready:\n{log.read_text()[-2000:]}")
            time.sleep(0.01)
        self.ready_s = time.perf_counter() - start

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/v2/models/m/ready", timeout=1
            ) as answer:
                return int(answer.status) == 200
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        """End it and what it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _triton(python: str, bundle: Path, folder: Path) -> Peer:
    repository = folder / "repository"
    subprocess.run(
        [sys.executable, "-m", "aotpipe", "package", bundle, "--for", "triton", "-o", repository],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (name,) = repository.iterdir()
    name.rename(repository / "m")
    config = repository / "m" / "config.pbtxt"
    text = config.read_text().replace(f'name: "{name.name}"', 'name: "m"')
    config.write_text(text)
    asked = (
        "import pytriton, sys, sysconfig; print(pytriton.__path__[0], sysconfig.get_config_var('LIBDIR'),"
        " '%d.%d' % sys.version_info[:2], ':'.join(path for path in sys.path if path), sep='\\n')"
    )
    where, libraries, version, paths = subprocess.run(
        [python, "-c", asked], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    given = Path(where, "tritonserver")
    backends = folder / "backends"
    shutil.copytree(given / "backends", backends)
    # The stub that runs Python lies where it finds no library that came with the wheel.
    stub = given / "python_backend_stubs" / version / "triton_python_backend_stub"
    shutil.copy2(stub, backends / "python" / stub.name)
    bundled = Path(where).with_name("nvidia_pytriton.libs")
    # The stub's interpreter reads no PYTHONPATH.
    model = repository / "m" / "1" / "model.py"
    model.write_text(f"import sys\n\nsys.path += {paths.split(':')}\n{model.read_text()}")
    port = _free_port()
    return Peer(
        [
            str(given / "bin" / "tritonserver"),
            f"--model-repository={repository}",
            f"--backend-directory={backends}",
            f"--http-port={port}",
            "--http-address=127.0.0.1",
            "--allow-grpc=false",
            "--allow-metrics=false",
        ],
        port,
        folder / "log",
        {"LD_LIBRARY_PATH": f"{libraries}:{bundled}"},
    )


def _mlserver(python: str, bundle: Path, folder: Path) -> Peer:
    port = _free_port()
    (folder / "bundle_model.py").write_text(_MLSERVER)
    settings = {
        "http_port": port,
        "grpc_port": _free_port(),
        "metrics_port": _free_port(),
        "host": "127.0.0.1",
        "parallel_workers": 0,
        "debug": False,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    model = {
        "name": "m",
        "implementation": "bundle_model.Bundle",
        "parameters": {"uri": str(bundle.resolve())},
    }
    (folder / "model-settings.json").write_text(json.dumps(model))
    start = "import sys; from mlserver.cli import main; sys.argv = ['mlserver', 'start', '.']; main()"
    return Peer([python, "-c", start], port, folder / "log", {"PYTHONPATH": str(folder)})


def _kserve(python: str, bundle: Path, folder: Path) -> Peer:
    port = _free_port()
    (folder / "server.py").write_text(_KSERVE)
    return Peer([python, "server.py", str(bundle.resolve()), str(port)], port, folder / "log")


_PEERS: Final = {"triton": _triton, "mlserver": _mlserver, "kserve": _kserve}


def started(bundle: Path, folder: Path) -> dict[str, Peer]:
    """The peers whose Python the environment names, ready, by name.

    Raises:
        SystemExit: One did not become ready; those before it are ended.
    """
    found: dict[str, Peer] = {}
    try:
        for name, start in _PEERS.items():
            if python := os.environ.get(f"{name.upper()}_PYTHON"):
                (folder / name).mkdir()
                found[name] = start(python, bundle, folder / name)
    except BaseException:
        for peer in found.values():
            peer.stop()
        raise
    return found
