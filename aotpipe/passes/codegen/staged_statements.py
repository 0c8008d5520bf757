"""Which statements of a function are staged, without their jumps, and what is read after each.

`Lowering(decisions, staged).lower(function)` turns returns, breaks and continues that a tensor decides into
flags, as the trace did, and puts the staged statements into `staged`, by identity. Each of them gets an
attribute `live`: the names that something after it may read before it sets them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from aotpipe.canonicalize.rewrite import dataflow
from aotpipe.canonicalize.rewrite.ast_builders import SCOPES, contains, own
from aotpipe.canonicalize.rewrite.dataflow import Liveness, reads
from aotpipe.canonicalize.rewrite.desugaring import Matches
from aotpipe.canonicalize.rewrite.jump_elimination import DONE, SKIP, STOP, Returns, jumps, without_jumps
from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.passes.codegen.expression_rewrites import Unsupported

Block = list[ast.stmt]


class Lowering:
    """Lowers one function.

    `staged` takes the identities of the statements that became part of the graph.
    """

    def __init__(self, decisions: Sequence[Decision], staged: set[int]) -> None:
        self._decisions = decisions
        self._staged = staged
        self._flags: set[str] = set()
        self._count = 0

    def lower(self, function: ast.FunctionDef) -> None:
        """Change a function's body.

        Raises:
            Unsupported: A tensor ends a loop that stays Python's.
        """
        if contains(function.body, ast.Match) and self._decisions:
            Matches(by_operators=False).rewrite(function)
        if any(contains([each], ast.Return) for each in self._statements(function.body)):
            function.body = Returns().lower(function.body)
        function.body = self._without_jumps(function.body)
        self._find_flags(function.body)
        liveness = Liveness(function)
        scopes = [node for node in own(function.body) if isinstance(node, SCOPES)]
        # What a nested function reads, it may read at any time.
        lasting = {each.id for node in scopes for each in ast.walk(node) if isinstance(each, ast.Name)}
        for each in self._statements(function.body):
            self._staged.add(id(each))
            each.live = liveness.left(each) | lasting  # type: ignore[attr-defined]  # for `function_rewrites`

    def _statements(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        return [each for each in own(list(body)) if isinstance(each, ast.stmt) and self._is_staged(each)]

    def _is_staged(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.If):
            return self._has(node, "branch", "raises") or bool(reads(node.test) & self._flags)
        if isinstance(node, ast.While | ast.For):
            return self._has(node, "loop")
        return False

    def _has(self, node: ast.stmt, *kinds: str) -> bool:
        line = getattr(node, "lineno", None)
        return any(each.line == line and each.kind in kinds for each in self._decisions)

    def _find_flags(self, body: Block) -> None:
        """The flags that staged statements set: what tests them is staged too."""
        before = None
        while self._flags != before:
            before = frozenset(self._flags)
            inside = [inner for each in self._statements(body) for inner in assigned([each])]
            self._flags |= {each for each in inside if each.startswith((DONE, SKIP, STOP))}

    def _without_jumps(self, body: Block) -> Block:
        """Breaks and continues of staged loops as flags."""
        out: Block = []
        for node in body:
            for field in ("body", "orelse", "finalbody"):
                if getattr(node, field, None) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
                    setattr(node, field, self._without_jumps(getattr(node, field)))
            if not isinstance(node, ast.While | ast.For):
                out.append(node)
                continue
            if self._is_staged(node):
                self._count += 1
                before, after, node.stop = without_jumps(node, self._count)  # type: ignore[union-attr]
                out += [*before, node, *after]
            elif any(jumps([each]) for each in self._statements(node.body)):
                raise Unsupported("a tensor decides when a loop over Python's items ends", node)
            else:
                out.append(node)
        return out


def assigned(body: Iterable[ast.stmt]) -> list[str]:
    """The variables that statements set, then those whose items they write, each in their order."""
    body = list(body)
    return list(dict.fromkeys([*dataflow.assigned(body).names, *item_written(body)]))


def item_written(body: Sequence[ast.stmt]) -> list[str]:
    """The variables whose items, or which themselves, statements write in place."""
    items = (node for node in own(body) if isinstance(node, ast.Subscript))
    written = (node.value for node in items if not isinstance(node.ctx, ast.Load))
    return list(dict.fromkeys(owner.id for owner in written if isinstance(owner, ast.Name)))


def needed(body: Iterable[ast.stmt], names: Iterable[str]) -> frozenset[str]:
    """Which of these variables statements read before they set them."""
    return Liveness(ast.Module(list(body), [])).first & frozenset(names)
