"""Turns jumps into flags and nested branches: `return`, `break` and `continue`.

Statements that a jump would skip stand under its flag instead. Where a `finally` jumps itself, which drops
the exception that it ran for, everything stays as it is.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from aotpipe.canonicalize.rewrite.ast_builders import LOOPS, SCOPES, assign, blocks, contains, negated, own

Block = list[ast.stmt]
RESULT: Final = "__aotpipe_result"
DONE: Final = "__aotpipe_done"
SKIP: Final = "__aotpipe_skip"
STOP: Final = "__aotpipe_stop"
_GUARDS: Final = (ast.With, ast.Try, ast.TryStar, ast.Match)


class Returns:
    """Gives a function one return, at its end, where it returns from inside of other statements."""

    def __init__(self) -> None:
        self._flags = (f"{DONE}_{number}" for number in itertools.count(1))

    def lower(self, body: Block) -> Block:
        """The body of a function with one return."""
        inner = [node for node in body if not isinstance(node, ast.Return)]
        if not contains(inner, ast.Return) or any(
            contains(each, ast.Return) for each in _finally_blocks(body)
        ):
            return body
        lowered = self._paths(self._without_loops(body))
        return [*lowered, ast.Return(ast.Name(RESULT, ast.Load()))]

    def _without_loops(self, body: Block) -> Block:
        """A return inside a loop becomes a flag and a break."""
        out: Block = []
        for node in body:
            if isinstance(node, LOOPS) and contains([*node.body, *node.orelse], ast.Return):
                out += self._loop(node)
                continue
            if isinstance(node, (ast.If, *_GUARDS, *LOOPS)):
                _each_block(node, self._without_loops)
            out.append(node)
        return out

    def _loop(self, node: ast.While | ast.For) -> Block:
        flag = next(self._flags)
        node.body = self._flagged(self._without_loops(node.body), flag)
        orelse = self._without_loops(node.orelse)
        node.orelse = []
        begun = [assign(flag, ast.Constant(False)), node]
        result = ast.Return(ast.Name(RESULT, ast.Load()))
        is_endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value
        jumps_out = (each for each in _jumps_of(node.body) if isinstance(each, ast.Break))
        breaks = any(getattr(each, "flag", None) != flag for each in jumps_out)
        if is_endless and not breaks:
            return [*begun, result]
        if breaks:
            # What the loop's own breaks skip stays its `else`.
            node.orelse, orelse = orelse, []
        return [*begun, ast.If(ast.Name(flag, ast.Load()), [result], orelse)]

    def _flagged(self, body: Block, flag: str) -> Block:
        out: Block = []
        for node in body:
            if isinstance(node, ast.Return):
                mark = ast.Break()
                mark.flag = flag  # type: ignore[attr-defined]
                return [*out, _kept(node), assign(flag, ast.Constant(True)), mark]
            if isinstance(node, LOOPS):
                node.orelse = self._flagged(node.orelse, flag)
            elif isinstance(node, (ast.If, *_GUARDS)):
                _each_block(node, lambda inner: self._flagged(inner, flag))
            out.append(node)
        return out

    def _paths(self, body: Block, flag: str = "") -> Block:
        """Let every path assign the result at its end; with a flag, only paths that return do, and set it."""
        for index, node in enumerate(body):
            if isinstance(node, ast.Return):
                marked = [assign(flag, ast.Constant(True))] if flag else []
                return [*body[:index], _kept(node), *marked]
            if not contains(_inside(node), ast.Return) or isinstance(node, SCOPES):
                continue
            before, rest = body[:index], body[index + 1 :]
            if isinstance(node, ast.If) and (_ends(node.body) or _ends(node.orelse)):
                (node.orelse if _ends(node.body) else node.body).extend(rest)
                node.body, node.orelse = self._paths(node.body, flag), self._paths(node.orelse, flag)
                return [*before, node]
            # It may go on to the rest, which is written once.
            inner = flag or next(self._flags)
            if not flag:
                before.append(assign(inner, ast.Constant(False)))
            _within(node, inner, contains(_tried(node), ast.Return), partial(self._paths, flag=inner))
            after = self._paths(rest, flag)
            return [*before, node, *([ast.If(negated(inner), after, [])] if after else [])]
        return body if flag else [*body, assign(RESULT, ast.Constant(None))]


def _kept(node: ast.Return) -> ast.stmt:
    return ast.copy_location(assign(RESULT, node.value or ast.Constant(None)), node)


def _inside(node: ast.stmt) -> Block:
    """The statements inside a statement, not those inside of them."""
    return [each for block in blocks(node) for each in block]


def _finally_blocks(body: Sequence[ast.stmt]) -> Iterator[Block]:
    return (node.finalbody for node in own(body) if isinstance(node, ast.Try | ast.TryStar))


def _each_block(node: ast.stmt, change: Callable[[Block], Block]) -> None:
    """Change a statement's blocks, but for a `finally`."""
    for holder in (node, *getattr(node, "handlers", []), *getattr(node, "cases", [])):
        for field in ("body", "orelse"):
            if isinstance(getattr(holder, field, None), list):
                setattr(holder, field, change(getattr(holder, field)))


