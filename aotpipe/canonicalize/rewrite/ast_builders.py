"""What the rewriting of Python's syntax shares: names of its own, walks of one scope, makers of nodes."""

from __future__ import annotations

import ast
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import Final

# Stands for the module `operators` in the rewritten tree.
OPERATORS: Final = "__aotpipe_operators__"
HELPER: Final = "__aotpipe_of"
SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Builtins that look at the function that they are called in.
OPAQUE: Final = frozenset({"locals", "vars", "eval", "exec", "globals"})
LOOPS: Final = (ast.While, ast.For)


class Own(ast.NodeTransformer):
    """Visits the nodes of one function's own scope."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return node if isinstance(node, SCOPES) else super().generic_visit(node)


def own(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All nodes below these that belong to the same scope."""
    for node in nodes:
        yield node
        if not isinstance(node, SCOPES):
            yield from below(node)


def below(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one, such as a function, that belong to its scope."""
    return own(list(ast.iter_child_nodes(node)))


def contains(nodes: Sequence[ast.AST], *kinds: type[ast.AST]) -> bool:
    """Whether a node of these kinds belongs to the same scope."""
    return any(isinstance(node, kinds) for node in own(nodes))


def blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    """The lists of statements inside a statement."""
    found = [getattr(node, field, []) for field in ("body", "orelse", "finalbody")]
    return [*found, *(each.body for each in (*getattr(node, "handlers", []), *getattr(node, "cases", [])))]


def assign(name: str, value: ast.expr) -> ast.Assign:
    """`name = value`."""
    return ast.Assign(targets=[ast.Name(name, ast.Store())], value=value)


def load(name: str) -> ast.Name:
    """`name`, which is read."""
    return ast.Name(name, ast.Load())


def tuple_of(items: Iterable[ast.expr]) -> ast.Tuple:
    """`(item, ...)`."""
    return ast.Tuple(list(items), ast.Load())


def negated(flag: str) -> ast.expr:
    """`not flag`."""
    return ast.UnaryOp(ast.Not(), load(flag))


def declared(names: Collection[str], global_names: Container[str]) -> list[ast.stmt]:
    """`global` and `nonlocal` for names of which some are global."""
    shared = [each for each in names if each in global_names]
    outer = [each for each in names if each not in global_names]
    return [kind(each) for kind, each in ((ast.Global, shared), (ast.Nonlocal, outer)) if each]


def parameters(*names: str) -> ast.arguments:
    """The parameters of a function."""
    args = [ast.arg(name) for name in names]
    return ast.arguments(posonlyargs=[], args=args, kwonlyargs=[], kw_defaults=[], defaults=[])


def later(node: ast.expr) -> ast.Lambda:
    """`lambda: node`."""
    return ast.Lambda(parameters(), node)


def operator(name: str) -> ast.expr:
    """One of `operators`."""
    return ast.Attribute(ast.Constant(OPERATORS), name, ast.Load())


def calling(name: str, *arguments: ast.expr) -> ast.Call:
    """A call of one of `operators`."""
    return ast.Call(operator(name), list(arguments), [])


def binds(node: ast.AST) -> bool:
    """Whether an expression assigns (a walrus), which a lambda would keep to itself."""
    return any(isinstance(inner, ast.NamedExpr | ast.Await | ast.Yield) for inner in ast.walk(node))


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` as text; None for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None


def located(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Give every new node the line of the node before it."""
    last = tree

    def visit(node: ast.AST) -> None:
        nonlocal last
        if isinstance(node, ast.expr | ast.stmt | ast.excepthandler | ast.arg | ast.keyword | ast.alias):
            if hasattr(node, "lineno"):
                last = node  # type: ignore[assignment]
            else:
                ast.copy_location(node, last)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return ast.fix_missing_locations(tree)
