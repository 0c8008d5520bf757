"""Bodies of wrapper ops stand in place of their calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.strict_mode import strict_mode
from torch._higher_order_ops.wrap import wrap
from torch.utils.checkpoint import checkpoint

from aotpipe.passes import hops, wrapper_ops
from tests.unit.passes.legal import check, exported, model, targets

X = torch.linspace(-1.0, 2.0, 12).reshape(3, 4)


def _hinted(self, x):
    return hints_wrapper(lambda x: x.sin() + 1, (x,), {}, hints={"fast": True})


def _strict(self, x):
    return strict_mode(lambda x: self.linear(x) + 1, (x,))


def _wrapped(self, x):
    return wrap(lambda x: self.linear(x) + 1, x)


def _region(self, x):
    @torch.compiler.nested_compile_region
    def region(x):
        y = x.clone()
        y.add_(1)
        return self.linear(y), y

    first, second = region(x)
    return first + region(second)[0]


def _checkpointed(self, x):
    return checkpoint(lambda x: self.linear(x).relu(), x, use_reentrant=False)


def _no_grad(self, x):
    with torch.no_grad():
        y = x * 2
    with torch.enable_grad():
        return self.linear(y)


def _autocast(self, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = self.linear(x)
    return y, self.linear(x)


def _branch_in_a_wrapper(self, x):
    return strict_mode(lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)), (x,))


@pytest.mark.parametrize(
    "forwards",
    [[_hinted, _strict, _wrapped, _region, _branch_in_a_wrapper], [_checkpointed, _no_grad, _autocast]],
    ids=["bodies", "modes"],
)
def test_numbers_are_eagers(forwards: list[Any]) -> None:
    program = check(model(lambda self, x: [forward(self, x) for forward in forwards]), [X], [-X])
    assert not targets(program) & {"strict_mode", "hints_wrapper", "wrap", "invoke_subgraph"}


def test_inline_leaves_the_program_as_it_was() -> None:
    (entry,) = exported(model(_strict), [X]).entries
    text = str(entry.program)
    inlined = wrapper_ops.inline(entry.program)
    assert str(entry.program) == text
    assert torch.equal(inlined.module()(X), entry.program.module()(X))
    assert len(list(hops.walk(inlined.graph_module))) == 1


def test_a_program_without_wrappers_is_given_back() -> None:
    (entry,) = exported(model(lambda self, x: x + 1), [X]).entries
    assert wrapper_ops.inline(entry.program) is entry.program
