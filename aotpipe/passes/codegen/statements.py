"""Statements of a function that is rewritten: what stands in them, and what the trace noted of their names.

An op of torch's carries tensors only, so that a variable that holds a tuple goes through it part by part,
a number becomes a tensor of no dimensions, a tensor gets the promoted dtype, what has no value yet is zeros.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree  # torch.export's own flattening; see canonicalize.pytrees

from aotpipe.canonicalize.rewrite.ast_builders import assign
from aotpipe.canonicalize.rewrite.expressions import is_talk
from aotpipe.canonicalize.rewrite.jump_elimination import DONE, RESULT, SKIP, STOP
from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.canonicalize.values.abstract_values import AbstractValue, Leaf
from aotpipe.passes.codegen.expression_rewrites import Unsupported, joined, negated
from aotpipe.passes.codegen.staged_statements import assigned
from aotpipe.passes.codegen.syntax import call, free_name, item, literal, method, name, tuple_of

NUMBER: Final = (bool, int, float)
_NATURAL: Final = {bool: torch.bool, int: torch.int64, float: torch.float32}
_FRIENDLY: Final = {
    RESULT: "result",
    DONE: "returned",
    SKIP: "skip",
    STOP: "stop",
    "__aotpipe_subject": "subject",
}
_MIXED: Final = "a value is None on one path and a tensor on another"
Block = list[ast.stmt]


def simple(body: Block) -> dict[str, ast.expr] | None:
    """What statements set variables to, where it is other variables or numbers, and they do nothing else."""
    found: dict[str, ast.expr] = {}
    for node in body:
        match node:
            case ast.Pass():
                continue
            case ast.Assign(
                targets=[ast.Name(id=target)],
                value=ast.Name() | ast.Constant(value=bool() | int() | float()) as value,
            ):
                found[target] = value
            case _:
                return None
    around = {each.id for each in found.values() if isinstance(each, ast.Name)}
    return None if around & found.keys() else found


def numbers_in(target: ast.expr, value: ast.expr) -> dict[str, object]:
    """The variables that an assignment sets to numbers that stand in the code."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        found = [numbers_in(*pair) for pair in zip(target.elts, value.elts, strict=True)]
        return {each: number for numbers in found for each, number in numbers.items()}
    try:
        number = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError):
        return {}
    return {target.id: number} if isinstance(target, ast.Name) and isinstance(number, NUMBER) else {}


def select(test: ast.expr, yes: ast.expr, no: ast.expr) -> ast.expr:
    """`yes if test else no`, of flags by a logical op."""
    if isinstance(yes, ast.Constant) and yes.value is True:
        return ast.BinOp(no, ast.BitOr(), test)
    if isinstance(yes, ast.Constant) and yes.value is False:
        return ast.BinOp(no, ast.BitAnd(), negated(test))
    return call("torch.where", test, yes, no)


def with_comments(node: ast.stmt, made: Block) -> Block:
    """Statements with the comments that stood before the one that they replace."""
    if made:
        made[0].leading = getattr(node, "leading", ())  # type: ignore[attr-defined]  # for layout
    return made


def truth(test: ast.expr) -> ast.expr:
    """A test without Python's `not`, `and` and `or` of the lowering."""

    class Flags(ast.NodeTransformer):
        def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
            self.generic_visit(node)
            return negated(node.operand) if isinstance(node.op, ast.Not) else node

        def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
            self.generic_visit(node)
            return node if hasattr(node, "lineno") else joined(node.op, node.values)

    made: ast.expr = Flags().visit(test)
    return made


def runtime_assert(test: ast.expr, message: ast.expr) -> ast.stmt:
    """An assert of the graph."""
    return ast.Expr(call("torch._assert_async", test, message))


def effect(node: ast.stmt) -> str | None:
    """What a statement does beside setting variables, in words; None where that is nothing."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
            return f"`{ast.unparse(each)}` is set"
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) and not is_talk(each.value):
            return f"`{ast.unparse(each.value)}` is called"
    return None


def raises(body: Sequence[ast.stmt]) -> bool:
    """Whether statements raise, and do nothing else but print or log."""
    return bool(body) and all(
        isinstance(each, ast.Raise | ast.Pass) or (isinstance(each, ast.Expr) and is_talk(each.value))
        for each in body
    )


def raised_text(node: ast.Raise) -> str:
    """What an assert says in the place of an exception."""
    match node.exc:
        case ast.Call(func=func, args=[first, *_]):
            return f"{ast.unparse(func)}: {text(first)}"
        case None:
            return "raised"
        case other:
            return ast.unparse(other).partition("(")[0]


def text(node: ast.expr) -> str:
    """A message, with `...` for what only a run knows."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=values):
            return "".join(str(each.value) if isinstance(each, ast.Constant) else "..." for each in values)
        case _:
            return "..."


