"""Computes complex intermediate values by their real and imaginary parts.

Compilers take a complex type at a program's borders and in sums and products, and fail on it elsewhere
(padding, reductions, views that change the layout). `split(module)` leaves complex values where they enter,
where they are results, and in ops that `_RULES` lacks; everything between is written with two real values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from aotpipe.passes import ops
from aotpipe.passes.emit import Emitter, fake_mode

_ATEN: Final = torch.ops.aten


class Parts(NamedTuple):
    """A value's parts: nodes or numbers. The imaginary part of a real value is None."""

    real: Any
    imag: Any


Rule = Callable[["_Split", Node], Parts | None]


def split(module: GraphModule) -> bool:
    """Write pairs for the complex values of a graph; gives whether there was one."""
    found = any(map(_is_complex, module.graph.nodes))
    if found:
        _Split(module).run()
    return found


def _is_complex(value: object) -> bool:
    if isinstance(value, Node):
        tensor = value.meta.get("val")
        return isinstance(tensor, torch.Tensor) and tensor.dtype in (torch.complex64, torch.complex128)
    return isinstance(value, complex)


class _Split:
    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.parts: dict[Node, Parts] = {}
        self.emit: Emitter
        self.dtype = torch.float32  # of the parts of the node that is written

    def run(self) -> None:
        for node in list(self.module.graph.nodes):
            if node.op != "call_function":
                continue
            self.emit = Emitter(self.module, node)
            if _is_complex(node) and node.target in _RULES:
                self.dtype = node.meta["val"].dtype.to_real()
                if (found := _RULES[node.target](self, node)) is not None:
                    self.parts[node] = found
            elif node.target is _ATEN.view_as_real.default:
                _read_pair(self, node)
        for node, parts in reversed(self.parts.items()):
            if not node.users:
                self.module.graph.erase_node(node)
            elif node.target is not _ATEN.complex.default:
                self.replace(node, Emitter(self.module, node)(_ATEN.complex.default, *parts))
        self.module.graph.lint()
        self.module.recompile()

    def replace(self, node: Node, new: Node) -> None:
        node.replace_all_uses_with(new, propagate_meta=False)
        self.module.graph.erase_node(node)

    def of(self, value: Any) -> Parts:
        if isinstance(value, complex):
            return Parts(value.real, value.imag)
        if not _is_complex(value):
            # Eager makes a complex number of it first: no part is rounded, or divided, as its own dtype is.
            return Parts(self.cast(value), None)
        if value not in self.parts:
            pair = self.emit(_ATEN.view_as_real.default, value)
            rank = value.meta["val"].dim()
            real, imag = (self.emit(_ATEN.select.int, pair, rank, part) for part in (0, 1))
            return Parts(self.cast(real), self.cast(imag))
        return Parts(*map(self.cast, self.parts[value]))

    def cast(self, value: Any) -> Any:
        """A tensor in the dtype of the parts; a number as it is."""
        kind = getattr(value.meta["val"], "dtype", None) if isinstance(value, Node) else None
        return value if kind in (None, self.dtype) else self.emit(ops.CAST, value, dtype=self.dtype)

    def both(self, value: Any) -> tuple[Any, Any]:
        """The parts of an operand, the imaginary one as a tensor of zeros where there is none."""
        real, imag = self.of(value)
        return real, self.emit(_ATEN.full_like.default, real, 0.0) if imag is None else imag


def _each(split_: _Split, node: Node) -> Parts:
    """An op that moves, adds up or negates the elements of its first operand."""
    # The parts have its dtype by now.
    options = {name: value for name, value in node.kwargs.items() if name != "dtype"}
    parts = split_.both(node.args[0])
    return Parts(
        *(_sized(split_, split_.emit(node.target, part, *node.args[1:], **options), node) for part in parts)
    )


def _sized(split_: _Split, part: Node, whole: Node) -> Node:
    """A part, whose sizes are those of the whole: an op of which only a run knows the size names it anew."""
    mine, size = part.meta["val"], whole.meta["val"]
    if any(free_unbacked_symbols(each) for each in (*mine.shape, *size.shape)):
        with fake_mode(split_.module):
            part.meta["val"] = torch.empty_strided(size.shape, size.stride(), dtype=mine.dtype)
    return part


def _cast(split_: _Split, node: Node) -> Parts:
    return Parts(*split_.both(node.args[0]))


def _joined(split_: _Split, node: Node) -> Parts:
    operands: Any = node.args[0]
    pairs = map(split_.both, operands)
    return Parts(*(split_.emit(node.target, list(some), *node.args[1:]) for some in zip(*pairs, strict=True)))


def _chosen(split_: _Split, node: Node) -> Parts:
    one, two = split_.both(node.args[1]), split_.both(node.args[2])
    return Parts(*(split_.emit(node.target, node.args[0], *some) for some in zip(one, two, strict=True)))


