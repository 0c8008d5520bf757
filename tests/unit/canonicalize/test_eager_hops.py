"""Control-flow ops run as Python: what they give is what torch gives when it compiles them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan

from aotpipe.canonicalize.example_call import uncompiled

X = torch.arange(12.0).reshape(3, 4)

FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "cond": lambda x: torch.cond(x.sum() > 0, lambda a: (a.sin(), a + 1), lambda a: (a.cos(), a - 1), (x,)),
    "while_loop": lambda x: torch.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x)
    ),
    "map": lambda x: torch_map(lambda row, y: (row * y.sum(), row.cos()), x, x + 1),
    "associative_scan": lambda x: associative_scan(
        lambda a, b: (a[0] * b[0], a[1] + b[1]), (x, x + 1), dim=0, combine_mode="generic"
    ),
    "scan of one": lambda x: scan(lambda c, r: (c + r, c * r), x[0], x),
    "scan of several": lambda x: scan(lambda c, r: (c + r, (c * 2, {"sum": r.sum()})), x[0], x, reverse=True),
    "scan of a nested carry": lambda x: scan(
        lambda c, r: ({"a": c["a"] + r, "b": c["b"] * 2}, c["b"] + r),
        {"a": x[:, 0] * 1, "b": x[:, 1] * 1},
        x,
        dim=1,
    ),
    "scan in a cond": lambda x: torch.cond(
        x.sum() > 0, lambda a: scan(lambda c, r: (c + r, (c * 1, r + 1)), a[0] * 1, a)[1][0], torch.sin, (x,)
    ),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_gives_what_the_compiled_op_gives(function: Callable[[torch.Tensor], Any]):
    with uncompiled(), torch.no_grad():
        found = function(X)
    with torch.no_grad():
        torch.testing.assert_close(found, torch.compile(function, backend="eager", fullgraph=True)(X))


def test_bodies_are_called_and_not_compiled():
    iterations: list[int] = []

    def body(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        iterations.append(1)
        return i + 1, x * 2

    with uncompiled():
        _, x = torch.while_loop(lambda i, x: i < 3, body, (torch.tensor(0), torch.ones(2)))
    assert (len(iterations), x.tolist()) == (3, [8, 8])


def test_is_over_at_its_end():
    module = import_module("torch._higher_order_ops.scan")
    before = dict(vars(module))
    with pytest.raises(ZeroDivisionError), uncompiled():
        raise ZeroDivisionError
    assert dict(vars(module)) == before
