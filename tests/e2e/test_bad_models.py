"""Models that no graph can be made of for Python's own reasons: refused at their lines, with a remedy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import aotpipe
from aotpipe import errors

HEAD = "import torch\n\n\nclass Model(torch.nn.Module):\n"
TAIL = "\n\nMODEL = Model().eval()\nEXAMPLE_INPUTS = (torch.ones(3),)\n"
MADE = """import torch

space = {"__name__": "made"}
exec("def chosen(x):\\n    while x.sum() < 9: x = x + 1\\n    return x\\n", space)


class Model(torch.nn.Module):
    def forward(self, x):
        return space["chosen"](x * 2)  # here
"""
C_READS = "    def forward(self, x):\n        return x + zlib.crc32(x.numpy())  # here\n"
C_WRITES = "    def forward(self, x):\n        ctypes.memset(x.data_ptr(), 0, 4)  # here\n        return x\n"
C_NUMBER = "    def forward(self, x):\n        return x * math.gamma(x.sum())  # here\n"
RAISES = """    def looked_up(self, table):
        return table["missing"]  # here

    def forward(self, x):
        return x + self.looked_up({}) if torch.compiler.is_exporting() else x
"""
RAISES_IN_A_BRANCH = """    def forward(self, x):
        if x.sum() > 5:  # here
            return x.reshape(2, 2)
        return x
"""


def refused(folder: Path, text: str, name: str = "bad.py") -> errors.AotpipeError:
    path = folder / name
    path.write_text(text)
    with pytest.raises(errors.AotpipeError) as caught:
        aotpipe.export(f"{path}:MODEL")
    return caught.value


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        pytest.param(MADE, "asks for the truth of a tensor", "`chosen` in a file", id="exec"),
        pytest.param("import zlib\n" + HEAD + C_READS, "does not see", "eager_island", id="C that reads"),
        pytest.param("import ctypes\n" + HEAD + C_WRITES, "does not see", "custom_op", id="C that writes"),
        pytest.param("import math\n" + HEAD + C_NUMBER, "a number of Python's", "torch's", id="C of numbers"),
        pytest.param(HEAD + RAISES, "raised KeyError while torch.export traced it", "trace", id="raises"),
        pytest.param(
            HEAD + RAISES_IN_A_BRANCH, "shape '[2, 2]' is invalid", "torch.cond", id="branch raises"
        ),
    ],
)
def test_a_model_is_refused_at_its_line(tmp_path: Path, text: str, said: str, hint: str) -> None:
    error = refused(tmp_path, text + TAIL)
    assert said in str(error)
    assert hint in error.hint
    assert error.where is not None
    assert (text + TAIL).splitlines()[error.where.line - 1].endswith("# here")


def test_what_the_model_raises_has_its_own_lines_and_its_own_traceback(tmp_path: Path) -> None:
    error = refused(tmp_path, HEAD + RAISES + TAIL)
    assert [line.rpartition(" in ")[2] for line in error.reason.splitlines()[1:]] == ["looked_up", "forward"]
    assert isinstance(error.__cause__, KeyError)


def test_code_of_exec_that_decides_once_needs_no_source(tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    decides = "if x.sum() > 0: x = x + 1\\n    x = x if x[0] < 2 else -x"
    path.write_text(MADE.replace("while x.sum() < 9: x = x + 1", decides) + TAIL)
    [entry] = aotpipe.export(f"{path}:MODEL").entries
    program = entry.program.module()
    for value, wanted in ((1.0, -3.0), (0.25, 1.5), (-1.0, -2.0), (0.0, 0.0)):
        torch.testing.assert_close(program(torch.full((3,), value)), torch.full((3,), wanted))


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="its syntax is Python's own by then")
@pytest.mark.parametrize("where", ["in the model's file", "in what it imports", "in what a call imports"])
def test_syntax_newer_than_the_interpreter(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    newer = 'import torch\nNAME = t"{torch}"\n'
    name = f"newer_{len(where)}"
    (tmp_path / f"{name}.py").write_text(newer)
    plain = "    def forward(self, x):\n        return x\n"
    late = f"    def forward(self, x):\n        import {name}\n        return x\n"
    text = {
        "in the model's file": newer + HEAD + plain,
        "in what it imports": f"import {name}\n" + HEAD + plain,
        "in what a call imports": HEAD + late,
    }[where]
    error = refused(tmp_path, text + TAIL)
    assert ("raised SyntaxError" if where == "in what a call imports" else "is not Python") in str(error)
    assert error.where is not None
    assert error.where.line == 2
    assert Path(error.where.path).stem == ("bad" if where == "in the model's file" else name)
