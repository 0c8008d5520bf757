"""Watches what a run of a model does besides tensors: talk, files, chance, the clock, and what it writes.

`recording()` notes an `Effect` for each call of Python that a graph has no place for, with the expression
that made it, and the code objects that the run reached. It listens to Python's profiler, and leaves the one
that was set before as it was.
"""

from __future__ import annotations

import ast
import logging
import os
import random
import sys
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, Literal

import numpy as np
import torch

from aotpipe.model import source
from aotpipe.model.garbage_collector import paused
from aotpipe.tools.check import source_ranges
from aotpipe.tools.check.source_ranges import Place

EffectKind = Literal["talk", "file", "chance", "clock", "environment", "write"]

# Functions of C, by the name of what they belong to and their own.
_BUILTINS: Final[Mapping[tuple[str, str], EffectKind]] = {
    ("builtins", "print"): "talk",
    ("_warnings", "warn"): "talk",
    ("builtins", "input"): "file",
    ("io", "open"): "file",
    ("_io", "open"): "file",
    ("posix", "open"): "file",
    ("posix", "remove"): "file",
    ("posix", "mkdir"): "file",
    ("socket", "connect"): "file",
    ("Random", "random"): "chance",
    ("Random", "getrandbits"): "chance",
    ("RandomState", ""): "chance",
    ("Generator", ""): "chance",
    ("posix", "urandom"): "chance",
    ("time", ""): "clock",
    ("datetime", "now"): "clock",
    ("datetime", "utcnow"): "clock",
    ("date", "today"): "clock",
    ("posix", "getenv"): "environment",
}
# Functions of Python.
_FUNCTIONS: Final[Mapping[CodeType, EffectKind]] = {
    logging.Logger._log.__code__: "talk",  # noqa: SLF001  # all levels come to it
    type(os.environ).__getitem__.__code__: "environment",
    **{
        function.__code__: "chance"
        for function in (random.Random.choice, random.Random.randrange, random.Random.uniform)
    },
}
CONTAINERS: Final = (list, dict, set, deque, OrderedDict)
"""What a call may change in place."""
_CHANGES: Final = frozenset(
    {
        "append", "extend", "insert", "pop", "popleft", "remove", "clear", "sort", "reverse", "update",
        "setdefault", "popitem", "add", "discard", "appendleft",
    }
)  # fmt: skip
_SET_ATTRIBUTE: Final = torch.nn.Module.__setattr__.__code__
_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Effect:
    """A call that a graph has no place for.

    Attributes:
        name: Of the function that was called, or of what was written.
        owner: The object that a write changes.
    """

    kind: EffectKind
    name: str
    place: Place
    owner: Any = None


@dataclass(slots=True)
class Calls:
    """Effects in their order, and the code of the model that was reached."""

    effects: list[Effect] = field(default_factory=list)
    reached: dict[CodeType, Mapping[str, Any]] = field(default_factory=dict)


@contextmanager
def recording() -> Iterator[Calls]:
    """Note the effects of the body."""
    found = Calls()
    before = sys.getprofile()
    with paused():
        sys.setprofile(_listener(found))
        try:
            yield found
        finally:
            # A profiler written in C cannot be given back to Python.
            sys.setprofile(before if callable(before) else None)


