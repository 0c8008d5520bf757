"""Rewrites a function's control flow into calls that may be staged; run on plain values, it does the same.

    if test: A          def then(): nonlocal y; A
    else: B             def other(): nonlocal y; B
                        ops.if_(test, then, other, get, set, ("y",))

The bodies are functions of the same variables (`nonlocal`), so that on a Python value an operator just calls
one. `get` and `set` read and write the variables that a body assigns, for an operator that has to run both.
`return`, `break` and `continue` become flags and nested branches first. `OPERATORS` is the name that
stands for the operators in the rewritten tree.

A function that yields, awaits, or looks at its own variables by `locals()` and its kin is left as it is.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Final

OPERATORS: Final = "__aotpipe_operators__"
_RESULT: Final = "__aotpipe_result"
_DONE: Final = "__aotpipe_done"
_SKIP: Final = "__aotpipe_skip"
_HELPER: Final = "__aotpipe_of"
_GIVEN: Final = "__aotpipe_of_values"
_OPAQUE: Final = frozenset({"locals", "vars", "eval", "exec", "globals"})
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# What keeps the variables that it names for longer than a statement.
_LASTING: Final = (*_SCOPES, ast.GeneratorExp)
_LOOPS: Final = (ast.While, ast.For)


def rewrite(function: ast.FunctionDef) -> ast.FunctionDef | None:
    """The rewritten function, with the lines of the old one; None where it cannot be rewritten."""
    if _is_opaque(function):
        return None
    _Super(function).rewrite()
    declarations = _Declarations(function)
    function.body = _Returns().lower([declarations.visit(node) for node in function.body])
    writer = _Writer(function, declarations)
    function.body = writer.block(function.body)
    first: list[ast.stmt] = [*declarations.made]
    if bound := sorted(writer.variables - declarations.outer):
        # A `nonlocal` needs a binding in the enclosing function; this one is never run.
        unbound: list[ast.stmt] = [_assign(name, ast.Constant(None)) for name in bound]
        first.append(ast.If(ast.Constant(False), unbound, []))
    at = 1 if ast.get_docstring(function, clean=False) is not None else 0
    function.body[at:at] = first
    function.decorator_list = []
    return _located(function)


def _is_opaque(function: ast.FunctionDef) -> bool:
    for node in _own(function.body):
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.AsyncFor | ast.AsyncWith):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OPAQUE:
            return True
    return False


def _own(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All nodes below these that belong to the same scope."""
    for node in nodes:
        yield node
        if not isinstance(node, _SCOPES):
            yield from _own(list(ast.iter_child_nodes(node)))


def _contains(nodes: Sequence[ast.AST], *kinds: type[ast.AST]) -> bool:
    return any(isinstance(node, kinds) for node in _own(nodes))


def _assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign(targets=[ast.Name(name, ast.Store())], value=value)


def _located(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Give every new node the line of the node before it."""
    last = tree

    def visit(node: ast.AST) -> None:
        nonlocal last
        if isinstance(node, ast.expr | ast.stmt | ast.excepthandler | ast.arg | ast.keyword | ast.alias):
            if hasattr(node, "lineno"):
                last = node  # type: ignore[assignment]
            else:
                ast.copy_location(node, last)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return ast.fix_missing_locations(tree)


class _Own(ast.NodeTransformer):
    """Visits the nodes of one function's own scope."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node

    visit_Lambda = visit_FunctionDef  # type: ignore[assignment] # noqa: N815
    visit_ClassDef = visit_FunctionDef  # type: ignore[assignment] # noqa: N815
    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment] # noqa: N815


class _Super(_Own):
    """Gives `super()` its arguments, which it would look for in the function that it is moved to."""

    def __init__(self, function: ast.FunctionDef) -> None:
        arguments = [*function.args.posonlyargs, *function.args.args]
        self._function = function
        self._first = arguments[0].arg if arguments else None

    def rewrite(self) -> None:
        self._function.body = [self.visit(node) for node in self._function.body]

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        bare = isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args
        if bare and self._first is not None:
            node.args = [ast.Name("__class__", ast.Load()), ast.Name(self._first, ast.Load())]
        return node


