"""Writes a model from its own source: what it needs of its file, with other control flow.

What the trace put into the graph is rewritten (`function_rewrites`); every other line stays as its author
wrote it. Other models, Specs and examples of the file are left out.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn
from torch.fx import GraphModule

from aotpipe.canonicalize.rewrite.ast_builders import contains
from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.core.stages import Exported
from aotpipe.model import source
from aotpipe.tools.rewrite import formatting, liveness, state_buffers
from aotpipe.tools.rewrite.expression_rewrites import Unsupported
from aotpipe.tools.rewrite.formatting import text_of
from aotpipe.tools.rewrite.from_graph import is_function_module
from aotpipe.tools.rewrite.function_rewrites import rewrite_function
from aotpipe.tools.rewrite.result import Code
from aotpipe.tools.rewrite.torch_ops import name_of


def rewrite_source(exported: Exported, decisions: Sequence[Decision], *, contiguous: bool = False) -> Code:
    """The code of a model, from its source.

    Args:
        exported: The model.
        decisions: What the trace noted.
        contiguous: As `rewrite_function` takes it.

    Raises:
        Unsupported: It has no such form.
    """
    canonical = exported.canonical
    states = state_buffers.kept(exported)
    owner: Any = type(canonical.model)
    if is_function_module(canonical.model):
        owner = inspect.unwrap(canonical.model.forward)
    path = inspect.getsourcefile(owner)
    if path is None or not source.is_user_file(path):
        raise Unsupported("its class is a library's")
    if others := {each.path for each in decisions} - {path}:
        raise Unsupported(f"a tensor decides in {source.shown(min(others))}, too")
    text = "".join(linecache.getlines(path))
    tree = ast.parse(text)
    lines = text.splitlines()
    kept = needed(tree, _roots(canonical.model, owner))
    if not any(owner.__name__ in defined(each) for each in kept):
        raise Unsupported("it is defined inside of a function")
    if foreign := imports(kept) & {"aotpipe", "."}:
        raise Unsupported(f"its file needs {'a module beside it' if '.' in foreign else 'aotpipe'}")
    attributes = {each.rpartition(".")[2] for each in states}
    form = {"sizes": _has_sizes(exported), "contiguous": contiguous}
    edits = dict(_edits(kept, decisions, lines, form, attributes))
    edits |= dict(state_buffers.edits(kept, canonical.model, states))
    parts = [_text(each, lines, edits) for each in kept]
    return Code(
        text=_joined(tree, kept, parts, lines),
        class_name=owner.__name__,
        methods={entry.name: entry.entry.method for entry in canonical.entries},
        state=tuple(states),
        tensors={},
        is_edited=True,
        attributes=states,
    )


def _has_sizes(exported: Exported) -> bool:
    """Whether a graph takes a number out of a tensor, which it does only for a size."""
    graphs = (graph for entry in exported.entries for graph in entry.program.graph_module.modules())
    nodes = (node for graph in graphs if isinstance(graph, GraphModule) for node in graph.graph.nodes)
    return any(name_of(node.target) in ("aten::item", "aten::_local_scalar_dense") for node in nodes)


def _roots(model: nn.Module, owner: Any) -> list[str]:
    """The model's class, and those of its parts that stand in the same file."""
    # What is written needs torch, whatever the rest of the file does.
    found = {owner.__name__: None, "torch": None}
    for module in model.modules():
        kind = type(module)
        if kind.__module__ == owner.__module__ and "." not in kind.__qualname__:
            found[kind.__name__] = None
    return list(found)


def _edits(
    kept: Iterable[ast.stmt],
    decisions: Sequence[Decision],
    lines: Sequence[str],
    form: Mapping[str, bool],
    attributes: Collection[str],
) -> Iterator[tuple[tuple[int, int], str]]:
    """For each function in which the trace decided something, its lines and its new text."""
    left = set(range(len(decisions)))
    functions = [node for each in kept for node in ast.walk(each) if isinstance(node, ast.FunctionDef)]
    # The innermost one is the one that decided.
    for function in sorted(functions, key=lambda node: -node.lineno):
        first, last = _first(function), function.end_lineno or function.lineno
        mine = [at for at in left if first <= decisions[at].line <= last]
        if not mine and not state_buffers.changes(function, attributes):
            continue
        left -= set(mine)
        if any(function in ast.walk(each) for each in functions if each is not function):
            raise Unsupported("a tensor decides in a function inside of another", function)
        if contains(function.body, ast.Yield, ast.YieldFrom):
            raise Unsupported("a tensor decides in a generator", function)
        formatting.mark(function, lines)
        made = rewrite_function(
            function, [decisions[at] for at in sorted(mine)], attributes=attributes, **form
        )
        depth = function.col_offset // 4
        yield (first, last), text_of([made], depth)
    if left:
        raise Unsupported("a tensor decides outside of the model's functions")


