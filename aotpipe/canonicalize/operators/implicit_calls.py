"""Methods that Python calls by itself: of properties, and those such as `__len__`.

No operator sees such a call. Where an object of the model's own class holds what only rewritten code knows,
its method has to be rewritten; `sys.setprofile` tells of the calls, and takes twice the time of a trace. So
it is asked only where a class with such methods is within reach of the functions that run: in the modules of
these, in what those modules name, and among the types of what the model and these functions hold.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final

from aotpipe.canonicalize.alias import effects
from aotpipe.canonicalize.operators import conditional
from aotpipe.canonicalize.trace import return_values
from aotpipe.canonicalize.trace.return_values import Unwritten
from aotpipe.canonicalize.values import trace
from aotpipe.model import object_graph, source

# What is called where an object is made, before it holds anything.
_MAKING: Final = frozenset(
    "__init__ __new__ __init_subclass__ __set_name__ __class_getitem__ __prepare__".split()
)


@dataclass(slots=True)
class _Reached:
    """What a trace has looked at.

    Attributes:
        codes: Of functions that run, by identity.
        has_methods: Whether a class with such methods was found.
        has_roots: Whether what the model holds was looked at.
        refused: The call that was refused first.
    """

    codes: dict[int, CodeType] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    types: set[type] = field(default_factory=set)
    has_methods: bool = False
    has_roots: bool = False
    refused: Unwritten | None = None


def are_possible() -> bool:
    """Whether a class of the model's own with such methods is within reach of the functions that run now."""
    reached = trace.part(_Reached)
    if not reached.has_methods and not reached.has_roots:
        reached.has_roots = True
        for root in effects.watched_roots():
            modules, objects = object_graph.reached(root)
            for each in (*modules.values(), *objects):
                _reach_type(reached, type(each))
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the functions that run
    while frame is not None and frame.f_code.co_qualname != effects.CALL and not reached.has_methods:
        code = frame.f_code
        if id(code) not in reached.codes:
            reached.codes[id(code)] = code
            if source.is_model_code(code.co_filename):
                _reach_module(reached, str(frame.f_globals.get("__name__")))
                for value in list(frame.f_locals.values()):
                    _reach(reached, value)
        frame = frame.f_back
    return reached.has_methods


def _reach(reached: _Reached, value: Any) -> None:
    _reach_type(reached, value if isinstance(value, type) else type(value))
    if isinstance(value, ModuleType | FunctionType):
        name = value.__name__ if isinstance(value, ModuleType) else value.__module__
        _reach_module(reached, str(name))


def _reach_module(reached: _Reached, name: str) -> None:
    if name in reached.modules or reached.has_methods:
        return
    reached.modules.add(name)
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    if isinstance(path, str) and source.is_model_code(path):
        for value in list(vars(module).values()):
            _reach(reached, value)


def _reach_type(reached: _Reached, kind: type) -> None:
    for each in type.mro(kind) if kind is not type else ():
        if each not in reached.types:
            reached.types.add(each)
            reached.has_methods |= _has_methods(each)
            if each.__module__ not in reached.modules:
                _reach_module(reached, each.__module__)


def _has_methods(kind: type) -> bool:
    for name, value in list(vars(kind).items()):
        is_own = name.startswith("__") and name not in _MAKING
        method = value.fget if isinstance(value, property) else value if is_own else None
        code = getattr(method, "__code__", None)
        if code is not None and source.is_model_code(code.co_filename):
            return True
    return False


@contextmanager
def classes_seen() -> Iterator[None]:
    """Look at each class that is made inside."""
    make: Callable[..., Any] = builtins.__build_class__

    def made(*args: Any, **kwargs: Any) -> Any:
        kind = make(*args, **kwargs)
        if isinstance(kind, type):
            trace.part(_Reached).has_methods |= _has_methods(kind)
        return kind

    with trace.assigned(builtins, __build_class__=made):
        yield


def on_call(frame: FrameType, event: str, _: object) -> None:
    """Told of each call by `sys.setprofile`: finds properties and other methods that Python calls by itself.

    Raises:
        Unwritten: One that is not rewritten is of an object that holds what only rewritten code knows.
    """
    # Most events are of torch's own code, or of functions that are no Python.
    if event != "call" or not source.is_model_code((code := frame.f_code).co_filename):
        return
    if not code.co_argcount or not return_values.is_unwritten(code):
        return
    owner = frame.f_locals.get(code.co_varnames[0])
    method = inspect.getattr_static(type(owner), code.co_name, None)
    own = method.fget if isinstance(method, property) else method if code.co_name.startswith("__") else None
    held = getattr(owner, "__dict__", None)
    if (
        getattr(own, "__code__", None) is code
        and isinstance(held, dict)
        and any(map(conditional.may_lack, held.values()))
    ):
        reached = trace.part(_Reached)
        reached.refused = reached.refused or return_values.refused(frame)
        raise reached.refused


def check_refused() -> None:
    """Let no trace end in which a call was refused: what tries a part of it first goes on after an error.

    Python tells nobody of the calls after the one of which it was told by raising.

    Raises:
        Unwritten: The call that was refused first.
    """
    if (refused := trace.part(_Reached).refused) is not None:
        raise refused
