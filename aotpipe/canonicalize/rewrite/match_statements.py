"""Turns `match` over plain values into `if` and `elif`, which may be staged."""

from __future__ import annotations

import ast

from aotpipe.canonicalize.rewrite.ast_builders import Own, assign

_SUBJECT = "__aotpipe_subject"


class Matches(Own):
    """Rewrites the matches whose patterns are values, `|`, names and `_`; others stay Python's."""

    def __init__(self) -> None:
        self._count = 0

    def rewrite(self, function: ast.FunctionDef) -> None:
        """Change a function's body."""
        function.body = self.generic_visit(ast.Module(function.body, [])).body  # type: ignore[attr-defined]

    def visit_Match(self, node: ast.Match) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        self._count += 1
        subject = f"{_SUBJECT}_{self._count}"
        tests = [_test(case.pattern, subject) for case in node.cases]
        names = [_bound(case.pattern) for case in node.cases]
        if None in tests:
            return node
        rest: list[ast.stmt] = []
        for case, test, name in reversed(list(zip(node.cases, tests, names, strict=True))):
            assert test is not None
            whole = test if case.guard is None else ast.BoolOp(ast.And(), [test, case.guard])
            taken: list[ast.stmt] = [assign(name, ast.Name(subject, ast.Load()))] if name else []
            # A guard may read the name.
            before, within = (taken, []) if case.guard else ([], taken)
            branch = ast.If(whole, [*within, *case.body], rest)
            rest = [*before, ast.copy_location(branch, case.pattern)]
        return [ast.copy_location(assign(subject, node.subject), node), *rest]


def _test(pattern: ast.pattern, subject: str) -> ast.expr | None:
    """Whether a pattern fits, as an expression; None for what takes a value apart."""
    read = ast.Name(subject, ast.Load())
    if isinstance(pattern, ast.MatchValue):
        return ast.Compare(read, [ast.Eq()], [pattern.value])
    if isinstance(pattern, ast.MatchSingleton):
        return ast.Compare(read, [ast.Is()], [ast.Constant(pattern.value)])
    if isinstance(pattern, ast.MatchOr):
        tests = [_test(each, subject) for each in pattern.patterns]
        known = [test for test in tests if test is not None]
        named = any(map(_bound, pattern.patterns))
        return ast.BoolOp(ast.Or(), known) if len(known) == len(tests) and not named else None
    if isinstance(pattern, ast.MatchAs):
        return ast.Constant(True) if pattern.pattern is None else _test(pattern.pattern, subject)
    return None


def _bound(pattern: ast.pattern) -> str | None:
    """The name that a pattern gives to the value."""
    return pattern.name if isinstance(pattern, ast.MatchAs) else None
