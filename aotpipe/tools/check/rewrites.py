"""What becomes of Python's control flow: which statement decides, and the op that takes its place.

`deciding(place)` finds the statement or operator whose outcome an expression decides. `rewrites` names those
that a build puts into the graph.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from aotpipe.core.stages import Finding
from aotpipe.model import source
from aotpipe.tools.check import source_ranges
from aotpipe.tools.check.data_dependence import Event
from aotpipe.tools.check.diagnostics import Rewrite
from aotpipe.tools.check.source_ranges import Place

_ASSERT: Final = "an assert of the program"


@dataclass(frozen=True, slots=True)
class Deciding:
    """A construct of Python: what it is called, the op in its place, and the function around it."""

    what: str
    into: str
    node: ast.AST
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None


def deciding(place: Place) -> Deciding | None:
    """What an expression decides; None where it decides nothing, or there is no source."""
    return next(_constructs(place), None)


def _constructs(place: Place) -> Iterator[Deciding]:
    """The construct that an expression decides, and those around it in the same test."""
    parents = source_ranges.around(place)
    function = next(
        (n for n in parents if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)), None
    )
    inner: ast.AST | None = None
    for node in parents:
        found = _construct(node, inner)
        if found is not None:
            yield Deciding(*found, node, function)
        if isinstance(node, ast.stmt | ast.IfExp):
            return
        inner = node


def _construct(node: ast.AST, inner: ast.AST | None) -> tuple[str, str] | None:
    match node:
        case ast.If(test=test) if test is inner:
            return "if", "torch.cond"
        case ast.While(test=test) if test is inner:
            return "while", "torch.while_loop"
        case ast.IfExp(test=test) if test is inner:
            return "conditional expression", "torch.cond"
        case ast.For(iter=ast.Call(func=ast.Name(id="range")) as items) if items is inner:
            return "for over range", "torch.while_loop"
        case ast.Assert(test=test) if test is inner:
            return "assert", _ASSERT
        case ast.BoolOp(op=ast.And()):
            return "and", "torch.logical_and"
        case ast.BoolOp(op=ast.Or()):
            return "or", "torch.logical_or"
        case ast.UnaryOp(op=ast.Not()):
            return "not", "torch.logical_not"
        case ast.Compare(ops=ops) if len(ops) > 1:
            return "chained comparison", "torch.logical_and"
        case ast.ListComp(generators=[each]) if inner in each.ifs:
            return "comprehension", "torch.cond"
        case _:
            return None


def rewrites(
    events: Iterable[Event], findings: Collection[Finding], entry_point: str, raising: Collection[Place] = ()
) -> list[Rewrite]:
    """Each construct on a varying tensor in a function that a build rewrote, once, by place.

    Args:
        events: Where Python looks into tensors.
        findings: Of the export: which functions were rewritten.
        entry_point: Its name.
        raising: The decisions of which one side raises.
    """
    rewritten = {str(each.where) for each in findings if each.code == "control-flow-in-graph" and each.where}
    made: dict[tuple[str, int, int, str], Rewrite] = {}
    for event in events:
        if not event.node.varies or event.kind not in ("truth", "number"):
            continue
        for found in _constructs(event.place):
            if found.function is None or not _is_among(found.function, event.place.path, rewritten):
                continue
            place = _shown(event.place, found)
            key = (place.path, place.line, place.column, found.what)
            into = _ASSERT if found.what == "if" and event.place in raising else found.into
            if into:
                made[key] = Rewrite(what=found.what, into=into, place=place, entry_point=entry_point)
    return [made[key] for key in sorted(made)]


def _shown(place: Place, found: Deciding) -> Place:
    if isinstance(found.node, ast.expr | ast.stmt):
        return source_ranges.of_node(place.path, found.node, place.function)
    return place


def _is_among(function: ast.AST, path: str, rewritten: Collection[str]) -> bool:
    lines = {getattr(function, "lineno", 0)}
    lines |= {each.lineno for each in getattr(function, "decorator_list", ())}
    return any(f"{source.shown(path)}:{line}" in rewritten for line in lines)
