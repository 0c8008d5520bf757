"""Each promise of a legal entry is checked."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

from aotpipe.core.stages import Legal, LegalEntry
from aotpipe.errors import LowerFailed
from aotpipe.passes import hops
from aotpipe.passes.verify import verify
from tests.unit.passes.legal import legal, model

aten = torch.ops.aten


def _counted(self, x):
    self.count.add_(1)
    return self.linear(x) * self.count


@cache
def _made(forward: Callable[..., torch.Tensor]) -> Legal:
    return legal(model(forward, count=torch.zeros(())), [torch.ones(2, 4)])


def _program(forward: Callable[..., torch.Tensor] = _counted) -> Legal:
    """A copy, which a test may break."""
    made = _made(forward)
    copies = (replace(entry, graph=copy.deepcopy(entry.graph)) for entry in made.entries)
    return replace(made, entries=tuple(copies))


def _no_output(entry: LegalEntry) -> LegalEntry:
    end = entry.graph.graph.output_node()
    end.args = (end.args[0][1:],)
    return entry


def _constant_output(entry: LegalEntry) -> LegalEntry:
    end = entry.graph.graph.output_node()
    end.args = ((1.0, *end.args[0][1:]),)
    return entry


def _list_output(entry: LegalEntry) -> LegalEntry:
    end = entry.graph.graph.output_node()
    end.args = (list(end.args[0]),)
    return entry


def _no_value(entry: LegalEntry) -> LegalEntry:
    node = next(node for node in entry.graph.graph.nodes if str(node.target).startswith("aten.unsqueeze"))
    node.meta.pop("val")
    return entry


def _write(entry: LegalEntry) -> LegalEntry:
    graph = entry.graph.graph
    node = graph.find_nodes(op="placeholder")[-1]
    with graph.inserting_before(graph.output_node()):
        written = graph.call_function(aten.add_.Tensor, (node, 1))
    written.meta["val"] = node.meta["val"]
    return entry


def _more_weights(entry: LegalEntry) -> LegalEntry:
    return replace(entry, weights=(*entry.weights, "linear.weight"))


def _other_dtype(entry: LegalEntry) -> LegalEntry:
    (leaf,) = entry.signature.inputs
    signature = replace(entry.signature, inputs=(replace(leaf, dtype="int64"),))
    return replace(entry, signature=signature)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (_no_output, "results for"),
        (_constant_output, "result 0 is the constant 1.0"),
        (_list_output, "not a tuple"),
        (_no_value, "has no fake value"),
        (_write, "writes to its operands"),
        (_more_weights, "placeholders for"),
        (_other_dtype, "not int64 of rank 2"),
    ],
)
def test_a_broken_promise_is_named(broken: Callable[[LegalEntry], LegalEntry], words: str) -> None:
    program = _program()
    (entry,) = program.entries
    verify(entry, program.weights, program.initial_state)
    with pytest.raises(LowerFailed, match=words):
        verify(broken(entry), program.weights, program.initial_state)


def test_a_missing_weight_is_named() -> None:
    program = _program()
    with pytest.raises(LowerFailed, match=r"linear\.\w+, which is missing"):
        verify(program.entries[0], {}, program.initial_state)


def test_a_disagreement_of_branches_is_named() -> None:
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.linear(x), lambda x: x.sin(), (x,))

    program = legal(model(forward), [torch.ones(2, 4)])
    (entry,) = program.entries
    verify(entry, program.weights, program.initial_state)
    call = next(hops.calls(entry.graph))
    (result,) = hops.output_values(call.subgraphs[0])
    result.meta["val"] = result.meta["val"].to(torch.float64)
    with pytest.raises(LowerFailed, match=r"a branch of cond.* gives .'float64 of rank 2'."):
        verify(entry, program.weights, program.initial_state)


def _branch(self, x):
    return torch.cond(x.sum() > 0, lambda x: x.cos(), lambda x: x.sin(), (x,))


def _loop(self, x):
    return torch.while_loop(lambda x: x.sum() < 9, lambda x: (x + 1,), (x,))[0]


@pytest.mark.parametrize("forward", [_branch, _loop])
def test_a_body_that_takes_another_number_of_values_is_named(forward: Callable[..., torch.Tensor]) -> None:
    program = _program(forward)
    (entry,) = program.entries
    verify(entry, program.weights, program.initial_state)
    body = next(hops.calls(entry.graph)).subgraphs[-1]
    first = hops.placeholders(body)[0]
    with body.graph.inserting_before(first):
        body.graph.placeholder("more").meta["val"] = first.meta["val"]
    with pytest.raises(LowerFailed, match=r"passes (\d) values to a body of (?!\1)\d"):
        verify(entry, program.weights, program.initial_state)


def test_a_loop_that_gives_another_dtype_than_it_takes_is_named() -> None:
    program = _program(_loop)
    (entry,) = program.entries
    (result,) = hops.output_values(next(hops.calls(entry.graph)).subgraphs[1])
    result.meta["val"] = result.meta["val"].to(torch.float64)
    with pytest.raises(LowerFailed, match=r"starts from .*, its body gives .'float64 of rank 2'., the call"):
        verify(entry, program.weights, program.initial_state)


def test_a_size_that_a_decomposition_fixed_is_named() -> None:
    sizes = {"x": {0: torch.export.Dim("rows", min=2, max=9)}}
    program = legal(model(lambda self, x: x * 2), [torch.ones(4, 4)], dynamic_shapes=sizes)
    (entry,) = program.entries
    verify(entry, program.weights, program.initial_state)
    hops.placeholders(entry.graph)[0].meta["val"] = torch.ones(4, 4)
    with pytest.raises(LowerFailed, match="x is of size 4 where rows varies"):
        verify(entry, program.weights, program.initial_state)
