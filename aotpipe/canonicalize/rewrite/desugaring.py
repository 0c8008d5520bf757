"""Turns syntax that cannot be staged into simpler statements: `match`, walruses, `yield`, `suppress`.

`Matches` makes `if` and `elif` of a `match`, `Suppressions` a `try` of `suppress()`.

`Walrus` writes out what is computed at times only (`a and (n := b)`), or in every iteration of a loop. That
becomes a function of its own when it is staged, and a walrus in it would assign a variable of that function:

    if a and (n := f(b)) > 1: ...          value = a
                                           if value:
                                               n = f(b)
                                               value = n > 1
                                           if value: ...

Those inside of lambdas, comprehensions and texts stay where they are.

`split_generator` makes a function that calls what takes its values of one that yields:

    def rows(x):                           def rows(x):
        for row in x:                          def plain(): ...             # as it was
            yield row                          def staged(take):
                                                   for row in x:
                                                       if take(row): return # the loop around it has stopped
                                               def entered(): ...           # staged between the yields
                                               return ops.generated(plain, staged, entered, ends_late)
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from aotpipe.canonicalize.rewrite.ast_builders import (
    COMPREHENSIONS,
    HELPER,
    OPERATORS,
    SCOPES,
    Own,
    assign,
    blocks,
    calling,
    declared,
    load,
    own,
    parameters,
    tuple_of,
)
from aotpipe.canonicalize.rewrite.dataflow import assigned
from aotpipe.canonicalize.values.trace import GENERATED
from aotpipe.model import source

# The module of the operators, as the text of an expression.
_OPERATORS: Final = repr(OPERATORS)
_SUBJECT: Final = "__aotpipe_subject"
_SUPPRESS: Final = "__aotpipe_suppress"
_VALUE: Final = "__aotpipe_value"
_DELEGATE: Final = f"{GENERATED}_delegate"
_TAKE: Final = f"{GENERATED}_take"  # a helper is taken to change nothing
_PLAIN: Final = f"{HELPER}_plain"
_SETTER: Final = HELPER + "_assign_{}"
_STAGED: Final = f"{HELPER}_staged"
_ENTERED: Final = f"{HELPER}_entered"
_ITEM: Final = f"{HELPER}_yielded"
_CLOSED: Final = (*COMPREHENSIONS, *SCOPES, ast.JoinedStr)
# Statements whose expressions are computed first, and once.
_COMPUTED_FIRST: Final = (ast.If, ast.Assert, ast.For, ast.Assign, ast.Return, ast.Expr, ast.Raise)
# What can be computed twice with nothing coming of it.
_PURE: Final = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp),
    *(ast.cmpop, ast.boolop, ast.unaryop, ast.operator, ast.expr_context),
)


class _Counting(Own):
    """Rewrites statements of one kind, which it counts to name their variables."""

    def __init__(self) -> None:
        self._count = 0

    def rewrite(self, function: ast.FunctionDef) -> None:
        """Change a function's body."""
        function.body = self.generic_visit(ast.Module(function.body, [])).body  # type: ignore[attr-defined]


class Imports(Own):
    """Makes assignments of imports, so that a branch may hold one: `m = imported("m")`."""

    def lowered(self, node: ast.stmt) -> list[ast.stmt]:
        """The statements that one becomes."""
        found = self.visit(node)
        return found if isinstance(found, list) else [found]

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        return [
            self._assigned(
                node,
                each.asname or each.name.partition(".")[0],
                ast.Constant(each.name),
                ast.Constant("" if each.asname else None),
            )
            for each in node.names
        ]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        module = ast.Constant("." * node.level + (node.module or ""))
        package = [load("__package__")] if node.level else []
        return [
            self._assigned(node, each.asname or each.name, module, ast.Constant(each.name), *package)
            for each in node.names
        ]

    def _assigned(self, node: ast.stmt, name: str, *arguments: ast.expr) -> ast.stmt:
        return ast.copy_location(assign(name, calling("imported", *arguments)), node)


