"""How a person writes an op: `a + b` for `aten.add.Tensor(a, b)`, `x.reshape(2, 3)`, `F.linear(x)`.

`op_expression(op, args, kwargs)` gives an expression whose call is that same op. Where torch has no name for
it that a person would use, the op itself is called. `module_call` gives `self.linear(x)` where one of
torch's own modules computes the op from all of its parameters, whatever mode it is in.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch._ops import OpOverload

from aotpipe.passes.codegen.nodes import ATEN
from aotpipe.passes.codegen.syntax import call, method, tuple_of

Args = Sequence[ast.expr]
Kwargs = Mapping[str, ast.expr]
Leaf = tuple[str, ast.expr, nn.Module]
"""A parameter's name, its module's expression, and its module."""

_OPERATORS: Final[Mapping[str, type[ast.operator | ast.cmpop | ast.unaryop]]] = {
    "add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "div": ast.Div, "floor_divide": ast.FloorDiv,
    "floordiv": ast.FloorDiv, "truediv": ast.Div, "remainder": ast.Mod, "mod": ast.Mod, "pow": ast.Pow,
    "matmul": ast.MatMult, "__and__": ast.BitAnd, "__or__": ast.BitOr, "__xor__": ast.BitXor,
    "bitwise_and": ast.BitAnd, "bitwise_or": ast.BitOr, "bitwise_xor": ast.BitXor,
    "and_": ast.BitAnd, "or_": ast.BitOr,
    "__lshift__": ast.LShift, "__rshift__": ast.RShift, "lshift": ast.LShift, "rshift": ast.RShift,
    "lt": ast.Lt, "le": ast.LtE, "gt": ast.Gt, "ge": ast.GtE, "eq": ast.Eq, "ne": ast.NotEq,
    "neg": ast.USub, "bitwise_not": ast.Invert, "invert": ast.Invert,
}  # fmt: skip
# Overloads of the operators above whose arguments are the operands and nothing else.
_PLAIN: Final = frozenset({"Tensor", "Scalar", "default", "Tensor_Scalar", "Tensor_Tensor"})
# What a call says that would be so anyway.
_USUAL: Final[Mapping[str, frozenset[str]]] = {
    "pin_memory": frozenset({"False", "None"}),
    "layout": frozenset({"torch.strided", "None"}),
    "device": frozenset({"torch.device('cpu')", "None"}),
}


def op_expression(op: Any, args: Args, kwargs: Kwargs) -> ast.expr:
    """The expression that calls an op.

    The op may be a function of Python over symbols. Arguments by name that say what would be so anyway are
    left out.
    """
    if not isinstance(op, OpOverload):
        return _of_python(op, args, kwargs)
    kwargs = {key: value for key, value in kwargs.items() if ast.unparse(value) not in _USUAL.get(key, ())}
    owner = op.namespace
    short, _, overload = op.__name__.partition(".")
    if owner == "aten":
        form = _FORMS.get(short)
        made = _infix(short, overload, args, kwargs) or (form and form(args, kwargs))
        if made := made or _named(op, short, args, kwargs):
            return made
    return call(f"torch.ops.{owner}.{short}.{overload}", *args, **kwargs)


def _of_python(op: Any, args: Args, kwargs: Kwargs) -> ast.expr:
    if op is operator.getitem:
        return ast.Subscript(args[0], args[1], ast.Load())
    module, text = getattr(op, "__module__", ""), getattr(op, "__name__", "")
    if module == "_operator":
        return _infix(text, "default", args, kwargs) or call(f"operator.{text}", *args, **kwargs)
    # Of symbols, such as `torch.sym_max`, too.
    if module != "math" and getattr(torch, text, None) is op:
        return call(f"torch.{text}", *args, **kwargs)
    return call(f"{module}.{op.__qualname__}", *args, **kwargs)


def _infix(short: str, overload: str, args: Args, kwargs: Kwargs) -> ast.expr | None:
    kind = _OPERATORS.get(short) if overload in _PLAIN and not kwargs else None
    match kind and kind(), args:
        case ast.operator() as binary, [left, right]:
            return ast.BinOp(left, binary, right)
        case ast.cmpop() as comparison, [left, right]:
            return ast.Compare(left, [comparison], [right])
        case ast.unaryop() as unary, [operand]:
            return ast.UnaryOp(unary, operand)
        case _:
            return None


def _named(op: Any, short: str, args: Args, kwargs: Kwargs) -> ast.expr | None:
    """A method of a tensor, a function of torch or one of torch.nn.functional; None where it has no name."""
    schema = op._schema  # noqa: SLF001  # an op shows its schema nowhere else
    first = schema.arguments[0] if schema.arguments else None
    if short.startswith("_") and not short.startswith("_assert"):
        return None
    takes_self = first is not None and first.name == "self" and str(first.type) == "Tensor"
    is_method = takes_self and bool(args) and hasattr(torch.Tensor, short)
    if is_method and short in _METHODS:
        rest = list(args[1:])
        # `reshape(2, 3)` for `reshape([2, 3])`.
        if short in _SPREAD and len(rest) == 1 and isinstance(rest[0], ast.List) and rest[0].elts:
            rest = rest[0].elts
        return method(args[0], short, *rest, **kwargs)
    if is_function_of_torch(short):
        return call(f"torch.{short}", *args, **kwargs)
    if is_functional(short):
        return call(f"F.{short}", *args, **kwargs)
    return method(args[0], short, *args[1:], **kwargs) if is_method else None


def is_function_of_torch(name: str) -> bool:
    """Whether `torch.NAME` is the op of that name, and no function of Python over it."""
    return callable(getattr(torch._C._VariableFunctions, name, None))  # noqa: SLF001


def is_functional(name: str) -> bool:
    """Whether `torch.nn.functional.NAME` is the op of that name."""
    found = getattr(torch.nn.functional, name, None)
    return found is not None and found is getattr(torch._C._nn, name, None)  # noqa: SLF001


# What people write as a method.
_METHODS: Final = frozenset(
    """
    abs all amax amin any argmax argmin argsort bool chunk clamp clone contiguous cos cumsum detach
    exp expand expand_as flatten flip gather item log log_softmax masked_fill max mean min narrow
    norm permute prod repeat reshape round rsqrt scatter select sigmoid sin softmax sort split
    split_with_sizes sqrt squeeze std sum tanh topk transpose type_as unbind unfold unsqueeze var
    view add_ sub_ mul_ div_ copy_ fill_ zero_ clamp_ index_put_ masked_fill_ scatter_ index_add_
    index_copy_ t float
    """.split()
)
_SPREAD: Final = frozenset({"reshape", "view", "expand", "permute", "repeat"})


def _index(args: Args, kwargs: Kwargs) -> ast.expr | None:
    indices = args[1]
    if kwargs or not isinstance(indices, ast.List):
        return None
    return _subscript(args[0], [_ALL if _is_constant(each, None) else each for each in indices.elts])


_ALL: Final = ast.Slice(None, None, None)


def _subscript(tensor: ast.expr, parts: list[ast.expr]) -> ast.expr:
    return ast.Subscript(tensor, parts[0] if len(parts) == 1 else tuple_of(parts), ast.Load())


def _dim(node: ast.expr) -> int | None:
    """A dimension that is a small number from 0 up, so that as many colons may stand before it."""
    match node:
        case ast.Constant(value=int(dim)) if dim <= 3:
            return dim
        case _:
            return None


def _select(args: Args, kwargs: Kwargs) -> ast.expr | None:
    dim = _dim(args[1])
    return None if kwargs or dim is None else _subscript(args[0], [*[_ALL] * dim, args[2]])


_ENDLESS: Final = 2**63 - 1


def _slice(args: Args, kwargs: Kwargs) -> ast.expr | None:
    missing: list[ast.expr] = [ast.Constant(None)] * (5 - len(args))
    tensor, at, *bounds = [*args, *missing]
    dim = 0 if _is_constant(at, None) else _dim(at)
    if kwargs or dim is None:
        return None
    usual = zip(bounds, (0, _ENDLESS, 1), strict=True)
    given = [None if _is_constant(each, None, value) else each for each, value in usual]
    return _subscript(tensor, [*[_ALL] * dim, ast.Slice(*given)])


def _is_constant(node: ast.expr, *values: Any) -> bool:
    return isinstance(node, ast.Constant) and any(node.value is v or node.value == v for v in values)


def _size(args: Args, kwargs: Kwargs) -> ast.expr | None:
    if kwargs or len(args) != 2:
        return None
    return ast.Subscript(ast.Attribute(args[0], "shape", ast.Load()), args[1], ast.Load())


def _to(args: Args, kwargs: Kwargs) -> ast.expr | None:
    # `to(dtype, non_blocking, copy)`: what a graph says is mostly what holds anyway.
    rest = list(args[1:])
    while rest and _is_constant(rest[-1], False, None):
        rest.pop()
    return method(args[0], "to", *rest, **kwargs)


def _put(args: Args, kwargs: Kwargs) -> ast.expr | None:
    """`index_put_` takes no None of Python's."""
    indices = args[1]
    if isinstance(indices, ast.List) and any(isinstance(each, ast.Constant) for each in indices.elts):
        return call("torch.ops.aten.index_put_.default", *args, **kwargs)
    return None


