"""Runs calls through torch.compile and says which programs it made, in which call, and why.

`count(canonical, calls)` gives a `Way`. The model is called as its user would: its own method, compiled, on
the arguments as they are, with its state going on from call to call. It is as before afterwards.

torch has no public way to learn why a function was compiled again, so that these are taken:
    torch._dynamo.config            the limit after which torch.compile gives up is lifted, so that all count
    torch._dynamo.reset             programs of earlier runs would be taken for those of this one
    convert_frame.get_and_maybe_log_recompilation_reasons
                                    the one place that holds both the reason and the values of the variables
    torch._dynamo.utils             `graph_break_reasons` and the metrics, which name each compiled function
    torch._guards.CompileContext    tells which function a graph belongs to
Where a later torch lacks one of them, `counting` fails at once with its name.

`explain` reads torch's text of a guard that failed (`2/1: tensor 'x' size mismatch at index 0. expected 3,
actual 4`, `0/1: self.count == 1`); what torch says in another form is passed on as it is.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, Final

import torch
from torch._dynamo import config, convert_frame, utils

from aotpipe.canonicalize.inputs import pytrees
from aotpipe.core.serialization import attributes
from aotpipe.core.stages import Canonical, CanonicalEntry
from aotpipe.errors import SourceLine
from aotpipe.model import source
from aotpipe.tools.recompiles.calls import ModelCall
from aotpipe.tools.recompiles.results import TORCH_COMPILE, Program, Refused, Way, shortened
from aotpipe.validate.eager.swap import Contents

_REASONS: Final = "get_and_maybe_log_recompilation_reasons"
_LIMITS: Final = ("recompile_limit", "accumulated_recompile_limit")
_ENDLESS: Final = 1 << 30
_METRICS: Final = 1 << 12
_NUMBER: Final = re.compile(r"^\d+/\d+(_\d+)?: ")
_STACK: Final = "\nUser stack trace:"
_COMMENT: Final = re.compile(r"\s+# ")
_TENSOR: Final = re.compile(
    r"tensor '(?P<name>.+)' (?P<what>[\w ]+) mismatch(?: at index (?P<axis>\d+))?\."
    r" expected (?P<want>.+?), actual (?P<got>.+)$"
)
_WHAT: Final = {"size": "shape", "stride": "stride()", "rank": "dim()", "dtype": "dtype", "device": "device"}
_SIZE: Final = re.compile(r"\.(size|stride)\(\)\[(\d+)\]")
_LONGEST: Final = 60
_PARTS: Final = (ast.Name, ast.Attribute, ast.Subscript)


@dataclass(frozen=True, slots=True)
class Explained:
    """A guard that failed: where its value is used, what it was and is, and torch's reason on one line."""

    where: SourceLine | None
    value: str
    reason: str


def count(canonical: Canonical, calls: Sequence[ModelCall], *, dynamic: bool | None = None) -> Way:
    """Count the programs of torch.compile.

    `dynamic` is as torch.compile has it: None makes a size dynamic when it varies first.
    """
    contents = Contents(
        [entry.module for entry in canonical.entries], parameters=None, others=lambda tensor: tensor
    )
    entries = {entry.name: entry for entry in canonical.entries}
    programs: list[Program] = []
    refused: list[Refused] = []
    so_far: list[int] = []
    with counting() as counter, torch.random.fork_rng(devices=[]), torch.no_grad():
        compiled = {
            entry.name: torch.compile(_callable(entry), backend=counter.backend, dynamic=dynamic)
            for entry in canonical.entries
        }
        for number, call in enumerate(calls, 1):
            if call.reset:
                contents.reset()
            adapter = entries[call.entry_point].adapter
            given = adapter.called(call.args[0]) if adapter else (call.args, dict(call.kwargs))
            args, kwargs = pytrees.clone_tensors(given)
            with contents:
                try:
                    compiled[call.entry_point](*args, **kwargs)
                except Exception as error:  # noqa: BLE001  # the user's code may refuse a call with anything
                    reason = f"{type(error).__name__}: {_first_line(error)}"
                    refused.append(Refused(call=number, reason=reason))
            made = counter.taken(number)
            programs += [replace(each, where=_of_user(each.where, canonical)) for each in made]
            so_far.append(len(programs))
    notes = tuple(_given_up(counter.calls, counter.limit))
    if not programs and len(refused) < len(calls):
        notes = ("nothing was compiled: torch.compile gave the function up, and every call runs eagerly",)
    return Way(
        name=TORCH_COMPILE,
        so_far=tuple(so_far),
        programs=tuple(programs),
        refused=tuple(refused),
        notes=notes,
    )


