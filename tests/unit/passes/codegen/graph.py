"""Graphs of small modules, as torch.export gives them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from aotpipe.passes.codegen.nodes import unlifted


class Calling(nn.Module):
    """A module of a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def program(function: Any, *args: Any) -> ExportedProgram:
    module = function if isinstance(function, nn.Module) else Calling(function)
    with torch.no_grad():
        return torch.export.export(module.eval(), args)


def graph(function: Any, *args: Any) -> GraphModule:
    return unlifted(program(function, *args))


def node(found: GraphModule, op: Any) -> Node:
    return next(each for each in found.graph.nodes if each.target is op)
