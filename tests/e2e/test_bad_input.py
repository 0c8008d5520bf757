"""What can be wrong from outside: a typed error, an exit code of its own, and nothing left half-written."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotpipe
from aotpipe import errors
from aotpipe.runtime import tensor_file
from aotpipe.runtime.bundle import manifest as manifests
from tests import in_process

HEAD = "import torch\nfrom aotpipe import Dim, EntryPoint, Spec\n"
NET = HEAD + "NET = torch.nn.Linear(8, 4).eval()\nEXAMPLE_INPUTS = (torch.randn(2, 8),)\n"
LARGE = HEAD + "NET = torch.nn.Linear(512, 1024).eval()\nEXAMPLE_INPUTS = (torch.randn(2, 512),)\n"


class Folder:
    """A user's folder, in which aotpipe runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def env(self, **more: str) -> dict[str, str]:
        root = str(Path(aotpipe.__file__).parents[1])
        return {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", **more}

    def run(
        self, *argv: str, preexec: Callable[[], None] | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        if preexec is None:
            return in_process.aotpipe(*argv, folder=self.path, **env)
        return self.run_apart(*argv, preexec=preexec, **env)

    def run_apart(
        self, *argv: str, preexec: Callable[[], None] | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "aotpipe", *argv],
            cwd=self.path,
            env=self.env(**env),
            capture_output=True,
            text=True,
            timeout=300,
            preexec_fn=preexec,
        )

    def fail(self, kind: type[errors.AotpipeError], *argv: str, **more: Any) -> dict[str, Any]:
        """The error that a command must end with, as `--json` prints it; of a build, what its report says."""
        before = self.files()
        done = self.run(*argv, "--json", **more)
        assert done.returncode == kind.exit_code, done.stdout + done.stderr
        printed: dict[str, Any] = json.loads(done.stdout)
        failed = [row["failure"] for row in printed.get("targets", ()) if row["failure"]]
        error = next(filter(None, [printed.get("failure"), *failed]), printed)
        if isinstance(error["where"], list):
            error["where"] = ":".join(map(str, error["where"]))
        assert error["error"] == kind.__name__
        assert "Traceback" not in done.stderr
        assert self.files() == before
        return error

    def files(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.path))
            for path in self.path.rglob("*")
            if "__pycache__" not in path.parts and not any(part.endswith(".report") for part in path.parts)
        )


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "user")


def build(name: str = "m.py", out: str = "out") -> tuple[str, ...]:
    return ("build", name, "-o", out, "--no-latency")


def test_no_such_file(folder: Folder):
    (folder.path / "model.py").write_text(NET)
    error = folder.fail(errors.ModelNotFound, *build("modle.py"))
    assert "model.py" in error["hint"]


def test_no_such_name_in_the_file(folder: Folder):
    (folder.path / "m.py").write_text(NET)
    error = folder.fail(errors.ModelNotFound, *build("m.py:NETT"))
    assert "NET" in error["hint"]


def test_a_process_ends_with_the_code_of_its_error(folder: Folder):
    done = folder.run_apart(*build("modle.py"))
    assert done.returncode == errors.ModelNotFound.exit_code
    assert done.stdout == ""
    assert "\nerror[spec]: no such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_raises_on_import(folder: Folder):
    (folder.path / "m.py").write_text(HEAD + "x = 1\n1 / 0\n")
    error = folder.fail(errors.ModelImportFailed, *build())
    assert error["where"].endswith("m.py:4")
    assert "ZeroDivisionError" in error["message"] + error["reason"]


def test_two_models_and_no_name(folder: Folder):
    (folder.path / "m.py").write_text(NET + "OTHER = torch.nn.Linear(8, 2).eval()\n")
    error = folder.fail(errors.AmbiguousModel, *build())
    assert "m.py:NET" in error["message"] + error["reason"] + error["hint"]


def test_no_example_inputs(folder: Folder):
    (folder.path / "m.py").write_text(HEAD + "NET = torch.nn.Linear(8, 4).eval()\n")
    error = folder.fail(errors.NoExampleInputs, *build())
    assert "EXAMPLE_INPUTS" in error["hint"]


def test_an_unknown_target_is_found_before_the_model_is_read(folder: Folder):
    error = folder.fail(errors.UnknownTarget, *build("no_such_file.py"), "-t", "iree-cpu-hsot")
    assert "did you mean iree-cpu-host?" in error["hint"]


def test_a_folder_that_is_no_bundle_is_not_overwritten(folder: Folder):
    (folder.path / "m.py").write_text(NET)
    (folder.path / "out").mkdir()
    (folder.path / "out" / "thesis.tex").write_text("years of work")
    folder.fail(errors.BundleError, *build())
    assert (folder.path / "out" / "thesis.tex").read_text() == "years of work"


