"""Writes nodes into a graph with the metadata that a legal graph must hold.

An `Emitter` runs each op that it writes on the fake values of its arguments, so that `meta["val"]` is always
what torch itself would compute; the stack trace comes from the node that gave the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo


class Emitter:
    """Inserts calls before a node of one graph.

    The new nodes have the stack trace of `cause`, or of `before`.
    """

    def __init__(self, module: GraphModule, before: Node, *, cause: Node | None = None) -> None:
        self.module = module
        self.before = before
        self._cause = cause if cause is not None else before
        self._mode = fake_mode(module)

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Insert `target(*args, **kwargs)`; arguments may be nodes."""
        graph = self.module.graph
        with graph.inserting_before(self.before):
            node = graph.call_function(target, args, kwargs)
        node.meta["val"] = self.evaluate(node)
        if "stack_trace" in self._cause.meta:
            node.meta["stack_trace"] = self._cause.meta["stack_trace"]
        return node

    def contiguous(self, node: Node) -> Node:
        """Insert a copy whose elements lie in the order of the dims, of which torch has any view."""
        return self(torch.ops.aten.clone.default, node, memory_format=torch.contiguous_format)

    def evaluate(self, node: Node, change: Callable[[Any], Any] = lambda value: value) -> object:
        """What an op gives for the fake values of its arguments, each of them changed first."""
        assert callable(node.target)
        shapes = self._mode.shape_env
        # The dispatcher, as in torch.export: without, `aten.complex` takes a product of sizes for a number.
        with self._mode, enable_python_dispatcher(), ExitStack() as stack:
            if shapes is not None:
                stack.enter_context(shapes.ignore_fresh_unbacked_symbols())
                stack.enter_context(shapes.suppress_guards())
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda used: change(used.meta["val"]))
            if shapes is not None:
                _count_as_sizes(shapes, (args, kwargs))
            return node.target(*args, **kwargs)


def _count_as_sizes(shapes: ShapeEnv, values: object) -> None:
    """Note that the sizes of tensors are not negative.

    Of a symbol that only a run knows, torch forgets it with the region that made it, and some ops ask again.
    """
    for value in pytree.tree_leaves(values):
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                known = shapes.var_to_range.get(symbol := size.node.expr)
                if known is not None and free_unbacked_symbols(size) and not known.lower >= 0:
                    shapes.constrain_symbol_range(symbol, compiler_min=0, compiler_max=int_oo)


def rewrite(
    module: GraphModule, found: Iterable[Node], write: Callable[[Emitter, Node], Node | None]
) -> bool:
    """Replace each node by the one that `write` writes before it; a node for which it gives None stays.

    Returns:
        Whether the graph was changed.
    """
    changed = False
    for node in list(found):
        if (new := write(Emitter(module, node), node)) is not None:
            node.replace_all_uses_with(new)
            module.graph.erase_node(node)
            changed = True
    return changed


def fake_mode(module: GraphModule) -> FakeTensorMode:
    """The mode that the fake values of a graph belong to; a new one for a graph without tensors."""
    # All values of a graph have one mode; an Emitter is made so often that it must not search them all.
    values = (node.meta.get("val") for node in module.graph.nodes)
    first = next((value for value in values if isinstance(value, FakeTensor)), None)
    found = detect_fake_mode(first)
    return found if found is not None else FakeTensorMode(shape_env=ShapeEnv(), export=True)
