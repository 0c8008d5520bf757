"""What a program fixes that eager would vary: numbers and keys of a call, chance, the clock, attributes.

Each diagnostic is of something that was seen to happen: an effect of a run, an attribute that two calls in a
row changed, an input whose change changed eager's answer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import torch

from aotpipe.canonicalize import pytrees, trial
from aotpipe.check import places, writes
from aotpipe.check.calls import EffectKind
from aotpipe.check.codes import severity_of
from aotpipe.check.diagnostics import Diagnostic
from aotpipe.check.places import Place
from aotpipe.check.runs import Observed
from aotpipe.stages import CanonicalEntry
from aotpipe.uncompiled import uncompiled

_EFFECTS: Final[Mapping[EffectKind, tuple[str, str, str]]] = {
    # kind: (code, what happens, what to do)
    "talk": ("output-dropped", "`{}` talks while the model is traced, and not in the program", ""),
    "file": (
        "file-at-build",
        "`{}` opens a file when the model is traced; what it gives is fixed",
        "read the file where the model is made",
    ),
    "chance": (
        "baked-random",
        "`{}` draws when the model is traced; every call gets that number",
        "pass the number as an input",
    ),
    "clock": (
        "baked-time",
        "`{}` reads the clock when the model is traced; every call gets that time",
        "pass the time as an input",
    ),
    "environment": (
        "baked-environment",
        "`{}` reads the environment when the model is traced; what it gives is fixed",
        "read it where the model is made",
    ),
}


def effects(observed: Observed) -> Iterator[Diagnostic]:
    """What the model's code does besides tensors."""
    seen: set[tuple[str, Place]] = set()
    for effect in observed.effects.values():
        if effect.kind == "write":
            continue
        code, message, hint = _EFFECTS[effect.kind]
        if (code, effect.place) in seen:
            continue
        seen.add((code, effect.place))
        yield _diagnostic(code, message.format(effect.place.expression or effect.name), effect.place, hint)
    for drawn in writes.numpy_draws(observed.reached):
        if ("baked-random", drawn.place) not in seen:
            seen.add(("baked-random", drawn.place))
            message, hint = _EFFECTS["chance"][1:]
            yield _diagnostic("baked-random", message.format(drawn.place.expression), drawn.place, hint)


def attributes(observed: Observed, kept: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Attributes that calls change, with the lines that do: kept as state, or fixed.

    Args:
        observed: What two calls in a row showed.
        kept: Attribute path -> the name of the state that holds it.
    """
    for path, values in observed.changed.items():
        lines = _writing(path, observed)
        shown = " -> ".join(
            str(value) for value in values[:3] if isinstance(value, bool | int | float | str | None)
        )
        was = f" ({shown} in two calls)" if shown and len(shown) < 60 else ""
        name = path if "." in path else f"self.{path}"
        state = kept.get(path)
        code = "state-becomes-buffer" if state else "baked-attribute"
        message = (
            f"`{name}` changes in each call{was}: it is kept as the state `{state}`"
            if state
            else f"`{name}` changes in each call{was}: the program keeps its first value"
        )
        hint = (
            ""
            if state
            else f"make it a buffer: self.register_buffer({path.rpartition('.')[2]!r}, torch.tensor(...))"
        )
        for place in lines or (None,):
            yield _diagnostic(code, message, place, hint)


def _writing(path: str, observed: Observed) -> list[Place]:
    module, _, attribute = path.rpartition(".")
    found: dict[Place, None] = {}
    for effect in observed.effects.values():
        owner = observed.owners.get(id(effect.owner))
        if effect.kind == "write" and (
            owner == path
            or (
                effect.name == attribute
                and owner == module
                and not isinstance(effect.owner, (list, dict, set))
            )
        ):
            found[effect.place] = None
    if not found:
        for written in writes.self_writes(observed.reached):
            if written.name == attribute:
                found[written.place] = None
    return sorted(found, key=lambda place: (place.path, place.line))


# What a call is given.


def inputs(entry: CanonicalEntry) -> Iterator[Diagnostic]:
    """Inputs that are no tensors, with what another value does to eager's answer."""
    constants = {name: value for name, value in entry.constants.items() if name in entry.input_names}
    want = None
    for name, value in constants.items():
        other = _other(value)
        if other is None:
            continue
        want = _answer(entry, {}) if want is None else want
        got = _answer(entry, {name: other})
        how = _difference(want, got)
        if not how:
            continue
        place = _first_use(entry, name)
        yield replace(
            _diagnostic(
                "baked-input",
                f"the input `{name}` is no tensor: it is fixed at {value!r}, and with {other!r} eager {how}",
                place,
                f"pass torch.tensor({value!r}) to let it vary" if not isinstance(value, str) else "",
            ),
            entry_point=entry.name,
        )


def _other(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value * 2 + 1.0 if isinstance(value, float) else None


def _answer(entry: CanonicalEntry, changed: Mapping[str, object]) -> list[Any] | Exception:
    names = iter(entry.input_names)
    args, kwargs = pytrees.clone_tensors((entry.entry.args, dict(entry.entry.kwargs)))
    args, kwargs = pytrees.map_leaves(lambda leaf: changed.get(next(names, ""), leaf), (args, kwargs))
    with trial.unchanged(entry.module), torch.random.fork_rng(devices=[]), torch.no_grad(), uncompiled():
        torch.manual_seed(0)
        try:
            return [leaf for _, leaf in pytrees.leaves(entry.module(*args, **kwargs))]
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
        if isinstance(mine, torch.Tensor) and isinstance(other, torch.Tensor):
            if mine.shape != other.shape:
                return f"gives the shape {tuple(other.shape)} for {tuple(mine.shape)}"
            if mine.dtype != other.dtype or not torch.equal(mine, other):
                return "gives another answer"
        elif type(mine) is not type(other) or mine != other:
            return "gives another answer"
    return ""


def nones(entry: CanonicalEntry) -> Iterator[Diagnostic]:
    """Optional inputs that the examples leave out and that the method asks about; keys that it looks for."""
    definition, path, function = _method(entry)
    if definition is None:
        return
    arguments = definition.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    given = {name.partition(".")[0] for name in entry.input_names if entry.constants.get(name, 0) is not None}
    optional = {argument.arg for argument in every if argument.arg not in given} - {"self"}
    seen: set[str] = set()
    for node in places.own(definition):
        match node:
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]
            ) if name in optional and name not in seen:
                seen.add(name)
                yield replace(
                    _diagnostic(
                        "baked-none",
                        f"the input `{name}` is left out: the program is for calls without it",
                        places.of_node(path, node, function),
                        "give an example that has it: examples=[...]",
                    ),
                    entry_point=entry.name,
                )
    yield from _keys(entry, definition, path, function)


