"""What a program fixes of a call that eager would vary: numbers, None, keys of dicts.

Each `Fixed` was seen to matter: another number changed eager's answer, or the model's method asks for the key
or for None. `findings(entry)` tells a user at a build; `aotpipe check` shows the same with their places.
"""

from __future__ import annotations

import ast
import inspect
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch
from torch.utils import _pytree as pytree

from aotpipe.canonicalize import example_call
from aotpipe.canonicalize.inputs import pytrees
from aotpipe.canonicalize.rewrite.ast_builders import below
from aotpipe.core.stages import CanonicalEntry, Finding
from aotpipe.errors import SourceLine
from aotpipe.model import source

_BUDGET_S: Final = 3.0
"""How long a build runs eager to find out which numbers matter; one that is not tried is said to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """One thing that is fixed.

    Attributes:
        name: The input, or the argument that lacks or has a key.
        node: Where the method asks, or first reads it.
    """

    code: Literal["baked-input", "baked-none", "baked-key"]
    name: str
    message: str
    hint: str
    node: ast.expr | ast.stmt | None = None
    method: Method | None = None

    @property
    def where(self) -> SourceLine | None:
        """The user's line."""
        if self.method is None:
            return None
        at = self.node.lineno if self.node is not None else self.method.definition.lineno
        return SourceLine(source.shown(self.method.path), at)


@dataclass(frozen=True, slots=True)
class Method:
    """The model's method that an entry point calls."""

    definition: ast.FunctionDef | ast.AsyncFunctionDef
    path: str
    name: str
    nodes: tuple[ast.AST, ...] = field(repr=False)

    @classmethod
    def of(cls, entry: CanonicalEntry) -> Method | None:
        """The method of an entry point; None where its source is not there."""
        call = inspect.unwrap(entry.module.forward)
        code = getattr(getattr(call, "__func__", call), "__code__", None)
        if code is None:
            return None
        found = source.syntax_of(code)
        if found is None or isinstance(found, ast.Lambda):
            return None
        return cls(found, code.co_filename, code.co_qualname, tuple(below(found)))

    def first_use(self, name: str) -> ast.expr | None:
        """Where an input is read first: `batch.scale` itself, or else what it is a part of."""
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            whole = ".".join(parts[:count])
            for node in self.nodes:
                if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
                    continue
                if isinstance(node.ctx, ast.Load) and _dotted(node) == whole:
                    return node
        return None


def findings(entry: CanonicalEntry) -> Iterator[Finding]:
    """What a build tells of it: each number and key, all that is None at once, and what does not matter."""
    varying, asked = list(numbers(entry, budget_s=_BUDGET_S)), list(asks(entry))
    for each in (*varying, *(each for each in asked if each.code == "baked-key")):
        yield entry.finding(each.code, each.message, hint=each.hint, where=each.where, warns=True)
    if lacking := [each for each in asked if each.code == "baked-none"]:
        names = ", ".join(f"`{each.name}`" for each in lacking)
        message = f"the program is for calls without {names}, for which the model asks"
        hint, where = lacking[0].hint, lacking[0].where
        yield entry.finding("baked-none", message, hint=hint, where=where, warns=True)
    known = {each.name for each in varying}
    for name, value in entry.constants.items():
        if name not in known and value is not None:
            message = f"the input {name!r} is no tensor: it is fixed at {value!r}"
            where = source.of_definition(entry.module.forward)
            yield entry.finding("constant-input", message, where=where)


def numbers(entry: CanonicalEntry, *, budget_s: float | None = None) -> Iterator[Fixed]:
    """Numbers of Python, given or left at a default, with what another value does to eager's answer."""
    started = time.monotonic()
    method = Method.of(entry)
    want: list[Any] | Exception | None = None
    left = _defaults(entry, method) if method and entry.adapter is None else {}
    for name, value in (*entry.constants.items(), *left.items()):
        other = _other(value)
        if other is None:
            continue
        if budget_s is not None and time.monotonic() - started > budget_s:
            if name in left:
                continue
            how = "may give another answer"
        else:
            want = _answer(entry, {}) if want is None else want
            how = _difference(want, _answer(entry, {name: other}))
        if not how:
            continue
        said = f"fixed at {value!r}, and with {other!r} eager {how}"
        in_words = f"is left out: it is {said}" if name in left else f"is no tensor: it is {said}"
        hint = f"tensorize=({name!r},) lets it vary"
        yield Fixed(
            code="baked-input",
            name=name,
            message=f"the input `{name}` {in_words}",
            hint=f"calls cannot give it; where the example does, {hint}" if name in left else hint,
            node=method.first_use(name) if method else None,
            method=method,
        )


