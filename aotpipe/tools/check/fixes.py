"""Fixes that were executed: edits after which eager answers the same and the obstacle is gone.

`with_fix(diagnostic, ...)` tries the edits that may help with its code, each in the running function: the
edited model must give eager's answers on several calls, and the stages must take it at that line, with the
other obstacles replayed. What does not pass is not shown.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any, Final

import numpy as np
import torch

from aotpipe.canonicalize.rewrite import functions
from aotpipe.core.stages import Canonical, CanonicalEntry
from aotpipe.model import source
from aotpipe.model.garbage_collector import functions_of
from aotpipe.tools.check import source_ranges
from aotpipe.tools.check.agreement import answers, calls_of, difference
from aotpipe.tools.check.attempt import Line, is_taken
from aotpipe.tools.check.diagnostics import Diagnostic, Fix
from aotpipe.tools.check.eager_runs import Observed
from aotpipe.tools.check.source_ranges import Place

_EQUAL: Final = 1e-5
_CONVERSIONS: Final = frozenset({"int", "float", "bool"})
_FROM_NUMPY: Final = frozenset({"from_numpy", "as_tensor", "tensor"})


def with_fix(
    found: Diagnostic, canonical: Canonical, observed: Mapping[str, Observed], replayed: Collection[Line]
) -> Diagnostic:
    """The diagnostic, with a fix where one was executed and found equal."""
    entry = next((each for each in canonical.entries if each.name == found.entry_point), None)
    if entry is None or found.severity != "error" or found.place is None or not found.place.text:
        return found
    function = _function(found.place, observed[entry.name])
    if function is None:
        return found
    line = (found.place.path, found.place.line)
    one = replace(canonical, entries=(entry,), findings=())
    for place, replacement in _edits(found, function):
        edited = _edited(function, place, replacement)
        if edited is None:
            continue
        text, code = edited
        calls = _equal_calls(entry, function, text, code)
        if not calls:
            continue
        with _swapped(function, text, code):
            taken = is_taken(one, observed[entry.name], set(replayed) - {line})
        if taken:
            fix = Fix(place=place, replacement=replacement, verified=True, calls=calls)
            return replace(found, fix=fix)
    return found


def _function(place: Place, observed: Observed) -> FunctionType | None:
    """The live function around a place, if there is one alone."""
    parents = source_ranges.around(place)
    inner = next((node for node in parents if isinstance(node, ast.FunctionDef)), None)
    for code in observed.reached:
        if code.co_filename == place.path and inner is not None and source.syntax_of(code) is inner:
            live = functions_of(code)
            return live[0] if len(live) == 1 else None
    return None


def _edits(found: Diagnostic, function: FunctionType) -> Iterator[tuple[Place, str]]:
    """Edits that may help, the smallest first; each of one expression on lines of its own."""
    assert found.place is not None
    path = found.place.path
    parents = source_ranges.around(found.place)
    expressions = [node for node in parents if isinstance(node, ast.expr)]
    match found.code:
        case "tensor-to-numpy":
            for node in expressions:
                copied = ast.parse(ast.unparse(node), mode="eval")
                text = ast.unparse(_Torch(function.__globals__).visit(copied))
                yield source_ranges.of_node(path, node), text
        case "number-from-tensor" | "branch-on-tensor" | "text-from-tensor":
            for node in expressions:
                if (inner := _converted(node)) is not None:
                    yield source_ranges.of_node(path, node), ast.unparse(inner)
        case "written-in-place":
            for part in ast.walk(next((n for n in parents if isinstance(n, ast.stmt)), ast.Pass())):
                if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
                    value = ast.BinOp(ast.Name(part.target.id, ast.Load()), part.op, part.value)
                    yield source_ranges.of_node(path, part), f"{part.target.id} = {ast.unparse(value)}"
        case _:
            return


def _converted(node: ast.expr) -> ast.expr | None:
    """`x` of `x.item()`, `int(x)`, `float(x)`, `bool(x)`."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[]):
            return inner
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name in _CONVERSIONS:
            return inner
        case _:
            return None


class _Torch(ast.NodeTransformer):
    """Puts torch's functions in the place of numpy's of the same name."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._numpy = {name for name, value in variables.items() if value is np}

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Leave out what goes to numpy and comes back."""
        self.generic_visit(node)
        match node.func, node.args:
            case ast.Attribute(value=inner, attr="numpy"), []:
                return inner
            case ast.Attribute(value=ast.Name(id="torch"), attr=name), [inner] if name in _FROM_NUMPY:
                return inner
            case _:
                return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """`np.exp` is `torch.exp`."""
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self._numpy and hasattr(torch, node.attr):
            return ast.Attribute(ast.Name("torch", ast.Load()), node.attr, ast.Load())
        return node


def _edited(function: FunctionType, place: Place, replacement: str) -> tuple[str, CodeType] | None:
    """The file's text with an edit, and the function's code of it; lines stay where they are."""
    lines = linecache.getlines(place.path)
    if not lines or place.end_line != place.line or "torch" not in function.__globals__:
        return None
    row = lines[place.line - 1]
    new = row[: place.column - 1] + replacement + row[place.end_column - 1 :]
    text = "".join([*lines[: place.line - 1], new, *lines[place.line :]])
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    code = function.__code__
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first == code.co_firstlineno:
                node.decorator_list = []
                made = functions.recompiled(code, node)
                return None if made is None else (text, made.replace(co_firstlineno=first))
    return None


@contextmanager
def _swapped(function: FunctionType, text: str, code: CodeType) -> Iterator[None]:
    """Run the edited function; who reads its source reads the edited one."""
    path = function.__code__.co_filename
    before = linecache.cache.get(path)
    # Without a time, an entry of the cache is not held against the file.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    try:
        with functions.swapped({function: code}):
            yield
    finally:
        if before is not None:
            linecache.cache[path] = before
        else:
            linecache.cache.pop(path, None)


def _equal_calls(entry: CanonicalEntry, function: FunctionType, text: str, code: CodeType) -> int:
    """On how many calls the edited model gives eager's answers; 0 where one differs."""
    changes = [change for _, change in calls_of(entry)]
    wanted = answers(entry.module, entry, changes)
    with _swapped(function, text, code):
        got = answers(entry.module, entry, changes)
    if len(got) != len(wanted):
        return 0
    same = not any(difference(entry, *each, _EQUAL) for each in zip(wanted, got, strict=True))
    return len(wanted) if same else 0