class _Declarations(_Own):
    """Takes `global`, `nonlocal` and the types of variables out of a function.

    Attributes:
        made: The declarations, for the function's beginning.
        globals: The names that are declared global.
        outer: All declared names.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        declared = [node for node in _own(function.body) if isinstance(node, ast.Global | ast.Nonlocal)]
        self.globals = {name for node in declared if isinstance(node, ast.Global) for name in node.names}
        self.outer = {name for node in declared for name in node.names}
        kinds: tuple[tuple[type[ast.Global | ast.Nonlocal], set[str]], ...] = (
            (ast.Global, self.globals),
            (ast.Nonlocal, self.outer - self.globals),
        )
        self.made = [kind(sorted(names)) for kind, names in kinds if names]

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)

    visit_Nonlocal = visit_Global  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        # Of a variable that a body sets, Python takes no type; it computes none inside of a function.
        if node.value is not None:
            return ast.copy_location(ast.Assign([node.target], node.value), node)
        # Without a value it makes the name a variable of the function all the same.
        unbound = [_assign(node.target.id, ast.Constant(None))] if isinstance(node.target, ast.Name) else []
        return ast.copy_location(ast.If(ast.Constant(False), [*unbound, ast.Pass()], []), node)


class _Returns:
    """Gives a function one return, at its end, where it returns from inside of branches or loops."""

    def __init__(self) -> None:
        self._flags = 0

    def lower(self, body: list[ast.stmt]) -> list[ast.stmt]:
        inner = [node for node in body if not isinstance(node, ast.Return)]
        if not _contains(inner, ast.Return) or self._is_guarded(body):
            return body
        lowered = self._paths(self._without_loops(body))
        return [*lowered, ast.Return(ast.Name(_RESULT, ast.Load()))]

    @staticmethod
    def _is_guarded(body: list[ast.stmt]) -> bool:
        """Whether a return stands in a `try`, `with` or `match`, out of which nothing can be moved."""
        return any(
            isinstance(node, ast.Try | ast.TryStar | ast.With | ast.Match)
            and _contains(list(ast.iter_child_nodes(node)), ast.Return)
            for node in _own(body)
        )

    def _without_loops(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """A return inside a loop becomes a flag and a break."""
        out: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.If):
                node.body = self._without_loops(node.body)
                node.orelse = self._without_loops(node.orelse)
            elif isinstance(node, _LOOPS) and _contains([*node.body, *node.orelse], ast.Return):
                self._flags += 1
                flag = f"{_DONE}_{self._flags}"
                node.body = self._flagged(self._without_loops(node.body), flag)
                orelse = self._without_loops(node.orelse)
                node.orelse = []
                out += [_assign(flag, ast.Constant(False)), node]
                result = ast.Return(ast.Name(_RESULT, ast.Load()))
                if _is_endless(node) and not _breaks(node.body, but=flag):
                    out.append(result)
                    continue
                leave = ast.If(ast.Name(flag, ast.Load()), [result], orelse)
                if orelse and _breaks(node.body, but=flag):
                    # An `else` of a loop that also breaks by itself.
                    node.orelse = orelse
                    leave.orelse = []
                out.append(leave)
                continue
            out.append(node)
        return out

    def _flagged(self, body: list[ast.stmt], flag: str) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.Return):
                value = node.value or ast.Constant(None)
                mark = ast.Break()
                mark.flag = flag  # type: ignore[attr-defined]
                out += [
                    ast.copy_location(_assign(_RESULT, value), node),
                    _assign(flag, ast.Constant(True)),
                    mark,
                ]
                return out
            if isinstance(node, ast.If):
                node.body = self._flagged(node.body, flag)
                node.orelse = self._flagged(node.orelse, flag)
            out.append(node)
        return out

    def _paths(self, body: list[ast.stmt], flag: str = "") -> list[ast.stmt]:
        """Every path ends by assigning the result; with a flag, those that return, which also set it."""
        for index, node in enumerate(body):
            if isinstance(node, ast.Return):
                assigned = ast.copy_location(_assign(_RESULT, node.value or ast.Constant(None)), node)
                marked = [_assign(flag, ast.Constant(True))] if flag else []
                return [*body[:index], assigned, *marked]
            if not isinstance(node, ast.If) or not _contains([*node.body, *node.orelse], ast.Return):
                continue
            before, rest = body[:index], body[index + 1 :]
            if _ends(node.body) or _ends(node.orelse):
                (node.orelse if _ends(node.body) else node.body).extend(rest)
                node.body, node.orelse = self._paths(node.body, flag), self._paths(node.orelse, flag)
                return [*before, node]
            # Both may go on to the rest, which is written once.
            inner = flag
            if not inner:
                self._flags += 1
                inner = f"{_DONE}_{self._flags}"
                before.append(_assign(inner, ast.Constant(False)))
            node.body, node.orelse = self._paths(node.body, inner), self._paths(node.orelse, inner)
            after = self._paths(rest, flag)
            return [*before, node, *([ast.If(_negated(inner), after, [])] if after else [])]
        return body if flag else [*body, _assign(_RESULT, ast.Constant(None))]


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether nothing after these statements is reached."""
    return any(
        isinstance(node, ast.Return | ast.Raise)
        or (isinstance(node, ast.If) and _ends(node.body) and _ends(node.orelse))
        for node in body
    )


