"""What a trace noted of the variables of a branch or a loop, and tuples by their parts.

An op of torch's carries tensors only, so that a variable that holds a tuple goes through it part by part,
a number becomes a tensor of no dimensions, a tensor gets the promoted dtype, what has no value yet is zeros.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree  # torch.export's own flattening; see canonicalize.pytrees

from aotpipe.canonicalize.rewrite.ast_builders import assign
from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.canonicalize.values.abstract_values import AbstractValue, Leaf
from aotpipe.tools.rewrite.expression_rewrites import Unsupported
from aotpipe.tools.rewrite.expressions import call, literal, method, name, tuple_of
from aotpipe.tools.rewrite.statements import shown

Block = list[ast.stmt]


class Facts:
    """What the trace noted of the variables of a statement."""

    def __init__(self, decision: Decision | None) -> None:
        names = decision.names if decision else ()
        abstracts = map(_computed, decision.abstracts) if decision else ()
        self._forms: dict[str, AbstractValue] = dict(zip(names, abstracts, strict=True))
        self.before: dict[str, Any] = dict(zip(names, decision.before, strict=False)) if decision else {}
        self._after = [dict(zip(names, path, strict=False)) for path in decision.after] if decision else []
        self.taken = decision.taken if decision else {}

    def form(self, variable: str) -> AbstractValue | None:
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
        """That value as an expression; raises Unsupported where it has none."""
        if not is_plain(self.value(variable)):
            raise Unsupported(f"`{shown(variable)}` is an object that no tensor holds", node)
        return literal(self.value(variable))


def _computed(form: AbstractValue) -> AbstractValue:
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


def repacked(apart: Mapping[str, int]) -> Block:
    """Tuples made again of their parts."""
    return [
        assign(each, tuple_of([name(part) for part in part_names(each, parts)]))
        for each, parts in apart.items()
        if parts
    ]


_NUMBER: Final = (bool, int, float)
_NATURAL: Final = {bool: torch.bool, int: torch.int64, float: torch.float32}


def as_form(made: ast.expr, form: AbstractValue, value: Any, node: ast.AST) -> ast.expr:
    """An expression whose value is of a form.

    Args:
        made: The expression of the value.
        form: What is wanted.
        value: What the trace saw there; None where it is not known.
        node: The statement, for a refusal.

    Raises:
        Unsupported: No op of torch's carries such a value.
    """
    if form.optional or any(isinstance(leaf, Leaf) and leaf.optional for leaf in form.leaves):
        raise Unsupported("a value is None on one path and a tensor on another", node)
    if form.spec.is_leaf():
        return _leaf(made, form.leaves[0], value, node)
    if form.spec.type not in (tuple, list) or any(not each.is_leaf() for each in form.spec.children()):
        raise Unsupported(f"a variable holds a {form.spec.type.__name__} where a tensor decides", node)
    given = pytree.tree_leaves(value) if value is not None else []
    given = given if len(given) == len(form.leaves) else [None] * len(form.leaves)
    parts: list[ast.expr] = [
        _leaf(ast.Subscript(made, ast.Constant(at), ast.Load()), leaf, each, node)
        for at, (leaf, each) in enumerate(zip(form.leaves, given, strict=True))
    ]
    if all(isinstance(part, ast.Subscript) for part in parts):
        return made
    return ast.Tuple(parts, ast.Load()) if form.spec.type is tuple else ast.List(parts, ast.Load())


def _leaf(made: ast.expr, leaf: object, value: Any, node: ast.AST) -> ast.expr:
    if not isinstance(leaf, Leaf):
        return made
    if isinstance(value, _NUMBER):
        if leaf.shape:
            raise Unsupported("a number takes the place of a tensor", node)
        kind = {} if _NATURAL[type(value)] == leaf.dtype else {"dtype": literal(leaf.dtype)}
        return call("torch.tensor", made, **kind)
    if isinstance(value, torch.Tensor):
        if value.dtype != leaf.dtype:
            made = method(made, "to", literal(leaf.dtype))
        if value.dim() != len(leaf.shape):
            made = method(made, "expand", *(literal(size) for size in _static(leaf.shape, node)))
        return made
    return made


def zeros(form: AbstractValue, node: ast.AST) -> ast.expr:
    """What stands for a variable that has no value yet: nothing reads it that eager would run.

    Raises:
        Unsupported: The variable is no tensor, or its size varies.
    """
    if form.optional or any(isinstance(leaf, Leaf) and leaf.optional for leaf in form.leaves):
        raise Unsupported("a value is None on one path and a tensor on another", node)
    parts = [
        call("torch.zeros", literal(_static(leaf.shape, node)), dtype=literal(leaf.dtype))
        if isinstance(leaf, Leaf)
        else literal(leaf)
        for leaf in form.leaves
    ]
    if form.spec.is_leaf():
        return parts[0]
    if form.spec.type is tuple:
        return ast.Tuple([*parts], ast.Load())
    raise Unsupported("a variable without a value yet is no tensor", node)


def _static(shape: Any, node: ast.AST) -> tuple[int, ...]:
    if not all(type(size) is int for size in shape):
        raise Unsupported("a variable without a value yet has a size that varies", node)
    return tuple(shape)


def is_plain(value: object) -> bool:
    """Whether a value can stand in the code."""
    return isinstance(value, (*_NUMBER, str, type(None)))


def is_one_tensor(form: AbstractValue) -> bool:
    """Whether a form is that of a tensor or a number, which is always there."""
    [*leaves] = form.leaves
    return (
        form.spec.is_leaf() and not form.optional and isinstance(leaves[0], Leaf) and not leaves[0].optional
    )


def has_dims(form: AbstractValue) -> bool:
    """Whether a form is that of a tensor that may lie in memory in several ways."""
    return is_one_tensor(form) and any(isinstance(leaf, Leaf) and len(leaf.shape) > 0 for leaf in form.leaves)