class Matches(_Counting):
    """Rewrites the matches of all patterns, but for `|` of such as set names.

    Without operators those of sequences, mappings and classes stay, too.
    """

    def __init__(self, *, by_operators: bool = True) -> None:
        super().__init__()
        self._by_operators = by_operators

    def visit_Match(self, node: ast.Match) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        self._count += 1
        node.cases = [each for case in node.cases for each in _alternatives(case)]
        subject = f"{_SUBJECT}_{self._count}"
        tests = [_tests(case.pattern, subject) for case in node.cases]
        rest: list[ast.stmt] = []
        for case, found in reversed(list(zip(node.cases, tests, strict=True))):
            if found is None or not (self._by_operators or _is_of_values(case.pattern)):
                return node
            taken = list(_bound(case.pattern, subject))
            within: list[ast.stmt] = [assign(name, value) for name, value in taken]
            if case.guard is not None:
                # A guard may read the names, which are set only where the pattern fits.
                walruses = [ast.NamedExpr(ast.Name(name, ast.Store()), value) for name, value in taken]
                last = ast.Subscript(
                    ast.Tuple([*walruses, case.guard], ast.Load()), ast.Constant(-1), ast.Load()
                )
                guard = last if taken else case.guard
                found, within = [*found, ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), guard))], []
            branch = ast.If(_all(found), [*within, *case.body], rest)
            rest = [ast.copy_location(branch, case.pattern)]
        return [ast.copy_location(assign(subject, node.subject), node), *rest]


_MANAGERS: Final = "__aotpipe_managers"


def managers(node: ast.With) -> list[ast.Call]:
    """The calls of the operator that enters what may be told of an exception, after `Suppressions`."""
    found: list[ast.Call] = getattr(node, _MANAGERS, [])
    return found


class Suppressions(_Counting):
    """Rewrites `with suppress(...)` as a `try`, whose handler can be seen; other managers are looked at."""

    def visit_With(self, node: ast.With) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        *outer, item = node.items
        asked = not all(map(source.lets_pass, node.items))
        made: list[ast.Call] = []
        for each in node.items:
            if not source.is_suppressing(each):
                made.append(ast.copy_location(calling("entered", each.context_expr), each.context_expr))
                each.context_expr = made[-1]
        if asked:
            setattr(node, _MANAGERS, made)
        if item.optional_vars is not None or not source.is_suppressing(item):
            return node
        self._count += 1
        name = f"{_SUPPRESS}_{self._count}"
        handler = ast.ExceptHandler(calling("suppressed", load(name)), None, [ast.Pass()])
        within = ast.With([ast.withitem(calling("unsuppressed", load(name)))], node.body)
        tried = ast.Try([ast.copy_location(within, node)], [handler], [], [])
        body: list[ast.stmt] = [assign(name, item.context_expr), tried]
        body = [ast.copy_location(each, node) for each in body]
        if not outer:
            return body
        around = ast.copy_location(ast.With(outer, body), node)
        setattr(around, _MANAGERS, made)
        return [around]


def split_setters(function: ast.FunctionDef, global_names: Collection[str], outer: Collection[str]) -> None:
    """Make calls of the walruses in comprehensions, whose elements are functions of their own when staged.

    `[y for v in x if (y := f(v)) > 1]` becomes `[y for v in x if set_y(f(v)) > 1]`, where `set_y` assigns the
    function's own variable.
    """
    setters = _Setters()
    function.body = [setters.visit(node) for node in function.body]
    made: list[ast.stmt] = []
    for name in sorted(setters.names):
        body = [*declared([name], global_names), assign(name, load(_ITEM)), ast.Return(load(_ITEM))]
        if name not in outer:
            made.append(ast.If(ast.Constant(False), [assign(name, ast.Constant(None))], []))
        made.append(ast.FunctionDef(_SETTER.format(name), parameters(_ITEM), body, []))
    at = 1 if ast.get_docstring(function, clean=False) is not None else 0
    function.body[at:at] = made


