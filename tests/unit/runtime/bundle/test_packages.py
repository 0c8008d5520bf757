"""What other servers load a bundle by; where one of them is installed, it loads it."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import aotpipe
from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.errors import BundleError
from aotpipe.runtime import bundle, tensor_file
from aotpipe.runtime.bundle import packages
from tests.unit.runtime.bundle import samples

IMAGE, PLACE = "registry.example.com/aotpipe:0.1", "oci://registry.example.com/models/small:1.0"


@pytest.fixture
def stateful(tmp_path: Path) -> Path:
    return samples.packed(tmp_path / "b").path


def signature(**changes: object) -> Signature:
    given = {"inputs": (TensorSpec("x", "float32", ("batch", 4)), TensorSpec("n", "int64", (0,)))}
    return Signature(**{**given, "outputs": (TensorSpec("y", "float16", (3,)),), **changes})


class Manifest(types.SimpleNamespace):
    """What a package reads of a manifest."""

    def __init__(self, *signatures: Signature, names: tuple[str, ...] = ("forward",)) -> None:
        super().__init__(name="Small_net", signatures=dict(zip(names, signatures, strict=True)), parts=None)


def test_a_triton_configuration_is_one() -> None:
    model_config = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    from google.protobuf import text_format

    found = text_format.Parse(packages._triton_config(Manifest(signature())), model_config.ModelConfig())
    assert (found.name, found.backend, found.max_batch_size) == ("Small_net", "python", 0)
    x, n = found.input
    assert (x.name, x.data_type, list(x.dims)) == ("x", model_config.TYPE_FP32, [-1, 4])
    assert (n.data_type, list(n.dims)) == (model_config.TYPE_INT64, [-1])
    assert found.output[0].data_type == model_config.TYPE_FP16


STATE = (TensorSpec("total", "float32", (2,)),)


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (Manifest(signature(state=STATE)), "keeps state"),
        (Manifest(signature(), signature(), names=("prefill", "decode")), "entry points prefill, decode"),
        (Manifest(signature(outputs=(TensorSpec("y", "bfloat16", (3,)),))), "bfloat16"),
        (Manifest(signature(outputs=(TensorSpec("y", "float32", ()),))), "without dims"),
    ],
)
def test_what_a_server_cannot_take_is_refused(manifest: Manifest, said: str) -> None:
    with pytest.raises(BundleError, match="cannot serve") as caught:
        packages._served(manifest, "Triton")
    assert said in caught.value.reason


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "..", "a/b", "a b", ""])
def test_a_name_that_is_none_leads_nowhere(name: str, tmp_path: Path) -> None:
    made = samples.packed(tmp_path / "b", name=name).path
    with pytest.raises(BundleError, match="cannot name a model"):
        bundle.package(made, "triton", tmp_path / "x" / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"b"}


@pytest.mark.parametrize(
    ("name", "service"),
    [("Small_net", "small-net"), ("3d.unet", "model-3d-unet"), ("a" * 49 + "-b", "a" * 49)],
)
def test_a_service_of_kserve_has_a_name_that_kubernetes_takes(name: str, service: str) -> None:
    manifest = Manifest(signature())
    manifest.name = name
    assert packages._kserve(manifest, IMAGE, PLACE)["inference-service"]["metadata"]["name"] == service


def test_kserve(stateful: Path, tmp_path: Path) -> None:
    out = bundle.package(stateful, "kserve", tmp_path / "out", image=IMAGE, storage_uri=PLACE)
    runtime, service = (
        json.loads((out / f"{name}.yaml").read_text()) for name in ("serving-runtime", "inference-service")
    )
    model = service["spec"]["predictor"]["model"]
    assert (model["storageUri"], model["runtime"]) == (PLACE, runtime["metadata"]["name"])
    [formats] = runtime["spec"]["supportedModelFormats"]
    assert (formats["name"], formats["version"]) == tuple(model["modelFormat"].values())
    [container] = runtime["spec"]["containers"]
    assert container["image"] == IMAGE
    assert service["metadata"]["name"].islower()
    with pytest.raises(BundleError, match="an image and a place"):
        bundle.package(stateful, "kserve", tmp_path / "other")
    with pytest.raises(BundleError, match="not empty"):
        bundle.package(stateful, "kserve", out, image=IMAGE, storage_uri=PLACE)


def test_a_refusal_leaves_nothing(stateful: Path, tmp_path: Path) -> None:
    for server in ("triton", "mlflow"):
        with pytest.raises(BundleError, match="keeps state"):
            bundle.package(stateful, server, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    model = torch.nn.Linear(4, 2).eval()
    out = tmp_path_factory.mktemp("linear") / "b"
    dims = {"input": {0: aotpipe.Dim("batch", min=1, max=8)}}
    targets = ["iree-vmvx", "iree-cpu-host"]
    aotpipe.build(
        model, args=(torch.ones(3, 4),), dynamic_shapes=dims, targets=targets, out=out, latency=False
    )
    return out


CALL = {"input": np.arange(8, dtype=np.float32).reshape(2, 4)}


def answer(path: Path) -> np.ndarray:
    with aotpipe.load(path) as runner:
        return runner.infer(CALL)["output"]


def triton_utils() -> types.ModuleType:
    """What Triton gives a model, as far as it is called, for quick tests: the server is no package here.

    Its tensors are what `from_dlpack` takes, as numpy's arrays are.
    """
    module = types.ModuleType("triton_python_backend_utils")

    class Tensor(types.SimpleNamespace):
        def __init__(self, name: str, array: np.ndarray) -> None:
            super().__init__(name=name, as_numpy=lambda: array)

    Tensor.from_dlpack = lambda name, array: Tensor(name, np.from_dlpack(array))
    module.Tensor = Tensor
    module.TritonError = str
    module.InferenceResponse = lambda outputs=(), error=None: types.SimpleNamespace(
        outputs=outputs, error=error
    )
    module.get_input_tensor_by_name = lambda request, name: request.get(name)
    return module


def test_the_model_of_triton_answers_as_the_bundle(
    linear: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = bundle.package(bundle.archive(linear, tmp_path / "b.tar"), "triton", tmp_path / "out")
    [folder] = out.iterdir()
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", triton_utils())
    model = runpy.run_path(str(folder / "1" / "model.py"))["TritonPythonModel"]()
    model.initialize({"model_repository": str(folder), "model_version": "1"})
    right, wrong = model.execute([CALL, {"input": np.ones((9, 4), np.float32)}])
    np.testing.assert_array_equal(right.outputs[0].as_numpy(), answer(linear))
    assert "at most 8" in wrong.error or "batch" in wrong.error
    model.finalize()


def test_mlflow_loads_its_model(linear: Path, tmp_path: Path) -> None:
    out = bundle.package(linear, "mlflow", tmp_path / "out")
    model = packages._load_pyfunc(str(out / "bundle"))
    for given in (CALL, CALL["input"]):
        np.testing.assert_array_equal(model.predict(given)["output"], answer(linear))
    mlflow = pytest.importorskip("mlflow")
    np.testing.assert_array_equal(mlflow.pyfunc.load_model(str(out)).predict(CALL)["output"], answer(linear))


@pytest.mark.parametrize(
    ("target", "most_bytes", "workspace"),
    [("iree-vmvx", tensor_file.SHARD_BYTES, ()), ("iree-cpu-host", 8, ("--input=&4096xi8",))],
)
def test_the_runtime_alone_runs_program_and_weights(
    linear: Path, tmp_path: Path, target: str, most_bytes: int, workspace: tuple[str, ...]
) -> None:
    """The lines of docs/bundle.md."""
    arrays = tensor_file.read(linear / "weights.safetensors")
    shards = tensor_file.write_shards(arrays, tmp_path, "weights", most_bytes=most_bytes)
    done = subprocess.run(
        [
            Path(sys.executable).with_name("iree-run-module"),
            f"--module={linear}/programs/{target}/program.vmfb",
            *(f"--parameters=model={each.path}" for each in shards),
            *("--device=local-sync", "--function=forward", "--input=2x4xf32=0 1 2 3 4 5 6 7", *workspace),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = done.stdout.rpartition("2x2xf32=")[2].strip().strip("[]").split("][")
    found = np.array([list(map(float, row.split())) for row in rows])
    np.testing.assert_allclose(found, answer(linear), rtol=1e-4)
