"""`(name := value)` where an operator computes it at times only, and in the test of a loop."""

from __future__ import annotations

import ast
import os
import textwrap
from collections import deque
from dataclasses import dataclass

import pytest
import torch

from aotpipe.canonicalize.operators import operators
from aotpipe.canonicalize.rewrite import desugaring, staging, statements
from aotpipe.canonicalize.rewrite.desugaring import Matches, Walrus, assigns
from tests.sweep import slow
from tests.unit.canonicalize.trace.agree import check

CASES = tuple(
    (torch.tensor(each),)
    for each in ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [0.1, -0.2, 0.05], [0.0, 0.0, 0.0], [5.0, -4.0, 0.5])
)


def halved(x):
    n = 0
    while (norm := x.norm()) > 1:
        x = x / 2 * norm / (norm + 0.1)
        n += 1
    return x, norm, n


def guarded(x):
    n, most = 0, -1
    while n < 5 and (norm := x.norm()) > 1 and (most := norm * 2) < 7:
        x = x / 2 * norm / (norm + 0.1)
        n += 1
        if n == 2:
            continue
        if norm < 1.5:
            break
    else:
        most = most + 100
    return x, norm, n, most


def ended(x):
    n = 0
    while (norm := x.norm()) > 0.5:
        x = x / 2
        n += 1
        if n > 2:
            break
    else:
        n += 100
    return x, norm, n


def chosen(x):
    most = -1
    y = x if (s := x.sum()) > 0 and (most := x.max()) > 2 else x * s
    z = s if (k := x[0]) > 0 or (k := x[1]) > 0 else k
    return y, s, most, z, k


def chained(x):
    if 0 < (s := x.sum()) < 5 and not (large := x.max() > 2):
        return s, large
    elif (s2 := x[0] * 2) > 1:  # noqa: RET505  # as people write it
        return s2, x[1] > 0
    return s + s2, x[0] > 0


def asserted(x):
    assert (most := x.abs().max()) < 4 or (most := most * 2) > 20  # noqa: RUF018
    return x * most


@pytest.mark.parametrize(
    "model",
    [halved, ended, pytest.param(guarded, marks=pytest.mark.slow), chosen, chained, asserted],
    ids=lambda model: model.__name__,
)
def test_it_is_part_of_the_graph(model):
    check(model, *CASES)


def in_order(items, log):
    """Each value is computed once, in order, and only where it is reached."""

    def said(value):
        log.append(value)
        return value

    more = iter(items)
    got = []
    while (item := next(more, None)) is not None and (left := said(item)) != 3:
        got.append(left)
        if left == 2:
            continue
    a = said(1) + (b := said(2)) if (c := said(0)) or (d := said(5)) else 0
    e = (c := c + 1) < said(2) < (f := said(c + 2)) < (g := said(1)) < said(9)
    k = [said(a), *[(h := said(b)) and (h := said(h + 1))], h]
    return got, item, left, a, b, c, d, e, f, g, h, k, [q for v in got if (q := v * 2)]


def test_on_plain_values_it_is_what_it_was():
    code = staging.rewritten(in_order)
    assert code is not None
    for items in ([1, 2, 3, 4], [1, 2], [3]):
        logs: list[list[int]] = [[], []]
        wanted = in_order(items, logs[0])
        with staging.swapped({in_order: code}):
            assert in_order(items, logs[1]) == wanted
        assert logs[0] == logs[1]


def test_what_is_always_computed_is_left():
    body = ast.parse("y = f((n := 2), [m for v in w if (m := v)])").body
    assert Walrus().lower(body) == body


def test_a_walrus_of_a_comprehension_is_no_own_one():
    assert not assigns(ast.parse("any((q := v) > 1 for v in x)", mode="eval").body)
    assert assigns(ast.parse("a and (b := c)", mode="eval").body)


HEADER = "def f(v, w=0):\n    got = []\n"