def _listener(found: Calls) -> Callable[[FrameType, str, Any], None]:
    def listen(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            _called(found, frame, argument)
        elif event == "call":
            _entered(found, frame)

    return listen


def _called(found: Calls, frame: FrameType, function: Any) -> None:
    owner, name = getattr(function, "__self__", None), function.__name__
    if name in _CHANGES and isinstance(owner, CONTAINERS):
        if source_ranges.is_model(frame) and len(found.effects) < _MOST:
            found.effects.append(Effect("write", name, source_ranges.of_frame(frame), owner))
        return
    belongs = getattr(owner, "__name__", type(owner).__name__)
    kind = _BUILTINS.get((belongs, name)) or _BUILTINS.get((belongs, ""))
    if kind is not None:
        _note(found, kind, name, frame)


def _entered(found: Calls, frame: FrameType) -> None:
    code = frame.f_code
    kind = _FUNCTIONS.get(code)
    if kind is not None:
        _note(found, kind, code.co_name, frame.f_back)
    elif code is _SET_ATTRIBUTE:
        caller = frame.f_back
        if caller is not None and source_ranges.is_model(caller):
            values = frame.f_locals
            effect = Effect("write", values["name"], source_ranges.of_frame(caller), values["self"])
            found.effects.append(effect)
    elif code not in found.reached and source_ranges.is_model(frame) and code.co_name != "<module>":
        found.reached[code] = frame.f_globals


def _note(found: Calls, kind: EffectKind, name: str, frame: FrameType | None) -> None:
    """Note a call for the model's code that made it, also through Python's own library."""
    inner = frame
    if kind == "clock" and inner is not None and not source_ranges.is_model(inner):
        return  # logging and its kin read the clock for themselves
    while inner is not None and not source_ranges.is_model(inner):
        path = inner.f_code.co_filename
        # What torch, an import and this recording do for themselves is their own affair.
        if not (_is_standard(path) or (kind == "file" and _is_reader(path))):
            return
        inner = inner.f_back
    if inner is not None and len(found.effects) < _MOST:
        found.effects.append(Effect(kind, name, source_ranges.of_frame(inner)))


def _is_reader(path: str) -> bool:
    """Whether a file of a library reads data files for those who call it."""
    return "/numpy/" in path or "/scipy/" in path or path.endswith("/torch/serialization.py")


_STANDARD: Final = tuple(
    {str(Path(module.__file__).parent) for module in (os, random, logging, warnings) if module.__file__}
)


def _is_standard(path: str) -> bool:
    return path.startswith(_STANDARD) and "site-packages" not in path and "dist-packages" not in path


@dataclass(frozen=True, slots=True)
class Written:
    """A place that writes the attribute `name`, or calls the function `name`."""

    name: str
    place: Place


def self_writes(reached: Mapping[CodeType, Mapping[str, Any]]) -> Iterator[Written]:
    """Every place at which reached code stores into an attribute of its first argument."""
    for code in reached:
        first = code.co_varnames[0] if code.co_argcount else ""
        for node, base in _stores(code):
            if base.id == first and (attribute := _first_attribute(node)):
                yield Written(attribute, source_ranges.of_node(code.co_filename, node, code.co_qualname))


def numpy_draws(reached: Mapping[CodeType, Mapping[str, Any]]) -> Iterator[Written]:
    """Every call of a function of `np.random`, whose C code the profiler does not tell."""
    for code, variables in reached.items():
        definition = source.syntax_of(code)
        for node in source_ranges.own(definition) if definition else ():
            if not isinstance(node, ast.Call) or any(isinstance(n, ast.Call) for n in ast.walk(node.func)):
                continue
            chain = ast.unparse(node.func).split(".")
            found: Any = variables.get(chain[0])
            owners = []
            for part in chain[1:]:
                owners.append(found)
                found = getattr(found, part, None) if isinstance(found, ModuleType) else None
            if any(owner is np.random for owner in owners):
                yield Written(
                    ".".join(chain), source_ranges.of_node(code.co_filename, node, code.co_qualname)
                )


def _stores(code: CodeType) -> Iterator[tuple[ast.expr, ast.Name]]:
    """Targets `name.a`, `name[k]`, `name.a[k]` of assignments, with the name."""
    definition = source.syntax_of(code)
    if definition is None or isinstance(definition, ast.Lambda):
        return
    for node in source_ranges.own(definition):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = node.targets
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                base = part
                while isinstance(base, ast.Attribute | ast.Subscript):
                    base = base.value
                if isinstance(base, ast.Name) and base is not part:
                    yield part, base


def _first_attribute(node: ast.expr) -> str:
    """`a` of `self.a[k].b`."""
    attribute = ""
    while isinstance(node, ast.Attribute | ast.Subscript):
        attribute = node.attr if isinstance(node, ast.Attribute) else attribute
        node = node.value
    return attribute