def test_a_read_only_cache_is_found_before_any_work(folder: Folder):
    (folder.path / "m.py").write_text(NET)
    # Not even root may make a folder there.
    error = folder.fail(errors.ReadOnly, *build(), AOTPIPE_CACHE="/sys/aotpipe")
    assert "--no-cache" in error["hint"]
    assert folder.run(*build(), "--no-cache", AOTPIPE_CACHE="/sys/aotpipe").returncode == 0


def test_a_read_only_output_folder(folder: Folder):
    (folder.path / "m.py").write_text(NET)
    folder.fail(errors.ReadOnly, *build(out="/sys/aotpipe-out"))


@pytest.fixture
def full_disk(folder: Folder) -> Iterator[tuple[Path, Callable[[], None] | None]]:
    """A folder with room for less than the weights: a small disk, or else a limit on the size of files."""
    small = folder.path / "disk"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", small], check=False, capture_output=True
    )
    if mounted.returncode == 0:
        yield small, None
        subprocess.run(["umount", small], check=True)
    else:
        limit = 1 << 20
        yield small, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def test_a_full_disk(folder: Folder, full_disk: tuple[Path, Callable[[], None] | None]):
    small, preexec = full_disk
    (folder.path / "m.py").write_text(LARGE)
    error = folder.fail(errors.DiskFull, *build(out=str(small / "out")), preexec=preexec)
    assert error["hint"]
    assert {path.name for path in small.iterdir()} <= {"out.report"}


def test_a_full_cache_costs_a_warning(folder: Folder, full_disk: tuple[Path, Callable[[], None] | None]):
    small, preexec = full_disk
    if preexec is not None:
        pytest.skip("needs a disk of its own; the same is tested on one process in test_cache.py")
    (folder.path / "m.py").write_text(LARGE)
    done = folder.run(*build(), AOTPIPE_CACHE=str(small / "cache"))
    assert done.returncode == 0
    assert "warning: no space for the cache" in done.stderr
    assert not list((small / "cache" / "tmp").iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_ends_the_compiler_and_leaves_nothing(folder: Folder, tmp_path: Path, number: signal.Signals):
    (folder.path / "m.py").write_text(NET)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    before = folder.files()
    process = subprocess.Popen(
        [sys.executable, "-m", "aotpipe", *build()],
        cwd=folder.path,
        env=folder.env(TMPDIR=str(temporary)),
        stderr=subprocess.PIPE,
        text=True,
    )
    compiler = wait_for_child(process, "iree-compile")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == errors.Interrupted.exit_code
    assert "error[aotpipe]: interrupted" in stderr
    assert "Traceback" not in stderr
    assert not is_running(compiler)
    assert folder.files() == before
    assert list(temporary.glob("aotpipe*")) == []


def wait_for_child(process: subprocess.Popen[str], name: str) -> int:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                text = stat.read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            command, _, rest = text.partition("(")[2].rpartition(")")
            if command == name and int(rest.split()[1]) == process.pid:
                return int(stat.parent.name)
        time.sleep(0.005)
    pytest.fail(f"{name} was not started")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def bundle_bytes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A small bundle's files, built once."""
    import torch

    out = tmp_path_factory.mktemp("bundle") / "out"
    aotpipe.build(
        torch.nn.Linear(8, 4).eval(),
        args=(torch.randn(2, 8),),
        targets=["iree-vmvx"],
        out=out,
        latency=False,
        cache=False,
    )
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.fixture
def bundle(bundle_bytes: dict[str, bytes], folder: Folder) -> Path:
    out = folder.path / "out"
    for name, content in bundle_bytes.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(content)
    return out


@pytest.mark.parametrize(
    "name", ["manifest.json", "weights.safetensors", "goldens.safetensors", "programs/iree-vmvx/program.vmfb"]
)
def test_a_bundle_with_a_byte_changed(folder: Folder, bundle: Path, name: str):
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)
    folder.fail(errors.BundleCorrupt, "inspect", "out", "--verify")
    folder.fail(errors.BundleCorrupt, "selftest", "out")


def test_no_bundle(folder: Folder):
    folder.fail(errors.BundleNotFound, "selftest", "nowhere")


def test_a_missing_weight(folder: Folder, bundle: Path):
    path = bundle / "weights.safetensors"
    arrays = {name: np.array(array) for name, array in tensor_file.read(path).items()}
    del arrays[min(arrays)]
    sha256 = tensor_file.write(arrays, path)
    manifest = manifests.read((bundle / manifests.FILE_NAME).read_bytes())
    files = {**manifest.files, path.name: manifests.File(sha256=sha256, size_bytes=path.stat().st_size)}
    (bundle / manifests.FILE_NAME).write_bytes(manifests.write(replace(manifest, files=files)))
    folder.fail(errors.MissingWeight, "selftest", "out")


def test_a_target_that_the_bundle_lacks(folder: Folder, bundle: Path):
    error = folder.fail(errors.NoProgram, "selftest", "out", "-t", "iree-cpu-host")
    assert "iree-vmvx" in error["reason"] + error["hint"]