class _Setters(Own):
    """Replaces the walruses in comprehensions.

    Attributes:
        names: What they assign.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._is_inside = False

    def generic_visit(self, node: ast.AST) -> ast.AST:
        around = self._is_inside
        self._is_inside = around or isinstance(node, COMPREHENSIONS)
        made = super().generic_visit(node)
        self._is_inside = around
        return made

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        self.generic_visit(node)
        if not self._is_inside:
            return node
        self.names.add(node.target.id)
        return ast.copy_location(ast.Call(load(_SETTER.format(node.target.id)), [node.value], []), node)


def _tests(pattern: ast.pattern, read: str) -> list[ast.expr] | None:
    """What all has to be true where a pattern fits; None for `|` of patterns that set names."""
    if isinstance(pattern, ast.MatchValue):
        return [ast.Compare(_parsed(read), [ast.Eq()], [pattern.value])]
    if isinstance(pattern, ast.MatchSingleton):
        return [ast.Compare(_parsed(read), [ast.Is()], [ast.Constant(pattern.value)])]
    if isinstance(pattern, ast.MatchOr):
        each = [_tests(part, read) for part in pattern.patterns]
        known = [_all(tests) for tests in each if tests is not None]
        named = any(True for part in pattern.patterns for _ in _bound(part, read))
        return [ast.BoolOp(ast.Or(), known)] if len(known) == len(each) and not named else None
    if isinstance(pattern, ast.MatchAs):
        return [] if pattern.pattern is None else _tests(pattern.pattern, read)
    if isinstance(pattern, ast.MatchSequence):
        parts = list(_elements(pattern, read))
        has_rest = any(isinstance(part, ast.MatchStar) for part in pattern.patterns)
        first = calling(
            "is_sequence", _parsed(read), ast.Constant(len(parts) - has_rest), ast.Constant(has_rest)
        )
        return _tested([first], parts)
    if isinstance(pattern, ast.MatchClass):
        names = [ast.Constant(name) for name in pattern.kwd_attrs]
        count = ast.Constant(len(pattern.patterns))
        first = calling("is_of_class", _parsed(read), pattern.cls, count, tuple_of(names))
        return _tested([first], _members(pattern, read))
    if isinstance(pattern, ast.MatchMapping):
        first = calling("is_mapping_with", _parsed(read), tuple_of(pattern.keys))
        return _tested([first], _members(pattern, read))
    return [] if isinstance(pattern, ast.MatchStar) else None


def _is_of_values(pattern: ast.pattern) -> bool:
    return not any(
        isinstance(each, ast.MatchSequence | ast.MatchMapping | ast.MatchClass) for each in ast.walk(pattern)
    )


def _tested(first: list[ast.expr], parts: Iterable[tuple[ast.pattern, str]]) -> list[ast.expr] | None:
    """Tests, and those of the patterns of parts; None where one of these has none."""
    each = [_tests(part, value) for part, value in parts]
    return None if None in each else [*first, *(test for tests in each for test in tests or [])]


def _alternatives(case: ast.match_case) -> list[ast.match_case]:
    """A case for each pattern of a `|` that sets names, where no guard makes more of the first that fits."""
    pattern = case.pattern
    names = any(isinstance(each, ast.MatchAs | ast.MatchStar) and each.name for each in ast.walk(pattern))
    if not isinstance(pattern, ast.MatchOr) or case.guard is not None or not names:
        return [case]
    return [ast.match_case(each, None, copy.deepcopy(case.body)) for each in pattern.patterns]


def _bound(pattern: ast.pattern, read: str) -> Iterator[tuple[str, ast.expr]]:
    """The names that a pattern sets, and what they are set to."""
    if isinstance(pattern, ast.MatchAs | ast.MatchStar) and pattern.name:
        yield pattern.name, _parsed(read)
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is not None:
        yield from _bound(pattern.pattern, read)
    if isinstance(pattern, ast.MatchMapping) and pattern.rest:
        keys = ast.unparse(tuple_of(pattern.keys))
        yield pattern.rest, _parsed(f"{_OPERATORS}.rest_of({read}, {keys})")
    for part, value in _members(pattern, read):
        yield from _bound(part, value)


def _members(pattern: ast.pattern, read: str) -> Iterable[tuple[ast.pattern, str]]:
    """The patterns inside of another one, each with what it is for."""
    if isinstance(pattern, ast.MatchSequence):
        return _elements(pattern, read)
    if isinstance(pattern, ast.MatchMapping):
        return [
            (part, f"{read}[{ast.unparse(key)}]")
            for key, part in zip(pattern.keys, pattern.patterns, strict=True)
        ]
    if isinstance(pattern, ast.MatchClass):
        kind = ast.unparse(pattern.cls)
        places = enumerate(pattern.patterns)
        named = zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True)
        return [
            *((part, f"{_OPERATORS}.positional({read}, {kind}, {place})") for place, part in places),
            *((part, f"{read}.{name}") for name, part in named),
        ]
    return ()


def _elements(pattern: ast.MatchSequence, read: str) -> Iterator[tuple[ast.pattern, str]]:
    """The parts of a pattern of a sequence, each with the element that it is for."""
    count, first = len(pattern.patterns), 0
    for at, part in enumerate(pattern.patterns):
        if isinstance(part, ast.MatchStar):
            first = -count
            yield part, f"list({read})[{at}:{at + 1 - count or ''}]"
        else:
            yield part, f"{read}[{first + at}]"


def _parsed(read: str) -> ast.expr:
    return ast.parse(read, mode="eval").body


def _all(tests: list[ast.expr]) -> ast.expr:
    if len(tests) < 2:
        return tests[0] if tests else ast.Constant(True)
    return ast.BoolOp(ast.And(), tests)


class Walrus:
    """Writes out the walruses of one function."""

    def __init__(self) -> None:
        self._names = (f"{_VALUE}_{number}" for number in itertools.count(1))

    def lower(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements without walruses that are computed at times only; those in tests of loops are left."""
        return [written for node in body for written in self._statement(node)]

    def loop(self, test: ast.expr) -> tuple[list[ast.stmt], list[ast.stmt], ast.expr]:
        """The test of a `while`, written out: what goes before the loop, to an iteration's end, and is left.

        What comes before the first walrus stays the test's own.
        """
        going = next(self._names)
        is_and = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
        found = list(test.values) if isinstance(test, ast.BoolOp) and is_and else [test]
        split = next(at for at, each in enumerate(found) if assigns(each))
        if not all(map(_is_pure, found[:split])):
            split = 0
        kept, rest = found[:split], found[split:]

        def computed() -> list[ast.stmt]:
            made = self._into(going, copy.deepcopy(_all_of(rest)))
            return [ast.If(_all_of(copy.deepcopy(kept)), made, [])] if kept else made

        before = [assign(going, ast.Constant(False)), *computed()]
        return before, computed(), _all_of([*kept, load(going)])

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, SCOPES):
            return [node]
        for block in blocks(node):
            block[:] = self.lower(block)
        before: list[ast.stmt] = []
        for field in ("test", "iter", "value", "exc") if isinstance(node, _COMPUTED_FIRST) else ():
            value = getattr(node, field, None)
            if value is not None and _is_at_times(value):
                setattr(node, field, self._expression(value, before))
        return [*(ast.copy_location(each, node) for each in before), node]

    def _expression(self, node: ast.expr, before: list[ast.stmt]) -> ast.expr:
        """An expression of the same value, after statements that are added to those before it."""
        if not assigns(node):
            return node
        if isinstance(node, ast.NamedExpr):
            before.append(assign(node.target.id, self._expression(node.value, before)))
            return load(node.target.id)
        if isinstance(node, ast.BoolOp):
            return self._logic(node, before)
        if isinstance(node, ast.IfExp):
            test = self._expression(node.test, before)
            name = next(self._names)
            before.append(ast.If(test, self._into(name, node.body), self._into(name, node.orelse)))
            return load(name)
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            return self._chain(node, before)
        self._operands(node, before)
        return node

    def _logic(self, node: ast.BoolOp, before: list[ast.stmt]) -> ast.expr:
        name = next(self._names)
        first, *rest = node.values
        before.append(assign(name, self._expression(first, before)))
        for value in rest:
            read: ast.expr = load(name)
            test = read if isinstance(node.op, ast.And) else ast.UnaryOp(ast.Not(), read)
            inner = self._into(name, value)
            before.append(ast.If(test, inner, []))
            before = inner
        return load(name)

    def _chain(self, node: ast.Compare, before: list[ast.stmt]) -> ast.expr:
        name = next(self._names)
        left = self._spilled(node.left, before)
        for at, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            if at:
                inner: list[ast.stmt] = []
                before.append(ast.If(load(name), inner, []))
                before = inner
            value = self._spilled(right, before)
            before.append(assign(name, ast.Compare(copy.deepcopy(left), [op], [value])))
            left = copy.deepcopy(value)
        return load(name)

    def _operands(self, node: ast.AST, before: list[ast.stmt]) -> None:
        """Write out the operands of a node; variables keep the values of those before one that assigns."""
        places = [
            (field, at, each)
            for field, value in ast.iter_fields(node)
            for at, each in enumerate(value if isinstance(value, list) else [value])
            if isinstance(each, ast.expr | ast.keyword)
        ]
        last = max((at for at, (_, _, each) in enumerate(places) if assigns(each)), default=-1)
        for at, (field, index, each) in enumerate(places[: last + 1]):
            made: ast.AST = each
            if isinstance(each, ast.keyword | ast.Starred):
                each.value = self._spilled(each.value, before)
            elif isinstance(each, ast.Slice):
                self._operands(each, before)
            elif isinstance(each, ast.expr):
                made = self._spilled(each, before) if at < last else self._expression(each, before)
            value = getattr(node, field)
            if isinstance(value, list):
                value[index] = made
            else:
                setattr(node, field, made)

    def _spilled(self, node: ast.expr, before: list[ast.stmt]) -> ast.expr:
        """Keep a value in a variable, so that later assignments do not change it."""
        if isinstance(node, ast.Constant):
            return node
        name = next(self._names)
        before.append(assign(name, self._expression(node, before)))
        return load(name)

    def _into(self, name: str, value: ast.expr) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        made.append(assign(name, self._expression(value, made)))
        return made