def _combined(split_: _Split, node: Node) -> Parts | None:
    if node.kwargs or len(node.args) > 2:
        return None
    (one, one_i), (two, two_i) = map(split_.of, node.args)
    real = split_.emit(node.target, one, two)
    if one_i is None:
        one_i = split_.emit(_ATEN.full_like.default, one, 0.0) if isinstance(one, Node) else 0.0
    imag = split_.emit(node.target, one_i, 0.0 if two_i is None else two_i)
    return _alike(split_, Parts(real, imag))


def _alike(split_: _Split, parts: Parts) -> Parts:
    """Give both parts one shape: a part that comes from fewer operands may be smaller."""
    shape = parts.real.meta["val"].shape
    if parts.imag.meta["val"].shape == shape:
        return parts
    zero = split_.emit(_ATEN.full_like.default, parts.real, 0.0)
    return Parts(parts.real, split_.emit(_ATEN.add.Tensor, zero, parts.imag))


def _product(split_: _Split, node: Node) -> Parts:
    left, right = (split_.of(value) for value in node.args[:2])
    emit, target = split_.emit, node.target
    # The op's first operand must be a tensor, not a number.
    if not isinstance(left.real, Node):
        left, right = right, left
    if left.imag is None:
        return Parts(emit(target, left.real, right.real), emit(target, left.real, right.imag))
    if right.imag is None:
        return Parts(emit(target, left.real, right.real), emit(target, left.imag, right.real))
    cross = emit(target, left.imag, right.imag), emit(target, left.imag, right.real)
    real = emit(_ATEN.sub.Tensor, emit(target, left.real, right.real), cross[0])
    return Parts(real, emit(_ATEN.add.Tensor, emit(target, left.real, right.imag), cross[1]))


def _quotient(split_: _Split, node: Node) -> Parts | None:
    (real, imag), (one, two) = split_.of(node.args[0]), split_.of(node.args[1])
    emit = split_.emit
    if two is None:
        return Parts(emit(node.target, real, one), emit(node.target, imag, one))
    if imag is None:
        if not isinstance(real, Node):
            return None
        imag = emit(_ATEN.full_like.default, real, 0.0)
    multiply, add, subtract = _ATEN.mul.Tensor, _ATEN.add.Tensor, _ATEN.sub.Tensor
    if not isinstance(one, Node):
        one, two = (emit(_ATEN.full_like.default, real, part) for part in (one, two))
    size = emit(add, emit(multiply, one, one), emit(multiply, two, two))
    over = (
        emit(add, emit(multiply, real, one), emit(multiply, imag, two)),
        emit(subtract, emit(multiply, imag, one), emit(multiply, real, two)),
    )
    return Parts(*(emit(_ATEN.div.Tensor, part, size) for part in over))


def _filled(split_: _Split, node: Node) -> Parts:
    value = complex(node.args[1])  # type: ignore[arg-type]
    options = {**node.kwargs, "dtype": split_.dtype}
    return Parts(
        *(split_.emit(node.target, node.args[0], part, **options) for part in (value.real, value.imag))
    )


def _given(_: _Split, node: Node) -> Parts | None:
    real, imag = node.args
    shapes = [part.meta["val"].shape for part in (real, imag) if isinstance(part, Node)]
    return Parts(real, imag) if shapes[0] == shapes[1] else None


def _read_pair(split_: _Split, node: Node) -> None:
    """`view_as_real` of a value in parts; the selections of one part read it directly."""
    value = node.args[0]
    assert isinstance(value, Node)
    if value not in split_.parts:
        return
    parts = split_.parts[value]
    rank = value.meta["val"].dim()
    for user in list(node.users):
        if user.target is _ATEN.select.int and user.args[1] in (rank, -1):
            split_.replace(user, parts.imag if user.args[2] else parts.real)
    if node.users:
        stacked = [split_.emit(_ATEN.unsqueeze.default, part, rank) for part in parts]
        split_.replace(node, split_.emit(_ATEN.cat.default, stacked, rank))
    else:
        split_.module.graph.erase_node(node)


_LINEAR: Final = ops.REARRANGES | ops.overloads(
    "cumsum diagonal flip gather index.Tensor index_select neg repeat select.int slice.Tensor "
    "sum.dim_IntList unfold"
)
_RULES: Final[Mapping[Any, Rule]] = {
    **dict.fromkeys(_LINEAR, _each),
    _ATEN.complex.default: _given,
    ops.CAST: _cast,
    _ATEN.full.default: _filled,
    _ATEN.cat.default: _joined,
    _ATEN.where.self: _chosen,
    # torch's own forms of complex convolutions multiply by the number 1j.
    **dict.fromkeys((_ATEN.add.Tensor, _ATEN.add.Scalar, _ATEN.sub.Tensor, _ATEN.sub.Scalar), _combined),
    **dict.fromkeys((_ATEN.mul.Tensor, _ATEN.mul.Scalar), _product),
    _ATEN.mm.default: _product,
    _ATEN.bmm.default: _product,
    **dict.fromkeys((_ATEN.div.Tensor, _ATEN.div.Scalar), _quotient),
}
