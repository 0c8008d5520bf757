"""What stands in statements, what is known of their variables, and tuples by their parts."""

from __future__ import annotations

import ast

import pytest
import torch

from aotpipe.canonicalize.trace.decisions import Decision
from aotpipe.canonicalize.values.abstract_values import UNDEFINED, join_values
from aotpipe.passes.codegen import statements
from aotpipe.passes.codegen.expression_rewrites import Unsupported
from aotpipe.passes.codegen.statements import Counter, counter
from aotpipe.passes.codegen.syntax import name


def body(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def test_branches_that_only_set_variables():
    found = statements.simple(body("a = b\nc = True"))
    assert found is not None
    assert list(found) == ["a", "c"]
    assert statements.simple(body("a = b + 1")) is None
    assert statements.simple(body("a = b\nb = c")) is None
    assert statements.simple(body("pass")) == {}


def test_one_of_two_values():
    test, a, b = expression("t"), expression("a"), expression("b")
    true, false = expression("True"), expression("False")
    shown = [statements.select(test, yes, b) for yes in (a, true, false)]
    assert [ast.unparse(each) for each in shown] == ["torch.where(t, a, b)", "b | t", "b & ~t"]


def test_texts_of_exceptions():
    [raised] = body("raise ValueError(f'at {x} of 3')")
    assert isinstance(raised, ast.Raise)
    assert statements.raised_text(raised) == "ValueError: at ... of 3"
    assert statements.raises(body("print(1)\nself.log.info('wrong')\nraise ValueError"))
    # A list may be called `log`.
    assert not statements.raises(body("log.append(x)\nraise ValueError"))
    assert not statements.raises(body("x = 1\nraise ValueError"))


def test_what_does_nothing_and_what_is_handed_on():
    assert [statements.is_nothing(each) for each in body("pass\na = a\na = b")] == [True, True, False]
    assert statements.is_handed_on("a", body("b = 1"))
    assert statements.is_handed_on("a", body("a = b"))
    assert not statements.is_handed_on("a", body("a = b + 1"))


def test_flags_are_named_as_people_would():
    [function] = body("def f(stop):\n    __aotpipe_stop_1 = __aotpipe_result\n    return __aotpipe_stop_1")
    assert isinstance(function, ast.FunctionDef)
    made = ast.unparse(statements.renamed(function))
    assert "stop_2 = result" in made
    assert ast.unparse(statements.truth(expression("not a"))) == "~a"


def made(text: str) -> Counter:
    [node] = ast.parse(text).body
    assert isinstance(node, ast.For)
    return counter(node)


def test_a_range_counts_under_the_loops_own_name():
    found = made("for i in range(n):\n    x = i")
    assert (found.index, ast.unparse(found.test), ast.unparse(found.begin), found.step) == (
        "i",
        "i < n",
        "0",
        1,
    )
    found = made("for i in range(a, b, -2):\n    x = i")
    assert (ast.unparse(found.test), ast.unparse(found.begin), found.step) == ("i > b", "a", -2)


def test_another_name_where_that_is_not_free():
    assert made("for _ in range(3):\n    x = 1").index == "index"
    assert made("for i in range(3):\n    i = i + 1").index == "index"


def test_an_end_that_is_computed_is_computed_once():
    found = made("for i in range(len(x)):\n    y = i")
    assert [ast.unparse(ast.fix_missing_locations(each)) for each in found.before] == ["count = len(x)"]
    assert ast.unparse(found.test) == "i < count"


@pytest.mark.parametrize("items", ["x", "range(f(x), 3)", "range(0, 3, s)"])
def test_what_is_no_counter(items: str):
    with pytest.raises(Unsupported):
        made(f"for i in {items}:\n    y = i")


X = torch.ones(2)
NOTED = statements.Facts(
    Decision(
        kind="branch",
        path="m.py",
        line=1,
        names=("x", "pair", "flag", "thing", "number"),
        abstracts=(
            join_values([X, X + 1]),
            join_values([(X, 1), (X + 1, 2)]),
            join_values([True, True]),
            join_values([object] * 2),
            join_values([1, 2]),
        ),
        before=(X, None, True, None, 1),
        after=((X, (X, 1), True, None, 1), (X + 1, (X, 2), True, None, 2)),
    )
)


def test_forms_and_values():
    assert NOTED.form("y") is None
    assert (NOTED.parts("x"), NOTED.parts("pair"), NOTED.parts("y")) == (0, 2, 0)
    assert NOTED.after("pair", 1)[1] == 2
    assert NOTED.after("x", 5) is None
    node = ast.Pass()
    assert NOTED.is_constant("flag")
    assert ast.unparse(NOTED.literal("flag", node)) == "True"
    with pytest.raises(Unsupported, match="`thing` is an object"):
        NOTED.literal("thing", node)
    assert statements.Facts(None).form("x") is None


def test_tuples_go_part_by_part():
    assert statements.part_names("pair", 2) == ["pair_0", "pair_1"]
    assert [ast.unparse(each) for each in statements.parts_of(name("pair"), 2)] == ["pair[0]", "pair[1]"]
    [made] = statements.repacked({"pair": 2, "x": 0})
    assert ast.unparse(ast.fix_missing_locations(made)) == "pair = (pair_0, pair_1)"


NODE = ast.Pass()


def facts(*values: object) -> statements.Facts:
    abstract = join_values(list(values))
    return statements.Facts(Decision(kind="branch", path="m.py", line=1, names=("v",), abstracts=(abstract,)))


def formed(value: object, *others: object) -> str:
    return ast.unparse(facts(value, *others).formed("v", value, NODE))


def test_numbers_and_dtypes():
    assert formed(1, torch.tensor(3)) == "torch.tensor(v)"
    assert formed(1, torch.tensor(3.0)) == "torch.tensor(v, dtype=torch.float32)"
    assert formed(X.int(), X) == "v.to(torch.float32)"
    assert formed(X, X + 1) == "v"
    assert formed((X, 1), (X + 1, 2)) == "(v[0], torch.tensor(v[1]))"
    assert formed((X, X), (X + 1, X)) == "v"


def test_what_has_no_value_yet_is_zeros():
    made = facts(X, UNDEFINED).zeros("v", "on one path", NODE)
    assert ast.unparse(made) == "torch.zeros((2,), dtype=torch.float32)"
    with pytest.raises(Unsupported, match="`x` has no value on one path"):
        facts(X, UNDEFINED).zeros("x", "on one path", NODE)


def test_what_has_no_form():
    with pytest.raises(Unsupported, match="None on one path"):
        formed(X, None)
    with pytest.raises(Unsupported, match="takes the place of a tensor"):
        formed(1, X)


def test_kinds():
    assert [NOTED.is_one_tensor(each) for each in ("x", "pair", "flag", "y")] == [True, False, False, True]
    assert [NOTED.has_dims(each) for each in ("x", "number", "pair", "y")] == [True, False, False, False]


def test_what_a_statement_does_beside_setting_variables():
    def effect(text: str) -> str | None:
        return statements.effect(ast.parse(text).body[0])

    assert effect("x = self.total + y[0]") is None
    assert effect("print(x)") is None
    assert effect("self.total += 1") == "`self.total` is set"
    assert effect("for i in y:\n    kept[i] = 2") == "`kept[i]` is set"
    assert effect("log.append(x)") == "`log.append(x)` is called"