def _first(node: ast.FunctionDef | ast.ClassDef | ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _text(statement: ast.stmt, lines: Sequence[str], edits: dict[tuple[int, int], str]) -> str:
    """A top-level statement with its comments, and the edits in it."""
    first, last = _first(statement), statement.end_lineno or statement.lineno
    if isinstance(statement, ast.Import | ast.ImportFrom):
        whole = ast.unparse(statement)
        return whole if len(statement.names) else ""
    start = first
    while start > 1 and lines[start - 2].startswith("#"):
        start -= 1
    out = []
    at = start
    for (begin, end), made in sorted(edits.items()):
        if first <= begin <= last:
            out += [*lines[at - 1 : begin - 1], made]
            at = end + 1
    out += lines[at - 1 : last]
    return "\n".join(out)


def _joined(tree: ast.Module, kept: Sequence[ast.stmt], parts: Sequence[str], lines: Sequence[str]) -> str:
    """The file: what stood apart stands apart."""
    out = []
    doc = ast.get_docstring(tree, clean=False)
    if doc is not None:
        first = tree.body[0]
        out.append("\n".join(lines[first.lineno - 1 : first.end_lineno]))
        out.append("")
    names = {name for each in kept for name in defined(each)}
    is_torch_known = "torch" in names
    previous: ast.stmt | None = None
    for statement, part in zip(kept, parts, strict=True):
        if previous is not None:
            both = isinstance(previous, ast.Import | ast.ImportFrom) and isinstance(
                statement, ast.Import | ast.ImportFrom
            )
            scope = isinstance(statement, ast.FunctionDef | ast.ClassDef) or isinstance(
                previous, ast.FunctionDef | ast.ClassDef
            )
            between = lines[previous.end_lineno or 0 : statement.lineno - 1]
            gap = int("" in map(str.strip, between)) if both else 2 if scope else 1
            out += [""] * min(gap, 2)
        out.append(part)
        previous = statement
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if is_future and not is_torch_known:
            out += ["", "import torch"]
            is_torch_known = True
    head = [] if is_torch_known else ["import torch", ""]
    return "\n".join([*head, *out]).rstrip() + "\n"


def needed(tree: ast.Module, roots: Iterable[str]) -> list[ast.stmt]:
    """The statements of a file that define some names, and what these mention, imports included."""
    homes: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for name in defined(statement):
            homes.setdefault(name, []).append(statement)
    kept: dict[int, ast.stmt] = {}
    waiting = list(roots)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for statement in homes.get(name, ()):
            if id(statement) not in kept:
                kept[id(statement)] = statement
                if not isinstance(statement, ast.Import | ast.ImportFrom):
                    waiting += _mentioned(statement)
    return [_narrowed(each, seen) for each in tree.body if id(each) in kept or _is_future(each)]


def defined(statement: ast.stmt) -> list[str]:
    """The names that a top-level statement gives a value."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Import(names=names):
            return [(each.asname or each.name).partition(".")[0] for each in names]
        case ast.ImportFrom(names=names):
            return [each.asname or each.name for each in names]
        case _:
            return liveness.assigned([statement])


def _mentioned(statement: ast.stmt) -> list[str]:
    found = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    # An annotation may be a text.
    texts = [node.value for node in ast.walk(statement) if isinstance(node, ast.Constant)]
    return found + [each for each in texts if isinstance(each, str) and each.isidentifier()]


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _narrowed(statement: ast.stmt, names: set[str]) -> ast.stmt:
    """An import of what is used only."""
    if not isinstance(statement, ast.Import | ast.ImportFrom) or _is_future(statement):
        return statement
    used = [each for each in statement.names if (each.asname or each.name).partition(".")[0] in names]
    if len(used) == len(statement.names):
        return statement
    if isinstance(statement, ast.Import):
        made: ast.stmt = ast.Import(used)
    else:
        made = ast.ImportFrom(statement.module, used, statement.level)
    return ast.copy_location(made, statement)


def imports(statements: Iterable[ast.stmt]) -> set[str]:
    """The packages that statements import."""
    found: set[str] = set()
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                found |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add("." if node.level else (node.module or "").partition(".")[0])
    return found