def parameters(function: ast.FunctionDef) -> list[str]:
    """The names of a function's parameters."""
    return [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]


def shown(variable: str) -> str:
    """A variable's name; what the lowering made has one that people would give."""
    return next((text for prefix, text in _FRIENDLY.items() if variable.startswith(prefix)), variable)


def renamed(function: ast.FunctionDef) -> ast.FunctionDef:
    """Names that people would give for those of the lowering."""
    taken = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} | set(parameters(function))
    names: dict[str, str] = {}
    for old in sorted(each for each in taken if each.startswith("__aotpipe")):
        names[old] = free_name(shown(old), taken | set(names.values()))
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = names.get(node.arg, node.arg)
    return function


def is_handed_on(variable: str, body: Block) -> bool:
    """Whether a branch gives a variable as it got it, or what another one holds."""
    last = [each for each in body if variable in assigned([each])][-1:]
    return not last or (isinstance(last[0], ast.Assign) and isinstance(last[0].value, ast.Name))


def is_nothing(node: ast.stmt) -> bool:
    """Whether a statement does nothing: `pass`, `x = x`."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
        return all(isinstance(each, ast.Name) and each.id == node.value.id for each in node.targets)
    return isinstance(node, ast.Pass)


@dataclass(frozen=True, slots=True)
class Counter:
    """What counts a loop.

    Attributes:
        index: The variable that counts: the loop's own where it can be.
    """

    index: str
    before: list[ast.stmt]
    test: ast.expr
    begin: ast.expr
    step: int


def counter(node: ast.For) -> Counter:
    """The counter of a `for`.

    Raises:
        Unsupported: It goes over other things than a range, or one that begins with something computed.
    """
    match node.target, node.iter:
        case ast.Name(id=used), ast.Call(func=ast.Name(id="range"), args=args):
            bounds = [ast.Constant(0), *args] if len(args) == 1 else args
        case _:
            raise Unsupported("a loop over other things than a range", node)
    begin, stop = bounds[:2]
    if not isinstance(begin, ast.Constant | ast.Name):
        raise Unsupported("a range begins with something that is computed", node)
    try:
        step = int(ast.literal_eval(bounds[2])) if len(bounds) == 3 else 1
    except ValueError:
        raise Unsupported("a range has a step that is computed", node) from None
    before: list[ast.stmt] = []
    if not isinstance(stop, ast.Name | ast.Constant | ast.Attribute):
        before.append(assign("count", stop))
        stop = name("count")
    index = used if not used.startswith("_") and used not in assigned(node.body) else "index"
    order = ast.Lt() if step > 0 else ast.Gt()
    return Counter(index, before, ast.Compare(name(index), [order], [stop]), begin, step)


class Facts:
    """What the trace noted of the variables of a statement."""

    def __init__(self, decision: Decision | None) -> None:
        noted = decision or Decision(kind="branch", path="", line=0)
        self._forms = dict(zip(noted.names, map(_computed, noted.abstracts), strict=True))
        self.before: dict[str, Any] = dict(zip(noted.names, noted.before, strict=False))
        self._after = [dict(zip(noted.names, path, strict=False)) for path in noted.after]
        self.taken = noted.taken

    def form(self, variable: str) -> AbstractValue | None:
        """What a variable is afterwards; None where the trace did not note it."""
        return self._forms.get(variable)

    def parts(self, variable: str) -> int:
        """How many parts a variable has that holds a tuple; 0 where it is one value."""
        form = self._forms.get(variable)
        return 0 if form is None or form.spec.is_leaf() else len(form.leaves)

    def after(self, variable: str, path: int) -> Any:
        """What it held after a path."""
        return self._after[path].get(variable) if path < len(self._after) else None

    def is_constant(self, variable: str) -> bool:
        """Whether it holds the same value of Python's on all paths."""
        form = self._forms.get(variable)
        return form is not None and form.is_constant

    def value(self, variable: str) -> Any:
        """That value."""
        form = self._forms[variable]
        return pytree.tree_unflatten(form.leaves, form.spec)

    def literal(self, variable: str, node: ast.stmt) -> ast.expr:
        """That value as an expression; raises Unsupported where it has none."""
        value = self.value(variable)
        if not isinstance(value, (*NUMBER, str, type(None))):
            raise Unsupported(f"`{shown(variable)}` is an object that no tensor holds", node)
        return literal(value)

    def formed(self, variable: str, value: Any, node: ast.AST) -> ast.expr:
        """A variable in the form that it has afterwards.

        `value` is what the trace saw in it; None where that is not known.

        Raises:
            Unsupported: No op of torch's carries such a value.
        """
        form, made = self.form(variable), name(variable)
        if form is None:
            return made
        if _is_optional(form):
            raise Unsupported(_MIXED, node)
        if form.spec.is_leaf():
            return _leaf(made, form.leaves[0], value, node)
        if form.spec.type not in (tuple, list) or any(not each.is_leaf() for each in form.spec.children()):
            raise Unsupported(f"a variable holds a {form.spec.type.__name__} where a tensor decides", node)
        given = pytree.tree_leaves(value) if value is not None else []
        given = given if len(given) == len(form.leaves) else [None] * len(form.leaves)
        parts = [
            _leaf(item(made, at), leaf, each, node)
            for at, (leaf, each) in enumerate(zip(form.leaves, given, strict=True))
        ]
        if all(isinstance(part, ast.Subscript) for part in parts):
            return made
        return literal(form.spec.type(parts))

    def zeros(self, variable: str, when: str, node: ast.AST) -> ast.expr:
        """What stands for a variable that has no value yet: nothing reads it that eager would run.

        Raises:
            Unsupported: The variable is no tensor, or its size varies.
        """
        form = self.form(variable)
        if form is None:
            raise Unsupported(f"`{shown(variable)}` has no value {when}", node)
        if _is_optional(form):
            raise Unsupported(_MIXED, node)
        parts = [
            call("torch.zeros", literal(_static(leaf.shape, node)), dtype=literal(leaf.dtype))
            if isinstance(leaf, Leaf)
            else literal(leaf)
            for leaf in form.leaves
        ]
        if form.spec.is_leaf():
            return parts[0]
        if form.spec.type is tuple:
            return tuple_of(parts)
        raise Unsupported("a variable without a value yet is no tensor", node)

    def flag(self, test: ast.expr) -> ast.expr:
        """A test as a flag: a number is one where it is not zero."""
        form = self.form(test.id) if isinstance(test, ast.Name) else None
        leaf = form.leaves[0] if form is not None and form.spec.is_leaf() else None
        if not isinstance(leaf, Leaf) or leaf.dtype == torch.bool:
            return test
        return ast.Compare(test, [ast.NotEq()], [ast.Constant(0)])

    def is_one_tensor(self, variable: str) -> bool:
        """Whether a variable is a tensor or a number, which is always there, as far as is known."""
        form = self.form(variable)
        return form is None or (
            form.spec.is_leaf() and not _is_optional(form) and isinstance(form.leaves[0], Leaf)
        )

    def has_dims(self, variable: str) -> bool:
        """Whether it is a tensor that may lie in memory in several ways."""
        form = self.form(variable)
        leaf = form.leaves[0] if form is not None and self.is_one_tensor(variable) else None
        return isinstance(leaf, Leaf) and len(leaf.shape) > 0


