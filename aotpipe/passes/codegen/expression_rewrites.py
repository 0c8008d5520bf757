"""Rewrites expressions of the user's that a trace made part of the graph, at their places.

    a and b, not a, a < b < c    ->  a & b, ~a, (a < b) & (b < c)
    x if test else y             ->  torch.where(test, x, y), or torch.cond of both
    x[i], x[:, i] = v            ->  x[i[None]].squeeze(0), x[:, i[None]] = v.unsqueeze(1)
    n.item(), int(n), float(n)   ->  n, n.to(torch.int64), n.to(torch.float32); or as sizes: n.item()

Raises `Unsupported` for what has no such form.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aotpipe.canonicalize.rewrite.ast_builders import later
from aotpipe.canonicalize.trace.decisions import Decision, Span
from aotpipe.passes.codegen.syntax import call, dotted, method, tuple_of

_SIMPLE: Final = (ast.Name, ast.Constant, ast.Attribute)
# Of math: what torch has under the same name.
_OF_MATH: Final = frozenset(
    "sqrt exp log log2 log10 sin cos tan tanh floor ceil trunc atan2 pow hypot".split()
)
_ABSENT: Final = frozenset("any all isinstance sum sorted len divmod tensor complex".split())


class Unsupported(Exception):
    """Something of a function has no form as an op of torch's; the message says what, and `line` where."""

    def __init__(self, what: str, node: ast.AST | None = None) -> None:
        super().__init__(what)
        self.line = getattr(node, "lineno", None)


class ExpressionRewriter(ast.NodeTransformer):
    """Rewrites the expressions of a function.

    `sizes` says that numbers out of tensors are taken out of them, as sizes have to be.
    """

    def __init__(self, decisions: Sequence[Decision], *, sizes: bool) -> None:
        self._staged: set[tuple[str, Span | None]] = {(each.kind, each.span) for each in decisions}
        self._sizes = sizes

    def _is(self, kind: str, node: Any) -> bool:
        span = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
        return (kind, span) in self._staged

    def _holds(self, node: ast.expr) -> bool:
        """Whether a number out of a tensor is computed inside of an expression."""
        inside = [each for each in ast.walk(node) if isinstance(each, ast.Call) and each is not node]
        return any(self._is(kind, each) for kind in ("call", "item") for each in inside)

    def visit(self, node: ast.AST) -> Any:
        """Rewrite a node; what is made stands where the old one stood."""
        kind, form = _FORMS.get(type(node), ("", None))
        staged = form is not None and self._is(kind, node)
        made = super().visit(node)
        if form is not None and staged:
            made = form(node)
        if made is not node and isinstance(made, ast.expr) and not hasattr(made, "lineno"):
            ast.copy_location(made, node)
        return made

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = [self.visit(each) for each in node.body]
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        is_call, is_item, is_answer = (self._is(kind, node) for kind in ("call", "item", "answer"))
        # torch.export has its own of these two.
        is_call |= ast.unparse(node.func) in ("min", "max") and self._holds(node)
        self.generic_visit(node)
        if is_item and isinstance(node.func, ast.Attribute) and not self._sizes:
            return node.func.value
        if is_answer and isinstance(node.func, ast.Attribute):
            return _answer(node, node.func)
        if not is_call or node.keywords:
            return node
        called = ast.unparse(node.func)
        short = called.rpartition(".")[2]
        if short in _ABSENT:
            raise Unsupported(f"`{called}` is called with what a tensor decides", node)
        if called in _NUMBERS and len(node.args) == 1:
            made = _NUMBERS[called](node.args[0])
            if self._sizes and called == "int":
                made = method(made, "item")
            return made
        if called in ("min", "max") and len(node.args) == 2:
            return self._extreme(called, *node.args)
        if called == f"math.{short}" and short in _OF_MATH:
            return call(f"torch.{short}", *node.args)
        return node

    def _extreme(self, called: str, first: ast.expr, other: ast.expr) -> ast.expr:
        if self._sizes:
            return call(f"torch.sym_{called}", first, other)
        if isinstance(first, ast.Constant):
            first, other = other, first
        # The larger of two is at least the other: its lower end.
        return method(first, "clamp", **{"max" if called == "min" else "min": other})

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        staged = self._is("index", node)
        self.generic_visit(node)
        if not staged or not isinstance(node.ctx, ast.Load):
            return node
        place = _tensor_place(node)
        if place is None or self._sizes:
            return node
        made: ast.expr = ast.Subscript(node.value, _with_dims(node.slice), ast.Load())
        return method(made, "squeeze", ast.Constant(place))

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        targets = [
            each for each in node.targets if isinstance(each, ast.Subscript) and self._is("index", each)
        ]
        self.generic_visit(node)
        if not targets or self._sizes:
            return node
        if len(node.targets) > 1:
            raise Unsupported("one of several targets of an assignment has an index of a tensor", node)
        place = _tensor_place(targets[0])
        if place is None:
            return node
        targets[0].slice = _with_dims(targets[0].slice)
        if place:
            node.value = method(node.value, "unsqueeze", ast.Constant(place))
        return node


