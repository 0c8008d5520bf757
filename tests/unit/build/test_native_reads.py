"""Files that native code opens by name are told, and the calls do what they did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TELL = """
import sys
from aotpipe.build import native_reads
told = []
import safetensors, numpy
from safetensors.numpy import save_file
EARLY
native_reads.wrap_loaded(told.append)
native_reads.wrap_loaded(told.append)
"""

CASES = {
    "safe_open": """
save_file({"w": numpy.ones(3)}, "w.bin")
from safetensors import safe_open
with safe_open("w.bin", framework="numpy") as file:
    assert list(file.keys()) == ["w"]
with safe_open(filename="w.bin", framework="numpy") as file:
    pass
assert told == ["w.bin", "w.bin"], told
""",
    "load_file": """
save_file({"w": numpy.ones(3)}, "w.bin")
assert load_file("w.bin")["w"].sum() == 3
assert told == ["w.bin"], told
""",
    "export.load": """
import torch
native_reads.wrap_loaded(told.append)
program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
torch.export.save(program, "m.pt2")
told.clear()
torch.export.load("m.pt2")
assert "m.pt2" in map(str, told), told
""",
    "jit.load": """
import torch
native_reads.wrap_loaded(told.append)
torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "m.pt")
told.clear()
torch.jit.load("m.pt")
assert "m.pt" in map(str, told), told
""",
}


@pytest.mark.parametrize("case", CASES)
def test_the_path_is_told(case: str, tmp_path: Path):
    if ".load" in case:
        pytest.importorskip("torch")
    script = TELL.replace("EARLY", "from safetensors.numpy import load_file") + CASES[case]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
