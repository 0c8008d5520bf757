"""What the code of a model reaches outside of its modules: globals, class attributes, closures' variables.

A program has no such thing to change. `Outside(module)` remembers what the model's functions can reach at one
moment; `changed()` names what is another since, `restore()` puts it back.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, partialmethod
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from torch import nn

from aotpipe.model import object_graph, source

_MOST_FUNCTIONS: Final = 4000
_MISSING: Final = object()
_LIBRARIES: Final = ("torch", "builtins", "typing", "abc", "aotpipe")
_UNCHANGING: Final = (ModuleType, FunctionType, MethodType, type, property)


@dataclass(frozen=True, slots=True)
class OuterVariable:
    """A name outside of the modules.

    Attributes:
        name: As a reader of the code knows it: `the global COUNT`.
        read, write: Its value.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]


class Outside:
    """The values of all places at one moment."""

    def __init__(self, module: nn.Module) -> None:
        parts = object_graph.modules_of(module).values()
        self._variables = list(_variables(list(parts)))
        self._before = [variable.read() for variable in self._variables]
        own = set(map(id, parts))
        self._begin = partial(object_graph.Record[OuterVariable], lambda module: id(module) not in own)
        self._record = self._begin()
        for variable, value in zip(self._variables, self._before, strict=True):
            self._record.add(variable, value)

    def snapshot_of(self, variable: OuterVariable) -> object_graph.Record[OuterVariable]:
        """What a variable holds now."""
        return self._begin().add(variable, (variable.read(),))

    def changed(self, *, but_added: bool = False) -> list[OuterVariable]:
        """The places whose value is another than before.

        A table that only has more in it is among them unless `but_added`.
        """
        read = zip(self._variables, self._before, strict=True)
        found = [place for place, before in read if not object_graph.is_same(place.read(), before)]
        found += [place for place, _ in self._record.changed(but_added=but_added)]
        found += self._record.written()
        return list({place.name: place for place in found}.values())

    def restore(self) -> None:
        """Put names and containers back; what was written into tensors stays."""
        for variable, before in zip(self._variables, self._before, strict=True):
            if not object_graph.is_same(variable.read(), before):
                variable.write(before)
        self._record.restore()


def _variables(parts: Sequence[nn.Module]) -> Iterator[OuterVariable]:
    """Every place that the functions of a model's modules can reach."""
    seen: set[object] = set()
    for function in _functions(parts):
        for name in _names(function.__code__):
            key = (id(function.__globals__), name)
            if name in function.__globals__ and key not in seen:
                seen.add(key)
                if not isinstance(function.__globals__[name], _UNCHANGING):
                    yield _item(f"the global `{name}`", function.__globals__, name)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if id(cell) not in seen and not isinstance(object_graph.value_of(cell, _MISSING), _UNCHANGING):
                seen.add(id(cell))
                shown = f"the variable `{name}` of an outer function"
                read = partial(object_graph.value_of, cell, _MISSING)
                yield OuterVariable(shown, read, partial(setattr, cell, "cell_contents"))
        for name in list(vars(function)):
            if name != "__wrapped__" or not isinstance(vars(function)[name], _UNCHANGING):
                yield _item(f"`{function.__qualname__}.{name}`", vars(function), name)
        for name in ("__defaults__", "__kwdefaults__"):
            if getattr(function, name):
                shown = f"a default of `{function.__qualname__}`"
                yield OuterVariable(shown, partial(getattr, function, name), partial(setattr, function, name))
    for called in _called_objects(parts):
        # It is no name of anything: what may change is in it.
        shown = f"the `{type(called).__name__}` that is called"
        yield OuterVariable(shown, partial(_itself, called), _itself)
    for cls in _classes(parts):
        for name, value in vars(cls).items():
            is_special = name.startswith("__") and name.endswith("__")
            is_fixed = isinstance(value, (*_UNCHANGING, staticmethod, classmethod))
            if not (is_special or is_fixed or inspect.isdatadescriptor(value)):
                shown = f"the class attribute `{cls.__name__}.{name}`"
                read = partial(vars(cls).get, name, _MISSING)
                yield OuterVariable(shown, read, partial(setattr, cls, name))


