"""The tool compiles what its folder names, and says which module it refuses."""

import json
import subprocess
import sys
from pathlib import Path

from aotpipe.backends.xla import tool
from tests.programs.through import ROOT

MODULE = "func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"


def run(folder: Path, **modules: str) -> subprocess.CompletedProcess[str]:
    for name, text in modules.items():
        (folder / f"{name}.mlir").write_text(text)
    request = {"platform": "cpu", "topology": "cpu", "config": "", "devices": 1, "modules": list(modules)}
    (folder / tool.REQUEST).write_text(json.dumps(request))
    return subprocess.run(
        [sys.executable, "-m", tool.__name__],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )


def test_each_module_gives_an_executable(tmp_path: Path) -> None:
    assert run(tmp_path, a=MODULE).returncode == 0
    assert (tmp_path / "a.bin").stat().st_size


def test_the_refused_module_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, a=MODULE, b="nonsense")
    assert done.returncode == tool.REFUSED
    assert "aotpipe: b\n" in done.stderr
