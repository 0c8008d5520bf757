"""Bundles as what other servers load: a Triton model repository, KServe's resources, an MLflow model.

Each is a new folder. Triton's and MLflow's hold a copy of the bundle, and a few lines that load it where
`aotpipe` is installed; KServe's name a container that runs `aotpipe serve`, and where it finds the bundle.
`_load_pyfunc` is what MLflow calls. Torch-free.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, assert_never, get_args

import numpy as np

from aotpipe import __version__
from aotpipe.core.dtypes import Array
from aotpipe.core.signature import BUNDLE_NAME, Signature, TensorSpec
from aotpipe.errors import BundleError, InputError
from aotpipe.runtime.bundle import atomic_replace, files
from aotpipe.runtime.bundle import manifest as manifests
from aotpipe.runtime.bundle.files import Bundle
from aotpipe.runtime.bundle.load import load
from aotpipe.runtime.bundle.manifest import Manifest
from aotpipe.runtime.loading import Runner
from aotpipe.runtime.store import typed_os_errors

Server = Literal["triton", "kserve", "mlflow"]
SERVERS: Final[tuple[Server, ...]] = get_args(Server)

_INTEGERS: Final = [f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)]
_TRITON: Final[Mapping[str, str]] = {
    "bool": "TYPE_BOOL",
    **{name: f"TYPE_{name.upper()}" for name in _INTEGERS},
    **{f"float{bits}": f"TYPE_FP{bits}" for bits in (16, 32, 64)},
}
_TRITON_MODEL: Final = '''\
"""Runs the bundle beside this file in Triton's Python backend; needs `pip install aotpipe`."""

import os

import numpy as np
import triton_python_backend_utils as pb_utils

import aotpipe


class TritonPythonModel:
    def initialize(self, args):
        version = os.path.join(args["model_repository"], args["model_version"])
        self.runner = aotpipe.load(os.path.join(version, "bundle"))
        self.names = [spec.name for spec in self.runner.signature.tensor_inputs]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        tensors = {name: pb_utils.get_input_tensor_by_name(request, name) for name in self.names}
        try:
            given = {name: array(tensor) for name, tensor in tensors.items() if tensor is not None}
            found = self.runner.infer(given)
        except aotpipe.errors.AotpipeError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        return pb_utils.InferenceResponse([tensor(name, array) for name, array in found.items()])

    def finalize(self):
        self.runner.close()


def array(tensor):
    # as_numpy() of a backend that was built for numpy 1 repeats one element where numpy 2 is installed.
    return np.from_dlpack(tensor)


def tensor(name, array):
    # It takes no empty ones.
    return pb_utils.Tensor.from_dlpack(name, array) if array.size else pb_utils.Tensor(name, array)
