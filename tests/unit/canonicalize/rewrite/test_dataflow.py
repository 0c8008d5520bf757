"""What is read after a branch or a loop; and that only this needs one form on every path."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest
import torch

from aotpipe.canonicalize.rewrite.dataflow import Liveness, assigned, mentions, reference
from aotpipe.canonicalize.rewrite.jump_elimination import guarded
from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check

# The first branch or loop of each, and what of a, b, c is read after it.
CASES = {
    "nothing": ("if a: b = 1\nreturn a", "a"),
    "what is returned": ("if a: b = 1\nreturn b", "b"),
    "what is set before it is read": ("if a: b = 1\nb = 2\nreturn b", ""),
    "what only one path sets": ("if a: b = 1\nif c: b = 2\nreturn b", "bc"),
    "what both paths set": ("if a: b = 1\nif c: b = 2\nelse: b = 3\nreturn b", "c"),
    "what is added to": ("if a: b = 1\nb += 1\nreturn 0", "b"),
    "an element that is set": ("if a: b = 1\nb[0] = 1\nreturn 0", "b"),
    "an attribute that is set": ("if a: b = 1\nb.x = 1\nreturn 0", "b"),
    "what a function inside reads": ("if a: b = 1\nreturn lambda: b", "b"),
    "a walrus need not be reached": ("if a: b = 1\na and (b := 1)\nreturn b", "ab"),
    "a walrus that is reached": ("if a: b = 1\nc = (b := a) + b\nreturn b", "a"),
    "what is read before a walrus": ("if a: b = 1\nreturn b + (b := a)", "ab"),
    "a walrus before its reader": ("if a: b = 1\na and (b := c) and b\nreturn 0", "ac"),
    "a walrus that a chain need not reach": ("if a: b = 1\na < 1 < (b := c)\nreturn b", "abc"),
    "a walrus of one side": ("if a: b = 1\nc = (b := 1) if a else 0\nreturn b", "ab"),
    "a walrus for each item": ("if a: b = 1\n[(b := 1) for _ in c]\nreturn b", "bc"),
    "a walrus in a dict": ("if a: b = 1\nreturn {1: b, (b := a): 2}", "ab"),
    "what is added to with a walrus": ("if a: b = 1\nb += (b := a)\nreturn b", "ab"),
    "a branch that is always taken": ("if a: b = 1\nif c: b = 2\nelif True: b = 3\nreturn b", "c"),
    "what a loop's next iteration reads": ("while a:\n    b = c\n    c = 1", "ac"),
    "what a loop's iteration sets first": ("while a:\n    b = a\n    a = b", "a"),
    "what is read after a loop": ("for a in c: b = a\nreturn b", "b"),
    "a loop's item": ("for a in c: b = a\nreturn 0", ""),
    "a loop's item, read after it": ("for a in c: b = a\nreturn a", "a"),
    "what is read at a break's target": ("if a: b = 1\nreturn 0", ""),
    "what is read in a loop's else": ("for a in c: b = a\nelse: return b\nreturn 0", "b"),
    "what a handler reads": ("try:\n    if a: b = 1\n    b = c\nexcept E: return b", "abcE"),
    "what is read after a with": ("with c:\n    if a: b = 1\n    b = 2\nreturn b", "b"),
    "what is read after a with of torch": ("with torch.f():\n    if a: b = 1\n    b = 2\nreturn b", ""),
    "what is set by a with": ("if a: b = 1\nwith torch.f() as b: return b", ""),
    "what a with of anything sets": ("if a: b = 1\nwith c as b: pass\nreturn b", "bc"),
    "what a finally reads": ("try:\n    if a: b = 1\n    return 0\nfinally: print(b)", "ab"),
    "what is deleted": ("if a: b = 1\ndel b", "b"),
}


@pytest.mark.parametrize(("body", "wanted"), CASES.values(), ids=list(CASES))
def test_what_is_read_afterwards(body: str, wanted: str):
    function = ast.parse("def f(a, b, c):\n" + textwrap.indent(body, "    ")).body[0]
    assert isinstance(function, ast.FunctionDef)
    first = next(node for node in ast.walk(function) if isinstance(node, ast.If | ast.While | ast.For))
    assert set(Liveness(function).after(first) or ()) - {"print", "torch", "E"} == set(wanted) - {"E"}


def test_what_is_read_before_it_is_set_and_when_a_loop_is_done():
    body: Any = ast.parse("a = x\nwhile test(n):\n    b = a\n    a = b + 1\n    n = n + 1\nd = c").body
    liveness = Liveness(ast.Module(body, []))
    assert liveness.first == {"x", "test", "n", "c"}
    assert liveness.left(body[0]) == {"a", "test", "n", "c"}
    assert liveness.left(body[1]) == {"c"}
    assert liveness.after(body[1]) == {"a", "test", "n", "c"}


def test_a_flag_that_ends_a_loop_is_read_at_its_head():
    body: Any = ast.parse("for i in r:\n    if i: stop = i").body
    body[0].stop = "stop"
    assert Liveness(ast.Module(body, [])).left(body[0].body[0]) == {"stop"}


def test_a_branch_that_jumps_goes_on_at_the_jumps_target():
    text = "def f(a, b):\n    for c in a:\n        if c: b = 1; break\n        b = 2\n    return b"
    function: Any = ast.parse(text).body[0]
    assert "b" in (Liveness(function).after(function.body[0].body[0]) or ())


def test_a_branch_that_skips_under_a_flag_goes_on_at_the_jumps_target_too():
    text = """
        def f(a, b, c):
            while a:
                a = a - 1
                if b: break
                c = b
                b = c
            return a
    """
    function: Any = ast.parse(textwrap.dedent(text)).body[0]
    liveness = Liveness(function)
    guard = guarded(function.body[0].body, ast.Break, "flag")[-1]
    assert isinstance(guard, ast.If)
    assert liveness.after(guard) == {"a", "b"}


def test_of_what_was_made_since_nothing_is_known():
    function: Any = ast.parse("def f(a): return a").body[0]
    assert Liveness(function).after(ast.If(ast.Constant(1), [], [])) is None


UP, DOWN = torch.full((2, 3), 0.5), torch.full((2, 3), -0.5)


def test_what_nothing_reads_may_differ_between_the_paths():
    def scaled(x: torch.Tensor) -> torch.Tensor:
        part = x
        if x.sum() > 0:
            part = torch.cat([x, x], 0)
            part = part * part
            y = part.sum()
        else:
            part = "none"
            y = x.sum()
        return y * 2

    check(scaled, (UP,), (DOWN,))


def test_what_each_trip_sets_first_is_not_carried():
    def grown(x: torch.Tensor) -> torch.Tensor:
        part = None
        while x.sum() < 9:
            part = torch.cat([x, x, x], 1)
            if part.max() > 1:
                part = part[:1]
                x = x + part.mean()
            x = x + 1
        part = x * 2
        return x + part

    check(grown, (UP,), (DOWN,), (UP * 9,))


def test_what_follows_a_break_may_change_its_shape():
    def stepping(x: torch.Tensor) -> torch.Tensor:
        rows = x
        y = x.sum()
        while y < 20:
            y = y + 1
            if y > 15:
                break
            rows = y.expand(4)
            y = y + rows.sum() * 0.1
        return y

    check(stepping, (UP,), (DOWN,), (UP * 9,))


def test_what_a_later_trip_reads_is_carried():
    def running(x: torch.Tensor) -> torch.Tensor:
        last = x * 0
        for _ in range(5):
            y = x + last
            last = y * 0.5
            if y.sum() > 4:
                x = y
                break
            x = x + 1
        return x

    check(running, (UP,), (DOWN,), (UP * 9,))


def test_what_statements_assign_and_may_change():
    text = "a = b\nself.n += 1\nx[0] = 1\nf(y)\n(w := 2)\n[q for q in z]\nv.m().n(1).o()"
    body = ast.parse(f"{text}\ng = lambda p: p + u").body
    found = assigned(body)
    assert found.names == ("a", "w", "g")
    assert found.all == ("a", "w", "g", "self.n")
    assert set(found.touched) == {"self", "x", "f", "y", "b", "v", "z", "u"}
    assert found.without({"a", "self"}).all == ("w", "g")


def by_a_comprehension(x):
    log = []
    if x.sum() > 0:
        [log.append(v) for v in range(3)]
    return len(log)


def by_a_lambda(x):
    log = [0]
    if x.sum() > 0:
        add = lambda: log.append(1)  # noqa: E731
        add()
    return len(log)


def by_a_function_inside(x):
    log = {"a": 0}

    if x.sum() > 0:

        def add():
            log["a"] += 1

        add()
    return log["a"]


def by_what_map_calls(x):
    log = []
    if x.sum() > 0:
        list(map(lambda v: log.append(v), range(3)))  # noqa: C417
    return len(log)


def of_one_of_two(x):
    few, many = [1], [1, 2]
    if x.sum() > 0:
        (few if x.shape[0] > 9 else many).append(3)
    return len(few), len(many)


def of_a_list_or_another(x):
    log, other = [], [5]
    if x.sum() > 0:
        (log or other).append(3)
        [log, other][0].append(4)
        {"log": log}["log"].append(6)
    return len(log), len(other)


def last_of(items, others):
    return items if len(items) > len(others) else others


def of_what_a_function_gives(x):
    log, other = [1, 2], [5]
    if x.sum() > 0:
        last_of(log, others=other).append(3)
    return len(log), len(other)


CHANGES = (
    *(by_a_comprehension, by_a_lambda, by_a_function_inside, by_what_map_calls),
    *(of_one_of_two, of_a_list_or_another, of_what_a_function_gives),
)


@pytest.mark.parametrize("model", CHANGES)
def test_what_is_changed_inside_of_a_branch_is_changed_on_its_path_alone(model):
    check(model, (UP,), (DOWN,))


def a_list_by_one_path_of_an_expression(x):
    found = [1, 2] if x[0] > 0 else [3, 4, 5]
    if x[1] > 0:
        found.append(7)
    else:
        found[0] = 8
    return sum(found), len(found)


def keys_by_one_path_of_an_expression(x):
    found = dict({0: "a", 3: "b", 4: "c"} if x[0] > 0 else {1: "b", 2: "c"})
    if x[1] > 0:
        found.pop(3, None)
    else:
        found.pop(4, None)
    if x[2] > 0:
        del found[0]
    return sum(found), len(found)


@pytest.mark.parametrize("model", [a_list_by_one_path_of_an_expression, keys_by_one_path_of_an_expression])
def test_what_only_a_path_sets_is_changed_on_its_path_alone(model):
    """Where a read asks whether the variable is set, the method's object is a conditional expression."""
    signs = [[1.0, 1.0, -1.0], [-1.0, 1.0, -1.0], [1.0, -1.0, -1.0], [-1.0, -1.0, -1.0]]
    cases = [*signs, [1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]]
    check(model, *((torch.tensor(each),) for each in cases))


def test_a_function_inside_of_a_branch_takes_from_no_iterator():
    def model(x):
        items = reversed([1.0, 2.0])
        if x.sum() > 0:
            x = (lambda: x * next(items))()
        return x * next(items)

    with pytest.raises(ExportFailed, match="takes from an iterator: items"):
        check(model, (UP,))


def test_an_attribute_of_what_is_assigned_is_anothers():
    assert assigned(ast.parse("a = f()\na.n = 1").body).all == ("a",)


def test_mentions_count_nested_scopes():
    assert mentions(ast.parse("def f(a): return a + b").body) == {"f": 1, "a": 2, "b": 1}


def test_what_is_read_before_it_is_set():
    assert "a" not in Liveness(ast.parse("a = 1\nb = a")).first
    assert "a" in Liveness(ast.parse("b = a\na = 1")).first
    assert "a" in Liveness(ast.parse("if c:\n  a = 1\nb = a")).first


def test_a_path_is_an_expression():
    assert ast.unparse(reference("a.b.c", ast.Load())) == "a.b.c"
