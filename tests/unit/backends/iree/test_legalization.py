"""CPUs and GPUs share all rules but the form of a convolution; casts to integers go towards zero on all."""

from __future__ import annotations

import math
import operator
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import aotpipe
from aotpipe.backends.iree import legalization
from aotpipe.backends.iree.tuning import (
    bags,
    convolution,
    kernels,
    layouts,
    recurrences,
    row_indices,
    steps_after,
    vector_products,
)
from aotpipe.canonicalize import canonicalize
from aotpipe.export import export
from aotpipe.model.spec import as_spec
from aotpipe.passes import legalize, split_reductions
from aotpipe.passes.decompositions import norm
from tests.unit.passes.ranges.programs import Program, aten

CONVOLUTION = torch.ops.aten.convolution.default


BAGS = (torch.ops.aten._embedding_bag.default, torch.ops.aten._embedding_bag_forward_only.default)


def test_convolutions_bags_what_reads_them_and_long_sums_differ() -> None:
    on_cpu, on_gpu = dict(legalization.CPU.decompositions()), dict(legalization.GPU.decompositions())
    assert on_cpu.pop(CONVOLUTION) is convolution.on_cpu
    assert on_gpu.pop(CONVOLUTION) is convolution.on_gpu
    for op in BAGS:
        assert on_cpu.pop(op) is bags.embedding_bag
        assert on_gpu.pop(op) is norm.embedding_bag
    assert on_cpu == on_gpu
    for field in fields(legalization.CPU):
        if field.name not in ("decompositions", "program_passes", "entry_passes"):
            assert getattr(legalization.CPU, field.name) == getattr(legalization.GPU, field.name)
    assert legalization.CPU.entry_passes == (
        layouts.keep_channels_last,
        vector_products.as_sums,
        kernels.products,
        steps_after.take,
        row_indices.as_rows,
        recurrences.take,
    )
    assert not legalization.GPU.entry_passes
    assert legalization.CPU.program_passes == (*legalization.GPU.program_passes, split_reductions.widen)


X = torch.tensor([1.5, -2.5, 2.999, -0.5, 7.0, 2.5e9])


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.long(), x.clamp(-9, 9).int(), x.floor().long(), x > 0


@pytest.mark.parametrize("target", ["iree-vmvx", "iree-cpu-host"])
def test_as_in_eager(target: str, tmp_path: Path) -> None:
    bundle = aotpipe.build(
        Model().eval(), args=(X,), targets=[target], out=tmp_path / "bundle", latency=False, cache=False
    )
    assert [row.status for row in bundle.report.targets] == ["executed"]


def test_what_is_whole_is_cast_as_it_is() -> None:
    [entry] = legalize(export(canonicalize(as_spec(Model().eval(), args=(X,)))), legalization.CPU).entries
    assert len(entry.graph.graph.find_nodes(op="call_function", target=torch.ops.aten.trunc.default)) == 2


@pytest.mark.parametrize(
    ("op", "dtype", "reason"),
    [
        (aten.relu.default, torch.float32, ""),
        (aten.relu.default, torch.uint16, "uint16"),
        (aten.acos.default, torch.complex64, "complex64"),
        (aten.acos.default, torch.float32, ""),
        (aten.erfinv.default, torch.float32, "no lowering"),
        (aten._linalg_eigh.default, torch.float32, "factors a matrix"),
        (aten.linalg_qr.default, torch.complex64, "real matrices alone"),
    ],
)
def test_ops(op: object, dtype: torch.dtype, reason: str) -> None:
    program = Program()
    program.call(op, program.input((2, 2), dtype=dtype))
    [node] = (each for each in program.module.graph.nodes if each.op == "call_function")
    assert reason in legalization.refusal(node)
    assert bool(legalization.refusal(node)) == bool(reason)


def test_an_op_on_a_dtype_without_a_lowering() -> None:
    program = Program()
    program.call(aten._to_copy.default, program.input((2,), dtype=torch.uint64), dtype=torch.int64)
    [node] = (each for each in program.module.graph.nodes if each.op == "call_function")
    assert "uint64" in legalization.refusal(node)


def test_functions_of_sizes() -> None:
    assert not legalization.size_refusal(operator.getitem)
    assert not legalization.size_refusal(operator.add)
    assert "sizes" in legalization.size_refusal(math.gcd)