def _is_endless(loop: ast.While | ast.For) -> bool:
    return isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and bool(loop.test.value)


def _breaks(body: Sequence[ast.stmt], but: str = "") -> bool:
    """Whether a loop's body breaks it, other than for a flag."""
    for node in body:
        if isinstance(node, ast.Break) and getattr(node, "flag", None) != but:
            return True
        if isinstance(node, _LOOPS):
            if _breaks(node.orelse, but):
                return True
        elif not isinstance(node, _SCOPES) and _breaks(_blocks(node), but):
            return True
    return False


def _blocks(node: ast.stmt) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for field in ("body", "orelse", "finalbody"):
        found += getattr(node, field, [])
    for handler in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        found += handler.body
    return found


class _Writer:
    """Rewrites the statements of one function.

    Attributes:
        variables: The names that bodies assign.
    """

    def __init__(self, function: ast.FunctionDef, declarations: _Declarations) -> None:
        self._globals = declarations.globals
        self._outer = declarations.outer
        self.variables: set[str] = set()
        self._count = 0
        self._mentions = _mentions([function])
        scopes = [node for node in ast.walk(function) if isinstance(node, _LASTING) and node is not function]
        self._captured = set(_mentions([child for node in scopes for child in ast.iter_child_nodes(node)]))
        # What a function inside of this one sets is set wherever it is called.
        set_inside = {
            name
            for scope in scopes
            for node in ast.walk(scope)
            if isinstance(node, ast.Nonlocal)
            for name in node.names
        }
        known = {*_assigned(function.body).names, *_mentions([function.args]), *self._outer}
        self._set_inside = sorted(set_inside & known)

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [written for node in body for written in self._statement(node)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.If):
            return self._if(node)
        if isinstance(node, ast.While):
            return self._while(node)
        if isinstance(node, ast.For):
            return self._for(node)
        if isinstance(node, ast.FunctionDef):
            return [self._nested(node)]
        if isinstance(node, ast.Assert) and __debug__:
            text = ast.Constant(ast.unparse(node.test))
            if node.msg is not None and _binds(node.msg):
                node.test = _expression(node.test)
                return [node]
            message = [] if node.msg is None else [_later(_expression(node.msg))]
            return [ast.Expr(_call("require", _expression(node.test), text, *message))]
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name | ast.Attribute):
            return [self._augmented(node, node.target)]
        if isinstance(node, ast.ClassDef | ast.AsyncFunctionDef):
            return [node]
        for field in ("body", "orelse", "finalbody"):
            if getattr(node, field, None):
                setattr(node, field, self.block(getattr(node, field)))
        for handler in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            handler.body = self.block(handler.body)
        return [_Expressions().visit(node)]

    @staticmethod
    def _augmented(node: ast.AugAssign, target: ast.Name | ast.Attribute) -> ast.stmt:
        """`x += y` by an operator: a number that became a tensor must not be written in place."""
        if _dotted(target) is None:
            return node  # what it is an attribute of would be computed twice
        read = copy.deepcopy(target)
        read.ctx = ast.Load()
        name = ast.Constant(type(node.op).__name__)
        return ast.copy_location(
            ast.Assign([target], _call("augmented", name, read, _expression(node.value))), node
        )

    def _nested(self, node: ast.FunctionDef) -> ast.FunctionDef:
        decorators = node.decorator_list
        written = rewrite(node)
        node.decorator_list = decorators
        return written or node

    def _if(self, node: ast.If) -> list[ast.stmt]:
        if self._is_left(node):
            node.test = _expression(node.test)
            node.body, node.orelse = self.block(node.body), self.block(node.orelse)
            return [node]
        names = self._region(node.body, node.orelse)
        return self._emit(
            node,
            names,
            {"then": self.block(node.body), "other": self.block(node.orelse)},
            lambda made: _call("if_", _expression(node.test), made["then"], made["other"]),
        )

    def _while(self, node: ast.While) -> list[ast.stmt]:
        if self._is_left(node, loop=True):
            node.test = _expression(node.test)
            node.body, node.orelse = self.block(node.body), self.block(node.orelse)
            return [node]
        before, after, stop = self._without_jumps(node)
        names = self._region(node.body, outside=[ast.Expr(node.test)])
        going = node.test if stop is None else ast.BoolOp(ast.And(), [_negated(stop), node.test])
        test: list[ast.stmt] = [ast.Return(_expression(going))]
        written = self._emit(
            node,
            names,
            {"test": test, "body": self.block(node.body)},
            lambda made: _call("while_", made["test"], made["body"]),
        )
        return [*before, *written, *self.block(after)]

    def _for(self, node: ast.For) -> list[ast.stmt]:
        if self._is_left(node, loop=True):
            node.body, node.orelse = self.block(node.body), self.block(node.orelse)
            return [_Expressions().visit(node)]
        before, after, stop = self._without_jumps(node)
        self._count += 1
        item = f"{_HELPER}_item_{self._count}"
        take = ast.Assign(targets=[node.target], value=ast.Name(item, ast.Load()))
        names = self._region([take, *node.body])
        over = node.iter
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range":
            over = ast.Call(_operator("range_"), [over.func, *over.args], over.keywords)
        stopped = _later(ast.Constant(False) if stop is None else ast.Name(stop, ast.Load()))
        written = self._emit(
            node,
            names,
            {"body": [take, *self.block(node.body)]},
            lambda made: _call("for_", _expression(over), made["body"], stopped),
            parameters={"body": item},
        )
        return [*before, *written, *self.block(after)]

    def _is_left(self, node: ast.If | ast.While | ast.For, *, loop: bool = False) -> bool:
        """Whether a statement stays Python's own: jumps that were not lowered would lose their target."""
        inside = [*node.body] if loop else [*node.body, *node.orelse]
        if _contains([*node.body, *node.orelse], ast.Return, ast.Delete, ast.Import, ast.ImportFrom):
            return True
        if loop:
            return any(
                isinstance(each, ast.Try | ast.TryStar | ast.With | ast.Match) and _jumps(_blocks(each))
                for each in _own(inside)
            )
        return _jumps(inside)

    def _without_jumps(self, node: ast.While | ast.For) -> tuple[list[ast.stmt], list[ast.stmt], str | None]:
        """Turn a loop's breaks and continues into flags; what goes before it, after it, and the stop flag."""
        before: list[ast.stmt] = []
        stop: str | None = None
        self._count += 1
        if _jumps(node.body, ast.Continue):
            skip = f"{_SKIP}_{self._count}"
            node.body = [_assign(skip, ast.Constant(False)), *_guarded(node.body, ast.Continue, skip)]
        if _jumps(node.body, ast.Break):
            stop = f"__aotpipe_stop_{self._count}"
            before = [_assign(stop, ast.Constant(False))]
            node.body = _guarded(node.body, ast.Break, stop)
        after = node.orelse
        node.orelse = []
        if after and stop is not None:
            after = [ast.If(_negated(stop), after, [])]
        return before, after, stop

    def _region(self, *bodies: list[ast.stmt], outside: Sequence[ast.stmt] = ()) -> _Assigned:
        """What a statement's bodies, and what is computed outside of them, assign that is read elsewhere."""
        everything = [node for body in (outside, *bodies) for node in body]
        found = _assigned([*everything, *(ast.Name(name, ast.Store()) for name in self._set_inside)])
        mentioned = [_mentions(body) for body in bodies]

        def is_inside(name: str) -> bool:
            if name.startswith(_SKIP):
                # A loop's own one, which every trip begins with; not that of a loop around it.
                begun = [
                    node for node in bodies[0][:2] if isinstance(node, ast.Assign) and _mentions([node])[name]
                ]
                return any(isinstance(node.value, ast.Constant) and not node.value.value for node in begun)
            within = sum(each[name] for each in mentioned) == self._mentions[name]
            return (
                within
                and name not in self._captured
                and name not in self._outer
                and all(
                    _starts(body, name) for body, each in zip(bodies, mentioned, strict=True) if each[name]
                )
            )

        return found.without({name for name in found.names if is_inside(name)})

    def _emit(
        self,
        node: ast.stmt,
        names: _Assigned,
        bodies: dict[str, list[ast.stmt]],
        call: Callable[[dict[str, ast.expr]], ast.Call],
        parameters: dict[str, str] | None = None,
    ) -> list[ast.stmt]:
        """The functions of a statement, and the call that takes them."""
        self._count += 1
        self.variables |= set(names.names)
        made: dict[str, str] = {role: f"{_HELPER}_{role}_{self._count}" for role in (*bodies, "get", "set")}
        out: list[ast.stmt] = []
        for role, body in bodies.items():
            name = (parameters or {}).get(role)
            out.append(self._function(made[role], name, names.names, body))
        read: list[ast.expr] = [_call("held", _later(_path(each, ast.Load()))) for each in names.all]
        out.append(self._function(made["get"], None, (), [ast.Return(ast.Tuple(read, ast.Load()))]))
        write: list[ast.stmt] = [ast.Pass()]
        if names.all:
            targets = ast.Tuple([_path(each, ast.Store()) for each in names.all], ast.Store())
            write = [ast.Assign([targets], ast.Name(_GIVEN, ast.Load()))]
        out.append(self._function(made["set"], _GIVEN, names.names, write))
        loaded: dict[str, ast.expr] = {role: ast.Name(name, ast.Load()) for role, name in made.items()}
        called = call(loaded)
        labels = ast.Tuple([ast.Constant(name) for name in names.all], ast.Load())
        touched = [path for path in names.touched if path not in names.all]
        watched: list[ast.expr] = [
            ast.Tuple([ast.Constant(each), _call("held", _later(_path(each, ast.Load())))], ast.Load())
            for each in touched
        ]
        called.args += [loaded["get"], loaded["set"], labels, _later(ast.Tuple(watched, ast.Load()))]
        return [ast.copy_location(each, node) for each in (*out, ast.Expr(called))]

    def _function(
        self, name: str, parameter: str | None, names: Sequence[str], body: list[ast.stmt]
    ) -> ast.FunctionDef:
        declared: list[ast.stmt] = []
        if shared := [each for each in names if each in self._globals]:
            declared.append(ast.Global(shared))
        if local := [each for each in names if each not in self._globals]:
            declared.append(ast.Nonlocal(local))
        return ast.FunctionDef(
            name, _arguments(*([parameter] if parameter else [])), [*declared, *(body or [ast.Pass()])], []
        )


