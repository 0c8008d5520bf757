"""Decomposing by a table gives what torch's own `run_decompositions` gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram

from aotpipe.backends import legalization
from aotpipe.passes import decompositions
from tests.sweep import sweep

# torch's tracing warns of its own deprecated calls.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

aten = torch.ops.aten
CORE: dict[Any, Callable[..., Any]] = dict(torch.export.default_decompositions().items())
TABLES = {
    "torch": CORE,
    "iree": legalization().decompositions(),
    "none": {},
    # A composite op that a table leaves out stays, and one with an entry is decomposed by it.
    "no linear": {op: entry for op, entry in CORE.items() if op is not aten.linear.default},
    "own linear": {**CORE, aten.linear.default: lambda x, weight, bias=None: x @ weight.t() * 2},
}


class Mixed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.seen.add_(1)  # type: ignore[operator]
        y = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        z = torch.cond(flag, lambda a: self.linear(a), lambda a: a.square().std(-1, keepdim=True) * a, (x,))
        return y, z.flatten(1), torch.einsum("bij,bkj->bik", x, z), x.expand_as(y).chunk(2, -1)[0]


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    return torch.export.export(
        Mixed(), (torch.randn(2, 3, 4), torch.tensor(True)), dynamic_shapes=({0: torch.export.Dim.AUTO}, {})
    )


# The tables of "no linear" and "own linear" are torch's but for one op, and the last test has one that stays.
@pytest.mark.parametrize("name", sweep(TABLES, quick=0, always=("iree", "own linear")))
def test_it_is_what_torch_gives(program: ExportedProgram, name: str) -> None:
    found = decompositions.decompose(program, TABLES[name])
    want = program.run_decompositions(dict(TABLES[name]))
    assert found.graph_module.print_readable(print_output=False) == want.graph_module.print_readable(
        print_output=False
    )
    assert found.graph_signature == want.graph_signature
    assert found.range_constraints == want.range_constraints
    assert ("aten.linear" in str(found)) == (name in ("none", "no linear"))


def test_a_composite_op_that_a_library_registers_later_stays() -> None:
    decompositions.decompose(torch.export.export(torch.nn.ReLU(), (torch.randn(2),)), CORE)
    # The second takes the place of the first, so that there are no more ops than before.
    for name in ("registered_late", "registered_last"):
        library = torch.library.Library(name, "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
        twice = getattr(torch.ops, name).twice

        class Calls(torch.nn.Module):
            def forward(self, x: torch.Tensor, twice: Any = twice) -> torch.Tensor:
                return twice(x)

        program = torch.export.export(Calls(), (torch.randn(2),))
        found = decompositions.decompose(program, CORE)
        assert [node.target for node in found.graph.nodes if node.op == "call_function"] == [
            node.target
            for node in program.run_decompositions(dict(CORE)).graph.nodes
            if node.op == "call_function"
        ]
        library._destroy()
