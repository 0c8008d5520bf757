"""Which ways the branches and loops of a file go."""

from __future__ import annotations

from pathlib import Path

import torch

from aotpipe.canonicalize.eager_hops import uncompiled
from aotpipe.tools.rewrite.coverage import counting

CODE = """
import torch

def run(x, n):
    def then_1(x):
        return x + 1

    def otherwise_1(x):
        return x - 1

    x = torch.cond(x.sum() > 0, then_1, otherwise_1, (x,))

    def going_2(i, x):
        return i < n

    def trip_2(i, x):
        return i + 1, x * 2

    return torch.while_loop(going_2, trip_2, (torch.tensor(0), x))
"""


def test_branches_and_trips_are_counted(tmp_path: Path):
    path = tmp_path / "code.py"
    path.write_text(CODE)
    space: dict = {}
    exec(compile(CODE, str(path), "exec"), space)
    with counting(str(path)) as counters, uncompiled():
        for n in (0, 1, 3):
            space["run"](torch.ones(2), torch.tensor(n))
            assert not counters.is_covered()
        space["run"](-torch.ones(2), torch.tensor(3))
        assert counters.is_covered()
    branch, loop = counters.coverage()
    assert (branch.what, branch.line, branch.then, branch.otherwise) == ("cond", 11, 3, 1)
    assert (loop.what, loop.line, loop.seen, loop.most) == ("while_loop", 19, (1, 1, 2), 3)
    assert "3 times true, 1 times false" in str(branch)
    assert loop.to_json()["most"] == 3