def _callable(entry: CanonicalEntry) -> Callable[..., Any]:
    """What a user would compile: the module, or the function or method behind a wrapper of aotpipe's."""
    if entry.adapter is not None:
        return entry.adapter.structure.call
    forward = entry.module.forward
    inner: Callable[..., Any] | None = getattr(forward, "__wrapped__", None)
    if inner is None or inspect.signature(forward) != inspect.signature(inner):
        return entry.module
    return inner


def _of_user(where: SourceLine | None, canonical: Canonical) -> SourceLine | None:
    """The user's line: of a wrapper of aotpipe's, the line of the method that it wraps."""
    if where is not None and source.is_model_code(where.path):
        return where
    return source.of_definition(canonical.entries[0].module.forward) or where


def _given_up(functions: Mapping[tuple[str, int], Sequence[int]], limit: int) -> Iterator[str]:
    """Say where torch.compile as it is would stop to compile and run eagerly."""
    for (path, line), calls in functions.items():
        if len(calls) > limit:
            yield (
                f"{source.shown(path)}:{line} takes {len(calls)} programs: torch.compile stops after {limit} "
                f"(recompile_limit) and runs it eagerly, here from call {calls[limit]}"
            )


def _first_line(text: object) -> str:
    return str(text).strip().partition("\n")[0]


@dataclass(slots=True)
class Counter:
    """Tells what was made since it was last asked.

    Attributes:
        limit: How many programs of a function torch.compile makes before it gives up.
        calls: For each program of a function, by the function's file and line: in which call it was made.
    """

    limit: int
    calls: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    _count: int = 0
    _graphs: dict[str, int] = field(default_factory=dict)
    _guards: dict[str, Explained] = field(default_factory=dict)
    _breaks: int = 0

    def backend(self, graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        """Takes a program and runs it as it is."""
        self._graphs[_current()] = sum(node.op.startswith("call") for node in graph.graph.nodes)
        return graph.forward

    def taken(self, call: int) -> list[Program]:
        """The programs that were made since the last time, in a call of this number."""
        metrics = {each.compile_id: each for each in utils.get_compilation_metrics()}
        utils.clear_compilation_metrics()
        found = [each for each in utils.graph_break_reasons[self._breaks :] if each.graph_break]
        self._breaks = len(utils.graph_break_reasons)
        ends = [(each.user_stack[-1], each.reason.strip()) for each in found if each.user_stack]
        breaks = {(frame.filename, frame.lineno or 0): reason for frame, reason in ends}
        made = []
        for compiled, ops in self._graphs.items():
            of = metrics.get(compiled)
            # After a graph break, a function begins at the line of the break.
            name, path, line = "", "", 0
            if of is not None:
                name, path, line = of.co_name or "", of.co_filename or "", of.co_firstlineno or 0
            self.calls.setdefault((path, line), []).append(call)
            self._count += 1
            why, cause = self._guards.get(compiled), "recompile"
            if why is None:
                broken = breaks.get((path, line))
                cause = "first" if broken is None else "break"
                reason = f"the first of {name}" if broken is None else f"the graph breaks here: {broken}"
                where = SourceLine(source.shown(path), line) if path else None
                why = Explained(where, "", _first_line(reason))
            made.append(
                Program(
                    number=self._count,
                    call=call,
                    function=name,
                    cause=cause,  # type: ignore[arg-type]  # one of its three
                    ops=ops,
                    **attributes(why, "where value reason"),
                )
            )
        self._graphs.clear()
        self._guards.clear()
        return made

    def note(self, texts: list[str], frame: Any) -> None:
        """Keep why a function is compiled again; its variables are as they are at this moment only."""
        scope = {**frame.f_locals, "L": frame.f_locals, "G": frame.f_globals}

        def value_of(expression: str) -> Any:
            return eval(expression, {"__builtins__": {"len": len}}, scope)  # noqa: S307  # torch's own guard

        if texts:
            self._guards[_current()] = explain(texts[0], frame.f_code, value_of)


@contextmanager
def counting() -> Iterator[Counter]:
    """Count what `torch.compile(..., backend=counter.backend)` makes; programs made before are forgotten."""
    original: Callable[..., list[str]] = getattr(convert_frame, _REASONS)
    counter = Counter(limit=getattr(config, _LIMITS[0]))

    def noted(entries: Any, frame: Any, *args: Any, **kwargs: Any) -> list[str]:
        texts = original(entries, frame, *args, **kwargs)
        counter.note(texts, frame)
        return texts

    torch._dynamo.reset()  # noqa: SLF001  # named above
    utils.clear_compilation_metrics()
    utils.set_compilation_metrics_limit(_METRICS)
    setattr(convert_frame, _REASONS, noted)
    try:
        with config.patch(dict.fromkeys(_LIMITS, _ENDLESS)):
            yield counter
    finally:
        setattr(convert_frame, _REASONS, original)
        utils.clear_compilation_metrics()
        utils.set_compilation_metrics_limit(utils.DEFAULT_COMPILATION_METRICS_LIMIT)
        torch._dynamo.reset()  # noqa: SLF001  # named above


def _current() -> str:
    return str(torch._guards.CompileContext.current_compile_id())  # noqa: SLF001  # named above


def explain(text: str, code: CodeType | None, value_of: Callable[[str], Any]) -> Explained:
    """Explain torch's text, the reason of one program that did not fit."""
    said, _, stack = _NUMBER.sub("", text).partition(_STACK)
    guard = _COMMENT.split(said.strip(), maxsplit=1)[0].strip()
    line = source.from_stack_trace(stack)
    found = _TENSOR.match(guard)
    if found:
        name, axis = found["name"], found["axis"]
        what = _WHAT.get(found["what"].strip(), found["what"].strip())
        value = f"{name}.{what}" + (f"[{axis}]" if axis else "") + f": {found['want']} -> {found['got']}"
        return Explained(line or first_use(code, name), value, guard)
    varied, value = _compared(guard, value_of)
    reason = guard if " " in guard and not _expression(guard) else f"`{_shown(guard)}` does not hold"
    return Explained(line or first_use(code, varied), value, reason)


def _compared(guard: str, value_of: Callable[[str], Any]) -> tuple[str, str]:
    """What a guard is about, and its value before and now, as far as the guard says it."""
    node = _expression(guard)
    for part in _varying(node) if node is not None else ():
        expression = ast.unparse(part)
        try:
            now = value_of(expression)
        except Exception:  # noqa: BLE001  # a user's attribute may raise anything
            return expression, ""
        match node:
            case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=before)]):
                return expression, shortened(f"{_shown(expression)}: {before!r} -> {now!r}", _LONGEST)
            case _:
                return expression, shortened(f"{_shown(expression)}: {now!r}", _LONGEST)
    return "", ""