def _itself(value: Any) -> Any:
    return value


def _called_objects(parts: Iterable[nn.Module]) -> Iterator[Any]:
    """The objects, other than modules, that are a model's function or have it as a method."""
    for part in parts:
        called = getattr(type(part).__dict__.get("forward"), "__wrapped__", None)
        called = getattr(called, "__self__", called)
        if called is not None and not isinstance(called, (*_UNCHANGING, nn.Module)):
            yield called


def _item(shown: str, namespace: dict[str, Any], name: str) -> OuterVariable:
    read = partial(namespace.get, name, _MISSING)
    return OuterVariable(shown, read, partial(operator.setitem, namespace, name))


def _classes(parts: Iterable[nn.Module]) -> dict[type, None]:
    """The classes of a model's modules, written outside of torch."""
    return {cls: None for kind in dict.fromkeys(map(type, parts)) for cls in _own(kind.__mro__)}


def _own(classes: Iterable[type]) -> list[type]:
    """Those that neither torch nor Python has."""
    return [cls for cls in classes if _root(cls.__module__) not in _LIBRARIES]


@lru_cache(maxsize=1024)
def _root(module: str | None) -> str:
    return (module or "torch").partition(".")[0]


def _functions(parts: Sequence[nn.Module]) -> Iterator[FunctionType]:
    """The functions of a model's classes, and all that they reach by name."""
    todo: list[Any] = []
    classes: list[type] = []
    for cls in _classes(parts):
        todo += [value for name, value in vars(cls).items() if name != "__init__"]
    for part in parts:
        held = vars(part).values()
        todo += [value for value in held if callable(value)]
        # An object's methods are reached by the name of an attribute, which says not whose.
        classes += map(type, held)
        todo.append(type(part).__dict__.get("forward"))
    todo += [type(called).__call__ for called in _called_objects(parts) if callable(called)]
    seen: set[int] = set()
    while (todo or classes) and len(seen) < _MOST_FUNCTIONS:
        if not todo:
            new = [cls for cls in _own(classes.pop().__mro__) if id(cls) not in seen]
            seen.update(map(id, new))
            todo += [value for cls in new for value in vars(cls).values()]
            continue
        value = todo.pop()
        if isinstance(value, type):
            classes.append(value)
        function = _plain(value)
        if function is None or id(function) in seen:
            continue
        seen.add(id(function))
        known = source.is_model_code(function.__code__.co_filename)
        if known:
            yield function
            todo += [function.__globals__.get(name) for name in _names(function.__code__)]
        todo += [object_graph.value_of(cell, _MISSING) for cell in function.__closure__ or ()]
        todo.append(getattr(function, "__wrapped__", None))


def _plain(value: Any) -> FunctionType | None:
    """The function behind a method, a property, a partial."""
    kind: Any = type(value)
    if kind is not FunctionType:
        behind = _behind(kind)
        value = getattr(value, behind) if behind else None
    return value if isinstance(value, FunctionType) else None


_BEHIND: Final[Mapping[tuple[type, ...], str]] = {
    (staticmethod, classmethod, MethodType): "__func__",
    (property,): "fget",
    (partial, partialmethod): "func",
}


# Of all that a model reaches by name, nearly everything is of a few types that hold no function.
@lru_cache(maxsize=1024)
def _behind(kind: type) -> str | None:
    return next((name for kinds, name in _BEHIND.items() if issubclass(kind, kinds)), None)


@lru_cache(maxsize=8192)
def _names(code: CodeType) -> frozenset[str]:
    """The names that a function and those inside of it look up."""
    return frozenset(name for each in source.codes_in(code) for name in each.co_names)