def _all_of(tests: list[ast.expr]) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)


def assigns(node: ast.AST) -> bool:
    """Whether a walrus is in an expression that can be written out."""
    if isinstance(node, ast.NamedExpr):
        return True
    return not isinstance(node, _CLOSED) and any(map(assigns, ast.iter_child_nodes(node)))


def _is_at_times(node: ast.AST) -> bool:
    """Whether a walrus is in an operand that is not always computed."""
    if isinstance(node, ast.BoolOp | ast.IfExp) or (isinstance(node, ast.Compare) and len(node.ops) > 1):
        return assigns(node)
    return not isinstance(node, _CLOSED) and any(map(_is_at_times, ast.iter_child_nodes(node)))


def _is_pure(node: ast.expr) -> bool:
    """Whether an expression may be computed twice; `len(items)` may."""
    if isinstance(node, ast.Call):
        sized = isinstance(node.func, ast.Name) and node.func.id == "len" and not node.keywords
        return sized and all(map(_is_pure, node.args))
    if not isinstance(node, _PURE):
        return False
    return all(_is_pure(each) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))


def is_generator(function: ast.FunctionDef) -> bool:
    """Whether a function yields."""
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own(function.body))


def split_generator(
    function: ast.FunctionDef,
    rewrite: Callable[[ast.FunctionDef], ast.FunctionDef | None],
    suspended: Callable[[ast.FunctionDef], ast.FunctionDef],
) -> ast.FunctionDef | None:
    """Write a function that yields as one that gives a `Generated`; None where a yield has a value.

    The function is changed; `rewrite` rewrites a function's control flow, and `suspended` that of one which
    goes on yielding.
    """
    if not _only_yields(function):
        return None
    ends_late = source.ends_where_it_is_left(function)
    body = function.body
    nodes = list(own(body))
    declared = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    known = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    names = (node for node in nodes if isinstance(node, ast.Name))
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store | ast.Del)}
    local = sorted({name for name in assigned(body).names if name not in declared} | (known & stored))
    shared: list[ast.stmt] = [ast.Nonlocal(local)] if local else []
    plain = ast.FunctionDef(_PLAIN, parameters(), [*copy.deepcopy(shared), *copy.deepcopy(body)], [])
    entered = ast.FunctionDef(_ENTERED, parameters(), [*copy.deepcopy(shared), *copy.deepcopy(body)], [])
    called = _Calls().visit(ast.Module(body, [])).body
    staged = rewrite(ast.FunctionDef(_STAGED, parameters(_TAKE), [*shared, *called], []))
    if staged is None:
        return None
    unbound: list[ast.stmt] = [assign(name, ast.Constant(None)) for name in local if name not in known]
    given = (load(_PLAIN), load(_STAGED), load(_ENTERED), ast.Constant(ends_late))
    result = ast.Return(calling("generated", *given))
    first = [ast.If(ast.Constant(False), unbound, [])] if unbound else []
    function.body = [*first, plain, suspended(entered), staged, result]
    return function


