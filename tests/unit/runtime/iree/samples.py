"""Modules that the compiler takes, refuses, or dies of."""

from __future__ import annotations

from aotpipe.core.stages import Lowered
from aotpipe.core.targets import Target

HOST = Target.parse("iree-cpu-host")
RELU_TEXT = """\
module {{
  func.func @forward(%arg0: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {{
    %0 = torch.aten.relu %arg0 : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32> loc("{path}":7:0)
    %1 = torch.aten.exp %0 : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32> loc("{path}":8:0)
    return %1 : !torch.vtensor<[2,3],f32>
  }}
}}
"""
NO_SUCH_OP = """\
module {
  func.func @forward(%arg0: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {
    %0 = torch.operator "torch.aten.nonsense"(%arg0) : (!torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>
      loc(callsite("/env/site-packages/torch/nn/modules/linear.py":134:0 at "/home/u/model.py":9:0))
    return %0 : !torch.vtensor<[2],f32>
  }
}
"""
# An unregistered op with a place of its own makes the compiler segfault while it forms dispatches.
CRASHES = """\
module {
  func.func @forward(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = "some.op"(%arg0) : (tensor<4xf32>) -> tensor<4xf32> loc("/home/u/model.py":19:0)
    return %0 : tensor<4xf32>
  }
}
"""


def lowered(text: str) -> Lowered:
    """A module as the lower stage gives it."""
    return Lowered(dialect="torch", module=text.encode(), entry_points=("forward",), digest="0" * 64)


RELU = lowered(RELU_TEXT.format(path="/home/u/model.py"))