def _filled(args: Args, kwargs: Kwargs) -> ast.expr | None:
    """`torch.full((2, 3), 0)`: a shape is a tuple."""
    shape = args[0]
    if not isinstance(shape, ast.List):
        return None
    return call("torch.full", tuple_of(shape.elts), *args[1:], **kwargs)


_FORMS: Final[Mapping[str, Callable[[Args, Kwargs], ast.expr | None]]] = {
    "index": _index,
    "select": _select,
    "slice": _slice,
    "sym_size": _size,
    "to": _to,
    "_assert_scalar": lambda args, kwargs: None if kwargs else call("torch._check", args[0]),
    "lift_fresh_copy": lambda args, kwargs: None if kwargs else method(args[0], "clone"),
    "full": _filled,
    "index_put_": _put,
}

_TENSORS: Final[Mapping[Any, tuple[type[nn.Module], tuple[int, ...]]]] = {
    # op: the module, and where its own inputs stand among the op's arguments
    ATEN.linear.default: (nn.Linear, (0,)),
    ATEN.embedding.default: (nn.Embedding, (1,)),
    ATEN.conv1d.default: (nn.Conv1d, (0,)),
    ATEN.conv2d.default: (nn.Conv2d, (0,)),
    ATEN.conv3d.default: (nn.Conv3d, (0,)),
    ATEN.layer_norm.default: (nn.LayerNorm, (0,)),
    ATEN.group_norm.default: (nn.GroupNorm, (0,)),
    ATEN.gru_cell.default: (nn.GRUCell, (0, 1)),
}


def module_call(op: Any, args: Sequence[ast.expr], leaves: Mapping[str, Leaf]) -> ast.expr | None:
    """The call of a module in place of an op; None where none computes it.

    `leaves` are the parameters of torch's own modules, by their expressions as text.
    """
    kind, inputs = _TENSORS.get(op, (None, ()))
    if kind is None or any(index >= len(args) for index in inputs):
        return None
    rest = [leaves.get(ast.unparse(each)) for index, each in enumerate(args) if index not in inputs]
    held = [each for each in rest if each is not None]
    if not held or type(held[0][2]) is not kind:
        return None
    _, owner, module = held[0]
    names = {name for name, _ in module.named_parameters()}
    if {each[0] for each in held} != names or any(each[2] is not module for each in held):
        return None
    # An embedding may renormalize its rows, a convolution may pad in a way of its own.
    if getattr(module, "max_norm", None) is not None or getattr(module, "padding_mode", "zeros") != "zeros":
        return None
    return call(owner, *(args[index] for index in inputs))