class _Assigned:
    """What statements assign: plain names, and attributes of names (`self.count`); what they may change."""

    def __init__(self, names: Sequence[str], attributes: Sequence[str], touched: Sequence[str]) -> None:
        self.names = tuple(names)
        self.touched = tuple(touched)
        # Where the name itself is assigned, its attribute is another object's.
        kept = [path for path in attributes if path.partition(".")[0] not in self.names]
        self.all = (*self.names, *kept)

    def without(self, names: Container[str]) -> _Assigned:
        """The rest, where some names are the statements' own."""

        def rest(paths: Sequence[str]) -> list[str]:
            return [path for path in paths if path.partition(".")[0] not in names]

        return _Assigned(rest(self.names), rest(self.all[len(self.names) :]), rest(self.touched))


def _mentions(nodes: Sequence[ast.AST]) -> Counter[str]:
    """How often each name stands in these nodes, nested scopes included."""
    found: Counter[str] = Counter()
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.Name):
            found[node.id] += 1
        elif isinstance(node, ast.arg):
            found[node.arg] += 1
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)
        elif name := getattr(node, "name", None) or getattr(node, "rest", None):
            found[name] += 1  # a definition, an `except ... as`, a pattern
    return found


def _starts(body: Sequence[ast.stmt], name: str) -> bool:
    """Whether no statement reads a name that none before it has set."""
    for node in body:
        if not (mentioned := _mentions([node])[name]):
            continue
        if isinstance(node, ast.FunctionDef):
            return node.name == name
        if isinstance(node, ast.If | ast.While | ast.For | ast.With):
            # It need not come to set the name, so that nothing after it may read it.
            inner = [each for each in (node.body, getattr(node, "orelse", [])) if _mentions(each)[name]]
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == name:
                within = 1 + _mentions(node.body)[name]
            else:
                within = sum(_mentions(each)[name] for each in inner)
                if not all(_starts(each, name) for each in inner):
                    return False
            return within == mentioned == _mentions(body)[name]
        if not isinstance(node, ast.Assign):
            return False
        leaves = [each for target in node.targets for each in getattr(target, "elts", [target])]
        return mentioned == sum(isinstance(leaf, ast.Name) and leaf.id == name for leaf in leaves)
    return False


