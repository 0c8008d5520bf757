"""What the interpreter refuses, the numbers that Python computes in a graph, and the user's lines of ops."""

from pathlib import Path

import jax.numpy as jnp
import pytest
import torch
from torch import fx

from aotpipe import Dim
from aotpipe.backends.xla import lowering
from aotpipe.backends.xla.interpreter import Interpreter, Lines, Refused
from aotpipe.backends.xla.lowering import own_settings
from aotpipe.backends.xla.padding.sizes import Extents
from aotpipe.backends.xla.values import Sizes
from tests.programs import on_xla, through


class Numbers(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        number = n.item()
        return x * number + (number // 2) + max(x.shape[0], 2)


def test_numbers_of_tensors_are_computed_with() -> None:
    on_xla.check(Numbers(), (torch.ones(3), torch.tensor(5)), (torch.ones(3), torch.tensor(8)))


def test_an_op_without_an_entry_is_refused_with_its_node() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.ops.aten.lgamma_.default, (x,))
    graph.output((node,))
    x.meta["val"] = node.meta["val"] = torch.ones(2)
    with own_settings(), pytest.raises(Refused, match="no lowering") as caught:
        Interpreter(Extents(Sizes({}))).run(fx.GraphModule({}, graph), [jnp.ones(2)])
    assert caught.value.node is node


def test_a_fault_in_a_lowering_names_its_node() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.ops.aten.add.Tensor, (x, x))
    graph.output((node,))
    x.meta["val"], node.meta["val"] = torch.ones(2), torch.ones(3)
    with own_settings(), pytest.raises(Refused) as caught:
        Interpreter(Extents(Sizes({}))).run(fx.GraphModule({}, graph), [jnp.ones(2)])
    assert caught.value.node is node
    assert caught.value.__cause__ is not None


class Rounded(torch.nn.Module):
    """A size that Python rounds of another: as static as that one is."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        capacity = int(x.shape[0] * 1.5 / 2)
        return x * capacity, torch.zeros(capacity, 2)


def test_a_size_that_is_rounded_of_sizes_is_known() -> None:
    rows = Dim("rows", min=2, max=16)
    calls = [(torch.arange(float(n)),) for n in (4, 2, 16)]
    on_xla.check(Rounded(), *calls, dynamic_shapes={"x": {0: rows}}, buckets={"rows": (2, 4, 16)})


class Chosen(torch.nn.Module):
    """A number that is one of two sizes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sym_ite(x.shape[0] > 3, x.shape[0] - 1, x.shape[0] + 2)


def test_a_number_that_is_one_of_two_sizes_is_that_of_the_call() -> None:
    rows = Dim("rows", min=2, max=16)
    calls = [(torch.arange(float(n)),) for n in (4, 2, 3, 16)]
    on_xla.check(Chosen(), *calls, dynamic_shapes={"x": {0: rows}}, buckets={"rows": (2, 4, 16)})


class Looping(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()

        def body(v: torch.Tensor) -> tuple[torch.Tensor]:
            return (v.sin() + 1,)

        return torch.while_loop(lambda v: v.sum() > 5, body, (y,))[0]


def test_ops_are_found_in_loops_by_the_line_of_the_loop() -> None:
    program = through.legal(Looping(), (torch.ones(3),), dialect="stablehlo")
    lines = Lines()
    with lowering.own_settings():
        entry = program.entries[0]
        traced = lowering.trace(entry, lowering.bound_of(entry, {}), {}, {}, lines)
        text = lowering.module_of(traced, "cpu").operation.get_asm(enable_debug_info=True)
    own = Path(__file__).read_text(encoding="utf-8").splitlines()
    found = {}
    for line in text.splitlines():
        for op in ("exponential", "sine"):
            if f"stablehlo.{op}" in line:
                mark = line.rpartition("loc(#")[2].rstrip(")")
                name = next(each for each in text.splitlines() if each.startswith(f"#{mark} = "))
                where = lines.find(name)
                assert where is not None
                found[op] = own[where.line - 1].strip()
    assert found == {
        "exponential": "y = x.exp()",
        "sine": "return torch.while_loop(lambda v: v.sum() > 5, body, (y,))[0]",
    }


def test_a_name_without_a_mark_has_no_line() -> None:
    assert Lines().find('loc("jit(forward)/add")') is None
