"""The user's own lines: found in tracebacks, in graph nodes and behind classes; and their syntax.

Takes exceptions, `stack_trace` texts, objects and codes; gives a `SourceLine`, syntax or None, never raises.
A user's file is one that is neither Python's nor an installed package's nor aotpipe's. Torch-free.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import CodeType
from typing import Any

from aotpipe.errors import SourceLine

FILE_MODULE = "aotpipe_model_"
"""Begins the name of the module that a user's file becomes when it is given by its path."""

_FRAME = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+)')
# With its end: a folder beside it may begin with its name.
_PACKAGE = f"{Path(__file__).resolve().parents[1]}{os.sep}"
# Context managers that end no exception.
_LET_PASS = frozenset({"no_grad", "enable_grad", "inference_mode", "autocast", "nullcontext"})
# What the code of a model calls while it is traced or watched.
_CALLED = tuple(
    _PACKAGE + part
    for part in (
        *(f"canonicalize/{room}/" for room in ("alias", "operators", "rewrite", "trace", "values")),
        "model/capacity.py",
        "tools/check/",
    )
)


def is_installed(path: str) -> bool:
    """Whether a file came with an installed package."""
    return "site-packages" in path or "dist-packages" in path


def is_user_file(path: str) -> bool:
    """Whether a file is the user's own: not Python's, not an installed package's, not aotpipe's."""
    if path.startswith("<") or is_installed(path):
        return False
    return not path.startswith((_PACKAGE, *_libraries()))


