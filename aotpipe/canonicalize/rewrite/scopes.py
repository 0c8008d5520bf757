"""Finds the variables of statements: which they assign, which they may change, which are theirs alone."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Sequence

from aotpipe.canonicalize.rewrite.ast_builders import COMPREHENSIONS, HELPER, dotted


class Assigned:
    """What statements assign: plain names, and attributes of names (`self.count`); what they may change."""

    def __init__(self, names: Sequence[str], attributes: Sequence[str], touched: Sequence[str]) -> None:
        self.names = tuple(names)
        self.touched = tuple(touched)
        # Where the name itself is assigned, its attribute is another object's.
        kept = [path for path in attributes if path.partition(".")[0] not in self.names]
        self.all = (*self.names, *kept)

    def without(self, names: Container[str]) -> Assigned:
        """The rest, where some names are the statements' own."""

        def rest(paths: Sequence[str]) -> list[str]:
            return [path for path in paths if path.partition(".")[0] not in names]

        return Assigned(rest(self.names), rest(self.all[len(self.names) :]), rest(self.touched))


def mentions(nodes: Sequence[ast.AST]) -> Counter[str]:
    """How often each name stands in these nodes, nested scopes included."""
    found: Counter[str] = Counter()
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.Name):
            found[node.id] += 1
        elif isinstance(node, ast.arg):
            found[node.arg] += 1
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)
        elif name := getattr(node, "name", None) or getattr(node, "rest", None):
            found[name] += 1  # a definition, an `except ... as`, a pattern
    return found


def starts(body: Sequence[ast.stmt], name: str) -> bool:
    """Whether no statement reads a name that none before it has set."""
    for node in body:
        if not (mentioned := mentions([node])[name]):
            continue
        if isinstance(node, ast.FunctionDef):
            return node.name == name
        if isinstance(node, ast.If | ast.While | ast.For | ast.With):
            # It need not come to set the name, so that nothing after it may read it.
            inner = [each for each in (node.body, getattr(node, "orelse", [])) if mentions(each)[name]]
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == name:
                within = 1 + mentions(node.body)[name]
            else:
                within = sum(mentions(each)[name] for each in inner)
                if not all(starts(each, name) for each in inner):
                    return False
            return within == mentioned == mentions(body)[name]
        if not isinstance(node, ast.Assign):
            return False
        leaves = [each for target in node.targets for each in getattr(target, "elts", [target])]
        return mentioned == sum(isinstance(leaf, ast.Name) and leaf.id == name for leaf in leaves)
    return False


def assigned(body: Sequence[ast.AST]) -> Assigned:
    """What statements assign, and what they may change."""
    names: dict[str, None] = {}
    attributes: dict[str, None] = {}
    touched: dict[str, None] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names[node.id] = None
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if (path := dotted(node)) is not None:
                attributes[path] = None
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            touch(node.value)
        elif isinstance(node, ast.Call):
            touch(node.func.value if isinstance(node.func, ast.Attribute) else node.func)
            for argument in node.args:
                touch(argument)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names[node.name] = None
            return
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names[node.name] = None
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names[node.rest] = None
        elif isinstance(node, ast.Lambda):
            return
        if isinstance(node, COMPREHENSIONS):
            # Its targets are its own; a walrus in it is not.
            for inner in ast.walk(node):
                if isinstance(inner, ast.NamedExpr) and isinstance(inner.target, ast.Name):
                    names[inner.target.id] = None
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    def touch(node: ast.expr) -> None:
        # What a method, a function or an item's assignment may change.
        if isinstance(node, ast.Name | ast.Attribute) and (path := dotted(node)) is not None:
            touched[path] = None

    for each in body:
        visit(each)
    own = [name for name in names if not name.startswith(HELPER)]
    return Assigned(own, list(attributes), [path for path in touched if not path.startswith(HELPER)])


def reference(path: str, context: ast.expr_context) -> ast.expr:
    """The expression of `a.b.c`."""
    first, *rest = path.split(".")
    made: ast.expr = ast.Name(first, context if not rest else ast.Load())
    for index, attribute in enumerate(rest, 1):
        made = ast.Attribute(made, attribute, context if index == len(rest) else ast.Load())
    return made