def _only_yields(function: ast.FunctionDef) -> bool:
    """Whether a function takes no value that is sent to it, and what a `yield from` gives in a statement."""
    nodes = list(own(function.body))
    plain = {node.value for node in nodes if isinstance(node, ast.Expr)}
    plain |= {value for node in nodes if (value := _result_of(node)) is not None}
    return plain.issuperset(node for node in nodes if isinstance(node, ast.Yield | ast.YieldFrom))


def _result_of(node: ast.AST) -> ast.expr | None:
    """The `yield from items` of `name = yield from items`, or of `return yield from items`."""
    value = node.value if isinstance(node, ast.Assign | ast.Return) else None
    return value if isinstance(value, ast.YieldFrom) else None


class _Calls(Own):
    def visit_Assign(self, node: ast.Assign | ast.Return) -> Any:  # of a NodeTransformer
        if not isinstance(node.value, ast.YieldFrom):
            return node
        taken = ast.For(ast.Name(_ITEM, ast.Store()), load(_DELEGATE), [_taken(load(_ITEM))], [])
        first = assign(_DELEGATE, calling("delegate", node.value.value))
        node.value = calling("result_of", load(_DELEGATE))
        made = [ast.copy_location(each, node) for each in (first, taken)]
        return [*map(ast.fix_missing_locations, made), node]

    visit_Return = visit_Assign  # noqa: N815

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:  # of a NodeTransformer
        match node.value:
            case ast.Yield(value=value):
                made = _taken(value or ast.Constant(None))
            case ast.YieldFrom(value=items):
                made = ast.For(ast.Name(_ITEM, ast.Store()), items, [_taken(load(_ITEM))], [])
            case _:
                return node
        return ast.fix_missing_locations(ast.copy_location(made, node))


def _taken(value: ast.expr) -> ast.stmt:
    return ast.If(ast.Call(load(_TAKE), [value], []), [ast.Return(None)], [])
