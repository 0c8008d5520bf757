"""Watches what a run does besides tensors: output, files, random numbers, the clock, and what it writes.

`recording()` notes an `Effect` for each call of Python that a graph has no place for, with the expression
that made it, and the code objects that the run reached. It listens to Python's profiler, and leaves the one
that was set before as it was.
"""

from __future__ import annotations

import ast
import fnmatch
import glob
import logging
import os
import platform
import random
import sys
import warnings
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, Literal

import numpy as np
import torch

from aotpipe.canonicalize.rewrite.ast_builders import below
from aotpipe.model import source, source_ranges
from aotpipe.model.garbage_collector import paused
from aotpipe.model.source_ranges import Place

EffectKind = Literal["output", "file", "random", "clock", "environment", "process", "identity", "write"]

# Functions of C, by the name of what they belong to and their own; without one, all of an owner's.
_BUILTIN_NAMES: Final[Mapping[EffectKind, str]] = {
    "output": "builtins.print _warnings.warn",
    "file": "builtins.input io.open _io.open posix.open posix.remove posix.mkdir socket.connect posix.stat "
    "posix.lstat posix.access posix.listdir posix.scandir",
    "random": "Random.random Random.getrandbits RandomState. Generator. posix.urandom",
    "clock": "time. datetime.now datetime.utcnow datetime.today date.today",
    "environment": "posix.getenv",
    "process": "posix.getpid posix.getppid posix.uname _socket.gethostname _thread.get_ident "
    "_thread.get_native_id posix.cpu_count posix.sched_getaffinity posix.getcwd posix.getloadavg "
    "resource.getrusage torch._C.get_num_threads",
    "identity": "builtins.id builtins.hash",
}
_BUILTINS: Final[Mapping[tuple[str, str], EffectKind]] = {
    (owner, name): kind
    for kind, functions in _BUILTIN_NAMES.items()
    for owner, _, name in (each.rpartition(".") for each in functions.split())
}
# Functions of Python.
_FUNCTIONS: Final[Mapping[CodeType, EffectKind]] = {
    logging.Logger._log.__code__: "output",  # noqa: SLF001  # all levels come to it
    type(os.environ).__getitem__.__code__: "environment",
    platform.node.__code__: "process",
    random.Random.choice.__code__: "random",
    random.Random.randrange.__code__: "random",
    random.Random.uniform.__code__: "random",
}
QUESTIONS: Final = frozenset({"stat", "lstat", "access", "listdir", "scandir"})
"""The functions that ask the file system, and open nothing."""
DESCRIPTIONS: Final[Mapping[EffectKind, tuple[str, str, str]]] = {
    # kind: (code, what happens, what to do)
    "output": ("output-dropped", "`{}` talks while the model is traced, and not in the program", ""),
    "file": (
        "file-at-build",
        "`{}` opens a file when the model is traced, and not in the program: what is read is fixed",
        "read files where the model is made, and write them where it is called",
    ),
    "random": (
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
    "process": (
        "baked-process",
        "`{}` asks for the process, thread or host when the model is traced; what it gives is fixed",
        "pass it as an input",
    ),
}
"""Of each kind that a user is told of: a code, what happens, with the place of the call in it, what to do."""
CONTAINERS: Final = (list, dict, set, deque, OrderedDict)
"""What a call may change in place."""
_CHANGES: Final = frozenset(
    "append extend insert pop popleft remove clear sort reverse update setdefault popitem add discard "
    "appendleft".split()
)
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

    def listen(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            _called(found, frame, argument)
        elif event == "call":
            _entered(found, frame)

    with paused():
        sys.setprofile(listen)
        try:
            yield found
        finally:
            # A profiler written in C cannot be given back to Python.
            sys.setprofile(before if callable(before) else None)


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
            found.effects.append(
                Effect("write", values["name"], source_ranges.of_frame(caller), values["self"])
            )
    elif code not in found.reached and source_ranges.is_model(frame) and code.co_name != "<module>":
        found.reached[code] = frame.f_globals


def _note(found: Calls, kind: EffectKind, name: str, frame: FrameType | None) -> None:
    asking = asker(kind, frame, is_question=name in QUESTIONS)
    if name in QUESTIONS and frame is not None and _is_of_package(frame):
        return
    if asking is not None and len(found.effects) < _MOST:
        found.effects.append(Effect(kind, name, source_ranges.of_frame(asking)))


def asker(kind: EffectKind, frame: FrameType | None, *, is_question: bool = False) -> FrameType | None:
    """The frame of the model's code that made a call, also through Python's own library; None for others.

    `is_question`: the call asks the file system, as the library does for itself where it shows source lines.
    """
    if kind in ("clock", "process", "identity") and frame is not None and not source_ranges.is_model(frame):
        return None  # logging and its kin read the clock, and locks the thread, for themselves
    while frame is not None and not source_ranges.is_model(frame):
        path = frame.f_code.co_filename
        # What torch, an import and this recording do for themselves is their own affair.
        is_standard = path.startswith(_STANDARD) and not ("site-packages" in path or "dist-packages" in path)
        is_standard = path in _OF_PATHS if is_question else is_standard or path in FROZEN
        if not (is_standard or (kind == "file" and not is_question and _is_reader(path))):
            return None
        frame = frame.f_back
    return frame


def _is_of_package(frame: FrameType) -> bool:
    """Whether a function of `os.path` or `pathlib` is called with a file that came with a package."""
    code = frame.f_code
    if code.co_filename not in _OF_PATHS or not code.co_argcount:
        return False
    path = frame.f_locals.get(code.co_varnames[0])
    return isinstance(path, str | os.PathLike) and source.is_installed(os.fsdecode(path))


def _is_reader(path: str) -> bool:
    """Whether a file of a library reads data files for those who call it."""
    return "/numpy/" in path or "/scipy/" in path or path.endswith("/torch/serialization.py")


FROZEN: Final = frozenset({Mapping.get.__code__.co_filename, os.getenv.__code__.co_filename})
"""The files of `os.environ.get` and `os.getenv`, which are in the interpreter."""
_OF_PATHS: Final = frozenset(
    function.__code__.co_filename
    for function in (os.path.exists, os.path.join, os.walk, Path.exists, glob.glob, fnmatch.filter)
)
"""The files of Python's library that ask the file system for those who call them."""
_STANDARD: Final = tuple(
    {str(Path(module.__file__).parent) for module in (os, random, logging, warnings) if module.__file__}
)


def self_writes(reached: Mapping[CodeType, Mapping[str, Any]]) -> Iterator[Effect]:
    """Every place at which reached code stores into an attribute of its first argument."""
    for code, node in _syntax(reached):
        first = code.co_varnames[0] if code.co_argcount else ""
        if not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            continue
        part, attribute = node, ""
        while isinstance(part, ast.Attribute | ast.Subscript):
            attribute = part.attr if isinstance(part, ast.Attribute) else attribute
            part = part.value
        if isinstance(part, ast.Name) and part.id == first and attribute:
            yield _at(code, node, "write", attribute)


def numpy_draws(reached: Mapping[CodeType, Mapping[str, Any]]) -> Iterator[Effect]:
    """Every call of a function of `np.random`, whose C code the profiler does not tell."""
    for code, node in _syntax(reached):
        if not isinstance(node, ast.Call) or any(isinstance(n, ast.Call) for n in ast.walk(node.func)):
            continue
        chain = ast.unparse(node.func).split(".")
        found: Any = reached[code].get(chain[0])
        owners = []
        for part in chain[1:]:
            owners.append(found)
            found = getattr(found, part, None) if isinstance(found, ModuleType) else None
        if any(owner is np.random for owner in owners):
            yield _at(code, node, "random", ".".join(chain))


def argument_reads(reached: Mapping[CodeType, Mapping[str, Any]]) -> Iterator[Effect]:
    """Every place at which reached code reads `sys.argv`, of which the profiler tells nothing."""
    for code, node in _syntax(reached):
        names = reached[code]
        if isinstance(node, ast.Attribute) and node.attr == "argv" and isinstance(node.value, ast.Name):
            is_argv = names.get(node.value.id) is sys
        else:
            is_argv = isinstance(node, ast.Name) and names.get(node.id) is sys.argv
        if is_argv:
            yield _at(code, node, "process", "argv")


def global_writes(reached: Mapping[CodeType, Mapping[str, Any]]) -> Iterator[Effect]:
    """Every place at which reached code stores into a part of a global."""
    for code, node in _syntax(reached):
        if not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            continue
        part = node
        while isinstance(part, ast.Attribute | ast.Subscript):
            part = part.value
        is_local = isinstance(part, ast.Name) and part.id in (*code.co_varnames, *code.co_cellvars)
        if part is not node and isinstance(part, ast.Name) and not is_local and part.id in reached[code]:
            yield _at(code, node, "write", part.id)


def _syntax(reached: Collection[CodeType]) -> Iterator[tuple[CodeType, Any]]:
    """The syntax of each code's own scope, of those that have a source."""
    for code in reached:
        definition = source.syntax_of(code)
        yield from ((code, node) for node in below(definition)) if definition else ()


def _at(code: CodeType, node: ast.expr, kind: EffectKind, name: str) -> Effect:
    return Effect(kind, name, source_ranges.of_node(code.co_filename, node, code.co_qualname))