def _tried(node: ast.stmt) -> Block:
    return node.body if isinstance(node, ast.Try | ast.TryStar) else []


def _within(node: ast.stmt, flag: str, skips: bool, change: Callable[[Block], Block]) -> None:
    """Change a statement's blocks; a jump that sets the flag in a `try` skips its `else`."""
    _each_block(node, lambda block: change(block) if block else block)
    if skips and isinstance(node, ast.Try | ast.TryStar) and node.orelse:
        node.orelse = [ast.If(negated(flag), node.orelse, [])]


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether nothing after these statements is reached."""
    return any(
        isinstance(node, ast.Return | ast.Raise)
        or (isinstance(node, ast.If) and _ends(node.body) and _ends(node.orelse))
        for node in body
    )


def jumps(body: Sequence[ast.stmt], *kinds: type[ast.stmt]) -> bool:
    """Whether statements jump out of the loop that they stand in."""
    return any(not kinds or isinstance(node, kinds) for node in _jumps_of(body))


def _jumps_of(body: Sequence[ast.stmt]) -> Block:
    """The breaks and continues of the loop that these statements stand in."""
    found: Block = []
    for node in body:
        if isinstance(node, ast.Break | ast.Continue):
            found.append(node)
        elif not isinstance(node, SCOPES):
            found += _jumps_of(node.orelse if isinstance(node, LOOPS) else _inside(node))
    return found


def jumps_at_last(body: Sequence[ast.stmt]) -> bool:
    """Whether a `finally` among statements jumps out of the loop that they stand in."""
    return any(map(_jumps_of, _finally_blocks(body)))


def guarded(body: Block, kind: type[ast.stmt], flag: str) -> Block:
    """Set a flag in the place of a jump, and skip under it what the jump would.

    A branch that skips says as `goes_on` which statement may have jumped, and which is its own last one.
    """
    out: Block = []
    for index, node in enumerate(body):
        if isinstance(node, kind):
            return [*out, ast.copy_location(assign(flag, ast.Constant(True)), node)]
        if not jumps([node], kind):
            out.append(node)
            continue
        if isinstance(node, LOOPS):
            node.orelse = guarded(node.orelse, kind, flag)
        elif isinstance(node, (ast.If, *_GUARDS)):
            _within(node, flag, jumps(_tried(node), kind), partial(guarded, kind=kind, flag=flag))
        out.append(node)
        rest = guarded(body[index + 1 :], kind, flag)
        if not rest:
            return out
        guard = ast.If(negated(flag), rest, [])
        guard.goes_on = (node, body[-1])  # type: ignore[attr-defined]
        return [*out, guard]
    return out


def without_jumps(node: ast.While | ast.For, number: int) -> tuple[Block, Block, str | None]:
    """Turn a loop's breaks and continues into flags, which bear a number.

    Returns:
        What goes before the loop, what goes after it, and the flag that ends it, if one does.
    """
    before: Block = []
    stop: str | None = None
    if jumps(node.body, ast.Continue):
        skip = f"{SKIP}_{number}"
        node.body = [assign(skip, ast.Constant(False)), *guarded(node.body, ast.Continue, skip)]
    if jumps(node.body, ast.Break):
        stop = f"{STOP}_{number}"
        before = [assign(stop, ast.Constant(False))]
        node.body = guarded(node.body, ast.Break, stop)
    after, node.orelse = node.orelse, []
    if after and stop is not None:
        after = [ast.If(negated(stop), after, [])]
    return before, after, stop