def _defaults(entry: CanonicalEntry, method: Method) -> dict[str, object]:
    """Numbers that are the defaults of arguments which the examples leave out."""
    arguments = method.definition.args
    every = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(every[len(every) - len(arguments.defaults) :], arguments.defaults, strict=True)]
    keyword_only = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    pairs += [(argument, value) for argument, value in keyword_only if value is not None]
    given = {name.partition(".")[0] for name in entry.input_names}
    positional = {argument.arg for argument in arguments.posonlyargs}
    return {
        argument.arg: value.value
        for argument, value in pairs
        if isinstance(value, ast.Constant) and argument.arg not in given | positional
    }


def _other(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value * 2 + 1.0 if isinstance(value, float) else None


def _answer(entry: CanonicalEntry, changed: Mapping[str, object]) -> list[Any] | Exception:
    if entry.adapter is not None:
        call, (args, kwargs) = entry.adapter.structure.call, entry.adapter.changed(changed)
    else:
        names = iter(entry.input_names)
        given = (entry.entry.args, dict(entry.entry.kwargs))
        call = entry.module
        args, kwargs = pytree.tree_map(lambda leaf: changed.get(next(names, ""), leaf), given)
        kwargs |= {name: value for name, value in changed.items() if name not in entry.input_names}
    with example_call.unchanged(entry.module), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return [leaf for _, leaf in pytrees.leaves(example_call.again(call, args, kwargs))]
        except Exception as error:  # noqa: BLE001  # what the model raises with another value is an answer
            return error


def _difference(want: list[Any] | Exception, got: list[Any] | Exception) -> str:
    if isinstance(want, Exception):
        return ""
    if isinstance(got, Exception):
        return f"raises {type(got).__name__}"
    if len(want) != len(got):
        return "gives another number of outputs"
    for mine, other in zip(want, got, strict=True):
        both = isinstance(mine, torch.Tensor) and isinstance(other, torch.Tensor)
        if both and mine.shape != other.shape:
            return f"gives the shape {tuple(other.shape)} for {tuple(mine.shape)}"
        if not example_call.is_same(mine, other):
            return "gives another answer"
    return ""


def asks(entry: CanonicalEntry) -> Iterator[Fixed]:
    """Optional inputs that the examples leave out and that the method asks about; keys that it looks for."""
    method = Method.of(entry)
    if method is None:
        return
    arguments = method.definition.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    given = {name.partition(".")[0] for name in entry.input_names if entry.constants.get(name, 0) is not None}
    optional = {argument.arg for argument in every if argument.arg not in given} - {"self"}
    for node in method.nodes:
        name = _asked_for_none(node)
        if name in optional:
            optional.remove(name)
            assert isinstance(node, ast.expr)
            yield Fixed(
                code="baked-none",
                name=name,
                message=f"the input `{name}` is left out: the program is for calls without it",
                hint="give an example that has it: examples=[...]",
                node=node,
                method=method,
            )
    yield from _keys(entry, method)


def _asked_for_none(node: ast.AST) -> str:
    """The variable that a test compares with None, or that has a default (`x or {}`); else empty."""
    match node:
        case ast.Compare(
            left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]
        ):
            return name
        case ast.BoolOp(
            op=ast.Or(), values=[ast.Name(id=name), ast.Dict() | ast.List() | ast.Tuple() | ast.Call()]
        ):
            return name
        case _:
            return ""


def _keys(entry: CanonicalEntry, method: Method) -> Iterator[Fixed]:
    args, kwargs = entry.adapter.example if entry.adapter else (entry.entry.args, entry.entry.kwargs)
    arguments = method.definition.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    names = names[1:] if names[:1] == ["self"] else names
    bound = dict(zip(names, args, strict=False)) | dict(kwargs)
    dicts = {name: value for name, value in bound.items() if isinstance(value, Mapping)}
    decided = {part.name for part in entry.adapter.structure.parts} if entry.adapter else set()
    for node in method.nodes:
        asked = _asked(node)
        if asked is None or asked[0] not in dicts:
            continue
        assert isinstance(node, ast.expr)
        name, key = asked
        if f"{name}.{key}" in decided:
            continue
        has = key in dicts[name]
        yield Fixed(
            code="baked-key",
            name=name,
            message=f"`{name}` has {'the' if has else 'no'} key {key!r} in the example: "
            "the program is for such calls",
            hint=f"calls must give this key; optional=({f'{name}.{key}'!r},) lets them leave it out"
            if has
            else "give an example that has it: examples=[...]",
            node=node,
            method=method,
        )


def _asked(node: ast.AST) -> tuple[str, object] | None:
    """The name of what is asked for a key, and the key: of `key in name` and `name.get(key)`."""
    match node:
        case ast.Compare(
            left=ast.Constant(value=sought), ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=name)]
        ):
            return name, sought
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[ast.Constant(value=sought), *_]
        ):
            return name, sought
        case _:
            return None


def _dotted(node: ast.AST) -> str:
    """The name of the input that an expression reads; empty for any other expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=name) if whole := _dotted(inner):
            return f"{whole}.{name}"
        case ast.Subscript(value=inner, slice=ast.Constant(value=str() | int() as key)) if whole := _dotted(
            inner
        ):
            return f"{whole}.{key}"
        case _:
            return ""
