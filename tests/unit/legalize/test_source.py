"""The user's line of a node: the innermost frame outside packages and generated code."""

from __future__ import annotations

import sysconfig

import pytest
import torch

from aotpipe.errors import SourceLine
from aotpipe.legalize.source import source_line, source_line_of

TRACE = (
    'File "/home/u/net.py", line 7, in forward\n    y = self.block(x)\n'
    'File "/home/u/block.py", line 3, in forward\n    return self.linear(x)\n'
    '  File "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 134, in forward\n'
    "    return F.linear(input, self.weight, self.bias)\n"
    '  File "<eval_with_key>.5", line 9, in forward\n    cond = torch.ops.higher_order.cond()'
)


def test_innermost_frame_of_the_user() -> None:
    assert source_line_of(TRACE) == SourceLine("/home/u/block.py", 3)


@pytest.mark.parametrize(
    "trace",
    [
        None,
        "",
        'File "<eval_with_key>.6", line 6, in forward\n    add = x + 1',
        'File "/env/lib/python3/dist-packages/torch/functional.py", line 1, in f',
        f'File "{sysconfig.get_path("stdlib")}/contextlib.py", line 81, in inner',
    ],
)
def test_no_frame_of_the_user(trace: str | None) -> None:
    assert source_line_of(trace) is None


def test_a_path_with_quotes_and_blanks() -> None:
    assert source_line_of('File "/home/a "b" c/net.py", line 12, in f\n    x') == SourceLine(
        '/home/a "b" c/net.py', 12
    )


def test_exported_nodes_name_this_file() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.linear(x)
            return out

    program = torch.export.export(Net().eval(), (torch.ones(1, 2),))
    (node,) = (node for node in program.graph.nodes if node.op == "call_function")
    found = source_line(node)
    assert found is not None and found.path == __file__
