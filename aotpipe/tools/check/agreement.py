"""Compares with eager, on calls that differ: an exported program, and a model with an edit that may help.

The same calls are made of both, one after another, so that state takes part: the example, its numbers turned
around, scaled and moved. `disagreement(entry, program)` gives a `Diagnostic` for the first call with another
answer: what was baked in without a word shows here. `with_fix(diagnostic, ...)` tries edits, each in the
running function: the edited model must give eager's answers, and the stages must take it at that line, with
the other obstacles replayed. What does not pass is not shown.
"""

from __future__ import annotations

import ast
import copy
import linecache
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any, Final

import numpy as np
import torch

from aotpipe.canonicalize import example_call
from aotpipe.canonicalize.inputs import pytrees
from aotpipe.canonicalize.rewrite import staging
from aotpipe.core.dtypes import Array
from aotpipe.core.stages import Canonical, CanonicalEntry, ExportedEntry
from aotpipe.model import source, source_ranges
from aotpipe.model.garbage_collector import functions_of
from aotpipe.model.source_ranges import Place
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.tools.check.attempt import Line, is_taken
from aotpipe.tools.check.diagnostics import Diagnostic, Fix
from aotpipe.tools.check.eager_runs import Observed
from aotpipe.validate.eager.eager import Eager, EagerFailed, OtherResults

# A program that was traced runs eager's own kernels: another answer is not a matter of rounding.
_RELATIVE: Final = 1e-3
_ABSOLUTE: Final = 1e-4
_EQUAL: Final = 1e-5
_CONVERSIONS: Final = frozenset({"int", "float", "bool"})
_FROM_NUMPY: Final = frozenset({"from_numpy", "as_tensor", "tensor"})
Change = Callable[[torch.Tensor], torch.Tensor]
Answer = Mapping[str, Array | None]
"""All results of a call in their order; None for what is neither a tensor nor a number."""


def is_worth_it(entry: CanonicalEntry, observed: Observed) -> bool:
    """Whether anything could be baked in: Python looked into a tensor, or the model keeps something."""
    looked = any(event.node.varies for event in observed.events.values())
    drawn = any(effect.kind in ("random", "clock") for effect in observed.effects.values())
    return (looked or entry.state is not None) and not drawn


def disagreement(entry: CanonicalEntry, program: ExportedEntry) -> Diagnostic | None:
    """The first call on which the program answers otherwise than eager; None where all agree."""
    calls = list(calls_of(entry))
    changes = [change for _, change in calls]
    wanted = answers(entry, changes)
    exported = replace(entry, module=program.program.module())
    got = answers(exported, changes[: len(wanted)])
    for number, ((how, _), want) in enumerate(zip(calls, wanted, strict=False)):
        other = got[number] if number < len(got) else None
        said = "raises" if other is None else difference(want, other)
        if not said:
            continue
        # Does eager give itself the same answer with other random numbers?
        first, second = (answers(entry, [changes[number]], seed) for seed in (0, 1))
        if not first or not second or difference(first[0], second[0]):
            return None
        return Diagnostic.of(
            code="differs-from-eager",
            message=f"the exported program {said} in call {number + 1}, {how}",
            reason="torch.export fixed something that eager computes in each call",
            hint="look at the warnings, and at numbers, texts and keys that are taken out of tensors",
            where=source.of_definition(entry.module.forward),
            seen=True,
            entry_point=entry.name,
        )
    return None


def calls_of(entry: CanonicalEntry) -> Iterator[tuple[str, Change]]:
    """How each call's tensors come of the example's, in words and as a function."""
    yield "the example", torch.Tensor.clone
    yield "the example again", torch.Tensor.clone
    flipped = _of_floats(torch.neg, lambda leaf: leaf.flip(0) if leaf.dim() else leaf.clone())
    yield "with its numbers turned around", flipped
    yield "with its numbers a tenth", _of_floats(lambda leaf: leaf * 0.1)
    if not entry.entry.value_ranges:
        yield "with its numbers moved", _of_floats(lambda leaf: leaf * 3 + 1)


def _of_floats(change: Change, other: Change = torch.Tensor.clone) -> Change:
    return lambda leaf: change(leaf) if leaf.is_floating_point() else other(leaf)


def answers(entry: CanonicalEntry, changes: Sequence[Change], seed: int = 0) -> list[Answer]:
    """The answers to calls one after another, as far as none raises."""
    example = pytrees.example_leaves(entry)
    given = {name: leaf for name, leaf in example.items() if isinstance(leaf, torch.Tensor)}
    found: list[Answer] = []
    # A runner that is given no signature leaves what calls write into parameters.
    with example_call.unchanged(entry.module), torch.random.fork_rng(devices=[]), suppress(EagerFailed):
        runner = Eager([entry])
        torch.manual_seed(seed)
        for change in changes:
            inputs = {name: view_numpy(change(leaf)) for name, leaf in given.items()}
            try:
                found.append(dict.fromkeys(entry.output_names) | runner.infer(inputs))
            except OtherResults as other:
                found.append({str(number): leaf for number, leaf in enumerate(other.leaves)})
    return found


def difference(want: Answer, got: Answer, relative: float = _RELATIVE) -> str:
    """What of a result is another than was wanted; empty where nothing is."""
    if len(want) != len(got):
        return f"gives {len(got)} results for {len(want)}"
    for (name, ours), theirs in zip(want.items(), got.values(), strict=True):
        if ours is None and theirs is not None:
            return f"gives {name!r} where eager gives none"
        if ours is not None and theirs is None:
            return f"gives no tensor or number for {name!r}"
        if ours is None or theirs is None:
            continue
        if ours.shape != theirs.shape:
            return f"gives {name!r} the shape {theirs.shape} for {ours.shape}"
        rtol, atol = (0.0, 0.0) if ours.dtype.kind in "biu" else (relative, _ABSOLUTE)
        kind = np.complex128 if ours.dtype.kind == "c" else np.float64
        if not np.allclose(theirs.astype(kind), ours.astype(kind), rtol=rtol, atol=atol, equal_nan=True):
            return f"gives another {name!r}"
    return ""


