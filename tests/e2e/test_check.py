"""`aotpipe check` as users run it: a file in its problematic form."""

from __future__ import annotations

import json
from pathlib import Path

from tests import in_process

NET = '''import torch


def repeated_addition(x, repetitions):
    res = x
    for _ in range(repetitions):
        res = res + x
    return res


class Block(torch.nn.Module):
    """A conditional, a loop, a counter, optional keys, and a list that grows."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self._overflow_total = 0

    def forward(self, batch, reps):
        x = self.linear(batch["x"])
        if torch.sum(x) > 0:
            x = torch.relu(x)
        else:
            x = torch.sigmoid(x)
        self._overflow_total += int((x > 0.5).sum().item())
        if "doc_ids" in batch:
            x = x + batch["doc_ids"]
        x = repeated_addition(x, reps)
        history = []
        while x.abs().max() > 0.1:
            x = x / 2
            history.append(x.mean())
        print("done")
        return x, torch.stack(history)


torch.manual_seed(0)
MODEL = Block().eval()
EXAMPLE_INPUTS = ({"x": torch.ones(2, 4)}, 3)
'''


def test_a_file_in_its_problematic_form(tmp_path: Path) -> None:
    (tmp_path / "block.py").write_text(NET)
    ran = in_process.aotpipe("check", "block.py", "--json", "--sarif", "check.sarif", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    data = json.loads(ran.stdout)
    lines = NET.splitlines()
    said = {
        (each["code"], lines[each["place"]["line"] - 1].strip())
        for each in data["diagnostics"]
        if each["place"] is not None
    }
    assert said == {
        ("list-room-assumed", "while x.abs().max() > 0.1:"),
        ("state-becomes-buffer", "self._overflow_total += int((x > 0.5).sum().item())"),
        ("baked-key", 'if "doc_ids" in batch:'),
        ("baked-input", "x = repeated_addition(x, reps)"),
        ("output-dropped", 'print("done")'),
        ("state-in-python", "def forward(self, batch, reps):"),
    }
    rewritten = {(each["into"], lines[each["place"]["line"] - 1].strip()) for each in data["rewrites"]}
    assert ("torch.cond", "if torch.sum(x) > 0:") in rewritten
    [run] = json.loads((tmp_path / "check.sarif").read_text())["runs"]
    assert {"block.py"} == {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run["results"]
    }
