"""Legalizes small models and runs what comes out beside eager."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from aotpipe.backends import legalization
from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.core.signature import TensorSpec
from aotpipe.core.stages import Exported, Legal, LegalEntry
from aotpipe.export import export
from aotpipe.model import spec
from aotpipe.passes import legalize

Inputs = Sequence[Any]


class Holder(torch.nn.Module):
    """A model of a 4x4 linear layer, an embedding of 10 rows, and whatever tests add."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.linear = torch.nn.Linear(4, 4)
        self.table = torch.nn.Embedding(10, 4)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)


def model(forward: Any, **buffers: torch.Tensor) -> torch.nn.Module:
    """A model in eval mode whose forward is a function of the model and its inputs."""
    made = type("Model", (Holder,), {"forward": forward})()
    for name, value in buffers.items():
        made.register_buffer(name, value)
    evaluated: torch.nn.Module = made.eval()
    return evaluated


def exported(module: Any, inputs: Inputs = (), **options: Any) -> Exported:
    return export(canonicalize(spec.as_spec(module, args=tuple(inputs), **options)))


def legal(module: Any, inputs: Inputs = (), **options: Any) -> Legal:
    return legalize(exported(module, inputs, **options), legalization(), cheap=-1)


class Runner:
    """Runs a legal program's graphs with torch, threading its state."""

    def __init__(self, program: Legal) -> None:
        self.program = program
        self.state = {name: value.clone() for name, value in program.initial_state.items()}
        self.asserts: dict[str, bool] = {}

    def __call__(self, inputs: Inputs, entry_point: str | None = None) -> dict[str, torch.Tensor]:
        entry = self.entry(entry_point)
        leaves = [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(copy.deepcopy(tuple(inputs)))]
        weights = [self.program.weights[key] for key in entry.weights]
        state = [self.state[leaf.name] for leaf in entry.signature.state]
        with torch.no_grad():
            results = list(entry.graph(*weights, *state, *leaves))
        outputs, results = _split(results, len(entry.signature.tensor_outputs))
        states, holds = _split(results, len(entry.signature.state))
        self.asserts = dict(zip(entry.asserts, map(bool, holds), strict=True))
        for leaf, value in zip(entry.signature.state, states, strict=True):
            if all(self.asserts.values()) or leaf.name in entry.signature.kept_on_raise:
                self.state[leaf.name] = value.clone()
        return dict(zip([leaf.name for leaf in entry.signature.tensor_outputs], outputs, strict=True))

    def entry(self, name: str | None) -> LegalEntry:
        return next(entry for entry in self.program.entries if name in (None, entry.name))


def _split(values: list[Any], count: int) -> tuple[list[Any], list[Any]]:
    return values[:count], values[count:]


def check(module: Any, *calls: Inputs, **options: Any) -> Legal:
    """Legalize and compare every call with eager: outputs, state, inputs that are written to."""
    program = legal(module, calls[0], **options)
    compare(program, module, *calls)
    return program


def compare(program: Legal, module: Any, *calls: Inputs) -> None:
    run, eager = Runner(program), copy.deepcopy(module)
    (entry,) = program.entries
    for inputs in calls:
        given = copy.deepcopy(tuple(inputs))
        with torch.no_grad(), uncompiled():
            wanted = pytree.tree_leaves(eager(*given), is_leaf=lambda leaf: leaf is None)
        found = run(inputs)
        for leaf, value in zip(entry.signature.outputs, wanted, strict=False):
            if isinstance(leaf, TensorSpec):
                torch.testing.assert_close(
                    found[leaf.name], torch.as_tensor(value), check_stride=False, check_dtype=False
                )
                assert str(found[leaf.name].dtype) == f"torch.{leaf.dtype}"
            else:
                assert leaf.value == value
        for leaf, value in zip(entry.signature.tensor_inputs, pytree.tree_leaves(given), strict=True):
            if f"mutated.{leaf.name}" in found:
                torch.testing.assert_close(found[f"mutated.{leaf.name}"], value)
        _compare_state(run.state, eager)
        assert all(run.asserts.values()), run.asserts


def _compare_state(state: Mapping[str, torch.Tensor], eager: Any) -> None:
    buffers = dict(eager.named_buffers()) if isinstance(eager, torch.nn.Module) else {}
    for name, value in state.items():
        torch.testing.assert_close(value, buffers[name])


def targets(program: Legal) -> set[str]:
    """The names of all ops of a program."""
    return {
        str(node.target)
        for entry in program.entries
        for module in entry.graph.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if node.op == "call_function"
    }
