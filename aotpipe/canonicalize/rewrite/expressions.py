"""Rewrites expressions: `and`, `or`, `not`, `+`, comparisons, `a if b else c`, calls, texts, `super()`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

from aotpipe.canonicalize.rewrite.ast_builders import (
    HELPER,
    OPAQUE,
    OPERATORS,
    Own,
    assign,
    binds,
    calling,
    contains,
    dotted,
    later,
    load,
    operator,
    own,
    parameters,
    tuple_of,
)

# What Python itself compares; each has an operator here, as no class can say what it means.
_COMPARED: Final[Mapping[type[ast.cmpop], str]] = {
    ast.Is: "is_",
    ast.IsNot: "is_not",
    ast.In: "in_",
    ast.NotIn: "not_in",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
}


# What sets have another meaning for.
_OF_SETS: Final[Mapping[type[ast.operator], str]] = {
    ast.BitOr: "or_",
    ast.BitAnd: "and_",
    ast.BitXor: "xor",
    ast.Sub: "sub",
}
_ORDERS: Final[Mapping[type[ast.cmpop], str]] = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}


def fill_super(function: ast.FunctionDef) -> None:
    """Give `super()` its arguments, which it would look for in the function that it is moved to."""
    names = [*function.args.posonlyargs, *function.args.args]
    for node in own(function.body):
        if names and isinstance(node, ast.Call) and dotted(node.func) == "super" and not node.args:
            node.args = [load("__class__"), load(names[0].arg)]


def fill_locals(function: ast.FunctionDef, variables: Sequence[str]) -> None:
    """Give `locals()` the variables that it would look for in the function that it is moved to."""
    for node in own(function.body):
        if is_locals(node):
            reads = ast.Dict([], [])
            for name in variables:
                reads.keys.append(ast.Constant(name))
                reads.values.append(later(load(name)))
            node.func, node.args = operator("bound_variables"), [reads]


def is_locals(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether a node is a call of `locals()`, or of `vars()` without an object."""
    if not isinstance(node, ast.Call) or node.args or node.keywords:
        return False
    return dotted(node.func) in ("locals", "vars")


# What looks at the function that it stands in.
_LOOKING: Final = frozenset({"super", *OPAQUE})


def _is_own(body: ast.expr) -> bool:
    """Whether an expression would mean something else inside of a lambda."""
    return any(
        isinstance(node, ast.Await | ast.Yield | ast.YieldFrom)
        or (isinstance(node, ast.Call) and dotted(node.func) in _LOOKING)
        for node in own([body])
    )


