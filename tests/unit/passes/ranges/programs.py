"""Small graphs over tensors of whole numbers, made op by op, as legal entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from aotpipe.core.signature import Signature, TensorSpec
from aotpipe.core.stages import LegalEntry
from aotpipe.passes.emit import Emitter
from aotpipe.passes.ranges import Ranges

aten = torch.ops.aten


class Program:
    """A graph under construction; `call` adds an op."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.module = torch.fx.GraphModule(torch.nn.Module(), self.graph)
        self.end = self.module.graph.output(())
        self.mode = FakeTensorMode(shape_env=ShapeEnv())
        self.inputs: list[torch.fx.Node] = []
        self.specs: list[TensorSpec] = []

    def input(
        self, shape: Sequence[int], bounds: tuple[int, int] | None = None, dtype: torch.dtype = torch.int64
    ) -> torch.fx.Node:
        """Add an input, with a declared range."""
        last = self.inputs[-1].next if self.inputs else next(iter(self.module.graph.nodes))
        with self.module.graph.inserting_before(last):
            node = self.module.graph.placeholder(f"x{len(self.inputs)}")
        with self.mode:
            node.meta["val"] = torch.empty(tuple(shape), dtype=dtype)
        self.inputs.append(node)
        name = str(dtype).removeprefix("torch.")
        self.specs.append(TensorSpec(f"x{len(self.specs)}", name, tuple(shape), bounds))
        return node

    def call(self, target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        """Add an op and give its node."""
        return Emitter(self.module, self.end)(target, *args, **kwargs)

    def ranges(self) -> Ranges:
        """Analyse what there is."""
        signature = Signature(inputs=tuple(self.specs), outputs=())
        return Ranges(LegalEntry(name="forward", graph=self.module, weights=(), signature=signature), {})

    def run(self, values: Sequence[torch.Tensor]) -> dict[torch.fx.Node, Any]:
        """The value of every node."""
        found: dict[torch.fx.Node, Any] = dict(zip(self.inputs, values, strict=True))
        for node in self.module.graph.nodes:
            if node.op == "call_function":
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), found.__getitem__)
                found[node] = node.target(*args, **kwargs)
        return found