def _expression(guard: str) -> ast.expr | None:
    try:
        return ast.parse(guard, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _varying(node: ast.expr) -> Iterator[ast.expr]:
    """The operands of a guard that may vary and that can be looked at without running a program."""
    match node:
        case ast.Compare(left=left, comparators=rights):
            for side in (left, *rights):
                yield from _varying(side) if isinstance(side, ast.BoolOp | ast.Compare) else _plain(side)
        case ast.BoolOp(values=values):
            for value in values:
                yield from _varying(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _varying(operand)
        case _:
            yield from _plain(node)


def _plain(node: ast.expr) -> Iterator[ast.expr]:
    for inner in _taken_from(node):
        match inner:
            case ast.Name(id=name):
                yield from () if name.startswith("___") else (node,)
            case ast.Subscript(slice=index) if not isinstance(index, ast.Constant):
                return
            case ast.Call(func=ast.Attribute(attr="size" | "stride"), args=[], keywords=[]):
                pass
            case ast.Call(func=func, keywords=keywords) if keywords or ast.unparse(func) != "len":
                return


def _taken_from(node: ast.expr) -> Iterator[ast.expr]:
    """An expression, then what it is taken from: `a.b` of `a.b[0]`, `x` of `x.size()` and of `len(x)`."""
    yield node
    match node:
        case ast.Attribute(value=below) | ast.Subscript(value=below):
            yield from _taken_from(below)
        case ast.Call(func=ast.Attribute(value=below)) | ast.Call(args=[below]):
            yield from _taken_from(below)


def _shown(text: str) -> str:
    """A guard as a user writes it: `x.shape[0]` for `x.size()[0]`."""
    return _SIZE.sub(lambda m: f".{'shape' if m[1] == 'size' else 'stride()'}[{m[2]}]", text)


def first_use(code: CodeType | None, expression: str) -> SourceLine | None:
    """The first line of a function that has an expression, or what it is a part of; the function's own."""
    if code is None:
        return None
    path, first = code.co_filename, code.co_firstlineno
    body, whole = _definition(path, first), _expression(expression)
    for part in _taken_from(whole) if whole is not None else ():
        for node in ast.walk(body) if body is not None and isinstance(part, _PARTS) else ():
            # What follows a graph break begins at its line.
            if (
                isinstance(node, _PARTS)
                and isinstance(node.ctx, ast.Load)
                and node.lineno >= first
                and ast.unparse(node) == ast.unparse(part)
            ):
                return SourceLine(source.shown(path), node.lineno)
    return SourceLine(source.shown(path), first)


def _definition(path: str, line: int) -> ast.AST | None:
    """The innermost function of a file that holds a line; all of the file where none does."""
    tree = source.syntax(path)
    found: ast.AST | None = tree
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, source.Definition) and source.first_line(node) <= line <= (node.end_lineno or 0):
            found = node
    return found
