"""Rewritten code does what the original does: one case per statement, values, errors and lines."""

# ruff: noqa: E501  # a case is a line

from __future__ import annotations

import ast
import copy
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from aotpipe.canonicalize.rewrite import staging, statements
from tests.programs import branching

Call = Callable[..., Any]

# Each text is the body of `f(a, b)`, which takes two numbers.
STATEMENTS = {
    "if": "if a > b: a = 1\nelif a: b = 2\nelse: a, b = b, a\nreturn a, b",
    "if without else": "if a: c = b\nreturn c if a else b",
    "variable without a value": "if a: c = b\nreturn c",
    "attribute of an element": """
        class C: n = 1
        c = [C(), C()]
        def put():
            c[0].n = 10
            return a
        c[a > b].n += b
        c[0].n += put()
        return c[0].n, c[1].n
    """,
    "while": "while a < 5:\n    a += 1\n    if a == b: break\nelse:\n    b = -1\nreturn a, b",
    "while with continue": "n = 0\nwhile n < 4:\n    n += 1\n    if n == a: continue\n    b += n\nreturn b",
    "continue of an outer loop": """
        for i in range(3):
            for j in range(3):
                if j == a: continue
                b += j
            if i == b: continue
            b += 10 * i
        return b
    """,
    "else of an inner loop that continues": """
        for i in range(3):
            for j in range(a):
                if j == b: break
            else:
                continue
            return i, j
        return b
    """,
    "for": "for i in range(a):\n    b += i\nelse:\n    b *= 2\nreturn b, i",
    "for over several": "for i, (j, k) in [(a, (b, 1)), (b, (a, 2))]: a += i * j - k\nreturn a",
    "for ends its iterator where it breaks": "it = iter(range(9))\nfor i in it:\n    if i >= a: break\nreturn list(it)",
    "return in a loop": "for i in range(5):\n    for j in range(3):\n        if i * j == a: return i, j\nreturn b",
    "return in an endless loop": "while True:\n    a += 1\n    if a > b: return a",
    "return in an else": "for i in range(a):\n    if i == b: break\nelse:\n    return 'else'\nreturn 'break'",
    "return from nested branches": "if a:\n    if b: return 1\n    a = 5\nif a > b: return 2\nb += a\nreturn a, b",
    "return nothing": "if a:\n    if b: return\n    b = 3\n    return b",
    "code after a return": "for i in range(a):\n    return i\n    a = 2\nreturn b\nb = 3",
    "and, or, not": "return (a and b), (a or b), not a, (a and b or 3), not (a or b)",
    "operands that are not reached": "return a and 1 / a, b or 1 / b",
    "chained comparison": "return 0 < a < b <= 3, a == b == 1 != 2",
    "conditional expression": "return (a if a > b else b) if b else 1 / a",
    "walrus": "if (c := a + 1) > b: b = c\nwhile (b := b - 1) > 0 and (d := b): pass\nreturn a, b, c",
    "walrus in a comprehension": "if a: x = [c for i in range(3) if (c := i * b)]\nreturn c, x",
    "augmented": "x = y = [a]\nif a:\n    x += [b]\n    a -= 1\n    b **= 2\nreturn x, y, x is y, a, b",
    "augmented items": "x = [a, b]\nfor i in range(2): x[i] += i\nreturn x",
    "attributes": "class A: count = 0\nx = A()\nfor i in range(a):\n    x.count += b\nreturn x.count, A.count",
    "types of variables": "if a:\n    c: int = b\n    d: list\n    c: int\nelse: c = 0\nreturn c",
    "type of a variable without a value": "d: int\nif a: d = 1\nreturn d",
    "global": "global SHARED\nif a: SHARED = b\nreturn SHARED",
    "global declared in a branch": "if a:\n    global SHARED\n    SHARED = b\nSHARED += 1\nreturn SHARED",
    "nonlocal": "n = 0\ndef g():\n    nonlocal n\n    if a: n += b\nfor _ in range(2): g()\nreturn n",
    "nonlocal declared in a branch": """
        n = 0
        def g():
            if a:
                nonlocal n
                n += b
            return n
        return g(), n
    """,
    "closures": "fs = []\nfor i in range(3):\n    j = i\n    fs.append(lambda: i + j + a)\nreturn [g() for g in fs]",
    "closure of a loop's own variable": "gs = []\nfor i in range(3):\n    j = i\n    gs.append(j for _ in '1')\nreturn [*map(list, gs)]",
    "recursion": "def g(n):\n    if n <= 0: return a\n    return g(n - 1) + b\nreturn g(3)",
    "default values": "def g(n=a, *, m=b):\n    if n: m += 1\n    return n, m\na = 7\nreturn g(), g(0), g(m=2)",
    "decorators of an inner function": """
        def twice(g):
            return lambda n: g(g(n))
        @twice
        def g(n):
            if n: return n + b
            return a
        return g(a)
    """,
    "a generator inside": "def g():\n    for i in range(a):\n        if i != b: yield i\nreturn list(g())",
    "locals": "if a: c = b\nfor i in range(2): pass\nreturn dict(locals()), [d := b], sorted(vars())",
    "locals in a branch": "if a:\n    c = b\n    b = {k: v for k, v in locals().items() if k != 'a'}\nreturn b",
    "try": "try:\n    if a: c = 1 / b\nexcept ZeroDivisionError as e:\n    c = str(e)\nfinally:\n    a = 9\nreturn a",
    "try in a loop": "for i in range(3):\n    try:\n        if i == a: continue\n        b += 1 // i\n    except ArithmeticError: b = 7\nreturn b",
    "return in try": "if b:\n    try:\n        if a: return 1\n    finally: a += 1\nreturn a",
    "raise": "if a > b: raise KeyError(a)\nreturn b",
    "assert": "assert a < b, (a, b)\nreturn a",
    "assert with a walrus": "assert a < b, (c := a)\nreturn a",
    "with": "import contextlib\nfor i in range(2):\n    with contextlib.nullcontext(a) as c:\n        if c: break\nreturn i, c",
    "match": """
        if a:
            match {'x': a, 'y': b}:
                case {'x': 1 as one, **rest} if not b: c = one, rest
                case {'x': int(x)}: c = x and b
        return c
    """,
    "del": "c = a\nif a: del c\nreturn c",
    "import": "if a: import math as m\nreturn m.floor(b)",
    "class": "if a:\n    class A:\n        x = b if a > 1 else 0\nreturn A.x",
    "comprehensions": "return [i and j for i in range(a) if not i == b or i for j in (b,)], {i: i < a < b for i in (1,)}",
    "docstring": "'''It says.'''\nif a: b = 1\nreturn b",
    "deep": "\n".join(f"if a == {i}: return {i}" for i in range(40)) + "\nreturn b",
    "many paths": "\n".join(f"if a > {i}:\n    if b > {i}: return {i}" for i in range(12)) + "\nreturn b",
}