def with_fix(
    found: Diagnostic, canonical: Canonical, observed: Mapping[str, Observed], replayed: Collection[Line]
) -> Diagnostic:
    """The diagnostic, with a fix where one was executed and found equal."""
    entry = next((each for each in canonical.entries if each.name == found.entry_point), None)
    if entry is None or found.severity != "error" or found.place is None or not found.place.text:
        return found
    if (function := _function(found.place, observed[entry.name])) is None:
        return found
    line = (found.place.path, found.place.line)
    one = replace(canonical, entries=(entry,), findings=())
    for place, replacement in _edits(found, function):
        edited = _edited(function, place, replacement)
        if edited is None or not (calls := _equal_calls(entry, function, *edited)):
            continue
        with _swapped(function, *edited):
            taken = is_taken(one, observed[entry.name], frozenset(replayed) - {line})
        if taken:
            fix = Fix(place=place, replacement=replacement, verified=True, calls=calls)
            return replace(found, fix=fix)
    return found


def _function(place: Place, observed: Observed) -> FunctionType | None:
    """The live function around a place, if there is one alone."""
    parents = source_ranges.around(place)
    inner = next((node for node in parents if isinstance(node, ast.FunctionDef)), None)
    for code in observed.reached:
        if code.co_filename == place.path and inner is not None and source.syntax_of(code) is inner:
            live = functions_of(code)
            return live[0] if len(live) == 1 else None
    return None


def _edits(found: Diagnostic, function: FunctionType) -> Iterator[tuple[Place, str]]:
    """Edits that may help, the smallest first; each of one expression on lines of its own."""
    assert found.place is not None
    path = found.place.path
    parents = source_ranges.around(found.place)
    expressions = [node for node in parents if isinstance(node, ast.expr)]
    match found.code:
        case "tensor-to-numpy":
            for node in expressions:
                copied = ast.parse(ast.unparse(node), mode="eval")
                text = ast.unparse(_Torch(function.__globals__).visit(copied))
                yield source_ranges.of_node(path, node), text
        case "number-from-tensor" | "branch-on-tensor" | "text-from-tensor":
            for node in expressions:
                if (inner := _converted(node)) is not None:
                    yield source_ranges.of_node(path, node), ast.unparse(inner)
        case "written-in-place":
            for part in ast.walk(next((n for n in parents if isinstance(n, ast.stmt)), ast.Pass())):
                if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
                    value = ast.BinOp(ast.Name(part.target.id, ast.Load()), part.op, part.value)
                    yield source_ranges.of_node(path, part), f"{part.target.id} = {ast.unparse(value)}"


def _converted(node: ast.expr) -> ast.expr | None:
    """`x` of `x.item()`, `int(x)`, `float(x)`, `bool(x)`."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[]):
            return inner
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name in _CONVERSIONS:
            return inner
        case _:
            return None


class _Torch(ast.NodeTransformer):
    """Puts torch's functions in the place of numpy's of the same name."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._numpy = {name for name, value in variables.items() if value is np}

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Leave out what goes to numpy and comes back."""
        self.generic_visit(node)
        match node.func, node.args:
            case ast.Attribute(value=inner, attr="numpy"), []:
                return inner
            case ast.Attribute(value=ast.Name(id="torch"), attr=name), [inner] if name in _FROM_NUMPY:
                return inner
            case _:
                return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """`np.exp` is `torch.exp`."""
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self._numpy and hasattr(torch, node.attr):
            return ast.Attribute(ast.Name("torch", ast.Load()), node.attr, ast.Load())
        return node


def _edited(function: FunctionType, place: Place, replacement: str) -> tuple[str, CodeType] | None:
    """The file's text with an edit, and the function's code of it; lines stay where they are."""
    lines = linecache.getlines(place.path)
    if not lines or place.end_line != place.line or "torch" not in function.__globals__:
        return None
    row = lines[place.line - 1]
    new = row[: place.column - 1] + replacement + row[place.end_column - 1 :]
    text = "".join([*lines[: place.line - 1], new, *lines[place.line :]])
    code = function.__code__
    found = source.definition(text, code.co_name, code.co_firstlineno)
    if not isinstance(found, ast.FunctionDef):
        return None
    node = copy.deepcopy(found)
    node.decorator_list = []
    made = staging.recompiled(code, node)
    return None if made is None else (text, made.replace(co_firstlineno=code.co_firstlineno))


@contextmanager
def _swapped(function: FunctionType, text: str, code: CodeType) -> Iterator[None]:
    """Run the edited function while the body runs; `linecache` gives its edited source."""
    path = function.__code__.co_filename
    before = linecache.cache.get(path)
    # Without a time, an entry of the cache is not held against the file.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    try:
        with staging.swapped({function: code}):
            yield
    finally:
        if before is not None:
            linecache.cache[path] = before
        else:
            linecache.cache.pop(path, None)


def _equal_calls(entry: CanonicalEntry, function: FunctionType, text: str, code: CodeType) -> int:
    """On how many calls the edited model gives eager's answers; 0 where one differs."""
    changes = [change for _, change in calls_of(entry)]
    wanted = answers(entry, changes)
    with _swapped(function, text, code):
        got = answers(entry, changes)
    if len(got) != len(wanted):
        return 0
    same = not any(difference(*each, _EQUAL) for each in zip(wanted, got, strict=True))
    return len(wanted) if same else 0