def _chained(node: ast.Compare) -> ast.expr:
    terms = [node.left, *node.comparators]
    if any(isinstance(each, ast.NamedExpr) for term in terms for each in ast.walk(term)):
        raise Unsupported("a chained comparison sets a variable", node)
    parts = [
        ast.Compare(left, [op], [right]) for left, op, right in zip(terms, node.ops, terms[1:], strict=False)
    ]
    return joined(ast.And(), parts)


def _chosen(node: ast.IfExp) -> ast.expr:
    if any(isinstance(each, ast.Constant) and each.value is None for each in ast.walk(node.test)):
        raise Unsupported("a value may be None, as a tensor decides", node)
    if isinstance(node.body, _SIMPLE) and isinstance(node.orelse, _SIMPLE):
        return call("torch.where", node.test, node.body, node.orelse)
    return call("torch.cond", node.test, later(node.body), later(node.orelse))


def _answer(node: ast.Call, called: ast.Attribute) -> ast.expr:
    """A call of torch's that gives a bool of Python's (`torch.equal(x, y)`, `x.equal(y)`), as a tensor."""
    is_method = ast.unparse(called.value) != "torch"
    terms = [called.value, *node.args] if is_method else node.args
    if called.attr == "is_nonzero":
        return ast.Compare(terms[0], [ast.NotEq()], [ast.Constant(0)])
    if called.attr == "equal" and len(terms) == 2:
        return method(ast.Compare(terms[0], [ast.Eq()], [terms[1]]), "all")
    return method(ast.Call(dotted("torch.isclose"), terms, node.keywords), "all")


def joined(op: ast.boolop, terms: Sequence[ast.expr]) -> ast.expr:
    """`a & b & c` for `and`, `a | b | c` for `or`."""
    bitwise = ast.BitAnd() if isinstance(op, ast.And) else ast.BitOr()
    return functools.reduce(lambda left, right: ast.BinOp(left, bitwise, right), terms)


def negated(test: ast.expr) -> ast.expr:
    """`~test`, of a comparison the opposite."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Invert):
        return test.operand
    return ast.UnaryOp(ast.Invert(), test)


_FORMS: Final[Mapping[type[ast.AST], tuple[str, Callable[[Any], ast.expr]]]] = {
    # What is rewritten where the trace noted a decision of this kind.
    ast.BoolOp: ("logic", lambda node: joined(node.op, node.values)),
    ast.UnaryOp: ("logic", lambda node: negated(node.operand)),
    ast.Compare: ("logic", _chained),
    ast.IfExp: ("choice", _chosen),
}
_NUMBERS: Final[Mapping[str, Callable[[ast.expr], ast.expr]]] = {
    "int": lambda each: method(each, "to", dotted("torch.int64")),
    "float": lambda each: method(each, "to", dotted("torch.float32")),
    "bool": lambda each: each if _is_truth(each) else method(each, "bool"),
    "round": lambda each: call("torch.round", each),
    "abs": lambda each: method(each, "abs"),
}


def _is_truth(node: Any) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("any", "all", "bool", "isfinite")
    return isinstance(node, ast.Compare)


def _parts(index: ast.expr) -> list[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _is_number(node: ast.expr) -> bool:
    """Whether a part of an index may be a number: it is no slice, None, ellipsis or list."""
    return not isinstance(node, ast.Slice | ast.List | ast.Starred) and not (
        isinstance(node, ast.Constant) and (node.value is None or node.value is ...)
    )


def _tensor_place(node: ast.Subscript) -> int | None:
    """The place of the first number in an index; None where there is no number, or an ellipsis."""
    parts = _parts(node.slice)
    places = [at for at, part in enumerate(parts) if _is_number(part)]
    if not places or any(isinstance(each, ast.Constant) and each.value is ... for each in parts):
        return None
    if places != list(range(places[0], places[-1] + 1)):
        raise Unsupported("an index has tensors apart from each other", node)
    return places[0]


def _with_dims(index: ast.expr) -> ast.expr:
    """`i[None]` for each `i` of an index."""

    def with_dim(part: ast.expr) -> ast.expr:
        if not _is_number(part):
            return part
        if isinstance(part, ast.Constant):
            return ast.List([part], ast.Load())
        return ast.Subscript(part, ast.Constant(None), ast.Load())

    made = [with_dim(each) for each in _parts(index)]
    return tuple_of(made) if isinstance(index, ast.Tuple) else made[0]