def _assigned(body: Sequence[ast.AST]) -> _Assigned:
    names: dict[str, None] = {}
    attributes: dict[str, None] = {}
    touched: dict[str, None] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names[node.id] = None
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if (path := _dotted(node)) is not None:
                attributes[path] = None
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            touch(node.value)
        elif isinstance(node, ast.Call):
            touch(node.func.value if isinstance(node.func, ast.Attribute) else node.func)
            for argument in node.args:
                touch(argument)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names[node.name] = None
            return
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names[node.name] = None
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names[node.rest] = None
        elif isinstance(node, ast.Lambda):
            return
        if isinstance(node, _COMPREHENSIONS):
            # Its targets are its own; a walrus in it is not.
            for inner in ast.walk(node):
                if isinstance(inner, ast.NamedExpr) and isinstance(inner.target, ast.Name):
                    names[inner.target.id] = None
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    def touch(node: ast.expr) -> None:
        # What a method, a function or an item's assignment may change.
        if isinstance(node, ast.Name | ast.Attribute) and (path := _dotted(node)) is not None:
            touched[path] = None

    for each in body:
        visit(each)
    own = [name for name in names if not name.startswith(_HELPER)]
    return _Assigned(own, list(attributes), [path for path in touched if not path.startswith(_HELPER)])


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return None if before is None else f"{before}.{node.attr}"
    return None


