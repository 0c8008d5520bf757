"""Values that have no common form on two paths: what comes of them is traced once for each."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass

import pytest
import torch

from aotpipe.canonicalize.rewrite import path_scopes
from aotpipe.canonicalize.trace import runtime_asserts
from aotpipe.canonicalize.values import trace
from aotpipe.errors import ExportFailed
from tests.unit.canonicalize.trace.agree import check

CASES = [
    (torch.tensor(each),) for each in ([3.0, 1.0, 2.0], [-1.0, 2.0, 0.5], [0.0, 9.0, 9.0], [-3.0, -1.0, 0.0])
]


@dataclass
class Scale:
    by: float


@dataclass
class Shift:
    by: float
    wrap: bool = False


def classes(x):
    def decide():
        if x.sum() > 10:
            return Shift(float(x.max()), wrap=True)
        return Shift(1.5) if x.min() < 0 else Scale(3.0)

    match decide():
        case Scale(by=by):
            return x * by
        case Shift(by=by, wrap=True):
            return (x + by) % 10
        case Shift(by=by):
            return x + by


def tuples_of_other_lengths(x):
    args, kwargs = ((2.0, 0.5), {"k": 3}) if x[0] > 0 else ((1.0,), {})

    def affine(scale, *more, k=1):
        return scale * x + sum(more) * k

    return affine(*args, **kwargs)


def partials(x):
    rule = functools.partial(torch.mul, x) if x[0] > 0 else functools.partial(torch.add, x, alpha=2)
    return rule(x[1])


def texts_and_numbers(x):
    found = []
    if x.sum() > 0:
        found.append("positive")
    else:
        found += [0.5, 1.5]
    return x + len(found)


def keys(x):
    stats = {}
    if x.sum() > 0:
        stats["a"] = x.max()
    if x[0] > 0:
        stats["b"] = x.min()
    return sum(stats.values()) + x, len(stats)


def keys_in_each_trip(x):
    total = 0
    for v in x:
        stats = {}
        if v > 0:
            stats["up"] = v
        else:
            stats["down"], stats["n"] = v, 2.0
        total = total + sum(stats.values()) * len(stats)
    return total


def in_a_branch(x):
    y = x * 0
    if x[1] > 1:
        pair = (1.0, 2.0) if x[0] > 0 else (3.0,)
        y = x * sum(pair)
    return y


def raised_on_one(x):
    step = {"by": 2.0} if x[0] > 0 else {}
    if x[1] < 0:
        raise ValueError("low")
    return x * step.get("by", 5.0)


def _filled(table, x):
    if x.sum() > 0:
        table["a"] = x.max()
    return len(table)


def filled_by_a_function(x):
    table = {}
    count = _filled(table, x)
    return x, count * 10 + len(table)


def caught_on_one(x):
    try:
        step = (2.0, 1.0) if x[0] > 0 else (x[1] / x[0].item(),)
    except ZeroDivisionError:
        step = ()
    return x * sum(step)


def dims_on_one(x):
    total = x.max() if x.sum() > 0 else x
    return total.sum(), total * x


def dims_from_some_trips(x):
    total = torch.tensor(0.0)
    for v in x:
        if v > 0:
            total = total + x * v
    return (total * total).sum()


def right_side_with_dims(x):
    s = x.sum()
    return ((s > 0) and x * 2).sum() * 1.0


@pytest.mark.parametrize(
    "model",
    [
        *(
            classes,
            tuples_of_other_lengths,
            partials,
            texts_and_numbers,
            keys,
            keys_in_each_trip,
            in_a_branch,
        ),
        *(raised_on_one, filled_by_a_function, caught_on_one),
        *(dims_on_one, dims_from_some_trips, right_side_with_dims),
    ],
)
def test_each_path_is_eagers(model):
    check(model, *CASES)


def carried_by_a_loop(x):
    pair = (1.0,)
    while x.sum() > 1:
        pair = (1.0, 2.0) if x[0] > 0 else (3.0,)
        x = x / 2
    return x * sum(pair)


def dims_by_a_loop(x):
    total = torch.tensor(0.0)
    while x.sum() > 1:
        total = total + x
        x = x / 2
    return total.sum()


def too_many(x):
    pair = ()
    for v in [*x, *x, *x, *x]:
        if v > 0:
            pair = (*pair, v)
            pair = {"all": pair} if isinstance(pair, tuple) and len(pair) > 2 else pair
    return len(pair)


@pytest.mark.parametrize(
    ("model", "said"), [(carried_by_a_loop, "is a tuple of"), (dims_by_a_loop, "torch.zeros_like")]
)
def test_what_cannot_be_kept_apart_is_refused_at_its_line(model, said):
    with pytest.raises(ExportFailed, match=said) as caught:
        check(model, *CASES)
    assert caught.value.where is not None
    assert caught.value.where.path.endswith("test_path_scopes.py")


def test_a_scope_is_the_rest_of_a_block():
    (function,) = ast.parse(
        "def f(x):\n    a = 1\n    if x:\n        b = 2\n        c = 3\n    return a"
    ).body
    assert isinstance(function, ast.FunctionDef)
    path_scopes.with_scopes(function, {3, 5})
    assert ast.unparse(function).split() == (
        "def f(x): a = 1 try: if x: b = 2 try: c = 3 finally: pass return a finally: pass".split()
    )
    assert path_scopes.is_scope(function.body[1])
    assert path_scopes.beginning(__file__, classes.__code__.co_firstlineno + 2) == (
        __file__,
        classes.__code__.co_firstlineno + 2,
    )


@dataclass
class Found:
    layer: int
    score: float


class Exits(torch.nn.Module):
    """An object that is None at first, in a loop with a budget, in a `try`: the ways through it multiply."""

    def __init__(self):
        super().__init__()
        self.left = 9

    def decide(self, x):
        best = None
        for i in range(4):
            if self.left <= 0:
                break
            self.left -= 1
            x = x + x.sin()
            score = x.max().item()
            if best is None or score > best.score:
                best = Found(i, score)
            if score > 0.8:
                break
        if best is None:
            raise RuntimeError("none left")
        return best

    def forward(self, x):
        try:
            found = self.decide(x)
        except RuntimeError:
            self.left = 9
            raise
        return found.layer, found.score


def test_too_many_ways_end_the_build_with_the_variable_that_has_them(monkeypatch) -> None:
    exhausted = {}
    too_many = runtime_asserts._too_many_ways
    monkeypatch.setattr(runtime_asserts, "_MOST_REGIONS", 100)

    def noted(*, of_paths: bool) -> Exception:
        exhausted[id(trace.current())] = trace.current()
        return too_many(of_paths=of_paths)

    monkeypatch.setattr(runtime_asserts, "_too_many_ways", noted)
    with pytest.raises(ExportFailed, match="`best` is None on one path and a Found on another") as caught:
        check(Exits(), (torch.ones(4),))
    assert caught.value.where is not None
    # No attempt follows that would have as many.
    assert len(exhausted) == 1