def _keys(
    entry: CanonicalEntry, definition: ast.FunctionDef | ast.AsyncFunctionDef, path: str, function: str
) -> Iterator[Diagnostic]:
    args, kwargs = entry.adapter.example if entry.adapter else (entry.entry.args, entry.entry.kwargs)
    bound = dict(zip(_names(definition), args, strict=False)) | dict(kwargs)
    dicts = {name: value for name, value in bound.items() if isinstance(value, Mapping)}
    decided = {part.name for part in entry.adapter.structure.parts} if entry.adapter else set()
    for node in places.own(definition):
        asked = _asked(node)
        if asked is None or asked[0] not in dicts:
            continue
        assert isinstance(node, ast.expr)
        name, key = asked
        if f"{name}.{key}" in decided:
            continue
        has = key in dicts[name]
        yield replace(
            _diagnostic(
                "baked-key",
                f"`{name}` has {'the' if has else 'no'} key {key!r} in the example: "
                "the program is for such calls",
                places.of_node(path, node, function),
                "give an example that has it: examples=[...]"
                if not has
                else f"calls must give this key; optional=({f'{name}.{key}'!r},) lets them leave it out",
            ),
            entry_point=entry.name,
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


def _names(definition: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    names = [argument.arg for argument in (*definition.args.posonlyargs, *definition.args.args)]
    return names[1:] if names[:1] == ["self"] else names


def _method(entry: CanonicalEntry) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef | None, str, str]:
    call: Any = entry.module.forward
    while hasattr(call, "__wrapped__"):
        call = call.__wrapped__
    code = getattr(getattr(call, "__func__", call), "__code__", None)
    found = places.definition(code) if code is not None else None
    if code is None or found is None or isinstance(found, ast.Lambda):
        return None, "", ""
    return found, code.co_filename, code.co_qualname


def _first_use(entry: CanonicalEntry, name: str) -> Place | None:
    definition, path, function = _method(entry)
    for node in places.own(definition) if definition is not None else ():
        if (
            isinstance(node, ast.Name)
            and node.id == name.partition(".")[0]
            and isinstance(node.ctx, ast.Load)
        ):
            return places.of_node(path, node, function)
    return places.of_line(path, definition.lineno, function) if definition is not None else None


def _diagnostic(code: str, message: str, place: Place | None, hint: str = "") -> Diagnostic:
    return Diagnostic(
        severity=severity_of(code),
        code=code,
        message=message,
        hint=hint,
        where=place.where if place else None,
        place=place,
    )
