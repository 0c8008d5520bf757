"""Rewrites a function of the user's: torch.cond and torch.while_loop for what the trace put into the graph.

    if test: y = a(x)               def true_fn(x, y):
                                        y = a(x)
                                        return y

                             ->     def false_fn(x, y):
                                        return y

                                    y = torch.cond(test, true_fn, false_fn, (x, y))

`rewrite_function(function, decisions)` gives the new function. Statements that stay Python's are those of the
user. Jumps become flags, as in the trace (`staged_statements`).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from aotpipe.canonicalize.rewrite.ast_builders import assign
from aotpipe.canonicalize.rewrite.dataflow import reads
from aotpipe.canonicalize.rewrite.expressions import is_talk
from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.canonicalize.values.abstract_values import Undefined
from aotpipe.passes.codegen import statements
from aotpipe.passes.codegen.expression_rewrites import ExpressionRewriter, Unsupported, negated
from aotpipe.passes.codegen.staged_statements import Lowering, assigned, item_written, needed
from aotpipe.passes.codegen.statements import Facts
from aotpipe.passes.codegen.syntax import call, function, method, name, tuple_of

Block = list[ast.stmt]


def rewrite_function(
    function: ast.FunctionDef,
    decisions: Sequence[Decision],
    *,
    sizes: bool = False,
    contiguous: bool = False,
    attributes: Collection[str] = (),
) -> ast.FunctionDef:
    """A function with the control flow of a graph.

    Args:
        function: As the user wrote it; it is left as it is.
        decisions: What the trace noted of its lines.
        sizes: Whether numbers out of tensors serve as sizes.
        contiguous: Whether loops start with contiguous tensors: torch.export wants the layout of the results.
        attributes: Those of `self` that are buffers, which a call may have given back: they are set anew.

    Raises:
        Unsupported: It has no such form.
    """
    made = copy.deepcopy(function)
    ExpressionRewriter(decisions, sizes=sizes).visit(made)
    _FunctionRewriter(made, decisions, contiguous=contiguous, attributes=attributes).rewrite(made)
    return statements.renamed(made)


def _part_names(parts: Mapping[str, int]) -> list[str]:
    return [part for each, count in parts.items() for part in statements.part_names(each, count)]


def _copies(body: Block, variables: Collection[str]) -> Block:
    """Copies of those whose items are written: a function of an op may not write what it is given."""
    return [assign(each, call(f"{each}.clone")) for each in item_written(body) if each in variables]


class _FunctionRewriter:
    def __init__(
        self,
        function: ast.FunctionDef,
        decisions: Sequence[Decision],
        *,
        contiguous: bool,
        attributes: Collection[str],
    ) -> None:
        self._contiguous = contiguous
        self._attributes = attributes
        self._noted = {(each.kind, each.line) for each in decisions}
        self._decisions = [each for each in decisions if each.span is None]
        self._count: dict[str, int] = {}
        # What became part of the graph, by identity.
        self._staged: set[int] = set()
        # What a variable was last set to, where that is a number that stands in the code.
        self._numbers: dict[str, object] = {}
        self._known = set(statements.parameters(function))
        self._depth = 0

    def rewrite(self, function: ast.FunctionDef) -> None:
        Lowering(self._decisions, self._staged).lower(function)
        function.body = self._block(function.body)

    def _called(self, what: str) -> str:
        number = self._count[what] = self._count.get(what, 0) + 1
        return what if number == 1 else f"{what}_{number}"

    def _block(self, body: Iterable[ast.stmt]) -> Block:
        out: Block = []
        for node in body:
            if isinstance(node, ast.If) and id(node) in self._staged:
                out += self._if(node)
            elif isinstance(node, ast.While | ast.For) and id(node) in self._staged:
                out += self._loop(node)
            else:
                out += self._plain(node)
            names = assigned([node])
            self._known |= set(names)
            for each in names:
                self._numbers.pop(each, None)
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._numbers |= statements.numbers_in(node.targets[0], node.value)
        return out

    def _plain(self, node: Any) -> Block:
        if isinstance(node, ast.Assert) and ("assert", node.lineno) in self._noted:
            message = ast.Constant(
                statements.text(node.msg) if node.msg is not None else ast.unparse(node.test)
            )
            return [statements.runtime_assert(node.test, message)]
        match node:
            case ast.AugAssign(target=ast.Attribute(owner, attribute)) if attribute in self._attributes:
                value = ast.BinOp(ast.Attribute(owner, attribute, ast.Load()), node.op, node.value)
                made = ast.copy_location(ast.Assign([node.target], value), node)
                [node] = statements.with_comments(node, [made])
        if self._depth:
            if isinstance(node, ast.Expr) and is_talk(node.value):
                return []
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                value = ast.BinOp(name(node.target.id), node.op, node.value)
                made = ast.copy_location(ast.Assign([node.target], value), node)
                return statements.with_comments(node, [made])
            for target in getattr(node, "targets", [getattr(node, "target", None)]):
                if isinstance(target, ast.Attribute):
                    raise Unsupported(f"`{ast.unparse(target)}` is set where a tensor decides", node)
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                if getattr(node, field, None):
                    # What is not read later is left out, and Python wants a statement.
                    setattr(node, field, self._block(getattr(node, field)) or [ast.Pass()])
        return [node]

    def _decision(self, node: ast.stmt, kinds: Sequence[str], names: Iterable[str]) -> Decision | None:
        """What the trace noted last of a statement with such variables, at its line if it has one."""
        wanted = set(names)
        line = getattr(node, "lineno", None)
        noted = [each for each in self._decisions if each.kind in kinds and line in (None, each.line)]
        return max(
            reversed(noted),
            key=lambda each: len(wanted.intersection(each.names)) - len(set(each.names) - wanted),
            default=None,
        )

    def _if(self, node: ast.If) -> Block:
        raising = self._decision(node, ("raises",), ()) is not None and hasattr(node, "lineno")
        if raising and (statements.raises(node.body) or statements.raises(node.orelse)):
            return self._runtime_assert(node)
        live: frozenset[str] = node.live  # type: ignore[attr-defined]  # set by `Lowering`
        outs = [each for each in assigned([*node.body, *node.orelse]) if each in live]
        facts = Facts(self._decision(node, ("branch",), outs))
        test = statements.truth(node.test)
        after: Block = [
            assign(each, facts.literal(each, node))
            for each in outs
            if facts.is_constant(each) and not isinstance(facts.value(each), Undefined | None)
        ]
        outs = [each for each in outs if not facts.is_constant(each)]
        if not outs:
            if changed := next(filter(None, map(statements.effect, [*node.body, *node.orelse])), None):
                raise Unsupported(f"{changed} where a tensor decides", node)
            return after
        if (chosen := self._chosen(node, outs, test, facts)) is not None:
            return statements.with_comments(node, [*chosen, *after])
        return statements.with_comments(node, [*self._cond(node, test, outs, facts), *after])

    def _chosen(self, node: ast.If, outs: Sequence[str], test: ast.expr, facts: Facts) -> Block | None:
        """Write a branch that only sets variables to others or to numbers without torch.cond, else None."""
        then, other = statements.simple(node.body), statements.simple(node.orelse)
        is_simple = isinstance(test, ast.Name | ast.Compare | ast.UnaryOp | ast.BinOp)
        if then is None or other is None or not is_simple:
            return None
        if any(each not in self._known and not (each in then and each in other) for each in outs):
            return None
        if not all(map(facts.is_one_tensor, outs)):
            return None
        made: Block = []
        if len(outs) > 1 and not isinstance(test, ast.Name):
            made.append(assign(self._called("decided"), test))
            test = name(made[0].targets[0].id)  # type: ignore[attr-defined]  # just made
        for each in outs:
            yes, no = then.get(each, name(each)), other.get(each, name(each))
            made.append(assign(each, statements.select(test, yes, no)))
        return made

    def _operands(
        self, node: ast.If, results: Sequence[str], facts: Facts
    ) -> tuple[list[str], dict[str, int], list[str]]:
        """What the functions of a branch read and do not set, and what else they take, with its parts.

        The last are the variables that hold a number of Python's before it.
        """
        paths = (node.body, node.orelse)
        written = assigned([*node.body, *node.orelse])
        known = [each for each in written if each in self._known]
        python = {} if self._depth else facts.before
        numbers = [
            each for each in known if each in self._numbers or isinstance(python.get(each), statements.NUMBER)
        ]
        taken = frozenset[str]().union(
            *(needed(body, written) for body in paths),
            # A path that does not set a result returns what it was given.
            *(set(results).difference(assigned(body)) for body in paths),
        )
        read = reads(ast.Module([*node.body, *node.orelse], []))
        tensors = [
            each
            for each, value in facts.taken.items()
            if isinstance(value, torch.Tensor)
            and each in read
            and each not in written
            and each not in self._numbers
        ]
        parts = {each: facts.parts(each) for each in known if each in taken and each not in numbers}
        return tensors, parts, numbers

    def _cond(self, node: ast.If, test: ast.expr, results: Sequence[str], facts: Facts) -> Block:
        tensors, parts, numbers = self._operands(node, results, facts)
        functions: list[ast.FunctionDef] = []
        for path, (role, body) in enumerate((("true_fn", node.body), ("false_fn", node.orelse))):
            inside = self._inside(body, parts)
            # A branch has no number of the outer function under its own name.
            if rebound := set(assigned(inside)) & needed(inside, numbers):
                raise Unsupported(f"`{min(rebound)}` is a number that a branch changes")
            made = [*_copies(body, parts), *(each for each in inside if not statements.is_nothing(each))]
            given = [self._result(each, facts, path, node) for each in results]
            made.append(ast.Return(given[0] if len(given) == 1 else tuple_of(given)))
            read = needed(made, parts)
            repacked = statements.repacked({each: parts[each] for each in parts if each in read})
            parameters = [*tensors, *_part_names(parts)]
            functions.append(function(self._called(role), parameters, [*repacked, *made]))
        operands = [part for each, count in parts.items() for part in statements.parts_of(name(each), count)]
        called = call(
            "torch.cond",
            test,
            *(name(each.name) for each in functions),
            tuple_of([*map(name, tensors), *operands]),
        )
        targets: list[ast.expr] = [ast.Name(each, ast.Store()) for each in results]
        target = targets[0] if len(targets) == 1 else ast.Tuple(targets, ast.Store())
        return [*functions, ast.Assign([target], called)]

    def _inside(self, body: Block, tensors: Collection[str], index: Sequence[str] = ()) -> Block:
        """The statements of a function of an op, which takes these variables as tensors."""
        numbers, known = self._numbers, self._known
        self._numbers = {key: value for key, value in numbers.items() if key not in tensors}
        self._known = known.union(tensors, index)
        self._depth += 1
        made = self._block(body)
        self._depth -= 1
        self._numbers, self._known = numbers, known
        return made

    def _result(self, variable: str, facts: Facts, path: int, node: ast.If) -> ast.expr:
        """What a branch gives for a variable, in the form that it has afterwards."""
        body = node.orelse if path else node.body
        if variable not in assigned(body) and variable not in self._known:
            return facts.zeros(variable, "on one path", node)
        count = facts.parts(variable)
        # torch 2.13 exports a branch in a loop that gives what it was given to something else, silently.
        if not count and statements.is_handed_on(variable, body):
            return call(f"{variable}.clone")
        made = facts.formed(variable, facts.after(variable, path), node)
        return (
            tuple_of([method(each, "clone") for each in statements.parts_of(made, count)]) if count else made
        )

    def _runtime_assert(self, node: ast.If) -> Block:
        """`if test: raise` as an assert."""
        body, rest = (node.body, node.orelse) if statements.raises(node.body) else (node.orelse, node.body)
        test = negated(node.test) if body is node.body else node.test
        raised = next(each for each in body if isinstance(each, ast.Raise))
        made = statements.runtime_assert(test, ast.Constant(statements.raised_text(raised)))
        return statements.with_comments(node, [made, *self._block(rest)])

    def _loop(self, node: Any) -> Block:
        written = assigned(node.body)
        count = statements.counter(node) if isinstance(node, ast.For) else None
        # It carries what it sets and an iteration, its test or something after it reads.
        read = needed(node.body, written) | node.live | {node.stop}
        if count is None:
            read |= reads(node.test)
        carried = [each for each in written if each in read]
        facts = Facts(self._decision(node, ("loop",), [*carried, "the index"]))
        if count is not None and node.target.id in node.live:
            raise Unsupported(f"`{node.target.id}` is read after its loop", node)
        parts = {each: facts.parts(each) for each in carried if not facts.is_constant(each)}
        first = [part for each in parts for part in self._initial(each, facts, node)]
        test: ast.expr = facts.flag(node.test) if count is None else count.test
        index = [] if count is None else [count.index]
        if count is not None:
            first.insert(0, call("torch.tensor", count.begin))
        body = self._loop_body(node, parts, index)
        following: list[ast.expr] = (
            [ast.BinOp(name(count.index), ast.Add(), ast.Constant(count.step))] if count else []
        )
        for each, number in parts.items():
            following += statements.parts_of(facts.formed(each, facts.after(each, 0), node), number)
        # It goes on where its own test holds, and no jump has set the flag that ends it.
        if node.stop in parts:
            test = ast.BinOp(negated(name(node.stop)), ast.BitAnd(), test)
        parameters = [*index, *_part_names(parts)]
        functions = [
            function(self._called("cond_fn"), parameters, [ast.Return(statements.truth(test))]),
            function(self._called("body_fn"), parameters, [*body, ast.Return(tuple_of(following))]),
        ]
        called = call("torch.while_loop", *(name(each.name) for each in functions), tuple_of(first))
        later = {each: number for each, number in parts.items() if each in node.live}
        kept = _part_names(later)
        targets: list[ast.expr] = [
            ast.Name(each if each in kept else "_", ast.Store()) for each in parameters
        ]
        result = ast.Assign([ast.Tuple(targets, ast.Store())], called)
        return statements.with_comments(
            node, [*(count.before if count else ()), *functions, result, *statements.repacked(later)]
        )

    def _loop_body(self, node: Any, parts: Mapping[str, int], index: Sequence[str]) -> Block:
        """What an iteration does before it gives the next values."""
        inside = self._inside(node.body, parts, index)
        body = [*statements.repacked(parts), *_copies(node.body, parts)]
        if index and node.target.id not in index and needed(node.body, [node.target.id]):
            body.append(assign(node.target.id, name(index[0])))
        return [*body, *(each for each in inside if not statements.is_nothing(each))]

    def _initial(self, variable: str, facts: Facts, node: ast.stmt) -> list[ast.expr]:
        parts = facts.parts(variable)
        if variable not in self._known:
            return statements.parts_of(facts.zeros(variable, "before a loop", node), parts)
        before = self._numbers.get(variable, facts.before.get(variable))
        made = facts.formed(variable, before, node)
        if self._contiguous and isinstance(made, ast.Name) and facts.has_dims(variable):
            made = call(f"{variable}.contiguous")
        return statements.parts_of(made, parts)