def _path(path: str, context: ast.expr_context) -> ast.expr:
    first, *rest = path.split(".")
    made: ast.expr = ast.Name(first, context if not rest else ast.Load())
    for index, attribute in enumerate(rest, 1):
        made = ast.Attribute(made, attribute, context if index == len(rest) else ast.Load())
    return made


def _jumps(body: Sequence[ast.stmt], *kinds: type[ast.stmt]) -> bool:
    """Whether statements jump out of the loop that they stand in."""
    wanted = kinds or (ast.Break, ast.Continue)
    for node in body:
        if isinstance(node, wanted):
            return True
        if isinstance(node, _LOOPS):
            if _jumps(node.orelse, *kinds):
                return True
        elif not isinstance(node, _SCOPES) and _jumps(_blocks(node), *kinds):
            return True
    return False


def _guarded(body: list[ast.stmt], kind: type[ast.stmt], flag: str) -> list[ast.stmt]:
    """Set a flag in the place of a jump, and skip under it what the jump would."""
    out: list[ast.stmt] = []
    for index, node in enumerate(body):
        if isinstance(node, kind):
            return [*out, ast.copy_location(_assign(flag, ast.Constant(True)), node)]
        if not _jumps([node], kind):
            out.append(node)
            continue
        if isinstance(node, ast.If):
            node.body = _guarded(node.body, kind, flag)
            node.orelse = _guarded(node.orelse, kind, flag)
        elif isinstance(node, _LOOPS):
            node.orelse = _guarded(node.orelse, kind, flag)
        out.append(node)
        rest = _guarded(body[index + 1 :], kind, flag)
        return [*out, ast.If(_negated(flag), rest, [])] if rest else out
    return out


