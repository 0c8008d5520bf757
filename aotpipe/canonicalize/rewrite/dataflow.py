"""Finds the variables of statements: which they assign and may change, and which are read after them.

What nothing reads afterwards need have no one form: a branch may give it another shape on each path, and a
loop need not carry it. A variable counts as read wherever that cannot be told: in a handler, after a `with`
that may end exceptions.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Sequence

from aotpipe.canonicalize.rewrite.ast_builders import HELPER, LOOPS, blocks, dotted
from aotpipe.canonicalize.rewrite.jump_elimination import jumps
from aotpipe.model import source

Names = frozenset[str]
_NONE: Names = frozenset()


class Assigned:
    """What statements assign: plain names, and attributes of names (`self.count`); what they may change.

    `own` are names that they assign and nothing else reads.
    """

    def __init__(
        self,
        names: Sequence[str],
        attributes: Sequence[str],
        touched: Sequence[str],
        own: Collection[str] = (),
    ) -> None:
        self.names = tuple(names)
        self.touched = tuple(touched)
        self.own = frozenset(own)
        # Where the name itself is assigned, its attribute is another object's.
        kept = [path for path in attributes if path.partition(".")[0] not in self.names]
        self.all = (*self.names, *kept)

    def without(self, names: Collection[str]) -> Assigned:
        """The rest, where some names are the statements' own."""

        def rest(paths: Sequence[str]) -> list[str]:
            return [path for path in paths if path.partition(".")[0] not in names]

        return Assigned(rest(self.names), rest(self.all[len(self.names) :]), rest(self.touched), names)


def mentions(nodes: Sequence[ast.AST]) -> Counter[str]:
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


