"""Puts elementwise ops behind a convolution into its kernel: biases, activations, residual sums.

The compiler keeps them as dispatches of their own, which read and write the whole image again.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from aotpipe.backends.iree.kernels import steps
from aotpipe.backends.iree.kernels.steps import Operand, Step, Steps
from aotpipe.backends.iree.tuning import kernels
from aotpipe.core.stages import LegalEntry
from aotpipe.passes import hops, ops
from aotpipe.passes.decompositions.entries import static
from aotpipe.passes.emit import Emitter
from aotpipe.passes.scalars import value_of

_ATEN: Final = torch.ops.aten
_LIBRARY: Final[Any] = torch.library.Library("aotpipe", "FRAGMENT")
_LIBRARY.define(
    "convolution_with_steps(Tensor[] tensors, int[] stride, int[] dilation, int groups, int channels, "
    "str steps) -> Tensor"
)
_VIEWS: Final = ops.overloads("view squeeze.dim squeeze.dims unsqueeze")
_MOST: Final = 24
"""Steps of a kernel, whose code has them once for each vector of a tile."""
_PAIRS: Final = "add sub mul div lt gt le ge"
_OTHERS: Final = "maximum minimum neg abs exp expm1 tanh erf relu leaky_relu gelu sigmoid"
NAMES: Final = {
    **{getattr(getattr(_ATEN, name), form): name for name in _PAIRS.split() for form in ("Scalar", "Tensor")},
    **{getattr(_ATEN, name).default: name for name in _OTHERS.split()},
    _ATEN.where.self: "where",
}
_CONSTANTS: Final = ops.overloads("full_like zeros_like ones_like")
_COMPUTED: Final[dict[str, Any]] = {name: op for op, name in NAMES.items()}


def _run(
    tensors: Sequence[torch.Tensor],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    channels: int,
    text: str,
) -> torch.Tensor:
    """A convolution of the first tensor by the second, and the steps after it (`kernels.steps`)."""
    x, weight, *more = tensors
    known: dict[str, Any] = {"v0": kernels.OP(x, weight, stride, dilation, groups)}
    known |= {f"c{place}": each for place, each in enumerate(more[:channels])}
    known |= {f"i{place}": each for place, each in enumerate(more[channels:])}
    found = known["v0"]
    for place, step in enumerate(Steps.parse(text, channels, len(more) - channels).each):
        numbers = (
            float if step.op == "leaky_relu" else partial(torch.full, (), dtype=x.dtype, device=x.device)
        )
        operands = [known[each] if isinstance(each, str) else numbers(each) for each in step.operands]
        found = known[f"v{place + 1}"] = _COMPUTED[step.op](*operands)
    return found


def _fake(
    tensors: Sequence[torch.Tensor],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    _channels: int,
    _text: str,
) -> torch.Tensor:
    found: torch.Tensor = kernels.OP(*tensors[:2], stride, dilation, groups)
    return found


_LIBRARY.impl("convolution_with_steps", _run, "CompositeExplicitAutograd")
torch.library.register_fake("aotpipe::convolution_with_steps", _fake, lib=_LIBRARY)
OP: Final[Any] = torch.ops.aotpipe.convolution_with_steps.default


def take(entry: LegalEntry) -> None:
    """Do so in each graph of an entry point."""
    for graph in list(hops.walk(entry.graph)):
        places = {node: place for place, node in enumerate(graph.graph.nodes)}
        found = graph.graph.find_nodes(op="call_function", target=kernels.OP)
        changed = [_Region(graph, node, places).take() for node in found]
        if any(changed):
            graph.recompile()


class _Region:
    """What is computed elementwise of one convolution's result."""

    def __init__(self, graph: GraphModule, conv: Node, places: dict[Node, int]) -> None:
        self._graph, self._conv, self._places = graph, conv, places
        value = value_of(conv)
        self._outputs, self._dtype = value.shape[-1], value.dtype
        # A number of steps that a view does not count in; views have the operand of what they are of.
        self._operands: dict[Node, Operand] = {conv: "v0"}
        self._steps: dict[Node, Step] = {}
        self._channels: dict[Node, str] = {}
        self._images: dict[Node, str] = {}

    def take(self) -> bool:
        """Change the graph; whether there was anything to change."""
        if self._outputs == 1:
            return False
        self._grow()
        for out in reversed(self._steps):
            kept = self._needed(out)
            inner = kept - {out}
            if value_of(out).dtype is self._dtype and all(set(node.users) <= kept for node in inner):
                self._replace(out, kept)
                return True
        return False

    def _grow(self) -> None:
        waiting: list[tuple[int, Node]] = []
        seen = {self._conv}

        def note(node: Node) -> None:
            for user in node.users:
                if user in self._places and user not in seen:
                    seen.add(user)
                    heapq.heappush(waiting, (self._places[user], user))

        note(self._conv)
        while waiting and len(self._steps) < _MOST:
            _, node = heapq.heappop(waiting)
            if self._accept(node):
                note(node)

    def _accept(self, node: Node) -> bool:
        if node.op != "call_function":
            return False
        if node.target in _VIEWS:
            source = node.args[0]
            assert isinstance(source, Node)
            value = value_of(node)
            if source not in self._operands or not value.dim() or not same(value.shape[-1], self._outputs):
                return False
            self._operands[node] = self._operands[source]
            return True
        if node.target in _CONSTANTS and node.args[0] in self._operands:
            number = (
                node.args[1]
                if node.target is _ATEN.full_like.default
                else float(node.target is _ATEN.ones_like.default)
            )
            if value_of(node).dtype is not self._dtype or not steps.is_number(number):
                return False
            self._operands[node] = float(number)  # type: ignore[arg-type]
            return True
        name = NAMES.get(node.target)
        if name is None or node.kwargs or not self._is_of_one_shape(node):
            return False
        # torch leaves out an argument that is as its schema has it: the slope of a leaky relu.
        left_out = node.target._schema.arguments[len(node.args) :]  # type: ignore[union-attr]
        defaults = [each.default_value for each in left_out if not each.kwarg_only]
        operands = [self._operand(each, node) for each in (*node.args, *defaults)]
        if None in operands or not self._are_typed(name, node):
            return False
        step = Step(name, tuple(each for each in operands if each is not None))
        self._operands[node] = f"v{len(self._steps) + 1}"
        self._steps[node] = step
        return True

    def _are_typed(self, name: str, node: Node) -> bool:
        """Whether its operands are of the convolution's dtype, but for a condition: torch promotes a bool."""
        dtypes = [value_of(each).dtype if isinstance(each, Node) else self._dtype for each in node.args]
        wanted = [self._dtype] * len(dtypes)
        if name == "where":
            wanted[0] = torch.bool
        return dtypes == wanted

    def _is_of_one_shape(self, node: Node) -> bool:
        """Whether it has the numbers of the convolution's result, in their order."""
        shape = value_of(node).shape
        return value_of(node).dtype in (self._dtype, torch.bool) and any(
            each in self._operands and _are_same(value_of(each).shape, shape) for each in node.all_input_nodes
        )

    def _operand(self, given: Any, node: Node) -> Operand | None:
        if steps.is_number(given):
            return float(given)
        if not isinstance(given, Node) or not isinstance(value_of(given), torch.Tensor):
            return None
        value, shape = value_of(given), value_of(node).shape
        if given in self._operands:
            return self._operands[given] if _are_same(value.shape, shape) else None
        if value.dtype is not self._dtype or not value.dim() or given not in self._places:
            return None
        if same(value.shape[-1], self._outputs) and all(same(size, 1) for size in value.shape[:-1]):
            return self._channels.setdefault(given, f"c{len(self._channels)}")
        if _are_same(value.shape, shape) and all(map(static, value_of(self._conv).shape)):
            return self._images.setdefault(given, f"i{len(self._images)}")
        return None

    def _needed(self, out: Node) -> set[Node]:
        """What of the region a value is computed from."""
        found, waiting = {out}, [out]
        for node in waiting:
            new = [each for each in node.all_input_nodes if each in self._operands and each not in found]
            found.update(new)
            waiting += new
        return found

    def _replace(self, out: Node, kept: set[Node]) -> None:
        emit = Emitter(self._graph, out)
        own = [node for node in self._steps if node in kept]
        renamed: dict[Operand, Operand] = {"v0": "v0"}
        renamed |= {self._operands[node]: f"v{place + 1}" for place, node in enumerate(own)}
        used = {each for node in own for each in self._steps[node].operands}
        channels = [node for node, name in self._channels.items() if name in used]
        images = [node for node, name in self._images.items() if name in used]
        renamed |= {self._channels[node]: f"c{place}" for place, node in enumerate(channels)}
        renamed |= {self._images[node]: f"i{place}" for place, node in enumerate(images)}
        each = tuple(
            Step(step.op, tuple(renamed.get(operand, operand) for operand in step.operands))
            for step in (self._steps[node] for node in own)
        )
        shape = list(value_of(self._conv).shape)
        x, weight, *rest = self._conv.args
        tensors = [x, weight]
        tensors += [emit(_ATEN.view.default, node, [shape[-1]]) for node in channels]
        tensors += [emit(_ATEN.view.default, emit.contiguous(node), shape) for node in images]
        new = emit(OP, tensors, *rest, len(channels), str(Steps(each, len(channels), len(images))))
        for view in self._views(out):
            new = emit(view.target, new, *view.args[1:])
        out.replace_all_uses_with(new)
        for node in sorted(kept, key=self._places.__getitem__, reverse=True):
            self._graph.graph.erase_node(node)

    def _views(self, out: Node) -> list[Node]:
        """The views from the convolution's result to a value of the region, in their order."""
        found: list[Node] = []
        node = out
        while node is not self._conv:
            if node.target in _VIEWS:
                found.insert(0, node)
            shape = value_of(node).shape
            sources = [each for each in node.all_input_nodes if each in self._operands]
            whole = [
                each for each in sources if node.target in _VIEWS or _are_same(value_of(each).shape, shape)
            ]
            node = whole[0]
        return found


def same(left: Any, right: Any) -> bool:
    """Whether two sizes are known to be equal."""
    return bool(statically_known_true(left == right))


def _are_same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(map(same, left, right))
