"""Writes a model from its own source: what it needs of its file, with other control flow and state.

What the trace put into the graph is rewritten (`function_rewrites`), and an attribute that calls change
becomes a buffer: `self.calls = 0` registers one. Every other line stays as its author wrote it. Other models,
Specs and examples of the file are left out; `Edited.diff` shows the same edits in the whole file.
"""

from __future__ import annotations

import ast
import copy
import inspect
import linecache
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.fx import GraphModule

from aotpipe.canonicalize.rewrite.ast_builders import contains
from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.core.stages import Exported
from aotpipe.model import source
from aotpipe.passes import hops, ops
from aotpipe.passes.codegen import syntax
from aotpipe.passes.codegen.code import Code, unified_diff
from aotpipe.passes.codegen.expression_rewrites import Unsupported
from aotpipe.passes.codegen.from_graph import definition_of
from aotpipe.passes.codegen.function_rewrites import rewrite_function
from aotpipe.passes.codegen.nodes import writes
from aotpipe.passes.codegen.staged_statements import assigned
from aotpipe.passes.codegen.syntax import call, dotted, literal, method, text_of

_IMPORTS: Final = (ast.Import, ast.ImportFrom)
_NATURAL: Final = {int: torch.int64, float: torch.float64, bool: torch.bool}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """The file of a model's class, what of it the model needs, and what is put in place of some lines."""

    path: str
    tree: ast.Module
    lines: Sequence[str]
    kept: Sequence[ast.stmt]
    edits: Mapping[tuple[int, int], str]
    class_name: str
    methods: Mapping[str, str]
    states: Mapping[str, torch.dtype]

    def code(self) -> Code:
        """What the model needs of the file, edited."""
        parts = [_text(each, self.lines, self.edits) for each in self.kept]
        return Code(
            text=_joined(self.tree, self.kept, parts, self.lines),
            class_name=self.class_name,
            methods=self.methods,
            state=tuple(self.states),
            tensors={},
            is_edited=True,
            attributes=self.states,
        )

    def diff(self) -> str:
        """A unified diff of the whole file, in which only the edited lines are others.

        It is empty where nothing is edited. The file's folder is not named.
        """
        if not self.edits:
            return ""
        after = _replaced(self.lines, 1, len(self.lines), self.edits)
        if not any("torch" in defined(each) for each in self.tree.body):
            future = [each.end_lineno or 0 for each in self.tree.body if _is_future(each)]
            after.insert(max(future, default=0), "import torch")
        name = Path(self.path).name
        return unified_diff("".join(f"{each}\n" for each in self.lines), "\n".join([*after, ""]), name, name)


def may_change(exported: Exported, decisions: Sequence[Decision]) -> bool:
    """Whether anything of a model's source may be edited: a trace decided, or an attribute is state.

    It is quick, of a large graph too.
    """
    own = dict(exported.canonical.model.named_buffers(remove_duplicate=False))
    buffers = (each for entry in exported.entries for each in entry.program.graph_signature.buffers)
    return bool(decisions) or any(each not in own for each in buffers)


def rewrite_source(exported: Exported, decisions: Sequence[Decision], *, contiguous: bool = False) -> Code:
    """The code of a model, from its source; the arguments are those of `edit_source`.

    Raises:
        Unsupported: It has no such form.
    """
    return edit_source(exported, decisions, contiguous=contiguous).code()


def edit_source(exported: Exported, decisions: Sequence[Decision], *, contiguous: bool = False) -> Edited:
    """The file of a model, edited where a trace decided.

    `contiguous` is as `rewrite_function` takes it.

    Raises:
        Unsupported: It has no such form.
    """
    canonical = exported.canonical
    states = state_attributes(exported)
    owner = definition_of(canonical.model)
    try:
        path = inspect.getsourcefile(owner)
    except (TypeError, OSError) as error:  # its module has no file: it was typed in, or made by a program
        raise Unsupported("its class stands in no file") from error
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
    graphs = (graph for entry in exported.entries for graph in entry.program.graph_module.modules())
    nodes = [node for graph in graphs if isinstance(graph, GraphModule) for node in graph.graph.nodes]
    # A graph takes a number out of a tensor for a size only.
    has_sizes = any(ops.name_of(node) in ("item", "_local_scalar_dense") for node in nodes)
    rewrite = partial(rewrite_function, sizes=has_sizes, contiguous=contiguous, attributes=attributes)
    edits = dict(_edits(kept, decisions, lines, rewrite, attributes))
    edits |= dict(state_edits(kept, canonical.model, states))
    return Edited(
        path=path,
        tree=tree,
        lines=lines,
        kept=kept,
        edits=edits,
        class_name=owner.__name__,
        methods={entry.name: entry.entry.method for entry in canonical.entries},
        states=states,
    )


