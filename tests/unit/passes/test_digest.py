"""The digest tells programs apart, and is the same in every process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from aotpipe.core.dims import Dim
from aotpipe.passes.digest import digest
from tests.unit.passes.legal import legal, model

X = torch.ones(3, 4)
SCRIPT = """
import torch
from aotpipe.passes.digest import digest
from tests.unit.passes.legal import legal, model
def forward(self, x):
    self.count.add_(1)
    y = x * torch.tensor([1.0, 2.0, 3.0, 4.0])
    return torch.cond(x.sum() > 0, lambda x: self.linear(x), lambda x: x * torch.tensor(2.0), (y,)), x[x > 0]
found = digest(legal(model(forward, count=torch.zeros(())), [torch.ones(3, 4)]), "")
print(found)
"""


def test_another_process_in_another_folder_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    root = str(Path(__file__).parents[3])
    other = subprocess.run(
        [sys.executable, "-W", "ignore", script.name],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": root, "OMP_NUM_THREADS": "1", "PATH": "", "HOME": str(tmp_path)},
    )
    monkeypatch.chdir(root)
    found: dict[str, Any] = {}
    exec(compile(SCRIPT, "elsewhere/other.py", "exec"), found)
    assert len(found["found"]) == 64
    assert found["found"] == other.stdout.strip()


def test_what_changes_it() -> None:
    def plus(self, x):
        return self.linear(x) + 1

    base = digest(legal(model(plus), [X]), "0")
    assert digest(legal(model(plus), [X]), "0") == base
    assert digest(legal(model(plus), [X]), "1") != base
    others = [
        legal(model(lambda self, x: self.linear(x) + 2), [X]),
        legal(model(lambda self, y: self.linear(y) + 1), [X]),
        legal(model(plus), [torch.ones(2, 4)]),
        legal(model(plus), [X], dynamic_shapes={"x": {0: Dim("rows", max=8)}}),
        legal(model(plus), [X], name="other"),
    ]
    assert len({base, *(digest(each, "0") for each in others)}) == len(others) + 1