def both(body: str) -> tuple[object, object, bool]:
    """A function as it is and rewritten, and whether a match is left in it."""
    text = HEADER + textwrap.indent(textwrap.dedent(body), "    ") + "    return got\n"
    tree = ast.parse(text)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    Matches().rewrite(function)
    left = any(isinstance(node, ast.Match) for node in ast.walk(tree))
    spaces: list[dict[str, object]] = [{}, {}]
    exec(text, spaces[0])
    exec(compile(ast.fix_missing_locations(tree), "f", "exec"), spaces[1])
    return spaces[0]["f"], spaces[1]["f"], left


PLAIN = """
match v:
    case 1 | 2:
        got.append("few")
    case None:
        got.append("none")
    case True:
        got.append("true")
    case -1.5 as number:
        got.append(number)
    case other if other == "a" and w:
        got.append(other)
    case "a":
        match w:
            case 0:
                got.append("inner")
    case _:
        got.append("rest")
"""


@pytest.mark.parametrize("value", [1, 2, 2.0, None, True, -1.5, "a", "b", 0])
@pytest.mark.parametrize("other", [0, 1])
def test_values(value: object, other: int):
    plain, rewritten, left = both(PLAIN)
    assert not left
    assert plain(value, other) == rewritten(value, other)  # type: ignore[operator]


def test_alternatives_that_set_names_stay_where_a_guard_looks_at_the_first_that_fits():
    plain, rewritten, left = both(
        "match v:\n    case [a, 1] | [1, a] if a > 1:\n        got.append(a)\n    case _:\n        pass\n"
    )
    assert left
    for value in ([2, 1], [1, 2], [1, 1]):
        assert plain(value) == rewritten(value)  # type: ignore[operator]


@dataclass
class Point:
    x: object
    y: object = 0


def of_classes_and_mappings(v):
    rest = None
    match v:
        case Point(0, y=[a, *_]):
            got = "begins", a
        case Point(x=x, y=0) | Point(0, x):
            got = "on an axis", x
        case Point() | None:
            got = "a point or none"
        case {"kind": "scale", "by": int(n) | float(n)}:
            got = "scale", n
        case {"kind": str(kind), **rest} if len(rest) > 1:
            got = kind, rest
        case {}:
            got = "a dict"
        case bool() | str():
            got = "a bool or a text"
        case int(n) if n > 3:
            got = "large", n
        case _:
            got = "other"
    return got, rest


def test_classes_and_mappings() -> None:
    code = staging.rewritten(of_classes_and_mappings)
    assert code is not None
    scales: list[object] = [{"kind": "scale", "by": by} for by in (1, 1.5, "x", True)]
    points: list[object] = [
        Point(0, [1, 2]),
        Point(3),
        Point(0, 4),
        Point(1, 1),
        Point(0, []),
        Point("a", "b"),
    ]
    others: list[object] = [
        None,
        {"kind": "a", "b": 1, "c": 2},
        {"kind": "a"},
        {},
        {"kind": 1},
        True,
        "x",
        3,
        5,
        [1],
    ]
    for value in (*scales, *points, *others):
        wanted = of_classes_and_mappings(value)
        with staging.swapped({of_classes_and_mappings: code}):
            assert of_classes_and_mappings(value) == wanted, value


def taken_apart_in_a_graph(x):
    event = ("key", {"code": int(x[0]), "mods": [1, 2]}, Point(0, x[1]))
    match event:
        case ("key", {"code": 0 | 1 as c, "mods": [m, *_], **rest}, Point(x=0, y=y)):
            return x * c + m + y + len(rest)
        case ("key", {"code": int(c)}, Point()) if c > 4:
            return -x * c
        case _:
            return x * 0


def walrus_before_the_end(x):
    """It was wrong with no word: the walrus had the value of the last item."""
    last = x[0]
    found = any((last := v) > 2.5 for v in x)
    kept = [y for v in x.tolist() if v > 1 and (y := v * 2) > 3]
    return found, last, len(kept), (y if kept else -1.0)


def walrus_in_a_branch(x):
    total = 0
    for i in range(3):
        if x[i] > 0 and any((hit := v) > 2.5 for v in x[: i + 1]):
            total = total + hit
    return total, [total := total + v for v in x.tolist()][-1], total