'''


def package(
    path: str | PathLike[str],
    server: Server,
    out: str | PathLike[str],
    *,
    image: str = "",
    storage_uri: str = "",
) -> Path:
    """Write what a server loads a bundle by.

    Args:
        path: The bundle, as it was packed.
        server: Which one.
        out: A new or empty folder.
        image: Of KServe: a container image with `aotpipe[serve]`.
        storage_uri: Of KServe: where it finds the bundle, such as `oci://registry.example.com/minilm:1.0`.

    Returns:
        The folder.

    Raises:
        BundleError: There is no bundle, it has what the server cannot take, `out` is not empty, or an
            argument of KServe is missing.
        StoreError: It cannot be written.
    """
    bundle, destination = files.open_bundle(path), Path(out).absolute()
    files.require_whole(bundle)
    if destination.exists() and not (destination.is_dir() and not any(destination.iterdir())):
        raise BundleError(f"{destination} is there, and not empty", hint="name another folder")
    if server == "kserve" and not (image and storage_uri):
        raise BundleError(
            "KServe needs an image and a place of the bundle",
            hint="pass --image, of a container with aotpipe[serve], and --storage-uri",
        )
    manifest = bundle.manifest
    # The name is part of paths and commands, and nobody checked it in a bundle of another's.
    if not BUNDLE_NAME.fullmatch(manifest.name):
        raise BundleError(f"{manifest.name[:80]!r} cannot name a model", hint="build it with --name")
    with typed_os_errors("the package", destination.parent):
        destination.parent.mkdir(parents=True, exist_ok=True)
        with atomic_replace.folder(destination) as work:
            match server:
                case "triton":
                    model = work / manifest.name
                    _copy(bundle, model / "1" / "bundle")
                    (model / "config.pbtxt").write_text(_triton_config(manifest), encoding="utf-8")
                    (model / "1" / "model.py").write_text(_TRITON_MODEL, encoding="utf-8")
                case "kserve":
                    for name, resource in _kserve(manifest, image, storage_uri).items():
                        (work / f"{name}.yaml").write_text(_yaml(resource), encoding="utf-8")
                case "mlflow":
                    _copy(bundle, work / "bundle")
                    (work / "MLmodel").write_text(_yaml(_mlmodel(manifest)), encoding="utf-8")
                    (work / "requirements.txt").write_text(f"aotpipe=={__version__}\n", encoding="utf-8")
                    environment = {"dependencies": ["-r requirements.txt"]}
                    (work / "python_env.yaml").write_text(_yaml(environment), encoding="utf-8")
                case _:
                    assert_never(server)
    return destination


def _copy(bundle: Bundle, folder: Path) -> None:
    for name in (manifests.FILE_NAME, *bundle.manifest.files):
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if name == manifests.FILE_NAME:
            to.write_bytes(manifests.write(bundle.manifest))
        elif bundle.begins is None:
            shutil.copyfile(files.locate(bundle.path, name), to)
        else:
            to.write_bytes(files.content(bundle, name).data)


def _served(manifest: Manifest, server: str) -> Signature:
    """The signature of the entry point that `load(...).infer` calls.

    Raises:
        BundleError: The server cannot take it.
    """
    named = {name: each for name, each in manifest.signatures.items() if not each.specializes}
    signature = next(iter(named.values())) if len(named) == 1 else named.get("forward")
    reason = (
        f"it has the entry points {', '.join(named)}, and none is called `forward`"
        if signature is None
        else "a part of it is Python, which is named where it is loaded"
        if manifest.parts
        else _refusal(signature, server)
    )
    if signature is None or reason:
        raise BundleError(
            f"{server} cannot serve {manifest.name!r}",
            reason=reason,
            hint="`aotpipe serve` can, also under KServe",
        )
    return signature


def _refusal(signature: Signature, server: str) -> str:
    """Why a server takes no calls of a signature; empty where it does."""
    specs = (*signature.tensor_inputs, *signature.tensor_outputs)
    if signature.state:
        return "it keeps state between calls, and the calls of all clients would share it"
    if signature.optional or signature.optional_outputs:
        return "a call may leave inputs out"
    if unknown := sorted({spec.dtype for spec in specs} - _TRITON.keys()):
        return f"it takes or gives {', '.join(unknown)}"
    if server == "Triton" and not all(spec.dims for spec in specs):
        return "it takes or gives tensors without dims, which the server has not"
    return ""


def _shape(spec: TensorSpec) -> list[int]:
    # Triton has no dims of 0 but variable ones.
    return [dim if isinstance(dim, int) and dim else -1 for dim in spec.dims]


def _triton_config(manifest: Manifest) -> str:
    signature = _served(manifest, "Triton")

    def tensors(specs: Sequence[TensorSpec]) -> str:
        return ",\n".join(
            f"  {{ name: {json.dumps(spec.name)} data_type: {_TRITON[spec.dtype]} dims: {_shape(spec)} }}"
            for spec in specs
        )

    return (
        f'name: {json.dumps(manifest.name)}\nbackend: "python"\nmax_batch_size: 0\n'
        f"input [\n{tensors(signature.tensor_inputs)}\n]\noutput [\n{tensors(signature.tensor_outputs)}\n]\n"
        "instance_group [{ kind: KIND_CPU }]\n"
    )


def _kserve(manifest: Manifest, image: str, storage_uri: str) -> dict[str, Any]:
    """The resources, by the name of their file; names are those of DNS."""
    name = re.sub(r"[^a-z0-9]+", "-", manifest.name.lower())
    # A service's name begins with a letter and ends with none but a letter or a digit.
    name = (name if name[0].isalpha() else f"model-{name}")[:50].strip("-")
    ready = {"httpGet": {"path": f"/v2/models/{manifest.name}/ready", "port": 8080}}
    container = {
        "name": "kserve-container",
        "image": image,
        "command": ["aotpipe", "serve", f"{manifest.name}=/mnt/models", "--host", "0.0.0.0"],  # noqa: S104
        "args": ["--port", "8080"],
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "readinessProbe": ready,
    }
    runtime = {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": {"name": f"aotpipe-{name}"},
        "spec": {
            "supportedModelFormats": [
                {"name": "aotpipe", "version": str(manifests.SCHEMA), "autoSelect": True}
            ],
            "protocolVersions": ["v2"],
            "containers": [container],
        },
    }
    model = {
        "modelFormat": {"name": "aotpipe", "version": str(manifests.SCHEMA)},
        "runtime": f"aotpipe-{name}",
        "protocolVersion": "v2",
        "storageUri": storage_uri,
    }
    service = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"predictor": {"model": model}},
    }
    return {"serving-runtime": runtime, "inference-service": service}


def _mlmodel(manifest: Manifest) -> dict[str, Any]:
    signature = _served(manifest, "MLflow")

    def schema(specs: Sequence[TensorSpec]) -> str:
        return json.dumps(
            [
                {
                    "name": spec.name,
                    "type": "tensor",
                    "tensor-spec": {"dtype": spec.dtype, "shape": _shape(spec)},
                }
                for spec in specs
            ]
        )

    return {
        "flavors": {
            "python_function": {
                "loader_module": __name__,
                "data": "bundle",
                "env": {"virtualenv": "python_env.yaml"},
            }
        },
        "signature": {"inputs": schema(signature.tensor_inputs), "outputs": schema(signature.tensor_outputs)},
    }


def _yaml(value: Mapping[str, Any]) -> str:
    """JSON, which is YAML."""
    return json.dumps(value, indent=2) + "\n"


def _load_pyfunc(path: str) -> _MlflowModel:
    """The model at a path, as MLflow asks for it."""
    return _MlflowModel(load(path))


class _MlflowModel:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._names = [spec.name for spec in runner.signature.tensor_inputs]

    def predict(self, model_input: Any, params: object = None) -> dict[str, Array]:  # noqa: ARG002
        """Call the model with a mapping of names to arrays, or with the array of its only input."""
        if isinstance(model_input, Mapping):
            return self._runner.infer({name: np.asarray(model_input[name]) for name in model_input})
        if len(self._names) != 1:
            raise InputError("the model has several inputs", hint="pass a dict of arrays by name")
        return self._runner.infer({self._names[0]: np.asarray(model_input)})
