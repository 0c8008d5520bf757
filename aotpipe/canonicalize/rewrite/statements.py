"""Rewrites a function's control flow into calls that may be staged; run on plain values, it does the same.

    if test: A          def then(): nonlocal y; A
    else: B             def other(): nonlocal y; B
                        ops.if_(test, then, other, get, set, ("y",))

The bodies are functions of the same variables (`nonlocal`), so that on a Python value an operator just calls
one. `get` and `set` read and write the variables that a body assigns, for an operator that has to run both.
`return`, `break` and `continue` become flags and nested branches first. `OPERATORS` is the name that
stands for the operators in the rewritten tree.

A function that yields becomes one that calls (`desugaring`). One that awaits, or looks at its own frame by
`eval` and its kin, is left as it is.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Sequence
from typing import Final

from aotpipe.canonicalize.rewrite import path_scopes, raised_texts
from aotpipe.canonicalize.rewrite.ast_builders import (
    HELPER,
    OPAQUE,
    SCOPES,
    Own,
    assign,
    binds,
    blocks,
    calling,
    contains,
    declared,
    dotted,
    later,
    load,
    located,
    negated,
    own,
    parameters,
    tuple_of,
)
from aotpipe.canonicalize.rewrite.dataflow import Assigned, Liveness, assigned, mentions, reference
from aotpipe.canonicalize.rewrite.definite_assignment import assert_set
from aotpipe.canonicalize.rewrite.desugaring import (
    Imports,
    Matches,
    Suppressions,
    Walrus,
    assigns,
    is_generator,
    managers,
    split_generator,
    split_setters,
)
from aotpipe.canonicalize.rewrite.expressions import (
    catching,
    each_expression,
    expression,
    fill_locals,
    fill_super,
    finishing,
    index,
    is_locals,
    is_talk,
    owner,
    test,
)
from aotpipe.canonicalize.rewrite.jump_elimination import SKIP, Returns, jumps, jumps_at_last, without_jumps
from aotpipe.canonicalize.values.trace import GENERATED

_GIVEN: Final = "__aotpipe_of_values"
# What keeps the variables that it names for longer than a statement.
_STAYS: Final = (ast.Return, ast.Yield, ast.YieldFrom)
_LASTING: Final = (*SCOPES, ast.GeneratorExp)


def rewrite(function: ast.FunctionDef) -> ast.FunctionDef | None:
    """The rewritten function, with the lines of the old one; None where it cannot be rewritten."""
    if _is_opaque(function):
        return None
    fill_super(function)
    raised_texts.inline(function)
    imports = Imports()
    function.body = [each for node in function.body for each in imports.lowered(node)]
    variables = list(dict.fromkeys([*_parameters(function), *assigned(function.body).names]))
    if is_generator(function):
        function.decorator_list = []
        found = split_generator(function, rewrite, _suspended)
        return None if found is None else located(found)
    return _with_calls(function, variables)


def _suspended(function: ast.FunctionDef) -> ast.FunctionDef:
    """A function that yields, of which the statements without a `yield` are rewritten."""
    return _with_calls(function, assigned(function.body).names)


def _with_calls(function: ast.FunctionDef, variables: Sequence[str]) -> ast.FunctionDef:
    declarations = _Declarations(function)
    function.body = [declarations.visit(node) for node in function.body]
    Matches().rewrite(function)
    Suppressions().rewrite(function)
    walruses = Walrus()
    function.body = walruses.lower(function.body)
    assert_set(function, declarations.outer)
    fill_locals(function, [name for name in variables if name not in declarations.outer])
    split_setters(function, declarations.globals, declarations.outer)
    if not is_generator(function):
        function.body = Returns().lower(function.body)
    writer = _Writer(function, declarations, walruses)
    function.body = writer.block(function.body)
    first = [*declarations.made]
    if bound := sorted(writer.variables - declarations.outer):
        # A `nonlocal` needs a binding in the enclosing function; this one is never run.
        unbound: list[ast.stmt] = [assign(name, ast.Constant(None)) for name in bound]
        first.append(ast.If(ast.Constant(False), unbound, []))
    if (keywords := function.args.kwarg) is not None:
        first.append(assign(keywords.arg, calling("keywords", load(keywords.arg))))
    at = 1 if ast.get_docstring(function, clean=False) is not None else 0
    function.body[at:at] = first
    function.decorator_list = []
    return located(function)


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]


def _is_opaque(function: ast.FunctionDef) -> bool:
    for node in own(function.body):
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            return True
        is_looking = isinstance(node, ast.Call) and dotted(node.func) in OPAQUE
        if is_looking and (is_generator(function) or not is_locals(node)):
            return True
    return False


class _Declarations(Own):
    """Takes `global`, `nonlocal` and the types of variables out of a function."""

    def __init__(self, function: ast.FunctionDef) -> None:
        nodes = [node for node in own(function.body) if isinstance(node, ast.Global | ast.Nonlocal)]
        self.globals = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
        self.outer = {name for node in nodes for name in node.names}
        self.made = declared(sorted(self.outer), self.globals)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)

    visit_Nonlocal = visit_Global  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        # Of a variable that a body sets, Python takes no type; it computes none inside of a function.
        if node.value is not None:
            return ast.copy_location(ast.Assign([node.target], node.value), node)
        # Without a value it makes the name a variable of the function all the same.
        unbound = [assign(node.target.id, ast.Constant(None))] if isinstance(node.target, ast.Name) else []
        return ast.copy_location(ast.If(ast.Constant(False), [*unbound, ast.Pass()], []), node)


class _Writer(ast.NodeVisitor):
    """Rewrites the statements of one function: what visits one gives those that it becomes."""

    def __init__(self, function: ast.FunctionDef, declarations: _Declarations, walruses: Walrus) -> None:
        self._walruses = walruses
        self._globals = declarations.globals
        self._outer = declarations.outer
        self.variables: set[str] = set()
        self._count = 0
        self._mentions = mentions([function])
        self._liveness = Liveness(function)
        scopes = [node for node in ast.walk(function) if isinstance(node, _LASTING) and node is not function]
        self._captured = set(mentions([child for node in scopes for child in ast.iter_child_nodes(node)]))
        # What a function inside of this one sets is set wherever it is called.
        set_inside = {
            name
            for scope in scopes
            for node in ast.walk(scope)
            if isinstance(node, ast.Nonlocal)
            for name in node.names
        }
        known = {*assigned(function.body).names, *mentions([function.args]), *self._outer}
        self._set_inside = sorted(set_inside & known)

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [written for node in body for written in self.visit(node)]

    def visit(self, node: ast.AST) -> list[ast.stmt]:
        if isinstance(node, ast.If | ast.While | ast.For) and self._is_left(node):
            return self._left(node)
        written = super().visit(node)
        return written if isinstance(written, list) else [written]

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        if node.exc is None or binds(node.exc):
            return self.generic_visit(node)
        node.exc = calling("raised", later(expression(node.exc)))
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if is_talk(node.value):
            return ast.copy_location(ast.Expr(calling("said", later(expression(node.value)))), node)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.stmt) -> ast.stmt:
        return node

    visit_AsyncFunctionDef = visit_ClassDef  # noqa: N815

    def generic_visit(self, node: ast.AST) -> ast.stmt:
        """A statement that stays what it is, with its expressions and blocks rewritten."""
        assert isinstance(node, ast.stmt)
        # The expressions first: what is made of the blocks has none of the user's own left.
        each_expression(node)
        if isinstance(node, ast.Return) and not isinstance(node.value, ast.Constant | None):
            node.value = calling("returned", node.value)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple | ast.List):
            names = node.targets[0].elts
            star = next((at for at, each in enumerate(names) if isinstance(each, ast.Starred)), None)
            counts = [len(names)] if star is None else [None, star, len(names) - star - 1]
            node.value = calling("unpacked", node.value, *map(ast.Constant, counts))
        reads = isinstance(node, ast.Try) and mentions(node.finalbody).keys() & {*assigned(node.body).names}
        for block in blocks(node):
            block[:] = self.block(block)
        if isinstance(node, ast.Try) and node.finalbody and not _drops_exceptions(node):
            self._count += 1
            finishing(node, f"{HELPER}_tried_{self._count}", reads=bool(reads))
        if isinstance(node, ast.Try) and (node.handlers or _drops_exceptions(node)):
            catching(node, may_split=not self._is_left(node))
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        if not __debug__:
            return self.generic_visit(node)
        text = ast.Constant(ast.unparse(node.test))
        if node.msg is not None and binds(node.msg):
            node.test = test(node.test)
            return node
        message = [] if node.msg is None else [later(expression(node.msg))]
        made = ast.Expr(calling("require", test(node.test), text, *message))
        return ast.copy_location(made, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        """`x += y` by an operator: a number that became a tensor must not be written in place."""
        name, value = ast.Constant(type(node.op).__name__), expression(node.value)
        target = node.target
        if isinstance(target, ast.Subscript):
            at = expression(index(target.slice))
            made: ast.expr = later(value)
            if binds(value):  # a variable of the function's own, which another function cannot assign
                made = ast.Call(ast.Lambda(parameters(_GIVEN), later(load(_GIVEN))), [value], [])
            call = calling("augment_item", name, owner(expression(target.value)), at, made)
            return ast.copy_location(ast.Expr(call), node)
        if isinstance(target, ast.Attribute) and dotted(target) is None:
            if binds(value) or target.attr.startswith("__"):
                node.value = value
                return node
            # What it is an attribute of is computed once.
            of, attribute = owner(expression(target.value)), ast.Constant(target.attr)
            call = calling("augment_attribute", name, of, attribute, later(value))
            return ast.copy_location(ast.Expr(call), node)
        read = copy.deepcopy(target)
        read.ctx = ast.Load()
        return ast.copy_location(ast.Assign([target], calling("augmented", name, read, value)), node)

    def visit_Delete(self, node: ast.Delete) -> ast.stmt | list[ast.stmt]:
        """`del x[i]` by an operator: the container may be one of which a run knows the elements."""
        if _deletes_variable(node):
            return self.generic_visit(node)
        made: list[ast.stmt] = []
        for each in node.targets:
            assert isinstance(each, ast.Subscript)
            call = calling("delete_item", owner(expression(each.value)), expression(index(each.slice)))
            made.append(ast.copy_location(ast.Expr(call), node))
        return made

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        decorators = node.decorator_list
        written = rewrite(node)
        node.decorator_list = decorators
        return written or node

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        names = self._region(node.body, node.orelse)
        bodies = {"then": self.block(node.body), "other": self.block(node.orelse)}
        return self._emit(node, names, bodies, "if_", before=[test(node.test)])

    def visit_Try(self, node: ast.Try) -> list[ast.stmt]:
        if path_scopes.is_scope(node):
            if self._is_left(node):
                return self.block(node.body)
            live = self._live(node)
            read = tuple_of(map(ast.Constant, sorted(live))) if live is not None else ast.Constant(None)
            bodies = {"body": self.block(node.body)}
            return self._emit(node, self._region(node.body), bodies, "path_scope", after=[read])
        if not node.handlers or self._is_left(node):
            return [self.generic_visit(node)]
        names = self._region([node])
        return self._emit(node, names, {"body": [self.generic_visit(node)]}, "try_")

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        entered = managers(node)
        if not entered or self._is_left(node):
            return [self.generic_visit(node)]
        # A manager that is told what its body raises, and may end it, is a handler of a `try`.
        for each in entered:
            each.keywords.append(ast.keyword("may_split", ast.Constant(True)))
        names = self._region([node])
        return self._emit(node, names, {"body": [self.generic_visit(node)]}, "try_")

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        self._count += 1
        before, after, stop = without_jumps(node, self._count)
        if assigns(node.test):
            before += self._lowered_test(node, stop)
        names = self._region(node.body, outside=[ast.Expr(node.test)])
        going = node.test if stop is None else ast.BoolOp(ast.And(), [negated(stop), node.test])
        asked: list[ast.stmt] = [ast.Return(test(going))]
        bodies = {"test": asked, "body": self.block(node.body)}
        written = self._emit(node, names, bodies, "while_")
        return [*self.block(before), *written, *self.block(after)]

    def _lowered_test(self, node: ast.While, stop: str | None) -> list[ast.stmt]:
        """Move a test that assigns to the iteration's end; gives what computes the first test."""
        before, again, tested = self._walruses.loop(node.test)
        # The flag that ends the loop is not among them: a branch that sets it would keep it to itself.
        self._mentions.update(mentions([*before, *again, tested]))
        if stop is not None:
            again = [ast.If(negated(stop), again, [])]
        node.body, node.test = [*node.body, *again], tested
        return [ast.copy_location(each, node) for each in before]

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        self._count += 1
        before, after, stop = without_jumps(node, self._count)
        self._count += 1
        item = f"{HELPER}_item_{self._count}"
        take = ast.Assign(targets=[node.target], value=load(item))
        names = self._region([take, *node.body])
        stopped = later(ast.Constant(False) if stop is None else load(stop))
        bodies = {"body": [take, *self.block(node.body)]}
        items = expression(node.iter)
        written = self._emit(node, names, bodies, "for_", before=[items], after=[stopped], parameter=item)
        return [*before, *written, *self.block(after)]

    @staticmethod
    def _is_left(node: ast.If | ast.While | ast.For | ast.Try | ast.With) -> bool:
        """Whether a statement stays Python's own: jumps that were not lowered would lose their target.

        So would a `yield`.
        """
        inside = [each for block in blocks(node) for each in block]
        if contains(inside, *_STAYS) or any(map(_deletes_variable, own(inside))):
            return True
        return jumps(inside) if isinstance(node, ast.If | ast.Try | ast.With) else jumps_at_last(node.body)

    def _left(self, node: ast.If | ast.While | ast.For) -> list[ast.stmt]:
        if isinstance(node, ast.For):
            node.iter = expression(node.iter)
        else:
            node.test = test(node.test)
        node.body, node.orelse = self.block(node.body), self.block(node.orelse)
        return [node]

    def _region(self, *bodies: list[ast.stmt], outside: Sequence[ast.stmt] = ()) -> Assigned:
        """The variables that the bodies of a statement assign and that are read elsewhere."""
        everything = [node for body in (outside, *bodies) for node in body]
        found = assigned([*everything, *(ast.Name(name, ast.Store()) for name in self._set_inside)])
        mentioned = [mentions(body) for body in bodies]
        first = [Liveness(ast.Module(body, [])).first for body in bodies]

        def is_inside(name: str) -> bool:
            if name.startswith(SKIP):
                # A loop's own one, which every iteration begins with; not that of a loop around it.
                begun = [
                    node for node in bodies[0][:2] if isinstance(node, ast.Assign) and mentions([node])[name]
                ]
                return any(isinstance(node.value, ast.Constant) and not node.value.value for node in begun)
            within = sum(each[name] for each in mentioned) == self._mentions[name]
            return (
                within
                and name not in self._captured
                and name not in self._outer
                and not any(name in found for found in first)
            )

        return found.without({name for name in found.names if is_inside(name)})

    def _emit(
        self,
        node: ast.stmt,
        names: Assigned,
        bodies: dict[str, list[ast.stmt]],
        operator: str,
        *,
        before: Sequence[ast.expr] = (),
        after: Sequence[ast.expr] = (),
        parameter: str | None = None,
    ) -> list[ast.stmt]:
        """The functions of a statement, and the call of an operator that takes them."""
        self._count += 1
        self.variables |= set(names.names)
        made = {role: f"{HELPER}_{role}_{self._count}" for role in (*bodies, "get", "set")}
        out: list[ast.stmt] = [
            self._function(made[role], parameter, names.names, [*_unbound(names.own, body), *body])
            for role, body in bodies.items()
        ]
        out.append(self._function(made["get"], None, (), [ast.Return(tuple_of(map(_read, names.all)))]))
        out.append(self._function(made["set"], _GIVEN, names.names, _write(names)))
        called = calling(operator, *before, *(load(made[role]) for role in bodies), *after)
        touched = [path for path in names.touched if path not in names.all]
        watched = tuple_of(tuple_of((ast.Constant(each), _read(each))) for each in touched)
        labels, dead = (tuple_of(map(ast.Constant, each)) for each in (names.all, self._dead(node, names)))
        called.args += [load(made["get"]), load(made["set"]), labels, later(watched), dead]
        for each in (statement := ast.Expr(called), *out):
            ast.copy_location(each, node)
        # Python says of a call of a method that it stands where the name of the method ends.
        if hasattr(node, "lineno"):
            statement.end_lineno = node.lineno
        return [*out, statement]

    def _dead(self, node: ast.stmt, names: Assigned) -> list[int]:
        """The places of the variables that nothing reads after a statement, nor in its next iteration."""
        if (kept := self._live(node)) is None:
            return []
        return [at for at, name in enumerate(names.names) if not (name in kept or name.startswith(GENERATED))]

    def _live(self, node: ast.stmt) -> set[str] | None:
        """The variables that something may read after a statement; None where that is not known."""
        live = self._liveness.after(node)
        return None if live is None else {*live, *self._captured, *self._outer, *self._set_inside}

    def _function(
        self, name: str, parameter: str | None, names: Sequence[str], body: list[ast.stmt]
    ) -> ast.FunctionDef:
        whole = [*declared(names, self._globals), *(body or [ast.Pass()])]
        return ast.FunctionDef(name, parameters(*([parameter] if parameter else [])), whole, [])