def assigned(body: Sequence[ast.AST]) -> Assigned:
    """What statements assign, and what they may change, in the order of their text."""
    names: dict[str, None] = {}
    attributes: dict[str, None] = {}
    touched: dict[str, None] = {}

    def touch(*nodes: ast.AST | None) -> None:
        # What a method, a function or an item's assignment may change; of an item or a result, what it is of.
        for node in nodes:
            if isinstance(node, ast.expr) and (path := dotted(node)) is not None:
                touched[path] = None
                continue
            match node:
                case ast.Call():
                    # What a method gives is of its object, and what a function gives may be of its arguments.
                    of = node.func.value if isinstance(node.func, ast.Attribute) else node.func
                    touch(of, *node.args, *(each.value for each in node.keywords))
                case ast.IfExp():
                    touch(node.body, node.orelse)
                case ast.BoolOp():
                    touch(*node.values)
                case ast.Tuple() | ast.List():
                    touch(*node.elts)
                case ast.Dict():
                    touch(*node.values)
                case _:
                    touch(*([inner] if (inner := getattr(node, "value", None)) is not None else []))

    def name_again(node: ast.AST | None) -> None:
        # What gets a second name may be changed by that one.
        if isinstance(node, ast.IfExp):
            name_again(node.body)
            name_again(node.orelse)
        elif isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.BoolOp):
            for each in node.values if isinstance(node, ast.Dict | ast.BoolOp) else node.elts:
                name_again(each)
        else:
            touch(node)

    def touch_inside(node: ast.AST) -> None:
        # What a function or a comprehension inside may change where it is called: all that it reads.
        inside = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        own = {each.id for each in inside if not isinstance(each.ctx, ast.Load)}
        own |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
        touch(*(each for each in inside if each.id not in own))

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            name_again(node.value)
        elif isinstance(node, ast.For):
            name_again(node.iter)
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()):
                names[node.id] = None
            case ast.Attribute(ctx=ast.Store()):
                if (path := dotted(node)) is not None:
                    attributes[path] = None
                touch(node.value)  # a setter may change other attributes
            case ast.Subscript():  # a `defaultdict` that is read may be changed
                touch(node.value)
            case ast.Call():
                touch(node.func.value if isinstance(node.func, ast.Attribute) else node.func, *node.args)
                touch(*(each.value for each in node.keywords))
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                names[node.name] = None
                touch_inside(node)
                return
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
            ):
                names[name] = None
            case ast.Lambda():
                touch_inside(node)
                return
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                # Its targets are its own; a walrus in it is not.
                walruses = (inner for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
                names.update(dict.fromkeys(each.target.id for each in walruses))
                touch_inside(node)
                return
        for child in ast.iter_child_nodes(node):
            visit(child)

    for each in body:
        visit(each)
    own, changed = ([path for path in found if not path.startswith(HELPER)] for found in (names, touched))
    return Assigned(own, list(attributes), changed)


def reference(path: str, context: ast.expr_context) -> ast.expr:
    """The expression of `a.b.c`."""
    first, *rest = path.split(".")
    made: ast.expr = ast.Name(first, context if not rest else ast.Load())
    for index, attribute in enumerate(rest, 1):
        made = ast.Attribute(made, attribute, context if index == len(rest) else ast.Load())
    return made


class Liveness:
    """What is read after each statement of a function, before or after its jumps became flags.

    `after` knows the branches too that are made when jumps are taken out later; `left` and `first` are right
    for code without jumps, as `passes.codegen` has it.

    Attributes:
        first: What the function reads before it sets it.
    """

    def __init__(self, function: ast.FunctionDef | ast.Module) -> None:
        self._after: dict[int, Names] = {}
        # Of each loop, without what its next iteration reads.
        self._left: dict[int, Names] = {}
        # Of each statement that may jump.
        self._jumped: dict[int, Names] = {}
        # What a jump out of the loop around, or to its next iteration, goes on to read.
        self._targets: Names = _NONE
        # What an exception goes on to read.
        self._caught: Names = _NONE
        self.first = self._block(function.body, _NONE)

    def left(self, node: ast.stmt) -> Names:
        """What is read when a branch or a loop is done."""
        return self._left.get(id(node), self._after[id(node)])

    def after(self, node: ast.stmt) -> Names | None:
        """What is read after a branch or a loop, or by its next iteration; None where that is not known."""
        if (goes_on := getattr(node, "goes_on", None)) is None:
            return self._after.get(id(node))
        jumping, last = goes_on
        jumped, after = self._jumped.get(id(jumping)), self._after.get(id(last))
        return None if jumped is None or after is None else jumped | after

    def _block(self, body: Sequence[ast.stmt], after: Names) -> Names:
        for node in reversed(body):
            self._after[id(node)] = after
            if jumps([node]):
                self._jumped[id(node)] = self._targets
            after = self._statement(node, after) | self._caught
        return after

    def _statement(self, node: ast.stmt, after: Names) -> Names:
        if isinstance(node, ast.If):
            # A jump inside becomes a flag: what follows the branch is then the jump's target too.
            if jumps([node]):
                after |= self._targets
            self._after[id(node)] = after
            then, other = self._block(node.body, after), self._block(node.orelse, after)
            if isinstance(node.test, ast.Constant):  # of `case _`
                return then if node.test.value else other
            return _before(node.test, then | other)
        if isinstance(node, LOOPS):
            return self._loop(node, after)
        if isinstance(node, ast.With):
            caught = _NONE if all(map(source.lets_pass, node.items)) else after
            inside = self._guarded(node.body, after, caught)
            for item in reversed(node.items):
                inside = _before(item, inside)
            return inside | caught
        if isinstance(node, ast.Break | ast.Continue):
            return self._targets
        if isinstance(node, ast.Return | ast.Raise):
            return _before(node, _NONE)
        if isinstance(node, ast.Try | ast.TryStar | ast.Match | ast.AsyncWith | ast.AsyncFor):
            inside = frozenset(mentions([node]))
            for block in blocks(node):
                self._guarded(block, after, inside | after | self._targets)
            return inside | after
        return _before(node, after)

    def _guarded(self, body: Sequence[ast.stmt], after: Names, caught: Names) -> Names:
        before = self._caught
        self._caught = before | caught
        try:
            return self._block(body, after | caught)
        finally:
            self._caught = before

    def _loop(self, node: ast.While | ast.For, after: Names) -> Names:
        left = self._block(node.orelse, after) | after
        test = reads(node.test) if isinstance(node, ast.While) else _NONE
        # The flag that ends a loop whose breaks were taken out is read at its head.
        if (stop := getattr(node, "stop", None)) is not None:
            test |= {stop}
        around, head = self._targets, left | test
        while True:
            self._targets = head
            inside = self._block(node.body, head)
            begun = head | (_before(node.target, inside) if isinstance(node, ast.For) else inside)
            if begun == head:
                break
            head = begun
        self._targets = around
        self._after[id(node)], self._left[id(node)] = head, after
        return head | reads(node.iter) if isinstance(node, ast.For) else head


def reads(node: ast.AST) -> Names:
    """The names that a node reads, those of functions inside of it too."""
    names = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))
    return frozenset(each.id for each in names if not isinstance(each.ctx, ast.Store))


def _before(node: ast.AST, after: Names) -> Names:
    """What is read from an expression or a plain statement on, by what is read after it."""
    parts: Sequence[ast.AST] = list(ast.iter_child_nodes(node))
    at_times: Sequence[ast.AST] = ()
    match node:
        case ast.Name():
            return after - {node.id} if isinstance(node.ctx, ast.Store) else after | {node.id}
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return (after - {node.name}) | reads(node)
        case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return after | reads(node)  # a walrus sets its name where there is an item
        case ast.AugAssign():
            return _before(node.value, after) | frozenset(mentions([node.target]))
        case ast.IfExp():
            return _before(node.test, _before(node.body, after) | _before(node.orelse, after))
        case ast.Assert():
            return _before(node.test, after | (reads(node.msg) if node.msg else _NONE))
        case ast.BoolOp():
            parts, at_times = node.values[:1], node.values[1:]
        case ast.Compare():
            parts, at_times = [node.left, node.comparators[0]], node.comparators[1:]
        # In the order in which they are computed.
        case ast.Assign():
            parts = [node.value, *node.targets]
        case ast.NamedExpr() | ast.AnnAssign(value=ast.expr()):
            parts = parts[::-1]
        case ast.AnnAssign():
            return after | reads(node)
        case ast.Dict():
            parts = [each for pair in zip(node.keys, node.values, strict=True) for each in pair if each]
    skipped = after
    for part in reversed(at_times):
        after = skipped | _before(part, after)
    for part in reversed(parts):
        after = _before(part, after)
    return after
