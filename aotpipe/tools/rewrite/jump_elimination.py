"""Takes the jumps out of a function's staged statements, as the trace did, and tells which those are.

`Lowering(decisions, staged).lower(function)` turns returns, breaks and continues that a tensor decides into
flags, marks each statement with what is read after it (`liveness`), and puts the staged ones into `staged`,
by identity.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from aotpipe.canonicalize.rewrite.ast_builders import DONE, SKIP, assign, contains, own
from aotpipe.canonicalize.rewrite.desugaring import Matches
from aotpipe.canonicalize.rewrite.jump_elimination import Returns, guarded, jumps
from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.tools.rewrite import liveness
from aotpipe.tools.rewrite.expression_rewrites import Unsupported
from aotpipe.tools.rewrite.expressions import name
from aotpipe.tools.rewrite.statements import STOP

Block = list[ast.stmt]


class Lowering:
    """Lowers one function.

    Args:
        decisions: What the trace noted of its statements.
        staged: Takes the identities of the statements that became part of the graph.
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
            Matches().rewrite(function)
        if any(contains([each], ast.Return) for each in self._statements(function.body)):
            function.body = Returns().lower(function.body)
        function.body = self._without_jumps(function.body)
        self._find_flags(function.body)
        liveness.mark(function.body)
        self._staged |= {id(each) for each in self._statements(function.body)}

    def _statements(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        return [each for each in own(list(body)) if isinstance(each, ast.stmt) and self._is_staged(each)]

    def _is_staged(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.If):
            return self._has(node, "branch", "raises") or bool(liveness.reads(node.test) & self._flags)
        if isinstance(node, ast.While | ast.For):
            return self._has(node, "loop")
        return False

    def _has(self, node: ast.stmt, *kinds: str) -> bool:
        line = getattr(node, "lineno", None)
        return line is not None and any(each.line == line and each.kind in kinds for each in self._decisions)

    def _find_flags(self, body: Block) -> None:
        """The flags that staged statements set: what tests them is staged too."""
        while True:
            inside = [inner for each in self._statements(body) for inner in liveness.assigned([each])]
            found = {each for each in inside if each.startswith((DONE, SKIP, STOP))}
            if found <= self._flags:
                return
            self._flags |= found

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
            if not self._is_staged(node):
                if any(jumps([each]) for each in self._statements(node.body)):
                    raise Unsupported("a tensor decides when a loop over Python's items ends", node)
                out.append(node)
                continue
            out += self._loop_without_jumps(node)
        return out

    def _loop_without_jumps(self, node: Any) -> Block:
        before: Block = []
        self._count += 1
        number = self._count
        node.stop = None
        if jumps(node.body, ast.Continue):
            skip = f"{SKIP}_{number}"
            node.body = [assign(skip, ast.Constant(False)), *guarded(node.body, ast.Continue, skip)]
        if jumps(node.body, ast.Break):
            node.stop = f"{STOP}_{number}"
            before = [assign(node.stop, ast.Constant(False))]
            node.body = guarded(node.body, ast.Break, node.stop)
        after, node.orelse = node.orelse, []
        if after and node.stop is not None:
            after = [ast.If(ast.UnaryOp(ast.Not(), name(node.stop)), after, [])]
        return [*before, node, *after]
