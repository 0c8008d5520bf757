"""What a trace noted of the variables of a branch or a loop, and tuples by their parts.

An op of torch's carries tensors only, so that a variable that holds a tuple goes through it part by part.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree  # torch.export's own flattening; see canonicalize.pytrees

from aotpipe.canonicalize.rewrite.ast_builders import assign
from aotpipe.canonicalize.trace.abstract_values import Form, Leaf
from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.tools.rewrite.coercion import is_plain
from aotpipe.tools.rewrite.expression_rewrites import Unstaged
from aotpipe.tools.rewrite.expressions import literal, name, tuple_of
from aotpipe.tools.rewrite.statements import shown

Block = list[ast.stmt]


class Facts:
    """What the trace noted of the variables of a statement."""

    def __init__(self, decision: Decision | None) -> None:
        names = decision.names if decision else ()
        forms = map(_computed, decision.forms) if decision else ()
        self._forms: dict[str, Form] = dict(zip(names, forms, strict=True))
        self.before: dict[str, Any] = dict(zip(names, decision.before, strict=False)) if decision else {}
        self._after = [dict(zip(names, path, strict=False)) for path in decision.after] if decision else []
        self.taken = decision.taken if decision else {}

    def form(self, variable: str) -> Form | None:
        """What a variable is afterwards; None where the trace did not note it."""
        return self._forms.get(variable)

    def parts(self, variable: str) -> int:
        """How many parts a variable has that holds a tuple; 0 where it is one value."""
        form = self._forms.get(variable)
        return 0 if form is None or form.spec.is_leaf() else len(form.leaves)

    def after(self, variable: str, path: int) -> Any:
        """What it held after a path."""
        return self._after[path].get(variable) if path < len(self._after) else None

    def is_constant(self, variable: str) -> bool:
        """Whether it holds the same value of Python's on all paths."""
        form = self._forms.get(variable)
        return form is not None and form.is_constant

    def value(self, variable: str) -> Any:
        """That value."""
        form = self._forms[variable]
        return pytree.tree_unflatten(list(form.leaves), form.spec)

    def literal(self, variable: str, node: ast.stmt) -> ast.expr:
        """That value as an expression; raises Unstaged where it has none."""
        if not is_plain(self.value(variable)):
            raise Unstaged(f"`{shown(variable)}` is an object that no tensor holds", node)
        return literal(self.value(variable))


def _computed(form: Form) -> Form:
    """A form in which a tensor that is the same on all paths is computed: it may be written in place."""
    leaves = [
        Leaf(each.dtype, tuple(each.shape), each.device, number=False)
        if isinstance(each, torch.Tensor)
        else each
        for each in form.leaves
    ]
    return replace(form, leaves=tuple(leaves))


def part_names(variable: str, parts: int) -> list[str]:
    """The variables of a tuple's parts; the variable itself where it is none."""
    return [f"{variable}_{at}" for at in range(parts)] if parts else [variable]


def parts_of(made: ast.expr, parts: int) -> list[ast.expr]:
    """The parts of a tuple's expression: a loop carries tensors only."""
    if not parts:
        return [made]
    if isinstance(made, ast.Tuple):
        return made.elts
    return [ast.Subscript(made, ast.Constant(at), ast.Load()) for at in range(parts)]


def together(apart: Mapping[str, int]) -> Block:
    """Tuples made again of their parts."""
    return [
        assign(each, tuple_of([name(part) for part in part_names(each, parts)]))
        for each, parts in apart.items()
        if parts
    ]