def _unbound(names: Collection[str], body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Make names that functions inside of a body assign its own variables: each run begins without them.

    As variables of the function around they would hold what the run before it left, which was no part of the
    graph.
    """
    inner = [node for each in body for node in ast.walk(each) if isinstance(node, ast.Nonlocal)]
    assigned_inside = {name for node in inner for name in node.names}
    made: list[ast.stmt] = [assign(name, ast.Constant(None)) for name in sorted(assigned_inside & {*names})]
    return [ast.If(ast.Constant(False), made, [])] if made else []


def _deletes_variable(node: ast.AST) -> bool:
    """Whether a node is a `del` of more than elements of containers."""
    return isinstance(node, ast.Delete) and not all(isinstance(each, ast.Subscript) for each in node.targets)


def _drops_exceptions(node: ast.Try) -> bool:
    """Whether a `finally` jumps, which is a handler for everything."""
    return contains(node.finalbody, ast.Return) or jumps(node.finalbody)


def _read(path: str) -> ast.expr:
    of, _, attribute = path.rpartition(".")
    if of:
        return calling("attribute_or_undefined", later(reference(of, ast.Load())), ast.Constant(attribute))
    return calling("bound_or_undefined", later(load(path)))


def _write(names: Assigned) -> list[ast.stmt]:
    """Statements that give the variables what a tuple holds: plain names, then attributes."""
    attributes = names.all[len(names.names) :]
    held = [f"{_GIVEN}_{at}" for at in range(len(attributes))]
    if not names.all:
        return [ast.Pass()]
    targets: list[ast.expr] = [ast.Name(each, ast.Store()) for each in (*names.names, *held)]
    made: list[ast.stmt] = [ast.Assign([ast.Tuple(targets, ast.Store())], load(_GIVEN))]
    for path, value in zip(attributes, held, strict=True):
        of, _, attribute = path.rpartition(".")
        owner_of = reference(of, ast.Load())
        made.append(ast.Expr(calling("set_attribute", owner_of, ast.Constant(attribute), load(value))))
    return made