def _negated(flag: str) -> ast.expr:
    return ast.UnaryOp(ast.Not(), ast.Name(flag, ast.Load()))


class _Expressions(_Own):
    """`and`, `or`, `not`, chained comparisons and conditional expressions, outside of nested scopes."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        if _binds(node):
            return node
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        return _call(name, *map(_later, node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _call("not_", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        if _binds(node):
            return node
        return _call("choose", node.test, _later(node.body), _later(node.orelse))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1 or _binds(node):
            return node
        # Each value is computed once, and only where it is reached.
        parts: list[ast.expr] = [_later(node.left)]
        for op, right in zip(node.ops, node.comparators, strict=True):
            test = ast.Compare(ast.Name("a", ast.Load()), [op], [ast.Name("b", ast.Load())])
            parts += [ast.Lambda(_arguments("a", "b"), test), _later(right)]
        return _call("compare", *parts)


def _later(node: ast.expr) -> ast.Lambda:
    return ast.Lambda(_arguments(), node)


def _binds(node: ast.AST) -> bool:
    """Whether an expression assigns (a walrus), which a lambda would keep to itself."""
    return any(isinstance(inner, ast.NamedExpr | ast.Await | ast.Yield) for inner in ast.walk(node))


def _expression(node: ast.expr) -> ast.expr:
    found: ast.expr = _Expressions().visit(node)
    return found


def _operator(name: str) -> ast.expr:
    return ast.Attribute(ast.Constant(OPERATORS), name, ast.Load())


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(_operator(name), list(arguments), [])


def _arguments(*names: str) -> ast.arguments:
    args = [ast.arg(name) for name in names]
    return ast.arguments(posonlyargs=[], args=args, kwonlyargs=[], kw_defaults=[], defaults=[])
