"""Programs for machines that this one is not: all are compiled, and run where an emulator stands in.

`scripts/emulators` installs Mesa's Vulkan device and qemu-user, and makes `.aarch64/`; without them the tests
that run something are skipped, and say why.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from aotpipe.build.build import Outcome, Settings, run
from aotpipe.build.request import Request
from aotpipe.runtime.iree import devices

ROOT = Path(__file__).resolve().parents[2]
LEVELS = ["iree-cpu-x86_64", "iree-cpu-x86_64_v2", "iree-cpu-x86_64_v3", "iree-cpu-x86_64_v4"]
ELSEWHERE = [
    "iree-cuda-sm_80",
    "iree-cuda-sm_90",
    "iree-rocm-gfx942",
    "iree-vulkan",
    "iree-metal",
    "iree-cpu-aarch64",
    "iree-cpu-riscv64",
]
MODELS = [
    "cond_activation.py",
    "newton.py",
    "dynamic_batch.py",
    "mtcnn.py:PNET",
    "mamba.py",
    "torchcrepe_tiny.py",
    "voice_encoder.py",
    "silero_vad.py",
    "gpt2.py",
    "llama.py",
    "minilm.py",
    "unet3d.py:SMALL",
    "resnet50.py:SMALL",
    "efficientnet_lite0.py",
    "mtcnn.py",
]
LARGE = ["resnet50.py", "unet3d.py", "mtcnn_detect.py", "nam52.py"]


def build(model: str, targets: list[str], out: Path, *, fat: bool = False) -> Outcome:
    return run(
        Request.of(f"{ROOT}/models/{model}", targets),
        Settings(out=out, fat=fat, latency=False, keep_going=True, cache=False),
    )


@pytest.fixture
def vulkan() -> None:
    if reason := devices.why_unavailable("vulkan"):
        pytest.skip(reason)


@pytest.fixture
def aarch64() -> Path:
    """A Python for aarch64 that runs here."""
    python = ROOT / ".aarch64" / "python"
    if not python.exists():
        pytest.skip("no .aarch64/: run scripts/emulators")
    return python


@pytest.fixture
def emulator() -> str:
    found = shutil.which("qemu-x86_64-static")
    if found is None:
        pytest.skip("qemu-x86_64-static is not installed: run scripts/emulators")
    return found


def executed(outcome: Outcome) -> None:
    for row in outcome.report.targets:
        assert row.status == "executed", row.reason
        assert row.parity is not None
        assert row.parity.passed


def test_a_program_runs_on_vulkan(vulkan: None, tmp_path: Path) -> None:
    executed(build("cond_activation.py", ["iree-vulkan"], tmp_path / "out"))


def test_a_program_runs_once_there_is_a_device(vulkan: None, tmp_path: Path) -> None:
    def built(**hidden: str) -> dict[str, object]:
        command = [sys.executable, "-m", "aotpipe", "build", f"{ROOT}/models/cond_activation.py", "--json"]
        done = subprocess.run(
            [*command, "-t", "iree-vulkan", "--no-latency", "--quiet", "--out", tmp_path / "out"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "AOTPIPE_CACHE": f"{tmp_path}/cache", **hidden},
            capture_output=True,
            text=True,
            check=True,
        )
        report = json.loads(done.stdout)
        return {"status": report["targets"][0]["status"], "up_to_date": report["up_to_date"]}

    no_device = {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
    assert built(**no_device) == {"status": "compiled", "up_to_date": False}
    assert built(**no_device) == {"status": "compiled", "up_to_date": True}
    assert built() == {"status": "executed", "up_to_date": False}
    assert built() == {"status": "executed", "up_to_date": True}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", [*MODELS, *LARGE])
def test_a_model_is_at_parity_on_vulkan(vulkan: None, model: str, tmp_path: Path) -> None:
    executed(build(model, ["iree-vulkan"], tmp_path / "out"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", ["newton.py", "dynamic_batch.py", "mtcnn.py:PNET", "minilm.py"])
def test_a_fat_program_is_at_parity_on_each_of_its_devices(vulkan: None, model: str, tmp_path: Path) -> None:
    targets = ["iree-cpu-x86_64_v3", "iree-vulkan", "iree-cuda-sm_80"]
    outcome = build(model, targets, tmp_path / "out", fat=True)
    statuses = {row.target: row.status for row in outcome.report.targets}
    assert statuses.pop("iree-cuda-sm_80") == ("compiled" if devices.why_unavailable("cuda") else "executed")
    assert set(statuses.values()) == {"executed"}
    assert outcome.path is not None
    assert [each.name for each in (outcome.path / "programs").iterdir()] == ["+".join(sorted(targets))]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("model", [*MODELS, *LARGE])
def test_a_model_is_at_parity_on_aarch64(aarch64: Path, model: str, tmp_path: Path) -> None:
    """Its recorded calls, on another architecture's runtime, loaded as an operator loads them."""
    outcome = build(model, ["iree-cpu-aarch64"], tmp_path / "out")
    assert [row.status for row in outcome.report.targets] == ["compiled"]
    done = subprocess.run(
        [aarch64, "-m", "aotpipe", "selftest", tmp_path / "out", "--json"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/.aarch64/site"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["targets"]
    assert (row["outcome"], row["calls"] > 0) == ("passed", True)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("model", [*MODELS, *LARGE])
def test_a_model_is_compiled_for_other_machines(model: str, tmp_path: Path) -> None:
    targets = [target for target in ELSEWHERE if target != "iree-vulkan" or devices.why_unavailable("vulkan")]
    outcome = build(model, targets, tmp_path / "out")
    assert {row.target: row.status for row in outcome.report.targets} == dict.fromkeys(targets, "compiled")


_LOADS = """
import json, sys
from pathlib import Path
import aotpipe
from aotpipe.runtime import goldens
from aotpipe.errors import IncompatibleHost
call = goldens.loads(Path(sys.argv[1], "goldens.safetensors").read_bytes())[0]
found = {}
for target in (None, *sys.argv[2:]):
    try:
        with aotpipe.load(sys.argv[1], target=target) as runner:
            runner.infer(call.inputs)
        found[str(target)] = "ran"
    except IncompatibleHost as error:
        found[str(target)] = error.reason
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_cpu_dies_of_an_illegal_instruction(emulator: str, tmp_path: Path) -> None:
    """On each CPU of qemu's, each program runs or is refused with what is missing.

    Older CPUs than these are not tried: numpy's own wheel dies on them.
    """
    targets = [*LEVELS, "iree-cpu-host", "iree-vmvx"]
    build("dynamic_batch.py", targets, tmp_path / "out")
    runs = {}
    for cpu in ("Nehalem", "SandyBridge", "Haswell", "Haswell,-bmi2", "Skylake-Client", "EPYC", "max"):
        done = subprocess.run(
            [emulator, "-cpu", cpu, sys.executable, "-c", _LOADS, tmp_path / "out", *targets],
            # OpenBLAS, which numpy loads, mistakes qemu's Nehalem for another CPU.
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_CORETYPE": "Prescott"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (cpu, done.returncode, done.stderr)
        found = json.loads(done.stdout)
        assert all(reason == "ran" or "lacks" in reason for reason in found.values())
        runs[cpu] = {target for target, reason in found.items() if reason == "ran"}
    assert runs["Nehalem"] == runs["SandyBridge"] == {"None", *LEVELS[:2], "iree-vmvx"}
    assert runs["Haswell"] >= {"None", *LEVELS[:3], "iree-vmvx"}
    assert LEVELS[2] not in runs["Haswell,-bmi2"]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, as a module."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("gpu")


@pytest.mark.parametrize(
    ("capability", "target"), [(80, "sm_80"), (87, "sm_86"), (90, "sm_90"), (120, "sm_90")]
)
def test_the_gpu_script_takes_the_best_that_the_gpu_runs(
    gpu: ModuleType, monkeypatch: pytest.MonkeyPatch, capability: int, target: str
) -> None:
    monkeypatch.setattr("aotpipe.runtime.iree.devices.cuda_capability", lambda: capability)
    assert gpu.targets("cuda")[0] == f"iree-cuda-{target}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_gpu_script_does_on_a_cpu_what_it_does_on_a_gpu(tmp_path: Path) -> None:
    cases = ["mlp_b1", "dynamic_batch.py"]
    options = ["--here", "--device", "cpu", "--seconds", "0.2", "--json", tmp_path / "gpu.json"]
    done = subprocess.run(
        [ROOT / "scripts" / "gpu", *options, *cases],
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert {row["case"]: row["status"] for row in found["parity"]} == dict.fromkeys(cases, "executed")
    assert [row["case"] for row in found["latency"] if row["program_us"] > 0] == cases