def module(tmp_path: Path, text: str) -> ModuleType:
    return branching.load("SHARED = 0\n" + textwrap.dedent(text), tmp_path / "case.py")


def result(function: Call, *given: Any) -> Any:
    try:
        return function(*copy.deepcopy(given))
    except Exception as error:
        return type(error).__mro__[-4 if isinstance(error, NameError) else 0], error.args[:1]


def swapped(function: Any) -> Any:
    code = staging.rewritten(function)
    assert code is not None
    return staging.swapped({function: code})


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement(name: str, tmp_path: Path) -> None:
    body = textwrap.indent(textwrap.dedent(STATEMENTS[name]).strip(), "    ")
    made = module(tmp_path, f"def f(a, b):\n{body}\n")
    calls = [(a, b) for a in (0, 1, 2, 4) for b in (0, 1, 3)]
    expected = [result(made.f, *call) for call in calls]
    made.SHARED = 0
    code = staging.rewritten(made.f)
    assert code is not None
    with staging.swapped({made.f: code}):
        got = [result(made.f, *call) for call in calls]
        assert [without_names(each) for each in got] == [without_names(each) for each in expected]


def without_names(found: Any) -> Any:
    """Python words a variable without a value by where it stands."""
    return NameError if isinstance(found, tuple) and found[:1] == (NameError,) else found


METHODS = """
    class Base:
        def __init__(self, n): self.n = n
        def get(self): return self.n

    class Model(Base):
        def __init__(self, n):
            if n: super().__init__(n)
            else: super().__init__(-1)
            self.__own = 3

        def get(self):
            if self.n > 0:
                self.__own += super().get()
            class Inner(Base):
                def __init__(inner, n):
                    if n: super().__init__(n + 10)
            return self.__own, Inner(1).get()

        def __hidden(self, k=2, *more, **named):
            for each in more:
                if each > k: self.__own = each
            return self.__own, named, __class__.__name__

        def call(self): return self.__hidden(1, 5, x=2)
"""


