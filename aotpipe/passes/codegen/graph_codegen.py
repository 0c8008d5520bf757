"""Writes a graph of torch.export's as statements of Python: branches and loops as local functions.

`Writer(...).body(graph, given)` gives the statements of one function. What is computed in one line of the
user's is put into one expression where nothing can come between, and is called what the user called it.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from aotpipe.model import source
from aotpipe.passes import hops
from aotpipe.passes.codegen import nodes, op_syntax
from aotpipe.passes.codegen.nodes import ATEN
from aotpipe.passes.codegen.syntax import (
    call,
    free_name,
    function,
    is_name,
    literal,
    name,
    of_tensor,
    tuple_of,
)

_MOST_INLINED: Final = 4
"""Ops that stand in one expression."""

# What is short enough to stand in a `return`.
_SHORT: Final = (ATEN.clone.default, ATEN.full.default, ATEN.scalar_tensor.default)
# What written code itself mentions.
_TAKEN: Final = frozenset(
    "self torch F nn math operator Path getattr setattr super float complex ValueError _TENSORS".split()
)
_ROLES: Final = {"cond": ("true_fn", "false_fn"), "while_loop": ("cond_fn", "body_fn")}
Statements = list[ast.stmt]
Given = list[tuple[ast.expr, str | None]]
"""What a local function takes, and its parameter; without one it reads the expression from around it."""


@dataclass(slots=True)
class Writer:
    """Writes the graphs of one entry point.

    Attributes:
        attribute: The expression of a parameter, a buffer or a constant by its path.
        leaves: As `op_syntax.module_call` takes them.
        names: Those that are taken in the function that is being written.
        direct: Whether torch's ops of control flow are called themselves, with all that they take as
            operands, in place of the functions around them.
        count: How many branches and loops were written, for their names.
        is_inner: Whether the graph that is being written is a branch's or a loop's.
    """

    attribute: Callable[[str], ast.expr]
    leaves: Mapping[str, op_syntax.Leaf] = field(default_factory=dict)
    names: set[str] = field(default_factory=lambda: set(_TAKEN))
    direct: bool = False
    count: int = 0
    is_inner: bool = False

    def body(self, graph: GraphModule, given: Sequence[ast.expr]) -> tuple[Statements, ast.expr]:
        """The statements that compute a graph's results, and the expression of the results."""
        return _Function(self, graph, given).written()

    def free(self, wanted: str) -> str:
        """A variable's name that is not taken, and is from now on."""
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in wanted).strip("_") or "value"
        if not is_name(base) or hasattr(builtins, base):
            base = f"v{base}" if base[0].isdigit() else f"{base}_"
        made = free_name(base, self.names)
        self.names.add(made)
        return made


