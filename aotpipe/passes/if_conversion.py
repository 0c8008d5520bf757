"""Computes both branches of a `cond` where that costs less than to decide.

A branch of a compiled program parts what runs together: the predicate is waited for, and each side is
launched by itself. `convert(module)` puts both sides of a cheap `cond` into the graph around it, with a
`where` for each result, inner ones first, in the graph and in the bodies of loops. This is the if-conversion
of compilers; the numbers are those of the branch that is taken, bit by bit.

Only what cannot fail is computed for nothing: no access by positions from data (its bounds may follow from
the predicate), no two tensors whose sizes come from data (that they fit may follow too), no whole-number
division by a tensor (zero stops the process), no random number, no loop. It comes last: asserts are results
like others by then.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from aotpipe.export import symbols
from aotpipe.passes import hops, index_bounds, ops
from aotpipe.passes.emit import Emitter
from aotpipe.passes.extract import graft
from aotpipe.passes.scalars import as_tensor, value_of

_ATEN: Final = torch.ops.aten
CHEAP: Final = 16384
"""Elements that all ops of both sides may compute together: about 5 us of a core, as a branch by itself."""
_FREE: Final = ops.overloads(
    "alias expand permute select.int slice.Tensor squeeze.dims sym_size.int unsqueeze view"
) | {operator.getitem}
"""Ops that compute no element."""
_FITTED: Final = ops.overloads("expand select.int squeeze.dims view")
"""Free ops that fail for some sizes."""
_SAFE: Final = ops.overloads(
    "amax amin any any.dim any.dims arange.start_step cat clone constant_pad_nd flip full full_like mean.dim "
    "prod.dim_int scalar_tensor select_scatter slice_scatter sum sum.dim_IntList _to_copy"
)
"""Ops that may be computed for nothing, beside the pointwise ones."""
_DIVISIONS: Final = ops.overloads(
    "div.Tensor_mode floor_divide fmod.Scalar fmod.Tensor pow.Tensor_Scalar pow.Tensor_Tensor "
    "remainder.Scalar remainder.Scalar_Tensor remainder.Tensor"
)


def convert(module: GraphModule, cheap: int = CHEAP) -> None:
    """Replace the cheap conds of a graph, and of the bodies under it, by selections.

    The graph is in normal form, with its asserts as results; both sides of a cond may compute `cheap`
    elements.
    """
    changed = False
    for call in hops.calls(module):
        for body in call.subgraphs:
            convert(body, cheap)
        if call.is_cond and _cost(call) <= cheap:
            _select(call)
            changed = True
    if changed:
        module.graph.eliminate_dead_code()
        hops.drop_unused_subgraphs(module)
        module.graph.lint()
        module.recompile()


def _select(call: hops.Call) -> None:
    module, node = call.owner, call.node
    sides = [
        graft(module, node, body, call.all_operands, hops.output_values(body)) for body in call.subgraphs
    ]
    emit = Emitter(module, node)
    test = node.args[0]
    if isinstance(value_of(test), torch.SymBool):  # a comparison of sizes
        test = as_tensor(emit, test)
    for result in call.results:
        index = result.args[1]
        assert isinstance(index, int)
        then, other = (side[index] for side in sides)
        chosen = then if then is other else emit(_ATEN.where.self, test, then, other)
        result.replace_all_uses_with(chosen, propagate_meta=False)
        module.graph.erase_node(result)
    module.graph.erase_node(node)


def _cost(call: hops.Call) -> float:
    if any(True for body in call.subgraphs for _ in hops.calls(body)):
        return float("inf")
    if not isinstance(call.node.args[0], Node) or set(call.node.users) != set(call.results):
        return float("inf")
    sides = [[value_of(value) for value in hops.output_values(body)] for body in call.subgraphs]
    if not all(are_alike(then, other) for then, other in zip(*sides, strict=True)):
        return float("inf")
    return _elements(sides[0]) + sum(
        _node_cost(node) for body in call.subgraphs for node in body.graph.nodes if node.op == "call_function"
    )


def are_alike(then: Any, other: Any) -> bool:
    """Whether two results have one shape, so that one can be selected element by element."""
    return (
        isinstance(then, torch.Tensor)
        and isinstance(other, torch.Tensor)
        and then.dtype == other.dtype
        and list(map(str, then.shape)) == list(map(str, other.shape))
    )


def _node_cost(node: Node) -> float:
    if not isinstance(node.target, ops.OpOverload):
        # A Python function computes a size, no element.
        return 0
    used = [each.meta.get("val") for each in node.all_input_nodes]
    values = [node.meta["val"], *used]
    shapes = [each.shape for each in values if isinstance(each, torch.Tensor)]
    depends_on_data = any(free_unbacked_symbols(size) for shape in shapes for size in shape)
    if depends_on_data and (len(used) > 1 or node.target in _FITTED):
        # That the sizes fit may follow from the predicate.
        return float("inf")
    if node.target in _FREE:
        return 0
    if node.target in index_bounds.GUARDED or torch.Tag.nondeterministic_seeded in node.target.tags:
        return float("inf")
    if node.target in _DIVISIONS and not _divides_safely(node):
        return float("inf")
    if node.target not in _SAFE and torch.Tag.pointwise not in node.target.tags:
        return float("inf")
    return max(_elements([value]) for value in values)


def _divides_safely(node: Node) -> bool:
    """Whether no element of a division can stop the process, as a whole number by zero does."""
    if value_of(node).is_floating_point():
        return True
    divisor = node.args[1]
    return isinstance(divisor, int) and divisor > 0


def _elements(values: Sequence[Any]) -> float:
    return sum(_bound(leaf.numel()) for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _bound(count: int | torch.SymInt) -> float:
    if isinstance(count, int):
        return count
    _, most = symbols.bounds(count.node.shape_env.bound_sympy(count.node.expr))
    return float("inf") if most is None else most
