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


class _Assignments:
    """Collects what statements assign, and what they may change, in the order of their text."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.attributes: dict[str, None] = {}
        self.touched: dict[str, None] = {}

    def visit(self, node: ast.AST) -> None:
        """Collect of a node and of what is below it, in the same scope."""
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()):
                self.names[node.id] = None
            case ast.Attribute(ctx=ast.Store()):
                if (path := dotted(node)) is not None:
                    self.attributes[path] = None
            case ast.Subscript(ctx=ast.Store() | ast.Del()):
                self._touch(node.value)
            case ast.Call():
                self._touch(node.func.value if isinstance(node.func, ast.Attribute) else node.func)
                for argument in node.args:
                    self._touch(argument)
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                self.names[node.name] = None
                return
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                self.names[name] = None
            case ast.MatchMapping(rest=str(name)):
                self.names[name] = None
            case ast.Lambda():
                return
        if isinstance(node, COMPREHENSIONS):
            self._comprehension(node)
            return
        for child in ast.iter_child_nodes(node):
            self.visit(child)

    def _comprehension(self, node: ast.AST) -> None:
        # Its targets are its own; a walrus in it is not.
        for inner in ast.walk(node):
            if isinstance(inner, ast.NamedExpr) and isinstance(inner.target, ast.Name):
                self.names[inner.target.id] = None

    def _touch(self, node: ast.expr) -> None:
        # What a method, a function or an item's assignment may change.
        if isinstance(node, ast.Name | ast.Attribute) and (path := dotted(node)) is not None:
            self.touched[path] = None


def assigned(body: Sequence[ast.AST]) -> Assigned:
    """What statements assign, and what they may change."""
    found = _Assignments()
    for each in body:
        found.visit(each)
    own = [name for name in found.names if not name.startswith(HELPER)]
    touched = [path for path in found.touched if not path.startswith(HELPER)]
    return Assigned(own, list(found.attributes), touched)


def reference(path: str, context: ast.expr_context) -> ast.expr:
    """The expression of `a.b.c`."""
    first, *rest = path.split(".")
    made: ast.expr = ast.Name(first, context if not rest else ast.Load())
    for index, attribute in enumerate(rest, 1):
        made = ast.Attribute(made, attribute, context if index == len(rest) else ast.Load())
    return made