def _computed(form: AbstractValue) -> AbstractValue:
    """The form with its constant tensors as computed ones: a tensor may be written in place."""
    leaves = [
        Leaf(each.dtype, tuple(each.shape), each.device, number=False)
        if isinstance(each, torch.Tensor)
        else each
        for each in form.leaves
    ]
    return replace(form, leaves=tuple(leaves))


def part_names(variable: str, parts: int) -> list[str]:
    """The variables of a tuple's parts; the variable itself where it is none."""
    return [f"{variable}_{at}" for at in range(parts)] if parts else [variable]


def parts_of(made: ast.expr, parts: int) -> list[ast.expr]:
    """The parts of a tuple's expression: a loop carries tensors only."""
    if not parts:
        return [made]
    if isinstance(made, ast.Tuple):
        return made.elts
    return [item(made, at) for at in range(parts)]


def repacked(apart: Mapping[str, int]) -> Block:
    """Tuples made again of their parts."""
    return [
        assign(each, tuple_of([name(part) for part in part_names(each, parts)]))
        for each, parts in apart.items()
        if parts
    ]


def _leaf(made: ast.expr, leaf: object, value: Any, node: ast.AST) -> ast.expr:
    if not isinstance(leaf, Leaf):
        return made
    if isinstance(value, NUMBER):
        if leaf.shape:
            raise Unsupported("a number takes the place of a tensor", node)
        kind = {} if _NATURAL[type(value)] == leaf.dtype else {"dtype": literal(leaf.dtype)}
        return call("torch.tensor", made, **kind)
    if isinstance(value, torch.Tensor):
        if value.dtype != leaf.dtype:
            made = method(made, "to", literal(leaf.dtype))
        if value.dim() != len(leaf.shape):
            made = method(made, "expand", *(literal(size) for size in _static(leaf.shape, node)))
    return made


def _static(shape: Any, node: ast.AST) -> tuple[int, ...]:
    if not all(type(size) is int for size in shape):
        raise Unsupported("a variable without a value yet has a size that varies", node)
    return tuple(shape)


def _is_optional(form: AbstractValue) -> bool:
    return form.may_lack or any(isinstance(leaf, Leaf) and leaf.optional for leaf in form.leaves)