class _Expressions(Own):
    """Expressions outside of nested functions; what is made stands where the old one stood."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.stmt):
            return node
        made = super().visit(node)
        if made is not node and isinstance(made, ast.expr) and hasattr(node, "lineno"):
            ast.copy_location(made, node)
        return made

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        self.generic_visit(node.args)
        if not _is_own(node.body):
            node.body = self.visit(node.body)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        truth = [ast.keyword("truth", ast.Constant(True))] if getattr(node, "is_test", False) else []
        for value in node.values if truth else ():
            _mark(value)
        self.generic_visit(node)
        if binds(node):
            return node
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        return ast.Call(operator(name), [*map(later, node.values)], truth)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            _mark(node.operand)
        self.generic_visit(node)
        return calling("not_", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        sides = (node.left, node.right)
        name = _OF_SETS.get(type(node.op))
        if name is not None and not any(isinstance(each, ast.Constant) for each in sides):
            return calling("set_operator", ast.Constant(name), *sides)
        if isinstance(node.op, ast.Mult) and any(isinstance(each, ast.List | ast.ListComp) for each in sides):
            return calling("multiplied", *sides)
        if not isinstance(node.op, ast.Add) or any(isinstance(each, ast.Constant) for each in sides):
            return node
        return calling("add", *sides)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        _mark(node.test)
        self.generic_visit(node)
        if binds(node):
            return node
        return calling("choose", node.test, later(node.body), later(node.orelse))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return _compared(node.left, node.ops[0], node.comparators[0])
        if binds(node):
            return node
        # Each value is computed once, and only where it is reached.
        parts: list[ast.expr] = [later(node.left)]
        for op, right in zip(node.ops, node.comparators, strict=True):
            parts += [ast.Lambda(parameters("a", "b"), _compared(load("a"), op, load("b"))), later(right)]
        return calling("compare", *parts)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        # Python's own functions take no traced tensor, and the model's own may have to be rewritten.
        is_operator = getattr(getattr(node.func, "value", None), "value", None) == OPERATORS
        if dotted(node.func) == "super" or is_operator:
            return node
        for each in node.args:
            if isinstance(each, ast.Starred):
                each.value = calling("spread", each.value)
        if isinstance(node.func, ast.Attribute):
            node.func.value = owner(node.func.value)
        return ast.copy_location(ast.Call(operator("call"), [node.func, *node.args], node.keywords), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        node.value = calling("indexed", owner(node.value))
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Del):
            node.value = owner(node.value)
        if node.attr == "__class__" and isinstance(node.ctx, ast.Load):
            return calling("class_of", node.value)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        if not node.is_async and not binds(node.iter):
            node.iter = calling("items", node.iter)
        return node

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> ast.expr:
        self.generic_visit(node)
        return _comprehended(node, "comprehended" if isinstance(node, ast.ListComp) else "generated_of")

    visit_GeneratorExp = visit_ListComp  # noqa: N815

    def visit_Set(self, node: ast.Set) -> ast.expr:
        return self._listed("set_of", ast.List(node.elts, ast.Load()))

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        return self._listed("set_of", ast.ListComp(node.elt, node.generators))

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        return self._listed("dict_of", ast.ListComp(tuple_of([node.key, node.value]), node.generators))

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        if all(isinstance(key, ast.Constant | None) for key in node.keys):
            return self.generic_visit(node)  # type: ignore[return-value]
        if None in node.keys:
            return self.generic_visit(node)  # type: ignore[return-value]
        pairs = zip(node.keys, node.values, strict=True)
        listed = ast.List([tuple_of([key, value]) for key, value in pairs if key is not None], ast.Load())
        return self._listed("dict_of", listed)

    def _listed(self, name: str, items: ast.expr) -> ast.expr:
        """What is made of the elements of a list."""
        return calling(name, self.visit(items))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        parts = [each for each in node.values if isinstance(each, ast.FormattedValue)]
        if not parts:
            return node
        for part in parts:
            # The width in `{x:{width}}` is a value of its own.
            if part.format_spec is not None and contains([part.format_spec], ast.FormattedValue):
                return self.generic_visit(node)  # type: ignore[return-value]
        given = [self.visit(part.value) for part in parts]
        names = [f"{HELPER}_part_{number}" for number in range(len(parts))]
        for part, name in zip(parts, names, strict=True):
            part.value = load(name)
        return calling("text", ast.Lambda(parameters(*names), node), *given)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        self.generic_visit(node)
        node.value = calling("shown", node.value)
        return node


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.expr:
    """A comparison of two values."""
    if (name := _COMPARED.get(type(op))) is not None:
        return calling(name, left, right)
    if any(isinstance(each, ast.Constant) for each in (left, right)):
        return ast.Compare(left, [op], [right])
    return calling("set_operator", ast.Constant(_ORDERS[type(op)]), left, right)


_ITEMS: Final = f"{HELPER}_items"


def _comprehended(node: ast.ListComp | ast.GeneratorExp, name: str) -> ast.expr:
    """A comprehension as a call that takes what it goes through, itself, and its elements one by one."""
    first = node.generators[0]
    inside = [node.elt, *first.ifs]
    if len(node.generators) > 1 or first.is_async or binds(node) or any(map(_is_own, inside)):
        return node
    (items,) = first.iter.args if isinstance(first.iter, ast.Call) else (first.iter,)
    first.iter = load(_ITEMS)
    tests = copy.deepcopy(first.ifs)
    truth = [ast.keyword("truth", ast.Constant(True))]
    wanted = ast.Call(operator("and_"), [*map(later, tests)], truth) if tests else ast.Constant(True)
    pair = ast.Tuple([later(wanted), later(copy.deepcopy(node.elt))], ast.Load())
    each = ast.comprehension(copy.deepcopy(first.target), load(_ITEMS), [], 0)
    return calling(
        name,
        items,
        ast.Lambda(parameters(_ITEMS), node),
        ast.Lambda(parameters(_ITEMS), ast.ListComp(pair, [each])),
        ast.Constant(bool(tests)),
    )


def _mark(node: ast.expr) -> None:
    """Mark an expression of which only the truth is asked for."""
    if isinstance(node, ast.BoolOp):
        node.is_test = True  # type: ignore[attr-defined]


def test(node: ast.expr) -> ast.expr:
    """The expression rewritten so that it may be staged, where only its truth is asked for."""
    _mark(node)
    return expression(node)


def expression(node: ast.expr) -> ast.expr:
    """The expression rewritten so that it may be staged."""
    found: ast.expr = _Expressions().visit(node)
    return found


def each_expression(node: ast.stmt) -> None:
    """Rewrite the expressions of a statement itself, and not those of the statements inside of it."""
    _Expressions().generic_visit(node)


def index(node: ast.expr) -> ast.expr:
    """An index as an expression of its own: `a:b` is a slice."""
    if isinstance(node, ast.Slice):
        ends: list[ast.expr] = [each or ast.Constant(None) for each in (node.lower, node.upper, node.step)]
        return ast.Call(operator("slice"), ends, [])
    if isinstance(node, ast.Tuple):
        node.elts = [index(each) for each in node.elts]
    return node


def owner(node: ast.expr) -> ast.expr:
    """An expression that was rewritten, of which an element or a method is taken at once.

    The container `items[index]` or `items.setdefault(index, default)` gets no other name so, and what is
    changed in it is changed in `items`.
    """
    if isinstance(node, ast.Call) and len(node.args) == 3 and not node.keywords:
        function = node.args[0]
        if isinstance(function, ast.Attribute) and function.attr == "setdefault":
            return ast.copy_location(calling("part_by_default", *node.args), node)
    if not isinstance(node, ast.Subscript):
        return node
    return ast.copy_location(calling("part", node.value, index(node.slice)), node)


def catching(node: ast.Try, *, may_split: bool) -> None:
    """Say in the body of a `try` what its handlers are for; what stops the trace is for none of them.

    Args:
        node: The `try`; where it has no handlers, its `finally` jumps, which drops all exceptions.
        may_split: Whether the whole may be run more than once.
    """
    if not node.handlers:
        node.body = [ast.With([ast.withitem(calling("dropped"))], node.body)]
        return
    kinds: list[ast.expr] = []
    for handler in node.handlers:
        kind = copy.deepcopy(handler.type) or load("BaseException")
        kinds += [ast.Starred(kind, ast.Load())] if isinstance(kind, ast.Tuple) else [kind]
    around = ast.withitem(calling("caught", later(ast.Tuple(kinds, ast.Load())), ast.Constant(may_split)))
    node.body = [ast.With([around], node.body)]
    node.handlers.insert(0, ast.ExceptHandler(operator("STOPS"), None, [ast.Raise()]))


def finishing(node: ast.Try, name: str, *, reads: bool) -> None:
    """Tell where the `finally` of a `try` begins and ends, which runs where an assert fails in its body, too.

    Args:
        node: The `try`.
        name: The variable that holds where its body began.
        reads: Whether the `finally` reads variables that the body assigns.
    """
    begun = calling("begin_finally", load(name))
    begun.keywords = [ast.keyword("reads", ast.Constant(reads))]
    node.body.insert(0, assign(name, calling("begin_try")))
    node.finalbody = [ast.Expr(begun), *node.finalbody, ast.Expr(calling("end_finally", load(name)))]


LOGGED: Final = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "log"})
"""Names of functions that write a text to a log."""


def is_talk(node: ast.expr) -> bool:
    """Whether an expression prints, or logs: what is said to people, whose value nobody takes."""
    if not isinstance(node, ast.Call) or binds(node):
        return False
    name = dotted(node.func) or ""
    first, _, last = name.rpartition(".")
    return name == "print" or (last in LOGGED and ("log" in first.lower() or first == "warnings"))
