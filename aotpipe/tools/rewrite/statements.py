"""Builds and reads statements: tests, asserts, local functions, counters of ranges, readable names."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aotpipe.canonicalize.rewrite.ast_builders import DONE, RESULT, SKIP, assign
from aotpipe.tools.rewrite import liveness
from aotpipe.tools.rewrite.expression_rewrites import Unsupported, negated
from aotpipe.tools.rewrite.expressions import call, name

STOP: Final = "__aotpipe_stop"
NUMBER: Final = (bool, int, float)
FRIENDLY: Final = {
    RESULT: "result",
    DONE: "returned",
    SKIP: "skip",
    STOP: "stop",
    "__aotpipe_subject": "subject",
}
Block = list[ast.stmt]


def simple(body: Block) -> dict[str, ast.expr] | None:
    """What statements set variables to, where it is other variables or numbers, and they do nothing else."""
    found: dict[str, ast.expr] = {}
    for node in body:
        if isinstance(node, ast.Pass):
            continue
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return None
        [target] = node.targets
        if not isinstance(target, ast.Name) or not isinstance(node.value, ast.Name | ast.Constant):
            return None
        if isinstance(node.value, ast.Constant) and not isinstance(node.value.value, NUMBER):
            return None
        found[target.id] = node.value
    around = {each.id for each in found.values() if isinstance(each, ast.Name)}
    return None if around & found.keys() else found


def numbers_in(target: ast.expr, value: ast.expr) -> dict[str, object]:
    """The variables that an assignment sets to numbers that stand in the code."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        found: dict[str, object] = {}
        for each, part in zip(target.elts, value.elts, strict=True):
            found |= numbers_in(each, part)
        return found
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


def function(called: str, parameters: Sequence[str], body: Block) -> ast.FunctionDef:
    """A function of plain parameters."""
    arguments = ast.arguments([], [ast.arg(each) for each in parameters], None, [], [], None, [])
    return ast.FunctionDef(called, arguments, body or [ast.Pass()], [])


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
            if hasattr(node, "lineno"):
                return node
            op = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
            return functools.reduce(lambda left, right: ast.BinOp(left, op, right), node.values)

    made: ast.expr = Flags().visit(test)
    return made


def runtime_assert(test: ast.expr, message: ast.expr) -> ast.stmt:
    """An assert of the graph."""
    return ast.Expr(call("torch._assert_async", test, message))


def raises(body: Sequence[ast.stmt]) -> bool:
    """Whether statements raise, and do nothing else but talk."""
    return bool(body) and all(
        isinstance(each, ast.Raise | ast.Pass) or (isinstance(each, ast.Expr) and is_print(each.value))
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


def is_print(node: ast.expr) -> bool:
    """Whether an expression prints or logs."""
    called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return called == "print" or called.partition(".")[0] in ("logging", "logger", "log", "warnings")


def item_written(body: Sequence[ast.stmt]) -> list[str]:
    """The variables whose items, or which themselves, statements write in place."""
    found: dict[str, None] = {}
    for statement in body:
        for node in ast.walk(statement):
            match node:
                case ast.Subscript(value=ast.Name(id=owner), ctx=ast.Store() | ast.Del()):
                    found[owner] = None
    return list(found)


def parameters(function: ast.FunctionDef) -> list[str]:
    """The names of a function's parameters."""
    return [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]


def shown(variable: str) -> str:
    """A variable's name; what the lowering made has one that people would give."""
    return next((text for prefix, text in FRIENDLY.items() if variable.startswith(prefix)), variable)


def renamed(function: ast.FunctionDef) -> ast.FunctionDef:
    """Names that people would give for those of the lowering."""
    taken = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} | set(parameters(function))
    names: dict[str, str] = {}
    for old in sorted(each for each in taken if each.startswith("__aotpipe")):
        base = shown(old)
        made, number = base, 1
        while made in taken or made in names.values():
            number += 1
            made = f"{base}_{number}"
        names[old] = made
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = names.get(node.arg, node.arg)
    return function


def is_handed_on(variable: str, body: Block) -> bool:
    """Whether a branch gives a variable as it got it, or what another one holds."""
    last = [each for each in body if variable in liveness.assigned([each])][-1:]
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
        before: What is computed before the loop.
        test: Whether it goes on.
        begin: The first count.
        step: From iteration to iteration.
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
    items = node.iter
    is_range = isinstance(items, ast.Call) and isinstance(items.func, ast.Name) and items.func.id == "range"
    if not is_range or not isinstance(items, ast.Call) or not isinstance(node.target, ast.Name):
        raise Unsupported("a loop over other things than a range", node)
    bounds = [ast.Constant(0), *items.args] if len(items.args) == 1 else list(items.args)
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
    used = node.target.id
    index = used if not used.startswith("_") and used not in liveness.assigned(node.body) else "index"
    order = ast.Lt() if step > 0 else ast.Gt()
    return Counter(index, before, ast.Compare(name(index), [order], [stop]), begin, step)
