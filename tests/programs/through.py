"""Takes a model through every stage to a program, and compares the program with eager."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from aotpipe.backends import legalization
from aotpipe.backends.iree.compile import compiler
from aotpipe.backends.iree.lower import importer
from aotpipe.canonicalize import canonicalize
from aotpipe.canonicalize.example_call import uncompiled
from aotpipe.core.stages import Dialect, Legal, Lowered
from aotpipe.core.targets import Target
from aotpipe.export import export
from aotpipe.model import spec
from aotpipe.model.torch_arrays import view_numpy
from aotpipe.passes import legalize
from aotpipe.runtime.iree import devices, runtime
from aotpipe.runtime.loading import Runner
from tests.programs import compile_text, once_a_run

Call = tuple[Any, ...]
ROOT = Path(__file__).parents[2]


def legal(module: torch.nn.Module, inputs: Call, *, dialect: Dialect = "torch", **options: Any) -> Legal:
    """The legal program of a model, called as a Spec's entry point is; a cheap `cond` stays one."""
    forget_traces()
    return legalize(
        export(canonicalize(spec.as_spec(module.eval(), args=inputs, **options))),
        legalization(dialect),
        cheap=-1,
    )


def forget_traces() -> None:
    """Let no earlier trace count: after several, torch takes its own integers for dynamic and fails."""
    torch.compiler.reset()


def load(program: Legal, lowered: Lowered, backend: str = "llvm-cpu") -> runtime.Runner:
    """Compile a lowered program and load it with its weights."""
    return load_payload(program, compile_text(lowered.module.decode(), backend), "local-sync")


def require_vulkan() -> None:
    """Skip the test where nothing runs Vulkan's programs; said first, it saves the export."""
    if reason := devices.why_unavailable("vulkan"):
        pytest.skip(reason)


def load_on_vulkan(program: Legal) -> runtime.Runner:
    """Compile a program for Vulkan as a build does, and load it; skips the test where nothing runs it."""
    require_vulkan()
    lowered = importer.lower(program)
    payload = once_a_run(
        ("load_on_vulkan", lowered.module.decode()),
        lambda _: compiler.compile(lowered, Target.parse("iree-vulkan")).payload,
    )
    return load_payload(program, payload, "vulkan")


def load_payload(program: Legal, payload: bytes, driver: str) -> runtime.Runner:
    """Load a compiled program with its weights."""
    return runtime.load(
        payload,
        signatures={entry.name: entry.signature for entry in program.entries},
        weights={key: view_numpy(value) for key, value in program.weights.items()},
        initial_state={key: view_numpy(value) for key, value in program.initial_state.items()},
        driver=driver,
        asserts={entry.name: entry.asserts for entry in program.entries},
    )


def check(module: torch.nn.Module, *calls: Call, backend: str = "llvm-cpu", **options: Any) -> Lowered:
    """Compare program and eager over calls, of which the first is the example input."""
    program = legal(module, calls[0], **options)
    lowered = importer.lower(program)
    with load(program, lowered, backend) as runner:
        for call in calls:
            compare(runner, program, module, call)
    return lowered


class Together(torch.nn.Module):
    """Several models of the same inputs as one: an export and a compile cost more than what is in them."""

    def __init__(self, models: Iterable[torch.nn.Module]) -> None:
        super().__init__()
        self.models = torch.nn.ModuleList(models)

    def forward(self, *inputs: torch.Tensor) -> list[Any]:
        return [model(*inputs) for model in self.models]


def compare(runner: Runner, program: Legal, module: torch.nn.Module, call: Call) -> None:
    """Compare one call: dtypes, shapes, integers and bools exactly, floats closely."""
    with torch.no_grad(), uncompiled():
        expected = [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(module(*copy.deepcopy(call)))]
    signature = program.entries[0].signature
    leaves = [view_numpy(torch.as_tensor(leaf)) for leaf in pytree.tree_leaves(call)]
    names = [leaf.name for leaf in signature.tensor_inputs]
    outputs = runner.infer(dict(zip(names, leaves, strict=True)))
    wanted = {leaf.name for leaf in signature.tensor_outputs if not leaf.name.startswith("mutated.")}
    got = [value for name, value in outputs.items() if name in wanted]
    for value, reference in zip(got, map(view_numpy, expected), strict=True):
        assert (value.dtype, value.shape) == (reference.dtype, reference.shape)
        if reference.dtype.kind in "biu":
            np.testing.assert_array_equal(value, reference)
        else:
            tolerance = {2: 3e-2, 4: 1e-4}.get(reference.real.dtype.itemsize, 1e-9)
            wide = np.complex128 if reference.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(
                value.astype(wide), reference.astype(wide), rtol=tolerance, atol=tolerance
            )
