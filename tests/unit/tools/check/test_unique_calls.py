"""Programs with each kind of call once: legalized as the whole is, with all kinds that it has."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from aotpipe import Dim, canonicalize
from aotpipe.backends import legalization
from aotpipe.build.request import Request
from aotpipe.core.stages import Exported
from aotpipe.errors import UnsupportedOps
from aotpipe.export import export
from aotpipe.passes import legalize
from aotpipe.tools.check.attempt import attempt
from aotpipe.tools.check.eager_runs import observe
from aotpipe.tools.check.unique_calls import deduplicated, without_extras

X = torch.linspace(-1.0, 1.0, 8).reshape(2, 4)
DIMS = {"input": {0: Dim("n", min=1, max=8)}}


class Layer(nn.Module):
    def __init__(self, last: bool = False):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.last = last
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        y = self.norm(self.linear(x))
        self.seen.add_(y.detach().mean(0))
        first, second = y.split(2, dim=-1)
        y = torch.cat([first.relu_(), second[:, :1] * 2, second[:, 1:]], dim=-1)
        return x + (torch.linalg.eigvals(y.T @ y).abs() if self.last else y + self.seen)


def exported(*layers: nn.Module) -> Exported:
    return export(canonicalize(nn.Sequential(*layers).eval(), (X,), dynamic_shapes=DIMS))


def test_layers_are_legalized_once_with_the_same_signature():
    whole = exported(*(Layer() for _ in range(5)))
    [entry] = whole.entries
    small = deduplicated(entry)
    assert small is not None
    assert len(small.program.graph.nodes) < 0.6 * len(entry.program.graph.nodes)
    [got] = legalize(replace(whole, entries=(small,)), legalization()).entries
    [want] = legalize(whole, legalization()).entries
    assert without_extras(got.signature) == want.signature
    assert len(want.signature.state) == 5
    kinds = {str(node.target) for node in want.graph.graph.nodes if node.op == "call_function"}
    assert {str(node.target) for node in got.graph.graph.nodes if node.op == "call_function"} == kinds


def test_what_is_refused_in_one_layer_is_found_and_counted_in_the_whole():
    model = nn.Sequential(*(Layer() for _ in range(3)), Layer(last=True), Layer(), Layer(last=True)).eval()
    canonical = canonicalize(model, (X,))
    found = attempt(canonical, {entry.name: observe(entry) for entry in canonical.entries}, Request.of(None))
    [refusal] = found.refusals
    assert isinstance(refusal.error, UnsupportedOps)
    assert [op.count for op in refusal.error.ops] == [2]


def test_a_small_program_and_one_with_branches_are_taken_as_they_are():
    class Branch(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    for layers in ((Layer(),), (*(Layer() for _ in range(5)), Branch())):
        [entry] = exported(*layers).entries
        assert deduplicated(entry) is None