@cache
def _libraries() -> tuple[str, ...]:
    """The folders of Python and of packages; sysconfig reads a megabyte for them, which few hosts need."""
    import sysconfig

    paths = sysconfig.get_paths()
    return tuple({paths[key] + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_own(path: str) -> bool:
    """Whether a file is aotpipe's."""
    return path.startswith(_PACKAGE)


@cache
def is_model_code(path: str) -> bool:
    """Whether a file may hold a model: the user's own, or a package such as transformers.

    torch, numpy and aotpipe hold none, but torch's distributions do: they decide on the values they get.
    """
    if is_own(path):
        return False
    tools = ("/torch/", "/torch_mlir/", "/iree/", "/sympy/", "/numpy/")
    installed = re.split(r"(?:site|dist)-packages", path)
    if is_user_file(path) or (len(installed) > 1 and installed[-1].startswith("/torch/distributions/")):
        return True
    return len(installed) > 1 and not installed[-1].startswith(tools)


def shown(path: str) -> str:
    """A path as people read it: relative to the working folder when it lies below it."""
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return path


def _innermost(frames: list[tuple[str, int]]) -> SourceLine | None:
    """The innermost user frame, else the innermost frame of an installed model."""
    for accept in (is_user_file, is_model_code):
        for path, line in reversed(frames):
            if accept(path):
                return SourceLine(shown(path), line)
    return None


def _within(frames: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The frames inside aotpipe's innermost one: what lies outside called us and is not to blame."""
    # A model may call back into aotpipe, which refuses what it is given.
    while frames and is_own(frames[-1][0]):
        frames.pop()
    # Rewritten code of a model calls back into aotpipe: the frames outside of that call are the model's, too.
    ours = [i for i, (path, _) in enumerate(frames) if is_own(path) and not path.startswith(_CALLED)]
    return frames[ours[-1] + 1 :] if ours else frames


def from_exception(error: BaseException) -> SourceLine | None:
    """The user's line that raised, looked for in the exception and in those that caused it."""
    for each in _chain(error):
        if isinstance(each, SyntaxError) and each.filename and is_user_file(each.filename):
            return SourceLine(shown(each.filename), each.lineno or 1)
        if found := _innermost(_raising(each)):
            return found
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and those that caused it."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _raising(error: BaseException) -> list[tuple[str, int]]:
    return _within([(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)])


def in_package(error: BaseException) -> str:
    """The line of an installed package that raised, with its code; empty where it is the user's own."""
    for each in _chain(error):
        places = [place for place in _raising(each) if is_model_code(place[0])]
        if places:
            path, line = places[-1]
            name = re.split(r"(?:site|dist)-packages[/\\]", path)[-1]
            code = linecache.getline(path, line).strip()
            return "" if is_user_file(path) or not code else f"at {name}:{line}: `{code}`"
    return ""


def of_recursion(error: RecursionError) -> SourceLine | None:
    """The user's line of the call that most running calls wait for; the line where the stack ended is any."""
    waiting: dict[tuple[str, int], int] = {}
    called: set[str] = set()
    for each in (error, error.__cause__, error.__context__):
        for frame, line in walk_tb(each.__traceback__ if each else None):
            path = frame.f_code.co_filename
            if is_user_file(path):
                waiting[path, line] = waiting.get((path, line), 0) + 1
                called.add(frame.f_code.co_name)
    calls = re.compile(rf"\b({'|'.join(map(re.escape, called))})\(")
    places = [place for place in waiting if calls.search(linecache.getline(*place))]
    if not places:
        return from_exception(error)
    path, line = max(places, key=waiting.__getitem__)
    return SourceLine(shown(path), line)


def from_stack_trace(text: str | None) -> SourceLine | None:
    """The user's line in a `stack_trace` as torch records it: the innermost of the user's frames."""
    return _innermost(frames_of(text))


def frames_of(text: str | None) -> list[tuple[str, int]]:
    """The files and lines of a `stack_trace`, from the outermost in."""
    return [(m["path"], int(m["line"])) for m in _FRAME.finditer(text or "")]


def of_definition(thing: object) -> SourceLine | None:
    """Where a user's class or function is defined; None for those of installed packages."""
    target = thing if inspect.isroutine(thing) or inspect.isclass(thing) else type(thing)
    try:
        target = inspect.unwrap(target) if inspect.isroutine(target) else target
        path = inspect.getsourcefile(target)
        # To find a class, inspect parses its whole file: only the user's is worth that.
        if path is None or not is_user_file(path):
            return None
        _, line = inspect.getsourcelines(target)
    except (OSError, TypeError, ValueError):
        return None
    return SourceLine(shown(path), max(line, 1))


def of_caller() -> SourceLine | None:
    """The model's line that is being run now, seen from aotpipe code that torch calls back."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_stack(inspect.currentframe())][::-1]
    while frames and (is_own(frames[-1][0]) or "/logging/" in frames[-1][0]):
        frames.pop()
    return _innermost(_within(frames))


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def syntax(path: str) -> ast.Module | None:
    """A file's syntax, shared by all who ask: copy what you change. None where there is none of Python's."""
    return _parsed(_text(path))[0]


def syntax_of(code: CodeType) -> Definition | None:
    """The syntax that a code was compiled from, shared by all who ask; None where there is no source."""
    text = _text(code.co_filename)
    if code.co_name == "<lambda>":
        tree = _parsed(text)[0]
        return _lambda(tree, code) if tree else None
    return definition(text, code.co_name, code.co_firstlineno)


def is_tried(code: CodeType, line: int) -> bool:
    """Whether a line of a function stands in a `try`, or a `with` that may suppress what is raised."""
    found = syntax_of(code)
    return found is not None and any(
        node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
        for node in ast.walk(found)
        if isinstance(node, ast.Try) or (isinstance(node, ast.With) and not all(map(lets_pass, node.items)))
    )


def may_suppress_at_yield(code: CodeType) -> bool:
    """Whether a generator may end what is raised where it yields; it may where it has no source."""
    found = syntax_of(code)
    return found is None or any(
        any(isinstance(inside, ast.Yield) for statement in node.body for inside in ast.walk(statement))
        for node in ast.walk(found)
        if (isinstance(node, ast.Try) and node.handlers)
        or (isinstance(node, ast.With) and not all(map(lets_pass, node.items)))
    )


def finishes_at_yield(code: CodeType) -> bool:
    """Whether a generator runs a `finally` where something is raised while it yields."""
    found = syntax_of(code)
    return found is not None and any(
        isinstance(inside, ast.Yield)
        for node in ast.walk(found)
        if isinstance(node, ast.Try) and node.finalbody
        for statement in node.body
        for inside in ast.walk(statement)
    )


def ends_where_it_is_left(function: ast.AST) -> bool:
    """Whether a generator does more that others see where it is left at a `yield`: in a `finally`, say."""
    shares = any(isinstance(node, ast.Nonlocal | ast.Global) for node in ast.walk(function))
    return any(
        isinstance(inside, ast.Yield | ast.YieldFrom)
        for node in ast.walk(function)
        if (
            isinstance(node, ast.Try)
            and (_is_seen(node.finalbody, shares) or any(map(_catches_exit, node.handlers)))
        )
        or (isinstance(node, ast.With) and not all(map(lets_pass, node.items)))
        for statement in node.body
        for inside in ast.walk(statement)
    )


def _is_seen(body: Sequence[ast.stmt], shares: bool) -> bool:
    """Whether statements may change more than variables, or these where their function `shares` some."""
    return (shares and bool(body)) or any(
        isinstance(node, ast.Call | ast.Await | ast.Raise | ast.AugAssign)
        or (isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load))
        for statement in body
        for node in ast.walk(statement)
    )


def _catches_exit(handler: ast.ExceptHandler) -> bool:
    """Whether a handler may be for what a generator that is closed is sent."""
    caught = "" if handler.type is None else ast.unparse(handler.type)
    return not caught or "BaseException" in caught or "GeneratorExit" in caught


def lets_pass(item: ast.withitem) -> bool:
    """Whether a context manager is known to end no exception, as none of torch's does."""
    called = item.context_expr
    path = ast.unparse(called.func) if isinstance(called, ast.Call) else ""
    return path.startswith("torch.") or path.rpartition(".")[2] in _LET_PASS


def is_suppressing(item: ast.withitem) -> bool:
    """Whether this is `suppress(...)` by its name."""
    return isinstance(item.context_expr, ast.Call) and ast.unparse(item.context_expr.func).endswith(
        "suppress"
    )


def definition(text: str, name: str, line: int) -> Definition | None:
    """The function of this name that begins at a line of a file's text, shared by all who ask."""
    return _parsed(text)[1].get((name, line))


def first_line(node: ast.stmt | ast.Lambda) -> int:
    """The first line of a statement or a lambda, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _text(path: str) -> str:
    linecache.checkcache(path)
    return "".join(linecache.getlines(path))


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and the codes of the functions inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def signature_of(call: Callable[..., Any]) -> inspect.Signature:
    """The parameters of a callable; `*args, **kwargs` for those of C that tell none."""
    try:
        return inspect.signature(call)
    except (TypeError, ValueError):
        return inspect.signature(lambda *args, **kwargs: (args, kwargs))


# A file that holds many functions of a model is asked for each of them.
@lru_cache(maxsize=64)
def _parsed(text: str) -> tuple[ast.Module | None, dict[tuple[str, int], Definition]]:
    """A file's syntax, and its functions by name and first line, a decorator's where there is one."""
    try:
        tree = ast.parse(text) if text else None
    except (SyntaxError, ValueError):
        tree = None
    named: dict[tuple[str, int], Definition] = {}
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            named.setdefault((node.name, first_line(node)), node)
    return tree, named


def _lambda(tree: ast.Module, code: CodeType) -> ast.Lambda | None:
    """The lambda that a code was compiled from: the innermost one around the positions of the code."""
    starts = [(line, column) for line, _, column, _ in code.co_positions() if line and column]
    ends = [(line, column) for _, line, _, column in code.co_positions() if line and column]
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and (node.lineno, node.col_offset) <= min(starts, default=(0, 0))
        and max(ends, default=(0, 0)) <= (node.end_lineno or 0, node.end_col_offset or 0)
    ]
    # `ast.walk` comes to inner nodes later.
    return around[-1] if around else None