class _Function:
    def __init__(self, writer: Writer, graph: GraphModule, given: Sequence[ast.expr]) -> None:
        self._writer = writer
        self._graph = graph
        self._given = iter(given)
        self._env: dict[Node, ast.expr] = {}
        self._made: Statements = []
        self._nodes = [node for node in graph.graph.nodes if node.op != "placeholder"]
        self._place = {node: index for index, node in enumerate(self._nodes)}
        self._effects = [index for index, node in enumerate(self._nodes) if nodes.is_effect(node)]
        self._line = nodes.Lines(self._nodes)
        self._inlined = self._inlining()
        self._held: dict[str, Node] = {}

    def written(self) -> tuple[Statements, ast.expr]:
        result: ast.expr = tuple_of([])
        for node in self._graph.graph.nodes:
            if node.op == "placeholder":
                self._env[node] = next(self._given)
            elif node.op == "output":
                result = self._expression(node.args[0])
            elif node in self._env:
                continue  # a part of a result that has its name
            elif node.op == "get_attr":
                self._attribute(node)
            elif node.op == "call_function":
                self._call(node)
            else:
                raise TypeError(f"a graph of torch.export holds a {node.op}")
        return self._made, result

    def _inlining(self) -> set[Node]:
        found: set[Node] = set()
        depth: dict[Node, int] = {}
        for node in self._nodes:
            depth[node] = 1 + sum(depth.get(each, 0) for each in node.all_input_nodes if each in found)
            if self._is_inlined(node) and depth[node] <= _MOST_INLINED:
                found.add(node)
        return found

    def _is_inlined(self, node: Node) -> bool:
        if node.op != "call_function" or nodes.is_effect(node) or nodes.parts(node) or len(node.users) != 1:
            return False
        [user] = node.users
        first = self._place[node]
        if nodes.name_of_higher(user.target):
            return False
        if user.op == "output":
            return self._is_returned(node, user) and not any(first < at for at in self._effects)
        if nodes.times(user, node) != 1 or not self._line.is_same(node, user):
            return False
        return not any(first < index < self._place[user] for index in self._effects)

    def _is_returned(self, node: Node, output: Node) -> bool:
        """Whether a result may stand in the `return` itself: a name would tell a reader nothing."""
        if not self._writer.is_inner or nodes.times(output, node) != 1:
            return False
        results: Any = output.args[0]
        is_alone = results is node or len(results) == 1
        return node.target in _SHORT or (is_alone and self._line.target(node) is None)

    def _attribute(self, node: Node) -> None:
        path = str(node.target)
        found = operator.attrgetter(path)(self._graph)
        # A branch may hold a tensor of its own, which was made of numbers.
        own = of_tensor(found) if self._writer.is_inner and isinstance(found, torch.Tensor) else None
        if not isinstance(found, GraphModule):
            self._env[node] = own or self._writer.attribute(path)

    def _call(self, node: Node) -> None:
        op = node.target
        if nodes.name_of_higher(op):
            self._keep(node, self._higher(node, op))
            return
        if nodes.is_own_copy(node):
            return
        args = [self._expression(each) for each in node.args]
        given = {} if nodes.is_plain_copy(node) else node.kwargs
        kwargs = {key: self._expression(value) for key, value in given.items()}
        if nodes.has_index_without_dims(node):
            made: ast.expr = call("torch.ops.aten.index.Tensor", *args)
        else:
            made = op_syntax.module_call(op, args, self._writer.leaves) or op_syntax.op_expression(
                op, args, kwargs
            )
        if node in self._inlined:
            self._env[node] = made
        elif nodes.is_effect(node) and not node.users:
            self._made.append(self._placed(ast.Expr(made), node))
        else:
            self._keep(node, made)

    def _expression(self, value: Any) -> ast.expr:
        if isinstance(value, Node):
            return self._env[value]
        return literal(value, self._expression)

    def _keep(self, node: Node, made: ast.expr) -> None:
        """Give a result a name: one for each part where it has several."""
        taken = nodes.parts(node)
        if self._is_single(node):
            target = self._bound(taken[0])
        elif taken:
            count = max(1 + max(taken), len(node.meta["val"]))
            targets = [
                self._bound(taken[at]) if at in taken else ast.Name("_", ast.Store()) for at in range(count)
            ]
            target = ast.Tuple(targets, ast.Store())
        else:
            target = self._bound([node])
        self._made.append(self._placed(ast.Assign([target], made), node))

    def _bound(self, values: Sequence[Node]) -> ast.expr:
        """Make a variable for the value that these nodes of a graph stand for."""
        called = self._name(values[0])
        self._env |= dict.fromkeys(values, name(called))
        return ast.Name(called, ast.Store())

    def _name(self, node: Node) -> str:
        """The user's own name for what a line computes at last, else the op's."""
        wanted = self._line.target(node)
        if wanted is None:
            return self._writer.free(nodes.short(node))
        holder = self._held.get(wanted)
        # Nothing after this node reads what an earlier one computed.
        if holder is not None and all(self._emitted(user) <= self._place[node] for user in holder.users):
            self._held[wanted] = node
            return wanted
        called = self._writer.free(wanted)
        if called == wanted:
            self._held[wanted] = node
        return called

    def _emitted(self, node: Node) -> int:
        while node in self._inlined:
            [node] = node.users
        if node.op == "output":
            return len(self._nodes)
        return self._place[node]

    @staticmethod
    def _placed(statement: ast.stmt, node: Node) -> ast.stmt:
        statement.where = source.from_stack_trace(node.meta.get("stack_trace"))  # type: ignore[attr-defined]
        return statement

    def _is_single(self, node: Node) -> bool:
        """Whether a node is a branch that gives one tensor, by itself."""
        is_cond = nodes.name_of_higher(node.target) == "cond" and not self._writer.direct
        return is_cond and len(node.meta.get("val") or ()) == 1 and set(nodes.parts(node)) == {0}

    def _higher(self, node: Node, op: Any) -> ast.expr:
        self._writer.count += 1
        number, direct, called = self._writer.count, self._writer.direct, nodes.name_of_higher(op)
        arguments: tuple[Any, ...] = node.args
        if called not in _ROLES:
            args = [self._operand(each, f"{called}_{number}", node) for each in arguments]
            kwargs = {
                key: self._operand(value, f"{called}_{number}_{key}", node)
                for key, value in node.kwargs.items()
            }
            return call(f"torch.ops.higher_order.{called}", *args, **kwargs)
        is_cond = called == "cond"
        graphs = arguments[1:3] if is_cond else arguments[:2]
        carried, extra = (arguments[3], ()) if is_cond else arguments[2:]
        given: Given = [(self._expression(each), None) for each in extra]
        if direct:
            given = self._named([*carried, *extra], "part")
        elif is_cond:
            # Variables are parameters of their own name, attributes are read as they are.
            made = map(self._expression, carried)
            given = [(each, each.id if isinstance(each, ast.Name) else None) for each in made]
        else:
            given = [*self._named(carried, "carried", [ast.unparse(each) for each, _ in given]), *given]
        bodies = [
            self._local(f"{role}_{number}", graph, given, node)
            for role, graph in zip(_ROLES[called], graphs, strict=True)
        ]
        owner = "torch.ops.higher_order" if direct else "torch"
        if is_cond:
            passed = {parameter: made for made, parameter in given if parameter}
            return call(
                f"{owner}.cond", self._expression(arguments[0]), *bodies, tuple_of(list(passed.values()))
            )
        values = [made for made, _ in given]
        parts = [values[: len(carried)], *([values[len(carried) :]] if direct else [])]
        return call(f"{owner}.while_loop", *bodies, *map(tuple_of, parts))

    def _named(self, values: Sequence[Any], wanted: str, taken: Sequence[str] = ()) -> Given:
        """Operands, each as a parameter of its own: of a variable's name where that is not taken."""
        names = dict.fromkeys(taken)
        found: Given = []
        for made in map(self._expression, values):
            is_free = isinstance(made, ast.Name) and made.id not in names
            called = ast.unparse(made) if is_free else self._writer.free(wanted)
            names[called] = None
            found.append((made, called))
        return found

    def _operand(self, value: Any, called: str, node: Node) -> ast.expr:
        if isinstance(value, Node) and value.op == "get_attr":
            graph = operator.attrgetter(str(value.target))(self._graph)
            if isinstance(graph, GraphModule):
                names = [self._writer.free("part") for _ in hops.placeholders(graph)]
                return self._local(called, value, [(name(each), each) for each in names], node)
        return self._expression(value)

    def _local(self, wanted: str, graph: Any, given: Given, node: Node) -> ast.expr:
        """Write a graph as a function beside, and give its name."""
        called = self._writer.free(wanted)
        before, outer = set(self._writer.names), self._writer.is_inner
        self._writer.is_inner = True
        values = [name(parameter) if parameter else made for made, parameter in given]
        body, result = self._writer.body(operator.attrgetter(str(graph.target))(self._graph), values)
        self._writer.names, self._writer.is_inner = before, outer
        if self._is_single(node):
            [result] = results_of(result)
        parameters = list(dict.fromkeys(parameter for _, parameter in given if parameter))
        made = function(called, parameters, [*body, ast.Return(result)])
        self._made.append(self._placed(made, node))
        return name(called)


def results_of(result: ast.expr) -> list[ast.expr]:
    """Each result by itself."""
    return result.elts if isinstance(result, ast.Tuple | ast.List) else [result]