@pytest.mark.parametrize("name", ["__init__", "get", "_Model__hidden"])
def test_methods_keep_super_and_private_names(name: str, tmp_path: Path) -> None:
    made = module(tmp_path, METHODS)
    function = vars(made.Model)[name]

    def values() -> Any:
        return made.Model(2).get(), made.Model(0).get(), made.Model(4).call()

    expected = values()
    with swapped(function):
        assert values() == expected


def test_a_decorated_function_is_rewritten_under_its_decorator(tmp_path: Path) -> None:
    text = """
        import functools

        def twice(g):
            @functools.wraps(g)
            def inner(n):
                return g(g(n))
            return inner

        @twice
        def f(n):
            if n > 1: return n - 1
            return n + 5
    """
    made = module(tmp_path, text)
    expected = [made.f(n) for n in range(5)]
    with swapped(made.f.__wrapped__):
        assert [made.f(n) for n in range(5)] == expected


def test_a_closure_keeps_its_cells_and_defaults(tmp_path: Path) -> None:
    text = """
        def make(start):
            total = start
            def add(n, by=2):
                nonlocal total
                if n: total += n * by
                return total
            return add
    """
    made = module(tmp_path, text)
    add = made.make(10)
    with swapped(add):
        assert [add(1), add(0), add(2, by=3)] == [12, 12, 18]
    assert add(1) == 20


def test_a_traceback_has_the_lines_of_the_source(tmp_path: Path) -> None:
    text = """
        def f(a):
            if a:
                for i in range(3):
                    while True:
                        a = a / i
            return (
                a
            )
    """
    made = module(tmp_path, text)

    def lines() -> list[int | None]:
        with pytest.raises(ZeroDivisionError) as caught:
            made.f(1)
        frames = traceback.extract_tb(caught.tb)
        return [frame.lineno for frame in frames if frame.filename == made.__file__]

    expected = lines()
    with swapped(made.f):
        assert lines()[-1] == expected[-1] == 7


@pytest.mark.parametrize("body", ["a = yield a", "return globals()", "return [eval('a')]"])
def test_what_depends_on_its_own_frame_is_left(body: str) -> None:
    tree = ast.parse(f"def f(a):\n    if a: b = 1\n    {body}").body[0]
    assert isinstance(tree, ast.FunctionDef)
    assert statements.rewrite(tree) is None


def carried(text: str) -> list[tuple[str, ...]]:
    """The variables of each region of a function."""
    tree = ast.parse(textwrap.dedent(text)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    written = statements.rewrite(tree)
    assert written is not None
    calls = [node for node in ast.walk(written) if isinstance(node, ast.Call) and len(node.args) > 4]
    labels = [call.args[-3] for call in calls]
    return [tuple(each.value for each in label.elts) for label in labels if isinstance(label, ast.Tuple)]


def test_a_name_that_only_a_body_uses_stays_in_it() -> None:
    text = """
        def f(x):
            while x.sum() < 3:
                step = x * 2
                if step.max() > 1:
                    part = step + 1
                    x = x + part
            return x
    """
    assert carried(text) == [("x",), ("x",)]


def test_a_name_that_a_trip_takes_from_the_one_before_is_carried() -> None:
    text = """
        def f(x):
            while x.sum() < 3:
                if x.max() > 1: step = x
                else: x = x + step
            return x
    """
    assert carried(text)[0] == ("step", "__aotpipe_is_set_step__", "x")


def test_what_an_inner_function_sets_is_a_variable_of_every_region() -> None:
    text = """
        def f(x):
            n = 0
            def g():
                nonlocal n
                n = n + 1
            if x.sum() > 0: g()
            return n
    """
    assert carried(text) == [("n",)]


def test_a_rewritten_function_is_of_the_same_kind(tmp_path: Path) -> None:
    made = module(tmp_path, "def f(a, /, b=1, *c, d=2, **e):\n    if a: b = 2\n    return a, b, c, d, e\n")
    assert isinstance(made.f, FunctionType)
    with swapped(made.f):
        assert made.f(1, 3, 4, d=5, g=6) == (1, 2, (4,), 5, {"g": 6})
        assert made.f(0) == (0, 1, (), 2, {})
        assert made.f.__name__ == made.f.__code__.co_name == "f"
