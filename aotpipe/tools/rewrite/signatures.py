"""Writes what a method takes and gives: the user's own parameters, and the structure of the results.

`method_inputs(entry)` gives the parameters, the statements that take nested ones apart, and an expression for
each leaf; `result_expression(spec, leaves)` gives the expression of a result.
"""

from __future__ import annotations

import ast
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree  # torch.export's own flattening; see canonicalize.pytrees

from aotpipe.canonicalize.inputs.pytrees import PLAIN
from aotpipe.core.stages import CanonicalEntry
from aotpipe.model.source import signature_of
from aotpipe.tools.rewrite.expressions import call, literal, name, tuple_of


@dataclass(frozen=True, slots=True)
class MethodInputs:
    """What a method takes.

    Attributes:
        arguments: Its parameters, after `self`.
        body: The statements that come first.
        leaves: An expression for each leaf of the example, in torch's flattening order.
    """

    arguments: ast.arguments
    body: list[ast.stmt]
    leaves: list[ast.expr]


def method_inputs(entry: CanonicalEntry, free: Callable[[str], str]) -> MethodInputs:
    """The parameters of an entry point, as its example gives them.

    Args:
        entry: The entry point.
        free: Gives a variable's name that is not taken.
    """
    args, kwargs = entry.entry.args, dict(entry.entry.kwargs)
    parameters = signature_of(entry.module.forward).parameters.values()
    positional: list[tuple[str, ast.expr, Any]] = []
    made = _Parameters()
    left = list(args)
    for parameter in parameters:
        kind = parameter.kind
        if kind is parameter.VAR_POSITIONAL and left:
            made.vararg = free(parameter.name)
            for index, value in enumerate(left):
                at = ast.Subscript(name(made.vararg), ast.Constant(index), ast.Load())
                positional.append((f"{parameter.name}_{index}", at, value))
            left = []
        elif kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) and left:
            called = free(parameter.name)
            value = left.pop(0)
            made.add(called, parameter, value, keyword=False)
            positional.append((parameter.name, name(called), value))
    by_name = {parameter.name: parameter for parameter in parameters}
    named: dict[str, tuple[str, ast.expr, Any]] = {}
    for key in [*(k for k in by_name if k in kwargs), *(k for k in kwargs if k not in by_name)]:
        called = free(key)
        found = by_name.get(key, inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY))
        made.add(
            called, found, kwargs[key], keyword=found.kind is found.KEYWORD_ONLY or made.vararg is not None
        )
        named[key] = (key, name(called), kwargs[key])
    body: list[ast.stmt] = []
    leaves: list[ast.expr] = []
    for base, made_of, value in [*positional, *(named[key] for key in kwargs)]:
        for path, leaf in _leaves(value, made_of):
            leaves.append(_leaf(path, leaf, base, body, free, made_of))
    return MethodInputs(made.arguments(), body, leaves)


def _leaf(
    found: ast.expr, leaf: Any, base: str, body: list[ast.stmt], free: Callable[[str], str], whole: ast.expr
) -> ast.expr:
    if not isinstance(leaf, torch.Tensor) or (found is whole and isinstance(found, ast.Name)):
        return found
    last = found
    key = last.slice if isinstance(last, ast.Subscript) else None
    told = last.attr if isinstance(last, ast.Attribute) else getattr(key, "value", "")
    called = free(told if isinstance(told, str) and told else base if found is whole else f"{base}_{told}")
    body.append(ast.Assign([ast.Name(called, ast.Store())], found))
    return name(called)


def _leaves(value: Any, made: ast.expr) -> Iterator[tuple[ast.expr, Any]]:
    for path, leaf in pytree.tree_flatten_with_path(value)[0]:
        found = made
        for key in path:
            match key:
                case pytree.GetAttrKey(name=attribute):
                    found = ast.Attribute(found, attribute, ast.Load())
                case pytree.SequenceKey(idx=index):
                    found = ast.Subscript(found, ast.Constant(index), ast.Load())
                case pytree.MappingKey(key=inner):
                    found = ast.Subscript(found, literal(inner), ast.Load())
                case _:
                    raise TypeError(f"an input is taken apart by {key!r}")
        yield found, leaf


class _Parameters:
    """Puts parameters in order."""

    def __init__(self) -> None:
        self._plain: list[tuple[str, ast.expr | None]] = []
        self._named: list[tuple[str, ast.expr | None]] = []
        self.vararg: str | None = None

    def add(self, called: str, parameter: inspect.Parameter, example: Any, *, keyword: bool) -> None:
        """A parameter that has a default keeps one: that which the code was written for."""
        default: ast.expr | None = None
        if parameter.default is not parameter.empty and isinstance(example, PLAIN):
            default = literal(example)
        (self._named if keyword else self._plain).append((called, default))

    def arguments(self) -> ast.arguments:
        defaults: list[ast.expr] = []
        for _, default in reversed(self._plain):
            if default is None:
                break
            defaults.insert(0, default)
        return ast.arguments(
            posonlyargs=[],
            args=[ast.arg("self"), *(ast.arg(called) for called, _ in self._plain)],
            vararg=ast.arg(self.vararg) if self.vararg else None,
            kwonlyargs=[ast.arg(called) for called, _ in self._named],
            kw_defaults=[default for _, default in self._named],
            defaults=defaults,
        )


def result_expression(spec: pytree.TreeSpec, leaves: Sequence[ast.expr]) -> ast.expr:
    """The expression of a result: tuples, lists and dicts as they are, others as dicts of their fields."""
    rest = iter(leaves)
    return _result(spec, lambda: next(rest))


def _result(spec: pytree.TreeSpec, leaf: Callable[[], ast.expr]) -> ast.expr:
    if spec.is_leaf():
        return leaf()
    inner = [_result(child, leaf) for child in spec.children()]
    if spec.type is tuple:
        return tuple_of(inner)
    if spec.type is list:
        return ast.List(inner, ast.Load())
    if spec.type in (dict, OrderedDict):
        return ast.Dict([literal(key) for key in spec.context], inner)
    keys = _keys(spec)
    if keys is not None and len(keys) == len(inner):
        return ast.Dict([ast.Constant(key) for key in keys], inner)
    return tuple_of(inner) if len(inner) != 1 else inner[0]


def _keys(spec: pytree.TreeSpec) -> list[str] | None:
    """The names of the parts of an object."""
    context = spec.context
    if isinstance(context, type) and hasattr(context, "_fields"):
        return list(context._fields)  # a namedtuple
    if isinstance(context, (list, tuple)) and context and isinstance(context[0], (list, tuple)):
        context = context[0]
    keys = getattr(context, "keys", context)
    if isinstance(keys, (list, tuple)) and all(isinstance(key, str) for key in keys):
        return list(keys)
    return None


def checks(entry: CanonicalEntry, leaves: Sequence[ast.expr]) -> Iterator[ast.stmt]:
    """A refusal of each constant other than the one that the model was written for."""
    for called, leaf in zip(entry.input_names, leaves, strict=True):
        value = entry.constants.get(called)
        if called not in entry.constants or value is None:
            continue
        differs = ast.Compare(leaf, [ast.NotEq()], [literal(value)])
        text = ast.Constant(f"{called} is not {value!r}, for which this was written")
        yield ast.If(differs, [ast.Raise(call("ValueError", text), None)], [])
