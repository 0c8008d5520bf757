"""A bundle on a host that has only the base dependencies: no torch, no compiler.

The environment is a new venv. aotpipe goes in as the wheel that a user would get; what pyproject.toml names
as dependencies, and what those need in turn, is linked from this environment, so that no network is needed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import aotpipe

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "schema-1"

ABSENT = """
import importlib, sys
for name in ("torch", "iree.compiler", "jax", "transformers"):
    try:
        importlib.import_module(name)
    except ImportError:
        continue
    sys.exit(f"{name} is there")
"""
SERVE = """
import sys
import aotpipe, numpy as np
with aotpipe.load(sys.argv[1], target="iree-vmvx") as runner:
    x, ids = np.ones((2, 4), np.float32), np.array([0, 3])
    assert runner.infer({"x": x, "ids": ids})["y"].tolist() == [[0, 1, 2, 3]] * 2
    assert runner.infer({"x": x, "ids": ids})["y"].tolist() == [[2, 3, 4, 5]] * 2
    assert runner.signature.tensor_outputs[0].name == "y"
    try:
        runner.infer({"x": x.astype(np.float64), "ids": ids})
    except aotpipe.AotpipeError as error:
        print(type(error).__name__)
print(aotpipe.__file__)
"""
ON_XLA = """
import sys
sys.path.append(sys.argv[2])
sys.modules["scipy"] = sys.modules["jax"] = sys.modules["torch"] = None
import aotpipe, json, numpy as np
from jaxlib import xla_client

compiles = []
def counted(method):
    def call(*args, **options):
        compiles.append(method)
        return method(*args, **options)
    return call
for name in dir(xla_client.Client):
    if name.startswith("compile"):
        setattr(xla_client.Client, name, counted(getattr(xla_client.Client, name)))
with aotpipe.load(sys.argv[1], target="xla-cpu-host") as runner:
    sums = [runner.infer({"x": np.ones((rows, 512), np.float32)})["y"].sum(1).tolist() for rows in (1, 3, 4)]
loading = len(compiles)
from aotpipe.runtime.xla import clients
device = clients.devices("cpu", 1)[0]
try:
    device.client.compile_and_load(b"", xla_client.DeviceList((device,)), xla_client.CompileOptions())
except Exception:
    pass
print(json.dumps({"sums": sums, "loading": loading, "after": len(compiles)}))
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a venv without torch and compiler."""
    folder = tmp_path_factory.mktemp("host")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv"), "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)
    [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
    [metadata] = packages.glob("aotpipe-*.dist-info")
    for needed in _closure(Distribution.at(metadata)):
        _link(needed, packages)
    return folder / "venv"


def _closure(root: Distribution) -> Iterator[Distribution]:
    """What a distribution needs without its extras, and what that needs."""
    seen: set[str] = set()
    todo = [root]
    while todo:
        for text in todo.pop().requires or ():
            requirement = Requirement(text)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            name = canonicalize_name(requirement.name)
            if not wanted or name in seen:
                continue
            seen.add(name)
            found = distribution(name)
            assert found.version in requirement.specifier, f"{requirement} is not what is installed"
            todo.append(found)
            yield found


def _link(found: Distribution, packages: Path) -> None:
    for file in found.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            link = packages / file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(str(found.locate_file(file))).resolve())


def _run(host: Path, *command: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(host / "bin" / command[0]), *command[1:]],
        cwd=host,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_there_is_no_torch_and_no_compiler(host: Path) -> None:
    done = _run(host, "python", "-c", ABSENT)
    assert done.returncode == 0, done.stderr


def test_a_bundle_is_loaded_and_called(host: Path) -> None:
    done = _run(host, "python", "-c", SERVE, str(GOLDEN))
    assert done.returncode == 0, done.stderr
    error, origin = done.stdout.split()
    assert error == "InputDtype"
    assert origin.startswith(str(host))


def test_selftest_runs(host: Path) -> None:
    done = _run(host, "aotpipe", "selftest", str(GOLDEN))
    assert done.returncode == 0, done.stderr
    done = _run(host, "aotpipe", "selftest", str(GOLDEN), "--json")
    assert json.loads(done.stdout)


def test_a_changed_byte_is_found_by_the_command(host: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(GOLDEN, broken)
    program = broken / "programs" / "iree-vmvx" / "program.vmfb"
    data = bytearray(program.read_bytes())
    data[5000] ^= 1
    program.write_bytes(data)
    done = _run(host, "aotpipe", "selftest", str(broken))
    assert done.returncode == 52, done.stderr
    assert "program.vmfb is not the file that was packed" in done.stderr


class Wide(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(512, 512)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": self.linear(x)}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_xla_s_program_needs_jaxlib_alone_and_compiles_nothing(host: Path, tmp_path: Path) -> None:
    """Three programs over weights that are there once; the counter of compiles is seen to count."""
    model = Wide().eval()
    targets = ["iree-cpu-host", "xla-cpu-host", "xla-tpu-v5e"]
    built = aotpipe.build(
        model,
        args=(torch.randn(2, 512),),
        dynamic_shapes={"x": {0: aotpipe.Dim("rows", min=1, max=4)}},
        buckets={"rows": (1, 4)},
        targets=targets,
        out=tmp_path / "wide",
        latency=False,
    )
    assert [row.status for row in built.report.targets] == ["executed", "executed", "compiled"]
    weight = 512 * 512 * 4
    files = [path.stat().st_size for path in built.path.rglob("*") if path.is_file()]
    assert [size for size in files if size >= weight] == [max(files)]
    assert max(files) < 1.1 * weight
    packages = tmp_path / "packages"
    _link(distribution("jaxlib"), packages)
    done = _run(host, "python", "-c", ON_XLA, str(built.path), str(packages))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["loading"], found["after"]) == (0, 1)
    want = model(torch.ones(1, 512))["y"].sum().item()
    assert [len(sums) for sums in found["sums"]] == [1, 3, 4]
    assert all(each == pytest.approx(want, abs=1e-2) for sums in found["sums"] for each in sums)