@pytest.mark.parametrize(
    "model", [slow(taken_apart_in_a_graph), slow(walrus_before_the_end), walrus_in_a_branch]
)
def test_matches_and_walruses_of_comprehensions_are_part_of_the_graph(model):
    x = torch.tensor([1.0, 3.0, 3.0, 2.0])
    check(model, *((each,) for each in (x, -x, x * torch.tensor([5.0, -1, -1, 1]), x * 0, x.flip(0))))


def taken_apart(v, w):
    a = b = rest = None
    match v:
        case []:
            got = "none"
        case 1 | 2 as a if w:
            got = "number"
        case [1, (2 | 3) as b]:
            got = "two"
        case [1, [a, *rest], "x"]:
            got = "nested"
        case [a, *rest, b] if a == b:
            got = "same ends"
        case (a, _):
            got = "any two"
        case [0, *_]:
            got = "zero"
        case _:
            got = "rest"
    return got, a, b, rest


def test_sequences() -> None:
    code = staging.rewritten(taken_apart)
    assert code is not None
    values = [
        [],
        1,
        2,
        5,
        "",
        "ab",
        b"x",
        [1],
        [1, 2],
        (1, 3),
        [1, 4],
        [1, [5, 6], "x"],
        [1, [], "x"],
        [3, 3],
    ]
    for v in [*values, [0], [0, 1, 2], deque([4, 5, 4]), range(2), range(3), {1: 2}, None, iter([1, 2])]:
        for w in (0, 1):
            wanted = taken_apart(v, w)
            with staging.swapped({taken_apart: code}):
                assert taken_apart(v, w) == wanted


def taken_apart_by_tensors(x):
    match [x[0].item(), (x[1].item(), x[2].item())]:
        case [1.0, (k, _)]:
            return x + k
        case [a, (b, _) as pair] if a < b:
            return x - a * len(pair)
        case [_, *rest]:
            return x * rest[0][1]


def test_sequences_in_a_graph() -> None:
    check(taken_apart_by_tensors, *CASES)


def test_plain_yields_are_written_anew() -> None:
    (node,) = ast.parse("def f(x):\n    yield x\n    yield from (x, x)\n    return").body
    assert isinstance(node, ast.FunctionDef)
    written = desugaring.split_generator(node, lambda function: function, lambda function: function)
    assert written is not None
    assert not desugaring.is_generator(written)


@pytest.mark.parametrize(
    "body", ["got = yield x", "print((yield))", "print((yield from x))"], ids=["sent", "nested", "delegated"]
)
def test_a_yield_with_a_value_is_left_alone(body: str) -> None:
    (node,) = ast.parse(textwrap.dedent(f"def f(x):\n    {body}")).body
    assert isinstance(node, ast.FunctionDef)
    assert desugaring.is_generator(node)
    assert statements.rewrite(node) is None


def imports_in_branches(x):
    if x.sum() > 0:
        from math import pi
        from textwrap import dedent as kept

        x = x * pi * len(kept(" a"))
    else:
        import math
        import os.path as path

        x = x + math.pi + len(path.sep)
    while x.sum() < 40:
        import math

        x = x + math.e
    return x


def test_imports_in_a_graph() -> None:
    check(imports_in_branches, *CASES)


def test_a_name_that_a_module_lacks_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="cannot import name 'nothing' from 'math'"):
        operators.imported("math", "nothing")
    assert operators.imported("os.path", None) is os
    assert operators.imported("os.path", "") is os.path
    assert operators.imported("xml", "dom") is operators.imported("xml.dom", "")


def test_what_an_imported_module_lacks_itself_is_raised_as_it_is(tmp_path, monkeypatch) -> None:
    """It was said that the package has no such name, and a handler of ModuleNotFoundError did not see it."""
    package = tmp_path / "package_with_a_lack"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        operators.imported(package.name, "part")
    with pytest.raises(ImportError, match="cannot import name 'other'") as caught:
        operators.imported(package.name, "other")
    assert not isinstance(caught.value, ModuleNotFoundError)
