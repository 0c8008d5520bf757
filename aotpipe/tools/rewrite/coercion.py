"""Brings a value into the form that a variable has after a branch or from trip to trip of a loop.

A number becomes a tensor of no dimensions, a tensor gets the promoted dtype, what has no value yet is zeros.
"""

from __future__ import annotations

import ast
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree  # torch.export's own flattening; see canonicalize.pytrees

from aotpipe.canonicalize.trace.abstract_values import Form, Leaf
from aotpipe.tools.rewrite.expression_rewrites import Unstaged
from aotpipe.tools.rewrite.expressions import call, literal, method

_NUMBER: Final = (bool, int, float)
_NATURAL: Final = {bool: torch.bool, int: torch.int64, float: torch.float32}


def as_form(made: ast.expr, form: Form, value: Any, node: ast.AST) -> ast.expr:
    """An expression whose value is of a form.

    Args:
        made: The expression of the value.
        form: What is wanted.
        value: What the trace saw there; None where it is not known.
        node: The statement, for a refusal.
    """
    if form.optional or any(isinstance(leaf, Leaf) and leaf.optional for leaf in form.leaves):
        raise Unstaged("a value is None on one path and a tensor on another", node)
    if form.spec.is_leaf():
        return _leaf(made, form.leaves[0], value, node)
    if form.spec.type not in (tuple, list) or any(not each.is_leaf() for each in form.spec.children()):
        raise Unstaged(f"a variable holds a {form.spec.type.__name__} where a tensor decides", node)
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
            raise Unstaged("a number takes the place of a tensor", node)
        kind = {} if _NATURAL[type(value)] == leaf.dtype else {"dtype": literal(leaf.dtype)}
        return call("torch.tensor", made, **kind)
    if isinstance(value, torch.Tensor):
        if value.dtype != leaf.dtype:
            made = method(made, "to", literal(leaf.dtype))
        if value.dim() != len(leaf.shape):
            made = method(made, "expand", *(literal(size) for size in _static(leaf.shape, node)))
        return made
    return made


def zeros(form: Form, node: ast.AST) -> ast.expr:
    """What stands for a variable that has no value yet: nothing reads it that eager would run."""
    if form.optional or any(isinstance(leaf, Leaf) and leaf.optional for leaf in form.leaves):
        raise Unstaged("a value is None on one path and a tensor on another", node)
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
    raise Unstaged("a variable without a value yet is no tensor", node)


def _static(shape: Any, node: ast.AST) -> tuple[int, ...]:
    if not all(type(size) is int for size in shape):
        raise Unstaged("a variable without a value yet has a size that varies", node)
    return tuple(shape)


def is_plain(value: object) -> bool:
    """Whether a value can stand in the code."""
    return isinstance(value, (*_NUMBER, str, type(None)))


def is_one_tensor(form: Form) -> bool:
    """Whether a form is that of a tensor or a number, which is always there."""
    [*leaves] = form.leaves
    return (
        form.spec.is_leaf() and not form.optional and isinstance(leaves[0], Leaf) and not leaves[0].optional
    )


def has_dims(form: Form) -> bool:
    """Whether a form is that of a tensor that may lie in memory in several ways."""
    return is_one_tensor(form) and any(isinstance(leaf, Leaf) and len(leaf.shape) > 0 for leaf in form.leaves)