def _roots(model: nn.Module, owner: Any) -> set[str]:
    """The model's class, and those of its parts that stand in the same file."""
    kinds = {type(module) for module in model.modules()}
    parts = (each for each in kinds if each.__module__ == owner.__module__ and "." not in each.__qualname__)
    # What is written needs torch, whatever the rest of the file does.
    return {owner.__name__, "torch", *(each.__name__ for each in parts)}


def _edits(
    kept: Iterable[ast.stmt],
    decisions: Sequence[Decision],
    lines: Sequence[str],
    rewrite: Callable[[ast.FunctionDef, Sequence[Decision]], ast.FunctionDef],
    attributes: Collection[str],
) -> Iterator[tuple[tuple[int, int], str]]:
    """For each function in which the trace decided something, its lines and its new text."""
    left = list(decisions)
    functions = [node for each in kept for node in ast.walk(each) if isinstance(node, ast.FunctionDef)]
    # The innermost one is the one that decided.
    for function in sorted(functions, key=lambda node: -node.lineno):
        first, last = source.first_line(function), function.end_lineno or function.lineno
        mine = [each for each in left if first <= each.line <= last]
        if not mine and not changes(function, attributes):
            continue
        left = [each for each in left if each not in mine]
        if any(function in ast.walk(each) for each in functions if each is not function):
            raise Unsupported("a tensor decides in a function inside of another", function)
        if contains(function.body, ast.Yield, ast.YieldFrom):
            raise Unsupported("a tensor decides in a generator", function)
        syntax.mark(function.body, lines)
        yield (first, last), text_of([rewrite(function, mine)], function.col_offset // 4)
    if left:
        raise Unsupported("a tensor decides outside of the model's functions")


def _text(statement: ast.stmt, lines: Sequence[str], edits: Mapping[tuple[int, int], str]) -> str:
    """A top-level statement with its comments, and the edits in it."""
    first, last = source.first_line(statement), statement.end_lineno or statement.lineno
    if isinstance(statement, _IMPORTS):
        return ast.unparse(statement) if statement.names else ""
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    return "\n".join(_replaced(lines, first, last, edits))


def _replaced(lines: Sequence[str], first: int, last: int, edits: Mapping[tuple[int, int], str]) -> list[str]:
    """The lines from the first to the last, and the edits in them."""
    out: list[str] = []
    for (begin, end), made in sorted(edits.items()):
        if first <= begin <= last:
            out += [*lines[first - 1 : begin - 1], made]
            first = end + 1
    return [*out, *lines[first - 1 : last]]


def _joined(tree: ast.Module, kept: Sequence[ast.stmt], parts: Sequence[str], lines: Sequence[str]) -> str:
    """The text of the file, with blank lines where its author had some."""
    out = []
    if ast.get_docstring(tree, clean=False) is not None:
        first = tree.body[0]
        out += ["\n".join(lines[first.lineno - 1 : first.end_lineno]), ""]
    is_torch_known = any("torch" in defined(each) for each in kept)
    for previous, statement, part in zip([None, *kept], kept, parts, strict=False):
        if previous is not None:
            pair = (previous, statement)
            gap = 2 if any(isinstance(each, ast.FunctionDef | ast.ClassDef) for each in pair) else 1
            if all(isinstance(each, _IMPORTS) for each in pair):
                between = lines[previous.end_lineno or 0 : statement.lineno - 1]
                gap = int("" in map(str.strip, between))
            out += [""] * gap
        out.append(part)
        if _is_future(statement) and not is_torch_known:
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
    kept: set[int] = set()
    waiting = list(roots)
    seen: set[str] = set()
    while waiting:
        if (name := waiting.pop()) in seen:
            continue
        seen.add(name)
        for statement in homes.get(name, ()):
            kept.add(id(statement))
            for node in ast.walk(statement) if not isinstance(statement, _IMPORTS) else ():
                match node:
                    # An annotation may be a text.
                    case ast.Name(id=mentioned) | ast.Constant(value=str(mentioned)):
                        waiting.append(mentioned)
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
            return assigned([statement])


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _narrowed(statement: ast.stmt, names: set[str]) -> ast.stmt:
    if not isinstance(statement, _IMPORTS) or _is_future(statement):
        return statement
    narrowed = copy.copy(statement)
    narrowed.names = [
        each for each in statement.names if (each.asname or each.name).partition(".")[0] in names
    ]
    return narrowed


def imports(statements: Iterable[ast.stmt]) -> set[str]:
    """The packages that statements import."""
    found: set[str] = set()
    for node in (inner for each in statements for inner in ast.walk(each)):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." if node.level else (node.module or "").partition(".")[0])
    return found


def state_attributes(exported: Exported) -> dict[str, torch.dtype]:
    """The attributes that calls change and no buffer of the model is, by path, with their dtypes.

    Raises:
        Unsupported: One takes several forms, or is no number and no tensor.
    """
    model = exported.canonical.model
    own = dict(model.named_buffers(remove_duplicate=False))
    found = {
        path: hops.held(entry.program, path).dtype
        for entry in exported.entries
        for path in writes(entry.program)[0]
        if path not in own
    }
    for path, dtype in found.items():
        owner, _, last = path.rpartition(".")
        try:
            value = vars(model.get_submodule(owner)).get(last)
        except AttributeError:
            value = None
        if isinstance(value, torch.Tensor) and value.dtype == dtype:
            continue
        if type(value) not in _NATURAL or _NATURAL[type(value)] != dtype:
            raise Unsupported(f"`{path}` takes several forms, or is no number and no tensor at first")
    return found


def state_edits(
    statements: Iterable[ast.stmt], model: nn.Module, states: Iterable[str]
) -> Iterator[tuple[tuple[int, int], str]]:
    """For each attribute that is state, the lines that set it first, and what takes their place.

    Raises:
        Unsupported: It is not set once in its class's `__init__`.
    """
    classes = {node.name: node for node in statements if isinstance(node, ast.ClassDef)}
    first: dict[tuple[str, str], str] = {}
    for path in states:
        owner, _, last = path.rpartition(".")
        first.setdefault((type(model.get_submodule(owner)).__name__, last), path)
    for (kind, last), path in first.items():
        target = ast.dump(ast.Attribute(ast.Name("self", ast.Load()), last, ast.Store()))
        found = [
            node
            for function in (classes[kind].body if kind in classes else ())
            if isinstance(function, ast.FunctionDef) and function.name == "__init__"
            for node in function.body
            if isinstance(node, ast.Assign) and [ast.dump(each) for each in node.targets] == [target]
        ]
        if len(found) != 1:
            raise Unsupported(f"`{path}` is not set once in the class's own __init__")
        [node] = found
        value = vars(model.get_submodule(path.rpartition(".")[0]))[last]
        tensor = node.value
        if not isinstance(value, torch.Tensor):
            kinds = {"dtype": literal(torch.float64)} if type(value) is float else {}
            tensor = call("torch.tensor", node.value, **kinds)
        made = method(
            dotted("self"), "register_buffer", ast.Constant(last), tensor, persistent=ast.Constant(False)
        )
        text = text_of([ast.Expr(made)])
        yield (node.lineno, node.end_lineno or node.lineno), textwrap.indent(text, " " * node.col_offset)


def register(model: nn.Module, states: Mapping[str, torch.dtype]) -> None:
    """Turn a model's attributes into the buffers that its written classes register."""
    for path, dtype in states.items():
        owner, _, last = path.rpartition(".")
        module = model.get_submodule(owner)
        value = vars(module).pop(last)
        module.register_buffer(last, torch.as_tensor(value, dtype=dtype), persistent=False)


def changes(function: ast.FunctionDef, names: Collection[str]) -> bool:
    """Whether a function writes one of these attributes by `+=` or its kin."""
    written = (node.target for node in ast.walk(function) if isinstance(node, ast.AugAssign))
    return any(isinstance(each, ast.Attribute) and each.attr in names for each in written)
